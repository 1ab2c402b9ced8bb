//! Replies that get lost, and a store that is away for a while.

use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_core::{Effect, ErrorKind};
use lockstep_lock::LockError;

use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, STEADY, Stopwatch, eventually, soon};
use crate::wrap::{Reach, VerbName};

cases! { Handle:
    a_lock_whose_reply_was_lost_is_granted_or_given_back backs Idempotent Errors;
    a_release_whose_reply_was_lost_succeeds backs Idempotent Errors;
    a_renewal_whose_reply_was_lost_is_repeated backs Leases;
    a_waiter_whose_reply_was_lost_keeps_its_place backs Fair Idempotent;
    a_store_that_is_away_for_a_moment_costs_nobody_a_lock backs Leases;
    a_store_that_is_slow_to_renew_costs_nobody_a_lock backs Leases;
    who_waits_no_longer_than_a_moment_does_not_wait_for_a_silent_store backs CancelSafe;
    what_a_dropped_guard_left_is_given_back_when_the_store_is_back backs CancelSafe;
}

async fn a_lock_whose_reply_was_lost_is_granted_or_given_back(env: Env) -> Result<()> {
    let other = env.locks().await?;
    // One lost reply may be made up for by asking again; two end the request.
    for (lost, wait) in [(1, true), (1, false), (2, true), (2, false)] {
        let (failing, locks) = env.failing().await?;
        let name = env.name(&format!("{lost} {wait}"));
        (1..=lost).for_each(|nth| failing.lose_reply(VerbName::Acquire, nth));
        let asked = match wait {
            true => locks.lock(&name).ttl(LONG).await.map(Some),
            false => locks.try_lock(&name).ttl(LONG).await,
        };
        match asked {
            Err(error) => assert!(error.may_have_happened() && error.may_retry(), "{error:?}"),
            Ok(Some(guard)) if lost == 1 => {
                assert!(guard.is_trusted() && other.try_lock(&name).await?.is_none());
                guard.release().await?;
            }
            other => anyhow::bail!("{lost} replies are lost: {other:?}"),
        }
        soon("it is given back", other.lock(&name)).await??.release().await?;
    }
    Ok(())
}

async fn a_release_whose_reply_was_lost_succeeds(env: Env) -> Result<()> {
    let (failing, locks) = env.failing().await?;
    let (other, name) = (env.locks().await?, env.name("release"));
    let guard = locks.lock(&name).ttl(LONG).await?;
    failing.lose_reply(VerbName::Release, 1);
    guard.release().await.context("the second try finds it done")?;

    let guard = locks.lock(&name).ttl(LONG).await?;
    failing.lose_reply(VerbName::Release, 1);
    failing.lose_reply(VerbName::Release, 2);
    let error = guard.release().await.expect_err("two replies are lost");
    assert!(error.may_have_happened(), "{error:?}");
    soon("it is free all the same", other.lock(&name)).await??.release().await?;
    Ok(())
}

async fn a_renewal_whose_reply_was_lost_is_repeated(env: Env) -> Result<()> {
    let (failing, locks) = env.failing().await?;
    let name = env.name("renew");
    failing.lose_reply(VerbName::Renew, 1);
    let guard = locks.lock(&name).await?;
    let granted_until = guard.trusted_until();
    let held = Stopwatch::start();
    while held.elapsed() < STEADY + STEADY / 3 {
        assert!(guard.is_trusted(), "lost after {:?}", held.elapsed());
        tokio::time::sleep(STEADY / 20).await;
    }
    assert!(guard.trusted_until() > granted_until);
    guard.release().await?;
    Ok(())
}

async fn a_waiter_whose_reply_was_lost_keeps_its_place(env: Env) -> Result<()> {
    let (failing, locks) = env.failing().await?;
    let (one, observer) = (env.locks().await?, env.observer().await?);
    let (name, key) = (env.name("place"), env.key("place"));
    let guard = one.lock(&name).await?;
    let first = tokio::spawn(locks.lock(&name).into_future());
    observer.sees_waiting(&key, 1).await?;
    // It is in the queue, so the next ask is the one that keeps its place.
    failing.lose_reply(VerbName::Acquire, 1);
    let last = tokio::spawn(one.lock(&name).into_future());
    observer.sees_waiting(&key, 2).await?;
    tokio::time::sleep(STEADY / 2).await;
    assert!(!first.is_finished() && !last.is_finished() && guard.is_trusted());
    guard.release().await?;
    let first = soon("the first is served first", first).await???;
    assert!(!last.is_finished());
    first.release().await?;
    soon("the last is served", last).await???.release().await?;
    Ok(())
}

async fn a_store_that_is_away_for_a_moment_costs_nobody_a_lock(env: Env) -> Result<()> {
    for away in [Reach::Refused, Reach::Silent] {
        let (failing, locks) = env.failing().await?;
        let name = env.name(&format!("{away:?}"));
        let guard = locks.lock(&name).await?;
        failing.set_reach(away);
        let error = match locks.lock(env.name("new")).within(Duration::from_millis(50)).await {
            Err(LockError::Store(error)) => error,
            other => anyhow::bail!("the store is away: {other:?}"),
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        // Only what certainly never left may say that it certainly did not happen.
        let silent = away == Reach::Silent;
        assert_eq!(error.effect() == Effect::Unknown, silent, "{error:?}");
        tokio::time::sleep(STEADY / 2).await;
        assert!(guard.is_trusted(), "half a ttl is no reason to lose a lock");
        failing.set_reach(Reach::Open);
        let until = guard.trusted_until();
        eventually("it is renewed again", || async {
            Ok((guard.trusted_until() > until).then_some(()))
        })
        .await?;
        guard.release().await?;
    }
    Ok(())
}

/// Its answers come after more than the time that a renewal waits before it is asked again. An operation has
/// very long here, lest a busy machine turn the slow answers into none.
async fn a_store_that_is_slow_to_renew_costs_nobody_a_lock(env: Env) -> Result<()> {
    let (failing, locks, name) = env.patient().await?;
    let ttl = STEADY * 2;
    failing.slow_renewals(ttl * 3 / 10);
    let guard = locks.lock(name).ttl(ttl).await?;
    let first = guard.trusted_until();
    let held = Stopwatch::start();
    while held.elapsed() < ttl * 3 / 2 {
        assert!(guard.is_trusted(), "lost after {:?}", held.elapsed());
        tokio::time::sleep(STEADY / 20).await;
    }
    assert!(guard.trusted_until() > first);
    guard.release().await?;
    Ok(())
}

/// An operation has very long here, so that waiting for it all would show.
async fn who_waits_no_longer_than_a_moment_does_not_wait_for_a_silent_store(
    env: Env,
) -> Result<()> {
    let (failing, locks, name) = env.patient().await?;
    failing.set_reach(Reach::Silent);
    let asked = locks.lock(name).within(Duration::from_millis(50));
    let error = soon("the end of its moment", asked).await?.expect_err("the store is silent");
    assert!(error.may_have_happened(), "{error:?}");
    Ok(())
}

/// Dropping waits for nobody, whether the store refuses or says nothing.
async fn what_a_dropped_guard_left_is_given_back_when_the_store_is_back(env: Env) -> Result<()> {
    let observer = env.observer().await?;
    for away in [Reach::Refused, Reach::Silent] {
        let (failing, locks) = env.failing().await?;
        let (name, key) = (env.name(&format!("{away:?}")), env.key(&format!("{away:?}")));
        let guard = locks.lock(&name).ttl(LONG).await?;
        failing.set_reach(away);
        // On a thread of its own: what blocks cannot be left alone by the runtime that it blocks.
        let dropped = tokio::task::spawn_blocking(move || drop(guard));
        soon("the drop", dropped).await??;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(observer.view(&key).await?.is_some(), "nothing could be given back yet");
        failing.set_reach(Reach::Open);
        observer.sees_nothing(&key).await?;
    }
    Ok(())
}
