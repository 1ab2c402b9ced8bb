//! The conformance suite and the stories on the plain layout of a real Redis.

mod immortals;

use std::sync::Arc;

use immortals::immortals;
use lockstep_lock::store::Connect;
use lockstep_redis::Redis;
use lockstep_testkit::suite::{self, Fact, Subject};
use lockstep_testkit::{servers, stories};

fn connect(url: &str) -> anyhow::Result<Arc<dyn Connect>> {
    Ok(Arc::new(Redis::from_url(url)?))
}

fn plain(tenant: &str) -> Subject {
    let prefix = format!("plain-{tenant}-{}:", std::process::id());
    let url = format!("{}/?layout=plain&prefix={prefix}", servers::redis_url());
    let store = connect(&url).expect("a good URL");
    Subject::new("redis-plain", move || store.clone())
        .with_processes(url, "story_child")
        .with_orphan_check(move || Box::pin(immortals(format!("{prefix}*"))))
        .with_breaks_heard_late()
        .without(&[Fact::Fencing, Fact::Fair, Fact::Shared, Fact::Deadlocks, Fact::Particulars])
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    suite::run(&plain("suite")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_through_the_stories() {
    stories::run(&plain("story")).await.assert_passed();
}

#[test]
fn story_child() {
    stories::child::act(connect);
}
