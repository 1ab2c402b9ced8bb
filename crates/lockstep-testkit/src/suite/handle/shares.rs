//! Readers, writers and permits, through handles.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::future::{try_join, try_join_all};
use lockstep_core::Owner;
use lockstep_lock::{LockError, Share};

use crate::suite::case::cases;
use crate::suite::env::{Env, Signals, soon};

cases! { Handle:
    readers_never_see_a_writer_at_work backs Shared Exclusive;
    a_writer_gets_in_among_many_readers backs Shared Fair;
    a_writer_becomes_a_reader_and_lets_others_in backs Shared;
    an_owner_that_writes_may_read_and_not_the_other_way_round backs Shared Reentry;
    permits_are_never_exceeded backs Shared;
    permits_that_cannot_be_had_are_refused backs Shared Errors;
    a_request_to_read_may_time_out backs Shared CancelSafe;
    shared_locks_can_be_handed_over backs Shared HandOver;
}

/// Two numbers that a writer changes one after the other must be seen equal by every reader.
async fn readers_never_see_a_writer_at_work(env: Env) -> Result<()> {
    let rounds = if env.signals == Signals::Silent { 1 } else { 4 };
    let (one, two) = (AtomicU64::new(0), AtomicU64::new(0));
    let handles = try_join_all((0..4).map(|_| env.locks())).await?;
    let name = env.name("pair");
    let writers = handles.iter().take(2).map(|locks| async {
        for _ in 0..rounds {
            let guard = locks.write(&name).await?;
            let seen = one.load(Ordering::SeqCst);
            one.store(seen + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            two.store(seen + 1, Ordering::SeqCst);
            guard.release().await?;
        }
        anyhow::Ok(())
    });
    let readers = handles.iter().map(|locks| async {
        for _ in 0..rounds {
            let guard = locks.read(&name).await?;
            let seen = one.load(Ordering::SeqCst);
            tokio::task::yield_now().await;
            if (seen, seen) != (one.load(Ordering::SeqCst), two.load(Ordering::SeqCst)) {
                bail!("a reader saw a writer at work");
            }
            guard.release().await?;
        }
        anyhow::Ok(())
    });
    soon("all get through", try_join(try_join_all(writers), try_join_all(readers))).await??;
    assert_eq!(two.load(Ordering::SeqCst), 2 * rounds);
    Ok(())
}

async fn a_writer_gets_in_among_many_readers(env: Env) -> Result<()> {
    let (locks, other, name) = (env.locks().await?, env.locks().await?, env.name("among"));
    let first = locks.read(&name).await?;
    let writer = tokio::spawn({
        let (other, name) = (other.clone(), name.clone());
        async move { other.write(&name).await }
    });
    env.observer().await?.sees_waiting(&env.key("among"), 1).await?;
    // As long as it waits no reader passes, so these cannot keep it out for ever.
    assert!(locks.try_read(&name).await?.is_none());
    let late = tokio::spawn({
        let (locks, name) = (locks.clone(), name.clone());
        async move { locks.read(&name).await }
    });
    env.observer().await?.sees_waiting(&env.key("among"), 2).await?;
    first.release().await?;
    let writer = soon("the writer's turn", writer).await???;
    assert!(!late.is_finished());
    writer.release().await?;
    soon("the reader's turn", late).await???.release().await?;
    Ok(())
}

async fn a_writer_becomes_a_reader_and_lets_others_in(env: Env) -> Result<()> {
    let (locks, other, name) = (env.locks().await?, env.locks().await?, env.name("downgrade"));
    let mut guard = locks.write(&name).await?;
    let token = guard.token();
    assert_eq!(guard.share(), Share::Exclusive);
    let reader = tokio::spawn({
        let (other, name) = (other.clone(), name.clone());
        async move { other.read(&name).await }
    });
    env.observer().await?.sees_waiting(&env.key("downgrade"), 1).await?;
    guard.downgrade().await?;
    let reader = soon("the reader is let in", reader).await???;
    assert_eq!((guard.share(), guard.token()), (Share::Read, token));
    assert!(guard.is_trusted() && reader.is_trusted());
    guard.downgrade().await.context("once more is nothing")?;
    assert!(other.try_lock(&name).await?.is_none());
    guard.release().await?;
    assert!(other.try_lock(&name).await?.is_none(), "the other still reads");
    reader.release().await?;
    let mut alone = other.write(&name).await?;
    alone.downgrade().await?;
    locks.read(&name).await?.release().await?;
    alone.release().await?;
    Ok(())
}

async fn an_owner_that_writes_may_read_and_not_the_other_way_round(env: Env) -> Result<()> {
    let (locks, name, owner) = (env.locks().await?, env.name("again"), Owner::new());
    let mut writer = locks.write(&name).owner(&owner).await?;
    let inner = locks.read(&name).owner(&owner).await?;
    assert_eq!((inner.share(), inner.token()), (Share::Exclusive, writer.token()));
    let refused = writer.downgrade().await;
    assert!(matches!(refused, Err(LockError::Reentered { .. })), "{refused:?}");
    inner.release().await?;
    assert!(locks.try_read(&name).await?.is_none(), "it still writes");
    writer.downgrade().await?;
    let again = locks.read(&name).owner(&owner).await?;
    let upgrade = locks.write(&name).owner(&owner).await;
    assert!(matches!(upgrade, Err(LockError::Upgrade { .. })), "{upgrade:?}");
    let upgrade = locks.try_lock(&name).owner(&owner).await;
    assert!(matches!(upgrade, Err(LockError::Upgrade { .. })), "{upgrade:?}");
    writer.release().await?;
    again.release().await?;
    locks.write(&name).owner(&owner).await?.release().await?;
    Ok(())
}

async fn permits_are_never_exceeded(env: Env) -> Result<()> {
    let rounds = if env.signals == Signals::Silent { 1 } else { 3 };
    let handles = try_join_all((0..2).map(|_| env.locks())).await?;
    let (name, out) = (env.name("permits"), AtomicU32::new(0));
    let workers = (0..6).map(|n| {
        let (locks, name, out) = (&handles[n % 2], &name, &out);
        async move {
            let count = 1 + n as u32 % 2;
            for _ in 0..rounds {
                let guard = locks.permits(name, 3).acquire(count).await?;
                let now = out.fetch_add(count, Ordering::SeqCst) + count;
                if now > 3 {
                    bail!("{now} of 3 permits are out");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
                out.fetch_sub(count, Ordering::SeqCst);
                if n == 0 { drop(guard) } else { guard.release().await? }
            }
            anyhow::Ok(())
        }
    });
    soon("all get through", try_join_all(workers)).await??;
    Ok(())
}

async fn permits_that_cannot_be_had_are_refused(env: Env) -> Result<()> {
    let (locks, other, name) = (env.locks().await?, env.locks().await?, env.name("refused"));
    for (count, of) in [(0, 5), (6, 5), (1, 0), (1, u32::MAX), (1, lockstep_lock::MAX_PERMITS + 1)]
    {
        let refused = locks.permits(&name, of).acquire(count).await;
        assert!(matches!(refused, Err(LockError::Permits { .. })), "{count}/{of}: {refused:?}");
    }
    let guard = locks.permits(&name, 5).acquire(2).await?;
    assert_eq!(guard.share(), Share::Permits { count: 2, of: 5 });
    let differs = other.permits(&name, 7).acquire(1).await.err().context("another total")?;
    assert!(matches!(differs, LockError::Differs { asked: 7, of: 5, .. }), "{differs:?}");
    let text = differs.to_string();
    assert!(text.contains("5 permits") && text.contains("7 permits"), "{text}");
    assert!(!differs.may_retry() && !differs.may_have_happened());
    let differs = other.try_read(&name).await.err().context("no permits at all")?;
    assert!(differs.to_string().contains("a read-write lock"), "{differs}");
    let owner = Owner::new();
    let (a, b) = (
        other.permits(&name, 5).acquire(1).owner(&owner).await?,
        other.permits(&name, 5).acquire(1).owner(&owner).await?,
    );
    assert_ne!(a.token(), b.token(), "an owner that has permits may need more");
    assert!(locks.permits(&name, 5).try_acquire(2).await?.is_none());
    locks.permits(&name, 5).try_acquire(1).await?.context("one is left")?.release().await?;
    for guard in [guard, a, b] {
        guard.release().await?;
    }
    Ok(())
}

async fn a_request_to_read_may_time_out(env: Env) -> Result<()> {
    let (locks, other, name) = (env.locks().await?, env.locks().await?, env.name("late"));
    let writer = locks.write(&name).await?;
    let waits = other.read(&name).within(Duration::from_millis(50)).await;
    // A machine that is busy may not even have had an answer by then.
    let error = waits.err().context("it has waited long enough")?;
    let timed_out = matches!(error, LockError::TimedOut { .. });
    assert!(timed_out || error.may_have_happened(), "{error:?}");
    writer.release().await?;
    // A reader in the queue that nobody waits for any more must not hold anything.
    let held = soon("the lock is free", locks.write(&name)).await??;
    held.release().await?;
    Ok(())
}

async fn shared_locks_can_be_handed_over(env: Env) -> Result<()> {
    let (locks, other, name) = (env.locks().await?, env.locks().await?, env.name("handed"));
    let (stays, goes) = (locks.read(&name).await?, locks.read(&name).await?);
    let leaked = goes.leak().ok().context("nobody else uses it")?;
    let text = leaked.to_string();
    let adopted = other.adopt(text.parse()?).await?;
    assert_eq!(adopted.share(), Share::Read);
    stays.release().await?;
    assert!(locks.try_lock(&name).await?.is_none());
    adopted.release().await?;
    locks.lock(&name).await?.release().await?;
    Ok(())
}
