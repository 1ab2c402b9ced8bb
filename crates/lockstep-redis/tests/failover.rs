//! The story of the primary that fails over without having replicated: two holders are possible,
//! the facts say so, and they claim no more for the tokens than is true.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use lockstep_lock::{Fencing, Guard, Locks, Need};
use lockstep_redis::Redis;
use lockstep_testkit::servers::{ClockShim, RedisOptions, RedisServer};

/// Holds `ledger` on a primary, loses the primary, and takes `ledger` on the replica that never
/// heard of it and whose clock is `skew_ms` off. Returns both guards while both are trusted.
async fn fail_over(skew_ms: i64) -> (Guard, Guard, Locks) {
    let folder = tempfile::tempdir().unwrap();
    let shim = ClockShim::build(folder.path()).unwrap();
    let clock = shim.clock_file(folder.path().join("clock")).unwrap();
    clock.set(skew_ms).unwrap();
    let mut primary = RedisServer::start(RedisOptions::default()).unwrap();
    let replica = RedisServer::start(RedisOptions {
        replica_of: Some(primary.port()),
        preload: Some(shim.so.clone()),
        env: vec![clock.env()],
        ..RedisOptions::default()
    })
    .unwrap();
    replica.wait_in_sync().unwrap();
    // From here on nothing reaches the replica: what the primary acknowledges is its own secret.
    replica.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();

    let before = Locks::open(Redis::from_url(&primary.url()).unwrap()).await.unwrap();
    let old = before.lock("ledger").await.unwrap();
    primary.kill().unwrap();
    let after = Locks::open(Redis::from_url(&replica.url()).unwrap()).await.unwrap();
    let new = after.lock("ledger").await.unwrap();
    assert!(old.is_trusted() && new.is_trusted(), "this is what asynchronous replication means");
    (old, new, after)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_holders_are_possible_and_the_tokens_tell_them_apart() {
    let (old, new, locks) = fail_over(0).await;
    assert!(new.token() > old.token(), "with clocks in step the newer holder has the larger token");
    assert!(locks.facts().two_holders_if.contains("failover"));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_clock_behind_the_order_is_lost_and_nobody_claimed_it() {
    let (old, new, locks) = fail_over(-5_000).await;
    assert_ne!(old.token(), new.token(), "even so no token is given twice");
    assert!(new.token() < old.token(), "the replica's clock is behind by more than the hand-over");
    assert_eq!(locks.facts().fencing, Fencing::ClockBound);
    assert!(locks.require(Need::Fencing(Fencing::Strong)).is_err(), "so nobody may rely on it");
}
