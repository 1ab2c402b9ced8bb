//! Asking, waiting, giving up.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::future::try_join_all;
use lockstep_lock::{Guard, LockError};

use crate::oracle::{Oracle, Recorder};
use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, Run, STEADY, Signals, Stopwatch, soon, unless_slow};

cases! { Handle:
    a_lock_is_held_until_it_is_released backs Exclusive;
    waiting_ends_when_the_lock_is_free backs Exclusive;
    waiting_is_given_up_in_time backs Errors;
    waiters_are_served_in_the_order_they_came backs Fair Exclusive;
    a_waiter_that_gives_up_in_the_middle_changes_nothing backs Fair Exclusive;
    holders_and_waiters_outlive_their_ttl backs Leases Fair;
}

async fn a_lock_is_held_until_it_is_released(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("held"));
    let guard = one.lock(&name).await?;
    assert!(guard.is_trusted());
    assert!(other.try_lock(&name).await?.is_none());
    assert!(one.try_lock(&name).await?.is_none(), "not even for the same handle");
    guard.release().await?;
    let next = other.try_lock(&name).await?.context("it is free")?;
    next.release().await?;
    Ok(())
}

async fn waiting_ends_when_the_lock_is_free(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("free"));
    let (observer, key) = (env.observer().await?, env.key("free"));
    let guard = one.lock(&name).await?;
    let waiting = tokio::spawn(other.lock(&name).into_future());
    observer.sees_waiting(&key, 1).await?;
    assert!(guard.is_trusted() && !waiting.is_finished());
    guard.release().await?;
    let next = soon("the waiter gets it", waiting).await???;
    assert!(next.is_trusted());
    next.release().await?;
    observer.sees_nothing(&key).await
}

async fn waiting_is_given_up_in_time(env: Env) -> Result<()> {
    let (one, other) = (env.locks().await?, env.locks().await?);
    let observer = env.observer().await?;
    let limit = Duration::from_millis(300);
    unless_slow(|round| {
        let (one, other, observer) = (&one, &other, &observer);
        let (name, key) = (env.name(&format!("{round}")), env.key(&format!("{round}")));
        async move {
            let guard = one.lock(&name).ttl(LONG).await?;
            let asked = Stopwatch::start();
            match other.lock(&name).within(limit).await {
                Err(LockError::TimedOut { key: which, waited, ahead }) => {
                    assert_eq!((which, ahead), (key.clone(), Some(0)));
                    assert!(waited >= limit && waited <= asked.elapsed(), "{waited:?}");
                }
                // The limit is for the store as well, and the machine was slower than that.
                Err(LockError::Store(_)) => return Ok(Run::TooSlow),
                other => bail!("expected to time out: {other:?}"),
            }
            observer.sees_waiting(&key, 0).await?;
            assert!(guard.is_trusted());
            guard.release().await?;
            Ok(Run::Judged(()))
        }
    })
    .await
}

async fn waiters_are_served_in_the_order_they_came(env: Env) -> Result<()> {
    // Without signals each hand-over takes until the waiter asks by itself.
    let count = if env.signals == Signals::Silent { 6 } else { 20 };
    let handles = try_join_all((0..4).map(|_| env.locks())).await?;
    let (observer, name, key) = (env.observer().await?, env.name("order"), env.key("order"));
    let recorder = Recorder::in_memory("waiters");
    let mut first = recorder.asks(&name);
    let guard = handles[0].lock(&name).await?;
    first.granted(&guard);

    let mut waiters = Vec::new();
    for n in 0..count {
        let request = handles[n % handles.len()].lock(&name);
        let mut attempt = recorder.asks(&name);
        let (told, queued) = tokio::sync::oneshot::channel::<()>();
        waiters.push(tokio::spawn(async move {
            let asked = tokio::spawn(request.into_future());
            queued.await?;
            attempt.queued();
            let guard = asked.await??;
            attempt.granted(&guard);
            tokio::task::yield_now().await;
            attempt.releases(&guard);
            guard.release().await?;
            anyhow::Ok(())
        }));
        observer.sees_waiting(&key, n as u64 + 1).await?;
        let _ = told.send(());
    }
    first.releases(&guard);
    guard.release().await?;
    for waiter in waiters {
        soon("every waiter is served", waiter).await???;
    }
    let grants = Oracle::default().with(recorder.events()).check().into_result()?;
    assert_eq!(grants, count + 1);
    observer.sees_nothing(&key).await
}

async fn a_waiter_that_gives_up_in_the_middle_changes_nothing(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("middle"));
    let (observer, key) = (env.observer().await?, env.key("middle"));
    let guard = one.lock(&name).await?;
    let mut waiters = Vec::new();
    for n in 0..3u64 {
        waiters.push(tokio::spawn(other.lock(&name).into_future()));
        observer.sees_waiting(&key, n + 1).await?;
    }
    let last = waiters.remove(2);
    waiters.remove(1).abort();
    observer.sees_waiting(&key, 2).await?;
    let first = waiters.remove(0);
    assert!(guard.is_trusted() && !first.is_finished() && !last.is_finished());
    guard.release().await?;
    let first: Guard = soon("the first is served", first).await???;
    assert!(!last.is_finished(), "while the first holds it");
    first.release().await?;
    let last = soon("the last is served", last).await???;
    last.release().await?;
    observer.sees_nothing(&key).await
}

async fn holders_and_waiters_outlive_their_ttl(env: Env) -> Result<()> {
    let (one, other, third) = (env.locks().await?, env.locks().await?, env.locks().await?);
    let (observer, name, key) = (env.observer().await?, env.name("long"), env.key("long"));
    let guard = one.lock(&name).await?;
    let token = guard.token();
    let first = tokio::spawn(other.lock(&name).into_future());
    observer.sees_waiting(&key, 1).await?;
    let second = tokio::spawn(third.lock(&name).into_future());
    observer.sees_waiting(&key, 2).await?;
    let holding = Stopwatch::start();
    while holding.elapsed() < STEADY + STEADY / 2 {
        assert!(guard.is_trusted() && !first.is_finished() && !second.is_finished());
        observer.sees_trust_end_before_the_lease(&guard).await?;
        tokio::time::sleep(STEADY / 20).await;
    }
    let view = observer.view(&key).await?.context("it is held")?;
    assert_eq!((view.holder().and_then(|holder| holder.token), view.waiting), (token, 2));
    guard.release().await?;
    let first = soon("the first is served", first).await???;
    observer.sees_trust_end_before_the_lease(&first).await?;
    assert!(!second.is_finished());
    first.release().await?;
    soon("the second is served", second).await???.release().await?;
    Ok(())
}
