//! What waiting costs the store and the other waiters.

use anyhow::Result;
use futures_util::future::try_join_all;

use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, soon};
use crate::wrap::Counts;

cases! { Signals:
    one_release_wakes_one backs Push Fair;
}

async fn one_release_wakes_one(env: Env) -> Result<()> {
    let (name, key) = (env.name("herd"), env.key("herd"));
    let observer = env.observer().await?;
    let counted = try_join_all((0..3).map(|_| env.counted())).await?;
    // A lease this long is not renewed while the case runs, so every ask is one that a wake-up
    // has caused.
    let guard = counted[0].1.lock(&name).ttl(LONG).await?;
    let waiters: Vec<_> = (0..15)
        .map(|n| {
            let request = counted[n % 3].1.lock(&name).ttl(LONG);
            tokio::spawn(async move { request.await?.release().await })
        })
        .collect();
    let hand_overs = waiters.len() as u64;
    observer.sees_waiting(&key, hand_overs).await?;
    let sum = |of: fn(&Counts) -> u64| -> u64 {
        counted.iter().map(|(counting, _)| of(&counting.counts())).sum()
    };
    let asks = sum(|counts| counts.acquires);
    let wakes = sum(|counts| counts.wakes);
    assert_eq!(asks, hand_overs + 1, "each has asked once");
    guard.release().await?;
    for waiter in waiters {
        soon("every waiter is served", waiter).await???;
    }
    let asks = sum(|counts| counts.acquires) - asks;
    let wakes = sum(|counts| counts.wakes) - wakes;
    assert!(wakes <= hand_overs, "{wakes} wake-ups for {hand_overs} hand-overs");
    assert!(asks <= hand_overs, "{asks} asks for {hand_overs} hand-overs");
    Ok(())
}
