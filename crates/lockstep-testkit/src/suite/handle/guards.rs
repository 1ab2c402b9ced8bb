//! The life of a guard.

use std::future::pending;
use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_core::Owner;
use lockstep_lock::{LockError, Lost, LostCause};

use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, STEADY, Stopwatch, soon};
use crate::wrap::VerbName;

cases! { Handle:
    a_guard_knows_what_it_holds backs Exclusive;
    dropping_a_guard_releases_it backs CancelSafe;
    a_release_after_a_loss_says_so backs Errors;
    work_is_stopped_when_trust_ends backs Leases;
    a_request_that_runs_work_releases_on_every_path backs Exclusive;
    trust_ends_after_the_maximum_hold backs Leases;
    labels_of_handles_and_requests_are_shown backs Inspect Particulars;
}

async fn a_guard_knows_what_it_holds(env: Env) -> Result<()> {
    let (locks, name, owner) = (env.locks().await?, env.name("known"), Owner::new());
    let before = locks.clock().now();
    let guard = locks.lock(&name).owner(&owner).await?;
    assert_eq!((guard.key().as_str(), guard.owner()), (name.as_str(), owner));
    assert_eq!(guard.token().is_some(), locks.facts().fencing != lockstep_lock::Fencing::None);
    assert!(guard.is_trusted() && guard.check().is_ok());
    let until = guard.trusted_until();
    assert!(until > before && until < locks.clock().now() + STEADY, "shorter than the ttl");
    assert_eq!(guard.run(async { 6 * 7 }).await?, 42);
    let view = locks.inspect(&name).await?.context("it is shown")?;
    let holder = view.holder().context("with its holder")?;
    assert_eq!(holder.token, guard.token());
    if env.knows_who() {
        assert_eq!(holder.owner, owner);
    }
    guard.release().await?;
    assert_eq!(locks.inspect(&name).await?, None);
    Ok(())
}

async fn dropping_a_guard_releases_it(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("dropped"));
    // The lease outlasts the case: only a release can free it.
    drop(one.lock(&name).ttl(LONG).await?);
    soon("it is given back", other.lock(&name)).await??.release().await?;

    // Also as the last thing that keeps the handle alive.
    let guard = one.lock(&name).ttl(LONG).await?;
    drop(one);
    assert!(guard.is_trusted());
    drop(guard);
    soon("it is given back", other.lock(&name)).await??.release().await?;
    Ok(())
}

async fn a_release_after_a_loss_says_so(env: Env) -> Result<()> {
    let (failing, one) = env.failing().await?;
    let other = env.locks().await?;
    for replies_lost in [0, 1] {
        let name = env.name(&format!("lost {replies_lost}"));
        let guard = one.lock(&name).await?;
        assert!(other.break_lock_now(&name, "for the test").await?);
        let lost = soon("the guard hears of it", guard.lost()).await?;
        assert_eq!(lost.key.as_str(), name);
        // Without a signal the next renewal finds it gone.
        let causes = [LostCause::Broken("for the test".to_owned()), LostCause::Taken];
        assert!(causes.contains(&lost.cause), "{lost:?}");
        assert!(!guard.is_trusted());
        assert_eq!(guard.check(), Err(lost));
        let next = other.lock(&name).await?;
        (1..=replies_lost).for_each(|nth| failing.lose_reply(VerbName::Release, nth));
        match guard.release().await {
            Err(LockError::NotHeld { key }) => assert_eq!(key.as_str(), name),
            other => anyhow::bail!("nothing was held: {other:?}"),
        }
        assert!(next.is_trusted(), "and the next one's lock is untouched");
        assert!(one.try_lock(&name).await?.is_none());
        next.release().await?;
    }
    Ok(())
}

async fn work_is_stopped_when_trust_ends(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("stopped"));
    let guard = one.lock(&name).await?;
    let dropped = std::sync::Arc::new(());
    let seen = std::sync::Arc::downgrade(&dropped);
    let work = guard.run(async move {
        let _kept = dropped;
        pending::<()>().await;
    });
    let (end, broken) = tokio::join!(soon("the work ends", work), async {
        other.break_lock_now(&name, "stop").await
    });
    assert!(broken?);
    assert!(end?.is_err(), "it did not end by itself");
    assert!(seen.upgrade().is_none(), "its future was dropped");
    assert!(guard.run(async {}).await.is_err(), "and no new work is begun");
    Ok(())
}

async fn a_request_that_runs_work_releases_on_every_path(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("run"));
    let held = one.lock(&name).run(async |guard| (guard.is_trusted(), guard.token())).await?;
    assert!(held.0);
    let next = other.try_lock(&name).await?.context("it was released")?;
    next.release().await?;

    let work = one.lock(&name).ttl(LONG).max_hold(Duration::from_millis(50));
    let lost = work.run(async |_| pending::<()>().await).await;
    assert!(matches!(lost, Err(LockError::Lost(_))), "{lost:?}");
    soon("it is given back", other.lock(&name)).await??.release().await?;
    Ok(())
}

async fn trust_ends_after_the_maximum_hold(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("max"));
    let limit = Duration::from_millis(300);
    let asked = Stopwatch::start();
    let guard = one.lock(&name).max_hold(limit).await?;
    let lost = soon("trust ends", guard.lost()).await?;
    assert_eq!(lost.cause, LostCause::MaxHold);
    assert!(asked.elapsed() >= limit && !guard.is_trusted());
    // Work that is never idle finds out by the clock, before anybody has told it.
    let busy = one.lock(env.name("busy")).max_hold(limit).await?;
    let work = async {
        loop {
            tokio::task::yield_now().await;
        }
    };
    let stopped: Result<(), Lost> = soon("the work is stopped", busy.run(work)).await?;
    assert!(matches!(&stopped, Err(lost) if lost.cause == LostCause::MaxHold), "{stopped:?}");
    // The guard is still there, but nobody renews it: it passes on.
    soon("the lease runs out", other.lock(&name)).await??.release().await?;
    assert!(matches!(guard.release().await, Err(LockError::NotHeld { .. })));
    Ok(())
}

async fn labels_of_handles_and_requests_are_shown(env: Env) -> Result<()> {
    let unnamed = env.locks().await?;
    let locks = unnamed.clone().with_label("from the handle");
    let (none, one, other) = (env.name("none"), env.name("one"), env.name("other"));
    let guards = [
        unnamed.lock(&none).await?,
        locks.lock(&one).await?,
        locks.try_lock(&other).label("from the request").await?.context("it is free")?,
    ];
    let label = async |name: &str| -> Result<String> {
        let view = locks
            .inspect(name)
            .await?
            .and_then(|view| view.holders.into_iter().next())
            .context("it is held")?;
        Ok(view.label.as_str().to_owned())
    };
    let program = std::env::current_exe()?;
    let program = program.file_name().context("it is a file")?.to_string_lossy().into_owned();
    let by_default = label(&none).await?;
    let told = format!(" {} {program}", std::process::id());
    assert!(by_default.strip_suffix(&told).is_some_and(|host| !host.is_empty()), "{by_default}");
    assert_eq!(label(&one).await?, "from the handle");
    assert_eq!(label(&other).await?, "from the request");
    let page = locks.list(env.prefix(), 10).await?;
    let names: Vec<&str> = page.locks.iter().map(|view| view.key.as_str()).collect();
    assert_eq!((names, page.more), (vec![none.as_str(), one.as_str(), other.as_str()], false));
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}
