//! Owners who take locks one by one, and would wait for each other for ever.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockstep_core::Owner;
use lockstep_lock::{LockError, Locks};

use crate::suite::case::cases;
use crate::suite::env::{Env, soon};

cases! { Handle:
    a_circle_of_waiters_is_refused_and_named backs Deadlocks Errors;
    an_owner_that_waits_for_itself_elsewhere_is_refused backs Deadlocks Errors;
    waiters_that_are_in_no_circle_are_left_alone backs Deadlocks;
}

/// Takes the first, and when all have theirs, the second; gives way if it is told to.
async fn both(
    locks: Locks,
    label: &'static str,
    names: [String; 2],
    ready: std::sync::Arc<tokio::sync::Barrier>,
) -> Result<Option<LockError>> {
    let owner = Owner::new();
    let first = locks.lock(&names[0]).owner(&owner).label(label).await?;
    ready.wait().await;
    let second = locks.lock(&names[1]).owner(&owner).label(label).await;
    let outcome = match second {
        Ok(guard) => {
            guard.release().await?;
            None
        }
        Err(error @ LockError::Deadlock(_)) => Some(error),
        Err(other) => return Err(other.into()),
    };
    first.release().await?;
    Ok(outcome)
}

async fn a_circle_of_waiters_is_refused_and_named(env: Env) -> Result<()> {
    let names = ["a", "b", "c"].map(|name| env.name(name));
    let ready = std::sync::Arc::new(tokio::sync::Barrier::new(3));
    let mut tasks = vec![];
    for (n, label) in ["worker one", "worker two", "worker three"].into_iter().enumerate() {
        let mine = [names[n].clone(), names[(n + 1) % 3].clone()];
        tasks.push(tokio::spawn(both(env.locks().await?, label, mine, ready.clone())));
    }
    let mut refused = vec![];
    for task in tasks {
        refused.extend(soon("the circle ends", task).await???);
    }
    let [LockError::Deadlock(deadlock)] = &refused[..] else {
        bail!("one of them gives way, and only one: {refused:?}");
    };
    assert_eq!(deadlock.circle.len(), 3, "{deadlock}");
    let text = deadlock.to_string();
    for part in names.iter().map(String::as_str).chain(["worker one", "worker two", "worker three"])
    {
        assert!(text.contains(part), "{text} does not name {part}");
    }
    assert!(refused[0].may_retry());
    Ok(())
}

async fn an_owner_that_waits_for_itself_elsewhere_is_refused(env: Env) -> Result<()> {
    let (locks, other, name) = (env.locks().await?, env.locks().await?, env.name("self"));
    let owner = Owner::new();
    let guard = locks.lock(&name).owner(&owner).await?;
    let refused = soon("it is refused", other.lock(&name).owner(&owner)).await?;
    assert!(matches!(refused, Err(LockError::Deadlock(_))), "{refused:?}");
    assert!(guard.is_trusted());
    guard.release().await?;
    soon("nothing is left in the queue", other.lock(&name)).await??.release().await?;
    Ok(())
}

async fn waiters_that_are_in_no_circle_are_left_alone(env: Env) -> Result<()> {
    let (locks, other) = (env.locks().await?, env.locks().await?);
    let (a, b) = (env.name("chain a"), env.name("chain b"));
    let (first, second) = (Owner::new(), Owner::new());
    let held = locks.lock(&a).owner(&first).await?;
    let has = other.lock(&b).owner(&second).await?;
    let waits = tokio::spawn({
        let (other, a) = (other.clone(), a.clone());
        async move { other.lock(&a).owner(&second).await }
    });
    // Long enough for two looks.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(!waits.is_finished());
    held.release().await?;
    soon("its turn", waits).await??.context("it was never refused")?.release().await?;
    has.release().await?;
    Ok(())
}
