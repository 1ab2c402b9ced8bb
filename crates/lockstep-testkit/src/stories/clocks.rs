//! Executors that are busy and machines that sleep.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_lock::{Guard, LockError, Locks, LostCause, Options};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::stage;
use crate::suite::Subject;
use crate::suite::env::{Env, Run, STEADY, Stopwatch, soon, unless_slow};
use crate::wrap::JumpingClock;

/// Every worker of the runtime is blocked for longer than the ttl, so nothing renews the lock.
/// Here renewals have a thread of their own: it is still held.
///
/// # Errors
/// It is not, on this store.
pub async fn blocked_executor(subject: &Subject) -> Result<()> {
    let env = stage(subject, "blocked_executor").await;
    let (other, name) = (env.locks().await?, env.name("blocked"));
    let mut executor = Executor::start()?;
    let guard = executor.locks(&env, &name);
    let guard = soon("it is held", guard).await???;
    executor.block().await?;
    let began = Stopwatch::start();
    while began.elapsed() < STEADY * 2 {
        assert!(guard.is_trusted(), "lost after {:?}", began.elapsed());
        assert!(other.try_lock(&name).await?.is_none());
        tokio::time::sleep(STEADY / 20).await;
    }
    executor.unblock();
    // Dropped here, outside of its runtime: given back all the same.
    drop(guard);
    drop(executor);
    soon("it is given back", other.lock(&name)).await??.release().await?;
    Ok(())
}

/// Its turn comes to a waiter whose executor is blocked, and when it wakes up it believes in a grant that
/// has passed on. Here nothing renews what nobody has seen, so others wait for one ttl and no longer; and
/// who wakes up late reckons from when it last asked, and asks again.
///
/// # Errors
/// Either is not so, on this store.
pub async fn blocked_waiter(subject: &Subject) -> Result<()> {
    let env = &stage(subject, "blocked_waiter").await;
    unless_slow(|round| async move {
        let (name, key) = (env.name(&round.to_string()), env.key(&round.to_string()));
        let (first, next, observer) =
            (env.locks().await?, env.locks().await?, env.observer().await?);
        let holder = first.lock(&name).await?;
        let mut executor = Executor::start()?;
        let mut late = executor.locks(env, &name);
        observer.sees_waiting(&key, 1).await?;
        executor.block().await?;
        let token = holder.token();
        holder.release().await?;
        let granted = observer.view(&key).await?.and_then(|view| view.holder().cloned());
        let Some(unseen) = granted.filter(|holder| holder.token > token) else {
            // It was blocked for so long that its place in the queue has ended too.
            return Ok(Run::TooSlow);
        };

        let guard = soon("the lock passes on", next.lock(&name)).await??;
        assert!(guard.token() > unseen.token, "{guard:?} after {unseen:?}");
        executor.unblock();
        tokio::select! {
            believer = &mut late => {
                let believer = match believer? {
                    Ok(believer) => believer,
                    // The observer saw it in the queue before its own ask was answered, and then it was
                    // blocked: an ask whose answer was not heard in time has failed.
                    Err(error) if has_no_answer(&error) => return Ok(Run::TooSlow),
                    Err(error) => return Err(error),
                };
                let trusted = believer.is_trusted();
                anyhow::bail!("{believer:?} while {guard:?} is held (trusted: {trusted})");
            }
            waits = observer.sees_waiting(&key, 1) => waits?,
        }
        assert!(guard.is_trusted(), "it is renewed, whoever wakes up");
        let token = guard.token();
        guard.release().await?;
        let late = soon("its turn comes again", late).await???;
        assert!(late.is_trusted() && late.token() > token, "{late:?} after {token:?}");
        late.release().await?;
        Ok(Run::Judged(()))
    })
    .await
}

fn has_no_answer(error: &anyhow::Error) -> bool {
    error.downcast_ref::<LockError>().is_some_and(LockError::may_have_happened)
}

/// A runtime whose workers can be blocked, all of them.
struct Executor {
    /// Taken only when this is dropped.
    runtime: Option<Runtime>,
    blocks: Vec<Sender<()>>,
}

impl Executor {
    const WORKERS: usize = 2;

    fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(Self::WORKERS)
            .enable_all()
            .build()?;
        Ok(Self { runtime: Some(runtime), blocks: vec![] })
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.as_ref().expect("not dropped yet").spawn(work);
    }

    /// Waits for a lock there, through a handle of its own.
    fn locks(&self, env: &Env, name: &str) -> oneshot::Receiver<Result<Guard>> {
        let (held, is_held) = oneshot::channel();
        let (env, name) = (env.clone(), name.to_owned());
        self.spawn(async move {
            let guard = async { anyhow::Ok(env.locks().await?.lock(name).await?) }.await;
            let _ = held.send(guard);
        });
        is_held
    }

    /// Returns when all workers are stuck.
    async fn block(&mut self) -> Result<()> {
        let mut stuck = vec![];
        for _ in 0..Self::WORKERS {
            let (unblock, blocked) = channel();
            let (sticks, is_stuck) = oneshot::channel();
            self.spawn(async move {
                let _ = sticks.send(());
                block(&blocked);
            });
            self.blocks.push(unblock);
            stuck.push(is_stuck);
        }
        for is_stuck in stuck {
            soon("a worker is stuck", is_stuck).await??;
        }
        Ok(())
    }

    fn unblock(&mut self) {
        self.blocks.clear();
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.unblock();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
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
    // Whoever keeps it has just heard of it. Still awake, that one would notice by itself.
    tokio::time::sleep(STEADY / 20).await;
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
