//! Operators who take a lock away from a handle.

use anyhow::{Context, Result};
use lockstep_lock::LostCause;

use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, soon};

cases! { Handle:
    a_broken_lock_is_lost_before_it_passes_on backs Break Leases;
    a_lock_broken_now_passes_on_at_once backs Break;
    breaking_what_nobody_holds_says_so backs Break Errors;
}

async fn a_broken_lock_is_lost_before_it_passes_on(env: Env) -> Result<()> {
    let (one, other, operator) = (env.locks().await?, env.locks().await?, env.locks().await?);
    let (observer, name, key) = (env.observer().await?, env.name("broken"), env.key("broken"));
    let guard = one.lock(&name).await?;
    let waiting = tokio::spawn(other.lock(&name).into_future());
    observer.sees_waiting(&key, 1).await?;
    assert!(operator.break_lock(&name, "because").await?);
    let lost = soon("the guard hears of it", guard.lost()).await?;
    assert_eq!(lost.cause, LostCause::Broken("because".to_owned()));
    assert!(!guard.is_trusted());
    // What is left of the lease is the holder's time to stop; giving back ends it.
    drop(guard);
    let next = soon("it passes on", waiting).await???;
    assert!(next.is_trusted());
    next.release().await?;
    Ok(())
}

async fn a_lock_broken_now_passes_on_at_once(env: Env) -> Result<()> {
    let (one, other) = (env.locks().await?, env.locks().await?);
    let (observer, name, key) = (env.observer().await?, env.name("now"), env.key("now"));
    // This lease outlasts the case.
    let guard = one.lock(&name).ttl(LONG).await?;
    let waiting = tokio::spawn(other.lock(&name).into_future());
    observer.sees_waiting(&key, 1).await?;
    assert!(other.break_lock_now(&name, "at once").await?);
    let next = soon("it passes on", waiting).await???;
    let view = observer.view(&key).await?.context("it is held")?;
    assert_eq!(view.holder().and_then(|holder| holder.token), next.token());
    drop(guard);
    assert!(next.is_trusted());
    next.release().await?;
    Ok(())
}

async fn breaking_what_nobody_holds_says_so(env: Env) -> Result<()> {
    let (locks, name) = (env.locks().await?, env.name("nobody"));
    assert!(!locks.break_lock(&name, "why not").await?);
    assert!(!locks.break_lock_now(&name, "why not").await?);
    let guard = locks.lock(&name).await?;
    assert!(guard.is_trusted());
    guard.release().await?;
    assert_eq!(locks.inspect(&name).await?, None);
    Ok(())
}
