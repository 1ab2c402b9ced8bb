//! Clocks of nodes that are stepped: keys end early. A handle that watched refuses the nodes that jumped.

use std::time::Duration;

use lockstep_redis::redlock::standing::Guards;
use lockstep_testkit::servers::{ClockShim, Persistence, RedisOptions, RedisServer, SkewedClock};
use tempfile::TempDir;

use super::cluster::{Client, Cluster, overlaps, told};

const TTL: Duration = Duration::from_secs(15);
const NO_WATCH: Guards = Guards { clock_watch: false, ..Guards::UP };

/// Five nodes, of which C, D and E have a clock that can be stepped.
fn stepped() -> (Cluster, SkewedClock, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let shim = ClockShim::build(folder.path()).unwrap();
    let clock = shim.clock_file(folder.path().join("clock")).unwrap();
    let durable = RedisOptions { persistence: Persistence::AppendOnly, ..RedisOptions::default() };
    let skewed =
        RedisOptions { preload: Some(shim.so.clone()), env: vec![clock.env()], ..durable.clone() };
    let start = |n| RedisServer::start(if n < 2 { durable.clone() } else { skewed.clone() });
    let nodes = (0..5).map(|n| start(n).unwrap()).collect();
    (Cluster { nodes }, clock, folder)
}

/// Steps the clocks, and lets the last reading of them grow old: a step is noticed by the next reading, and
/// who asks many times in a moment does not read each time.
async fn step(clock: &SkewedClock, millis: i64) {
    clock.set(millis).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
}

fn assert_names_the_three(told: &str, cluster: &Cluster) {
    for node in &cluster.nodes[2..] {
        let named = format!("127.0.0.1:{}: its clock jumped by +20", node.port());
        assert!(told.contains(&named), "{told}");
    }
    assert!(!told.contains(&cluster.nodes[0].port().to_string()), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_watched_refuses_nodes_whose_clocks_were_stepped_before_it_asks() {
    let (cluster, clock, _folder) = stepped();
    let client = Client::open("one", &cluster.url(""), Guards::UP, TTL).await;
    step(&clock, 20_000).await;
    assert_names_the_three(&told(client.takes().await), &cluster);
    cluster.nothing_is_left().await;
    // Nor back again: that is another jump.
    step(&clock, 0).await;
    assert!(told(client.takes().await).contains("jumped"));
    cluster.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_watched_makes_no_second_holder_when_clocks_are_stepped_during_a_hold() {
    let (cluster, clock, _folder) = stepped();
    let first = Client::open("client 1", &cluster.url(""), Guards::UP, TTL).await;
    let second = Client::open("client 2", &cluster.url(""), Guards::UP, TTL).await;
    let (_attempt, guard) = first.takes().await.unwrap().unwrap();
    cluster.all_have_it().await;
    step(&clock, 20_000).await;
    let holders = cluster.holders();
    assert_eq!(holders[2..], [None, None, None], "their keys have ended early");
    assert_names_the_three(&told(second.takes().await), &cluster);
    assert!(guard.is_trusted(), "or this proves nothing");
    assert_eq!(overlaps(&[&first, &second]), 0);
    // The holder hears of it at its next renewal.
    guard.lost().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_watch_there_are_two_holders() {
    let (cluster, clock, _folder) = stepped();
    let first = Client::open("client 1", &cluster.url(""), Guards::UP, TTL).await;
    let second = Client::open("client 2", &cluster.url(""), NO_WATCH, TTL).await;
    let (_first, guard) = first.takes().await.unwrap().unwrap();
    cluster.all_have_it().await;
    step(&clock, 20_000).await;
    let (_second, other) = second.takes().await.unwrap().expect("C, D and E are three");
    assert!(guard.is_trusted() && other.is_trusted());
    assert_eq!(overlaps(&[&first, &second]), 1, "the oracle must see it");
}

/// What remains possible, and the facts say so: who meets the nodes after the step cannot know of it.
#[tokio::test(flavor = "multi_thread")]
async fn who_meets_stepped_clocks_for_the_first_time_is_fooled() {
    let (cluster, clock, _folder) = stepped();
    let first = Client::open("client 1", &cluster.url(""), Guards::UP, TTL).await;
    let (_first, guard) = first.takes().await.unwrap().unwrap();
    cluster.all_have_it().await;
    step(&clock, 20_000).await;
    let second = Client::open("client 2", &cluster.url(""), Guards::UP, TTL).await;
    let (_second, other) = second.takes().await.unwrap().expect("nobody told it");
    assert!(guard.is_trusted() && other.is_trusted());
    assert_eq!(overlaps(&[&first, &second]), 1);
    assert!(second.locks.facts().two_holders_if.contains("for the first time"));
}
