//! The conformance suite and the stories on a real Redis.

mod immortals;

use std::sync::Arc;

use immortals::immortals;
use lockstep_lock::store::Connect;
use lockstep_redis::Redis;
use lockstep_testkit::suite::{self, Subject};
use lockstep_testkit::{servers, stories};

fn connect(url: &str) -> anyhow::Result<Arc<dyn Connect>> {
    Ok(Arc::new(Redis::from_url(url)?))
}

fn redis(tenant: &str) -> Subject {
    let url = format!("{}/?prefix={tenant}-{}", servers::redis_url(), std::process::id());
    let keys = format!("{tenant}-{}:*", std::process::id());
    let store = connect(&url).expect("a good URL");
    Subject::new("redis", move || store.clone())
        .with_processes(url, "story_child")
        .with_orphan_check(move || Box::pin(immortals(keys.clone())))
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    suite::run(&redis("suite")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_through_the_stories() {
    stories::run(&redis("story")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_end_with_their_connection_conform() {
    let server = servers::redis_url();
    let url = format!("{server}/?prefix=bound-{}&on_disconnect=release", std::process::id());
    let store = connect(&url).expect("a good URL");
    let subject =
        Subject::new("redis-bound", move || store.clone()).with_processes(url, "story_child");
    stories::holder_killed_and_replaced_at_once(&subject).await.unwrap();
    suite::run(&subject).await.assert_passed();
}

#[test]
fn story_child() {
    stories::child::act(connect);
}
