//! The conformance suite and the stories on five Redis servers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, LazyLock};

use lockstep_lock::store::Connect;
use lockstep_redis::Redlock;
use lockstep_testkit::servers::{ClockShim, RedisOptions, RedisServer};
use lockstep_testkit::stories;
use lockstep_testkit::suite::{self, Fact, Subject};

/// Their clocks are set right after they have started, so that they seem to have run for as long as it takes
/// to vote. (That this is possible is one of the things that the guide says Redlock cannot know.)
static NODES: LazyLock<Vec<RedisServer>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let shim = ClockShim::build(folder.path()).unwrap();
    let clock = shim.clock_file(folder.path().join("clock")).unwrap();
    clock.set(-120_000).unwrap();
    let options = RedisOptions {
        preload: Some(shim.so.clone()),
        env: vec![clock.env()],
        ..RedisOptions::default()
    };
    let start = |_| RedisServer::start(options.clone());
    let nodes = (0..5).map(start).collect::<Result<_, _>>().unwrap();
    clock.set(0).unwrap();
    nodes
});

fn connect(url: &str) -> anyhow::Result<Arc<dyn Connect>> {
    Ok(Arc::new(Redlock::from_url(url)?))
}

fn redlock(tenant: &str) -> Subject {
    let prefix = format!("{tenant}-{}:", std::process::id());
    let hosts: Vec<String> =
        NODES.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    // A machine that does everything at once is slow, and not what is tested.
    let url = format!("redlock://{}/?prefix={prefix}&node_timeout=2s", hosts.join(","));
    let store = connect(&url).unwrap();
    Subject::new("redlock", move || store.clone())
        .with_processes(url, "story_child")
        .with_orphan_check(move || {
            let pattern = format!("{prefix}*");
            Box::pin(async move { immortals(&pattern) })
        })
        .with_breaks_heard_late()
        .without(&[Fact::Fencing, Fact::Fair, Fact::Shared, Fact::Deadlocks, Fact::Particulars])
        .with_parallel(6)
}

/// Keys without an expiry on any node: a crash would leave them for ever.
fn immortals(pattern: &str) -> anyhow::Result<Vec<String>> {
    let mut found = vec![];
    for node in NODES.iter() {
        for key in node.ask(&["KEYS", pattern])?.lines().filter(|line| line.contains(':')) {
            if node.ask(&["PTTL", key])? == ":-1\r\n" {
                found.push(format!("{key} on port {}", node.port()));
            }
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    suite::run(&redlock("suite")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_through_the_stories() {
    stories::run(&redlock("story")).await.assert_passed();
}

#[test]
fn story_child() {
    stories::child::act(connect);
}
