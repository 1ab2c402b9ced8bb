//! Nodes that are dead, slow, replaced, or the same.

use std::time::Duration;

use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::{Fencing, LockError, Locks, Need};
use lockstep_redis::Redlock;
use lockstep_redis::redlock::standing::Guards;
use lockstep_testkit::proxy::{Fault, Match};
use lockstep_testkit::servers::{Persistence, RedisOptions, RedisServer};

use super::cluster::{Client, Cluster, KEY, overlaps, told};

const TTL: Duration = Duration::from_secs(50);

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_may_be_dead_and_three_may_not() {
    let mut cluster = Cluster::durable();
    let client = Client::open("one", &cluster.url(""), Guards::UP, TTL).await;
    let other = Client::open("other", &cluster.url(""), Guards::UP, TTL).await;
    for dead in 0..5 {
        cluster.nodes[dead].kill().unwrap();
        let got = client.takes().await;
        if dead < 2 {
            let (mut attempt, guard) = got.unwrap().expect("a quorum is alive");
            assert!(other.takes().await.unwrap().is_none(), "{dead}");
            attempt.releases(&guard);
            guard.release().await.unwrap();
            continue;
        }
        let told = told(got);
        assert!(told.contains("3 of 5"), "{told}");
        // As many as it takes to know; it does not wait for more.
        let is_named = |node: &&RedisServer| told.contains(&format!("127.0.0.1:{}", node.port()));
        assert_eq!(cluster.nodes[..=dead].iter().filter(is_named).count(), 3, "{told}");
        assert_eq!(cluster.nodes[dead + 1..].iter().filter(is_named).count(), 0, "{told}");
    }
    let store = Redlock::from_url(&cluster.url("")).unwrap();
    let error = Locks::open(store).await.err().unwrap().to_string();
    assert!(error.contains("3 of 5") && error.contains("connection refused"), "{error}");
    assert_eq!(overlaps(&[&client, &other]), 0);
    for node in &mut cluster.nodes {
        node.restart().unwrap();
    }
    let mut got = client.takes().await;
    for _ in 0..200 {
        if got.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        got = client.takes().await;
    }
    got.unwrap().expect("they are back").1.release().await.unwrap();
    cluster.nothing_is_left().await;
}

/// A node that stands still is not waited for, and gives back what it took when it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_node_is_not_waited_for() {
    let mut cluster = Cluster::durable();
    let client = Client::open("one", &cluster.url("node_timeout=10s"), Guards::UP, TTL).await;
    cluster.nodes[4].pause().unwrap();
    let started = SystemClock.now();
    let (_, guard) = client.takes().await.unwrap().expect("four of five answer");
    guard.release().await.unwrap();
    let took = SystemClock.now().since(started);
    assert!(took < Duration::from_secs(10), "it was not waited for: {took:?}");
    // With two dead it is needed; then it is waited for, and named.
    cluster.nodes[0].kill().unwrap();
    cluster.nodes[1].kill().unwrap();
    let hasty = Redlock::from_url(&cluster.url("node_timeout=100ms")).unwrap();
    let error = Locks::open(hasty).await.err().unwrap().to_string();
    assert!(error.contains(&cluster.nodes[4].port().to_string()), "{error}");
    cluster.nodes[4].resume().unwrap();
    for node in [0, 1] {
        cluster.nodes[node].restart().unwrap();
    }
    cluster.nothing_is_left().await;
}

/// Answers that come after the lease: no grant, and nothing stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_ttl_that_is_spent_while_asking_is_no_grant() {
    let cluster = Cluster::durable();
    let ways = cluster.ways();
    let ttl = Duration::from_secs(1);
    let client = Client::open("one", &ways.url("node_timeout=10s"), Guards::UP, ttl).await;
    for way in &ways.0[..3] {
        way.rule(Match::command("SET").with_arg(KEY), Fault::DelayReply(ttl)).always();
    }
    let told = told(client.takes().await);
    assert!(told.contains("did not answer in time"), "{told}");
    cluster.nothing_is_left().await;
}

/// A primary that fails over without having replicated (on a single Redis two holders: `failover.rs`). C's
/// replica takes over C's address, and knows nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_forgets_does_not_make_two_holders() {
    let mut cluster = Cluster::durable();
    let options = RedisOptions {
        replica_of: Some(cluster.nodes[2].port()),
        persistence: Persistence::AppendOnly,
        ..RedisOptions::default()
    };
    let replica = RedisServer::start(options).unwrap();
    replica.wait_in_sync().unwrap();
    replica.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    // Long enough to be another server for sure, and not one that was just started.
    super::cluster::eventually("the replica has run for a while", || {
        let info = replica.ask(&["INFO", "server"]).unwrap();
        let up = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        up.unwrap().parse::<u64>().unwrap() >= 4
    })
    .await;

    let second = Client::open("client 2", &cluster.url(""), Guards::UP, TTL).await;
    let ways = cluster.ways();
    let first = Client::open("client 1", &ways.url(""), Guards::UP, TTL).await;
    ways.0[3].partition();
    ways.0[4].partition();
    let (_attempt, guard) = first.takes().await.unwrap().expect("A, B and C");
    let port = cluster.nodes[2].port().to_string();
    cluster.nodes[2].kill().unwrap();
    assert_eq!(replica.ask(&["CONFIG", "SET", "port", &port]).unwrap(), "+OK\r\n");
    assert_eq!(cluster.nodes[2].ask(&["EXISTS", KEY]).unwrap(), ":0\r\n", "it has forgotten");

    for _ in 0..20 {
        assert!(second.takes().await.unwrap().is_none(), "C is another server than before");
    }
    assert!(guard.is_trusted(), "or this proves nothing");
    assert_eq!(overlaps(&[&first, &second]), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_server_are_one_vote() {
    let options = RedisOptions { persistence: Persistence::AppendOnly, ..RedisOptions::default() };
    let one = RedisServer::start(options.clone()).unwrap();
    let other = RedisServer::start(options).unwrap();
    let (one, other) = (one.port(), other.port());
    let url = format!("redlock://127.0.0.1:{one},localhost:{one},127.0.0.1:{other}");
    let client = Client::open("one", &url, Guards::UP, TTL).await;
    let warnings = client.locks.facts().warnings.join("\n");
    assert!(warnings.contains(&format!("localhost:{one} does not count")), "{warnings}");
    let (_, guard) = client.takes().await.unwrap().expect("two of three");
    guard.release().await.unwrap();
    let url = format!("redlock://127.0.0.1:{one},localhost:{one}");
    let client = Client::open("one", &url, Guards::UP, TTL).await;
    let told = told(client.takes().await);
    assert!(told.contains("the same server"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_claims_no_fencing_and_no_longer_ttl_than_all_agreed_on() {
    let cluster = Cluster::durable();
    let client = Client::open("one", &cluster.url("max_ttl=20s"), Guards::UP, TTL).await;
    let facts = client.locks.facts();
    assert_eq!((facts.fencing, facts.fair, facts.ttl_max), (Fencing::None, false, TTL * 2 / 5));
    assert!(facts.two_holders_if.contains("clocks"));
    assert!(client.locks.require(Need::Fencing(Fencing::ClockBound)).is_err());
    let refused = client.takes().await.err().expect("50 s are more than 20 s");
    assert!(matches!(refused, LockError::Ttl { .. }), "{refused}");
}

/// Somebody else has three nodes, and two have not noticed yet: who gives back what those two have has held
/// nothing any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_minority_has_was_not_held() {
    let cluster = Cluster::durable();
    let client = Client::open("client 1", &cluster.url(""), Guards::UP, TTL).await;
    let (_attempt, guard) = client.takes().await.unwrap().unwrap();
    cluster.all_have_it().await;
    for node in &cluster.nodes[2..] {
        assert_eq!(node.ask(&["SET", KEY, "somebody else"]).unwrap(), "+OK\r\n");
    }
    let released = guard.release().await;
    assert!(matches!(released, Err(LockError::NotHeld { .. })), "{released:?}");
    let theirs = Some("somebody else".to_owned());
    let all_given_back = || cluster.holders()[..2] == [None, None];
    super::cluster::eventually("its own are given back", all_given_back).await;
    assert_eq!(cluster.holders()[2..], [theirs.clone(), theirs.clone(), theirs]);
}
