//! Several locks as one.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::future::try_join_all;
use lockstep_lock::{LockError, LostCause};

use crate::oracle::Counter;
use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, Run, Signals, soon, unless_slow};

cases! { Handle:
    several_locks_are_held_together backs Exclusive;
    several_locks_in_any_order_never_wait_in_a_circle backs Exclusive;
    several_locks_are_all_held_or_none backs Exclusive Errors;
    several_locks_are_tried_without_waiting backs Exclusive;
    the_loss_of_one_of_several_locks_ends_all backs Break;
    a_request_for_several_locks_may_be_dropped backs CancelSafe;
    several_locks_are_entered_again_by_their_owner backs Reentry;
}

async fn several_locks_are_held_together(env: Env) -> Result<()> {
    let (one, other) = (env.locks().await?, env.locks().await?);
    let [a, b, c] = ["a", "b", "c"].map(|name| env.name(name));
    let both = one.lock_all([&b, &a, &b]).await?;
    let names: Vec<&str> = both.iter().map(|guard| guard.key().as_str()).collect();
    assert_eq!(names, [&a, &b], "each once, in order");
    assert!(both.is_trusted() && both.get(&c).is_none());
    assert!(both.iter().all(|guard| guard.trusted_until() >= both.trusted_until()));
    for name in [&a, &b] {
        assert!(other.try_lock(name).await?.is_none(), "{name}");
    }
    both.release().await?;
    let nothing: [&str; 0] = [];
    other.lock_all(nothing).await?.release().await?;
    other.lock_all([&a, &b, &c]).await?.release().await?;
    Ok(())
}

async fn several_locks_in_any_order_never_wait_in_a_circle(env: Env) -> Result<()> {
    // Without signals each hand-over takes until the waiter asks by itself.
    let rounds = if env.signals == Signals::Silent { 1 } else { 5 };
    let [a, b, c] = ["a", "b", "c"].map(|name| env.name(name));
    let orders = [[&a, &b, &c], [&c, &b, &a], [&b, &c, &a]];
    let (counter, handles) =
        (Counter::in_memory(), try_join_all(orders.map(|_| env.locks())).await?);
    let workers = handles.iter().zip(orders).map(|(locks, names)| {
        let counter = &counter;
        async move {
            for _ in 0..rounds {
                let all = locks.lock_all(names).await?;
                all.run(counter.increment()).await??;
                all.release().await?;
            }
            anyhow::Ok(())
        }
    });
    soon("everybody gets through", try_join_all(workers)).await??;
    counter.check(3 * rounds)
}

async fn several_locks_are_all_held_or_none(env: Env) -> Result<()> {
    let (one, other, observer) = (env.locks().await?, env.locks().await?, env.observer().await?);
    unless_slow(|round| {
        let (one, other, observer) = (&one, &other, &observer);
        let part = |name: &str| format!("{name} {round}");
        let (names, last) =
            (["a", "b", "c"].map(|name| env.name(&part(name))), env.key(&part("c")));
        let keys = ["a", "b", "c"].map(|name| env.key(&part(name)));
        async move {
            let guard = other.lock(&names[2]).ttl(LONG).await?;
            match one.lock_all(&names).ttl(LONG).within(Duration::from_millis(500)).await {
                Err(LockError::TimedOut { key, .. }) => assert_eq!(key, last, "the one missing"),
                Err(LockError::Store(_)) => return Ok(Run::TooSlow),
                other => bail!("expected to time out: {other:?}"),
            }
            for key in &keys[..2] {
                assert_eq!(observer.view(key).await?, None, "given back before the answer");
            }
            observer.sees_waiting(&keys[2], 0).await?;
            guard.release().await?;
            Ok(Run::Judged(()))
        }
    })
    .await?;
    let bad = one.lock_all([env.name("fine"), "not\nfine".into()]).await;
    assert!(matches!(bad, Err(LockError::Name(_))), "{bad:?}");
    assert_eq!(observer.view(&env.key("fine")).await?, None, "a bad name changes nothing");
    Ok(())
}

async fn several_locks_are_tried_without_waiting(env: Env) -> Result<()> {
    let (one, other, observer) = (env.locks().await?, env.locks().await?, env.observer().await?);
    let names = ["a", "b"].map(|name| env.name(name));
    let guard = other.lock(&names[1]).await?;
    assert!(one.try_lock_all(&names).await?.is_none());
    assert_eq!(observer.view(&env.key("a")).await?, None, "given back before the answer");
    guard.release().await?;
    let both = one.try_lock_all(&names).await?.context("they are free")?;
    assert!(other.try_lock(&names[0]).await?.is_none());
    both.release().await?;
    Ok(())
}

async fn the_loss_of_one_of_several_locks_ends_all(env: Env) -> Result<()> {
    let (one, operator) = (env.locks().await?, env.locks().await?);
    let names = ["a", "b", "c"].map(|name| env.name(name));
    // Renewed soon, and that is when a holder without signals hears of it.
    let all = one.lock_all(&names).ttl(Duration::from_secs(2)).await?;
    let work = all.run(std::future::pending::<()>());
    operator.break_lock_now(&names[1], "moving house").await?;
    let lost = soon("the work is stopped", work).await?.expect_err("it never ends by itself");
    assert_eq!(lost.key, env.key("b"));
    assert!(matches!(&lost.cause, LostCause::Broken(_) | LostCause::Taken), "{lost:?}");
    assert!(!all.is_trusted() && all.check().is_err());
    assert_eq!(all.lost().await.key, env.key("b"));
    assert!(matches!(all.release().await, Err(LockError::NotHeld { .. })));
    soon("all of them are free", operator.lock_all(&names)).await??.release().await?;
    Ok(())
}

async fn a_request_for_several_locks_may_be_dropped(env: Env) -> Result<()> {
    let (one, other, observer) = (env.locks().await?, env.locks().await?, env.observer().await?);
    let names = ["a", "b"].map(|name| env.name(name));
    let guard = other.lock(&names[1]).ttl(LONG).await?;
    let waiting = tokio::spawn(one.lock_all(&names).ttl(LONG).into_future());
    observer.sees_waiting(&env.key("b"), 1).await?;
    assert!(observer.view(&env.key("a")).await?.is_some());
    waiting.abort();
    observer.sees_nothing(&env.key("a")).await?;
    observer.sees_waiting(&env.key("b"), 0).await?;
    guard.release().await?;
    Ok(())
}

async fn several_locks_are_entered_again_by_their_owner(env: Env) -> Result<()> {
    let (one, owner) = (env.locks().await?, lockstep_core::Owner::new());
    let names = ["a", "b"].map(|name| env.name(name));
    let guard = one.lock(&names[0]).owner(&owner).await?;
    let both = soon("it does not wait for itself", one.lock_all(&names).owner(&owner)).await??;
    assert_eq!(both.get(&names[0]).and_then(lockstep_lock::Guard::token), guard.token());
    both.release().await?;
    assert!(guard.is_trusted(), "it was entered twice and left once");
    guard.release().await?;
    Ok(())
}
