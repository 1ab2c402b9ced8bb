//! The conformance suite and the stories on real ZooKeepers.

use std::sync::Arc;

use lockstep_lock::store::Connect;
use lockstep_testkit::servers::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};
use lockstep_testkit::stories;
use lockstep_testkit::suite::{self, Fact, Subject};
use lockstep_zookeeper::ZooKeeper;

fn connect(url: &str) -> anyhow::Result<Arc<dyn Connect>> {
    Ok(Arc::new(ZooKeeper::from_url(url)?))
}

/// Every client of the suite speaks through one engine, because its cases let one client ask about the
/// claim of another; other processes have their own.
fn subject(name: &str, url: String) -> Subject {
    let store = connect(&url).expect("a good URL");
    Subject::new(name, move || store.clone())
        .with_processes(url, "story_child")
        .with_breaks_heard_late()
        .without(&[Fact::HandOver])
}

fn one() -> ZooKeeperServer {
    ZooKeeperServer::start(ZooKeeperOptions::default()).expect("a private ZooKeeper")
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let server = one();
    suite::run(&subject("zookeeper", server.url())).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_through_the_stories() {
    let server = one();
    stories::run(&subject("zookeeper", server.url())).await.assert_passed();
}

/// One node for which everybody waits: neither order nor shares, and what is claimed holds.
#[tokio::test(flavor = "multi_thread")]
async fn the_basic_layout_conforms_to_what_it_claims() {
    let server = one();
    let subject = subject("zookeeper-basic", format!("{}?layout=basic", server.url())).without(&[
        Fact::Fair,
        Fact::Shared,
        Fact::Deadlocks,
        Fact::Particulars,
    ]);
    suite::run(&subject).await.assert_passed();
    stories::run(&subject).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_conform() {
    let ensemble = ZooKeeperEnsemble::start(&ZooKeeperOptions::default()).expect("an ensemble");
    // Three servers on the machine of the test itself: not all cases at once.
    let subject = subject("zookeeper-three", ensemble.url()).with_parallel(3);
    suite::run(&subject).await.assert_passed();
    stories::run(&subject).await.assert_passed();
}

#[test]
fn story_child() {
    stories::child::act(connect);
}
