//! Whose lock is it?

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use lockstep_core::Owner;
use lockstep_lock::store::{Released, Renewal};
use lockstep_lock::{LockError, Locks};

use super::stage;
use crate::suite::Subject;
use crate::suite::client::claim;
use crate::suite::env::{LONG, SHORT, soon};
use crate::wrap::Reach;

/// A's lease ends, B gets the lock, and A's late release deletes B's lock. Here it does not.
///
/// # Errors
/// It does, on this store.
pub async fn deletes_successors_lock(subject: &Subject) -> Result<()> {
    let env = stage(subject, "deletes_successors_lock").await;
    let (a, b) = (env.client().await?, env.client().await?);
    let ttl = SHORT.max(env.facts.ttl_min);
    try_join_all((0..20).map(|round| {
        let (a, b, key) = (&a, &b, env.key(&format!("{round}")));
        async move {
            let (late, successor) = (claim(&key, ttl), claim(&key, LONG));
            a.granted(&late).await?;
            b.granted_in_the_end(&successor).await?;
            assert_eq!(a.release(&late).await?, Released::NotHeld);
            assert_eq!(b.holder(&key).await?, Some(successor.id));
            assert_eq!(b.renew(&successor).await?, Renewal::Renewed);
            anyhow::Ok(())
        }
    }))
    .await?;

    let (failing, a) = env.failing().await?;
    let (b, name) = (env.locks().await?, env.name("handles"));
    let guard = a.lock(&name).ttl(Duration::from_millis(500)).await?;
    failing.set_reach_of_renewals(Reach::Refused);
    let successor = soon("B gets it", b.lock(&name)).await??;
    let released = guard.release().await;
    assert!(matches!(released, Err(LockError::NotHeld { .. })), "and A is told: {released:?}");
    assert!(successor.is_trusted() && a.try_lock(&name).await?.is_none());
    successor.release().await?;
    Ok(())
}

/// The same name, host, program and even owner id on two handles are still two owners: holding
/// belongs to one acquisition of one incarnation.
///
/// # Errors
/// They are not, on this store.
pub async fn same_label_is_not_same_owner(subject: &Subject) -> Result<()> {
    let env = stage(subject, "same_label_is_not_same_owner").await;
    let (key, name) = (env.key("shared"), env.name("shared"));
    let incarnation = async || -> Result<Locks> { Ok(env.locks().await?.with_label("worker-1")) };
    let (before, after) = (incarnation().await?, incarnation().await?);
    let owner = Owner::new();
    let guard = before.lock(&name).owner(&owner).await?;
    assert!(after.try_lock(&name).owner(&owner).await?.is_none(), "the newcomer must wait");

    let client = env.client().await?;
    let mut twin = claim(&key, LONG);
    twin.owner = owner;
    twin.label = lockstep_core::Label::new("worker-1");
    assert_eq!(client.renew(&twin).await?, Renewal::Lost, "nor can it renew");
    assert_eq!(client.release(&twin).await?, Released::NotHeld, "nor release");
    assert!(guard.is_trusted());
    guard.release().await?;
    let next = after.try_lock(&name).owner(&owner).await?.context("it is free")?;
    next.release().await?;
    Ok(())
}

/// `finally { unlock() }` where `lock()` had failed: without a guard there is nothing to unlock
/// with, and what a stranger sends changes nothing.
///
/// # Errors
/// It does, on this store.
pub async fn unlock_without_holding(subject: &Subject) -> Result<()> {
    let env = stage(subject, "unlock_without_holding").await;
    let (one, other) = (env.locks().await?, env.locks().await?);
    let (name, key) = (env.name("held"), env.key("held"));
    let guard = one.lock(&name).await?;
    let nothing = other.try_lock(&name).await?;
    assert!(nothing.is_none());
    drop(nothing);
    let gave_up = other.lock(&name).within(Duration::from_millis(100)).await;
    assert!(gave_up.is_err());
    drop(gave_up);
    let stranger = env.client().await?;
    for _ in 0..3 {
        assert_eq!(stranger.release(&claim(&key, LONG)).await?, Released::NotHeld);
    }
    assert!(guard.is_trusted() && other.try_lock(&name).await?.is_none());
    guard.release().await?;
    Ok(())
}

/// Two `try` and one unlock: with an owner both hold and both must let go; without one the second
/// is refused. In neither way is the lock forgotten, or freed too early.
///
/// # Errors
/// It is, on this store.
pub async fn two_tries_one_unlock(subject: &Subject) -> Result<()> {
    let env = stage(subject, "two_tries_one_unlock").await;
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("order"));
    let owner = Owner::new();
    let first = one.try_lock(&name).owner(&owner).await?.context("it is free")?;
    let second = one.try_lock(&name).owner(&owner).await?.context("it is its own")?;
    first.release().await?;
    assert!(other.try_lock(&name).await?.is_none(), "one unlock of two frees nothing");
    assert!(second.is_trusted());
    // The forgotten one: its guard goes out of scope, which is an unlock too.
    drop(second);
    soon("both have let go", other.lock(&name)).await??.release().await?;

    let only = one.try_lock(&name).await?.context("it is free")?;
    assert!(one.try_lock(&name).await?.is_none(), "without an owner it is somebody else's");
    only.release().await?;
    other.try_lock(&name).await?.context("one try, one unlock")?.release().await?;
    Ok(())
}

/// A method that holds a lock calls another that takes the same lock.
///
/// # Errors
/// It waits for itself, or lets somebody in half way, on this store.
pub async fn reentrant_method(subject: &Subject) -> Result<()> {
    async fn pay(locks: &Locks, name: &str, owner: &Owner) -> Result<Option<u64>> {
        let guard = locks.lock(name).owner(owner).await?;
        let token = guard.token().map(|token| token.get());
        guard.release().await?;
        Ok(token)
    }

    let env = stage(subject, "reentrant_method").await;
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("order"));
    let owner = Owner::new();
    let guard = one.lock(&name).owner(&owner).await?;
    let inner = soon("the inner method returns", pay(&one, &name, &owner)).await??;
    assert_eq!(inner, guard.token().map(|token| token.get()), "entering again raises nothing");
    assert!(guard.is_trusted() && other.try_lock(&name).await?.is_none(), "1 of 2 released");
    // Without an owner the same mistake is an answer, not a hang.
    assert!(one.try_lock(&name).await?.is_none());
    let error = one.lock(&name).within(Duration::from_millis(100)).await.expect_err("held");
    assert!(matches!(error, LockError::TimedOut { .. } | LockError::Store(_)), "{error:?}");
    guard.release().await?;
    // Waited for, because the place of the request that gave up is given back in the background.
    soon("2 of 2 released", other.lock(&name)).await??.release().await?;
    Ok(())
}
