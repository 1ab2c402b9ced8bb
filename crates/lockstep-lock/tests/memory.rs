//! The conformance suite and the stories on the memory store.

use std::sync::Arc;

use lockstep_lock::memory::Memory;
use lockstep_lock::{LockError, Locks, Options};
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

/// A fence that takes nothing smaller than the largest token it has seen would otherwise make readers
/// refuse each other. The rule of `queue.rs`; stores that order by creation cannot follow it.
#[tokio::test]
async fn readers_that_hold_together_have_one_token() -> Result<(), LockError> {
    let locks = Locks::open_with(Arc::new(Memory::new()), Options::default()).await?;
    let (one, two) = (locks.read("book").await?, locks.read("book").await?);
    assert_eq!(one.token(), two.token());
    Ok(())
}
