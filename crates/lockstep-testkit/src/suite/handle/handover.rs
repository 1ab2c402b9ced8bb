//! Handing a lock over: leak and adopt.

use anyhow::{Context, Result};
use lockstep_core::Owner;
use lockstep_lock::{Guard, Leaked, LockError, Lost, LostCause};

use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, SHORT, STEADY, Stopwatch, eventually, soon};
use crate::wrap::{Point, VerbName};

cases! { Handle:
    a_leaked_lock_is_adopted_elsewhere_through_its_text backs HandOver;
    a_lock_is_handed_on_and_back backs HandOver;
    a_downgraded_lock_is_handed_over backs HandOver Shared;
    a_leaked_lock_runs_out_unless_adopted backs HandOver Leases;
    a_lock_in_use_cannot_be_leaked backs HandOver Reentry;
    a_lock_is_adopted_by_one_guard backs HandOver;
    a_lock_on_its_way_back_is_not_adopted backs HandOver;
    what_is_lost_is_neither_leaked_nor_adopted backs HandOver Leases;
    a_broken_lock_cannot_be_adopted backs HandOver Break;
}

async fn a_leaked_lock_is_adopted_elsewhere_through_its_text(env: Env) -> Result<()> {
    let (one, other, third) = (env.locks().await?, env.locks().await?, env.locks().await?);
    let name = env.name("a name with  spaces ");
    let guard = one.lock(&name).await?;
    let (token, owner) = (guard.token(), guard.owner());
    let leaked = guard.leak().expect("the only guard");
    assert_eq!((leaked.key().as_str(), leaked.token()), (name.as_str(), token));
    drop(one);
    let text = leaked.to_string();
    let leaked: Leaked = text.parse()?;
    let guard = other.adopt(leaked).await?;
    assert_eq!((guard.key().as_str(), guard.owner()), (name.as_str(), owner));
    assert_eq!(guard.token(), token, "handing over never raises it");
    // From now on the other handle renews it.
    let held = Stopwatch::start();
    while held.elapsed() < STEADY + STEADY / 3 {
        assert!(guard.is_trusted());
        assert!(third.try_lock(&name).await?.is_none());
        tokio::time::sleep(STEADY / 10).await;
    }
    guard.release().await?;
    third.try_lock(&name).await?.context("it is free")?.release().await?;
    Ok(())
}

/// What the one before did to it must not be taken for what the next one does.
async fn a_lock_is_handed_on_and_back(env: Env) -> Result<()> {
    let (one, other, third) = (env.locks().await?, env.locks().await?, env.locks().await?);
    let name = env.name("on");
    let mut leaked = one.lock(&name).await?.leak().expect("the only guard");
    for locks in [&other, &third, &other, &one] {
        let guard = locks.adopt(leaked).await?;
        is_renewed(&guard).await?;
        leaked = guard.leak().expect("the only guard");
    }
    third.adopt(leaked).await?.release().await?;
    other.try_lock(&name).await?.context("it is free")?.release().await?;
    Ok(())
}

async fn a_downgraded_lock_is_handed_over(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("downgraded"));
    let mut guard = one.write(&name).await?;
    guard.downgrade().await?;
    let guard = other.adopt(guard.leak().expect("the only guard")).await?;
    is_renewed(&guard).await?;
    one.read(&name).await?.release().await?;
    guard.release().await?;
    Ok(())
}

async fn is_renewed(guard: &Guard) -> Result<()> {
    let first = guard.trusted_until();
    eventually("it is renewed", || async {
        guard.check()?;
        Ok((guard.trusted_until() > first).then_some(()))
    })
    .await
}

async fn a_leaked_lock_runs_out_unless_adopted(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("out"));
    let ttl = SHORT.max(env.facts.ttl_min);
    let leaked = one.lock(&name).ttl(ttl).await?.leak().expect("the only guard");
    let next = soon("it runs out", other.lock(&name)).await??;
    match one.adopt(leaked).await {
        Err(LockError::Lost(Lost { cause: LostCause::Taken, key })) => {
            assert_eq!(key.as_str(), name);
        }
        other => anyhow::bail!("it is somebody else's: {other:?}"),
    }
    assert!(next.is_trusted() && one.try_lock(&name).await?.is_none());
    next.release().await?;
    Ok(())
}

async fn a_lock_in_use_cannot_be_leaked(env: Env) -> Result<()> {
    let (locks, name, owner) = (env.locks().await?, env.name("use"), Owner::new());
    let outer = locks.lock(&name).owner(&owner).await?;
    let inner = locks.lock(&name).owner(&owner).await?;
    let outer = outer.leak().expect_err("the inner guard still uses it");
    assert!(outer.is_trusted() && inner.is_trusted());
    inner.release().await?;
    let leaked = outer.leak().expect("the last guard");
    locks.adopt(leaked).await?.release().await?;
    Ok(())
}

async fn a_lock_is_adopted_by_one_guard(env: Env) -> Result<()> {
    let (locks, other, name) = (env.locks().await?, env.locks().await?, env.name("twins"));
    let leaked = locks.lock(&name).ttl(STEADY).await?.leak().expect("the only guard");
    let guard = locks.adopt(leaked.clone()).await?;
    match locks.adopt(leaked.clone()).await {
        Err(LockError::Adopted { .. }) => {}
        other => anyhow::bail!("it has a guard: {other:?}"),
    }
    assert!(guard.is_trusted(), "the first one is left alone");
    assert!(other.try_lock(&name).await?.is_none());
    let leaked = guard.leak().expect("still the only guard");
    locks.adopt(leaked).await?.release().await?;
    assert!(other.try_lock(&name).await?.is_some());
    Ok(())
}

/// The release would end the new guard's lock, and it would not know.
async fn a_lock_on_its_way_back_is_not_adopted(env: Env) -> Result<()> {
    for dropped in [true, false] {
        let (counting, locks) = env.counted().await?;
        let (other, name) = (env.locks().await?, env.name(&format!("back {dropped}")));
        let leaked = locks.lock(&name).ttl(LONG).await?.leak().expect("the only guard");
        let guard = locks.adopt(leaked.clone()).await?;
        let mut pause = counting.pause(Point::Before(VerbName::Release), 1);
        let releasing = tokio::spawn(async move {
            match dropped {
                true => drop(guard),
                false => guard.release().await?,
            }
            anyhow::Ok(())
        });
        soon("the release is on its way", pause.reached()).await?;
        match locks.adopt(leaked).await {
            Err(LockError::Adopted { .. }) => {}
            other => anyhow::bail!("it is being given back: {other:?}"),
        }
        pause.resume();
        soon("the release", releasing).await???;
        soon("it is free", other.lock(&name)).await??.release().await?;
    }
    Ok(())
}

/// Its renewals reach the store and their answers are lost: the store has it for longer than its holder may
/// trust it. Whoever adopted it then would lose it again when the first guard is dropped.
async fn what_is_lost_is_neither_leaked_nor_adopted(env: Env) -> Result<()> {
    let (failing, locks) = env.failing().await?;
    let (observer, name) = (env.observer().await?, env.name("lost"));
    let leaked = locks.lock(&name).await?.leak().expect("the only guard");
    let guard = locks.adopt(leaked.clone()).await?;
    (1..100).for_each(|nth| failing.lose_reply(VerbName::Renew, nth));
    soon("the end of trust", guard.lost()).await?;
    let guard = guard.leak().expect_err("what is lost stays lost");
    match locks.adopt(leaked).await {
        Err(LockError::Adopted { .. }) => {}
        other => anyhow::bail!("it has a guard: {other:?}"),
    }
    assert!(!guard.is_trusted());
    drop(guard);
    observer.sees_nothing(&env.key("lost")).await
}

async fn a_broken_lock_cannot_be_adopted(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("broken"));
    let leaked = one.lock(&name).await?.leak().expect("the only guard");
    assert!(other.break_lock(&name, "nobody's").await?);
    match other.adopt(leaked).await {
        Err(LockError::Lost(lost)) => {
            let causes = [LostCause::Broken("nobody's".to_owned()), LostCause::Taken];
            assert!(causes.contains(&lost.cause), "{lost:?}");
        }
        other => anyhow::bail!("it is broken: {other:?}"),
    }
    soon("it runs out", other.lock(&name)).await??.release().await?;
    Ok(())
}
