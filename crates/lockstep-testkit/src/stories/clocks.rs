//! Executors that are busy and machines that sleep.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_lock::{Guard, Locks, LostCause, Options};
use tokio::sync::oneshot;

use super::stage;
use crate::suite::Subject;
use crate::suite::env::{Env, STEADY, Stopwatch, soon};
use crate::wrap::JumpingClock;

/// Every worker of the runtime is blocked for longer than the ttl, so nothing renews the lock.
/// Here renewals have a thread of their own: it is still held.
///
/// # Errors
/// It is not, on this store.
pub async fn blocked_executor(subject: &Subject) -> Result<()> {
    const WORKERS: usize = 2;
    let env = stage(subject, "blocked_executor").await;
    let (other, name) = (env.locks().await?, env.name("blocked"));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    let (held, is_held) = oneshot::channel();
    let mine = env.name("blocked");
    runtime.spawn(async move {
        let guard = async { anyhow::Ok(env.locks().await?.lock(mine).await?) }.await;
        let _ = held.send(guard);
    });
    let guard: Guard = soon("it is held", is_held).await???;

    let blocks: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (unblock, blocked) = channel::<()>();
            let (stuck, is_stuck) = oneshot::channel();
            runtime.spawn(async move {
                let _ = stuck.send(());
                block(&blocked);
            });
            (unblock, is_stuck)
        })
        .collect();
    let mut unblock = Vec::new();
    for (sender, is_stuck) in blocks {
        soon("a worker is stuck", is_stuck).await??;
        unblock.push(sender);
    }
    let began = Stopwatch::start();
    while began.elapsed() < STEADY * 2 {
        assert!(guard.is_trusted(), "lost after {:?}", began.elapsed());
        assert!(other.try_lock(&name).await?.is_none());
        tokio::time::sleep(STEADY / 20).await;
    }
    drop(unblock);
    // Dropped here, outside of its runtime: given back all the same.
    drop(guard);
    runtime.shutdown_background();
    soon("it is given back", other.lock(&name)).await??.release().await?;
    Ok(())
}

/// Holds a worker until the test lets go of it: what a computation without an await does.
fn block(blocked: &Receiver<()>) {
    let end = blocked.recv_timeout(Duration::from_secs(60));
    assert_eq!(end, Err(RecvTimeoutError::Disconnected));
}

/// The machine sleeps past the lease, and timers do not notice. Here trust is read from a clock
/// that goes on while the machine sleeps, each time: it has ended at once.
///
/// # Errors
/// It has not, on this store.
pub async fn suspended_clock(subject: &Subject) -> Result<()> {
    let env: Env = stage(subject, "suspended_clock").await;
    let clock = Arc::new(JumpingClock::default());
    let options = Options { clock: clock.clone(), ..Options::default() };
    let locks = Locks::open_with(env.connect(), options).await?.with_ttl(STEADY);
    let name = env.name("asleep");
    let guard = locks.lock(&name).await?;
    assert!(guard.is_trusted());
    let mut went_on = false;
    let work = async {
        clock.jump(STEADY * 2);
        tokio::task::yield_now().await;
        went_on = true;
    };
    let lost = guard.run(work).await.expect_err("it ran out during the work");
    assert_eq!(lost.cause, LostCause::Expired);
    assert!(!went_on, "work takes no further step");
    assert!(!guard.is_trusted(), "at once, before anybody could tell it");
    let lost = guard.check().expect_err("it is lost");
    assert_eq!(lost.cause, LostCause::Expired);
    let mut begun = false;
    assert!(guard.run(async { begun = true }).await.is_err() && !begun, "no work is begun");
    assert_eq!(soon("the guard hears of it", guard.lost()).await?.cause, LostCause::Expired);
    drop(guard);
    let again = soon("the handle goes on", locks.lock(&name)).await??;
    assert!(again.is_trusted(), "with a new lease");
    let view = env.observer().await?.view(&env.key("asleep")).await?.context("it is held")?;
    assert_eq!(view.holder().and_then(|holder| holder.token), again.token());
    again.release().await?;
    Ok(())
}
