//! The conformance suite and the stories on the memory store.

use std::sync::Arc;

use lockstep_lock::memory::Memory;
use lockstep_testkit::stories;
use lockstep_testkit::suite::{self, Subject};

fn memory() -> Subject {
    let store = Memory::new();
    Subject::new("memory", move || Arc::new(store.clone())).with_parallel(32)
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    suite::run(&memory()).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_through_the_stories() {
    stories::run(&memory()).await.assert_passed();
}
