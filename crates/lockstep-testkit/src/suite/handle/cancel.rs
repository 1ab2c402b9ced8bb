//! Futures dropped at each await point: nothing stays behind, and not for a whole ttl.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use lockstep_lock::{Guard, Locks};

use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, Observer, eventually, soon};
use crate::wrap::{Counting, Point, VerbName};

cases! { Handle:
    a_request_may_be_dropped_at_any_point backs CancelSafe;
    a_waiting_request_may_be_dropped_at_any_point backs CancelSafe Fair;
    a_release_may_be_dropped_at_any_point backs CancelSafe;
    a_grant_that_nobody_heard_of_is_given_back backs CancelSafe;
    a_release_whose_answer_nobody_heard_is_not_repeated_on_the_next backs CancelSafe;
}

/// Polls at most so many times; `None` if that was not enough, and then the future is dropped.
async fn polled<F: Future>(future: F, mut polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// One handle whose verbs can be dropped before and after they are done, one to get in next, and
/// somebody who looks.
struct Stage {
    locks: Locks,
    next: Locks,
    observer: Observer,
}

impl Stage {
    async fn of(env: &Env) -> Result<Self> {
        let yielding = Arc::new(Counting::yielding(env.connect()));
        // The leases outlast the case: what is gone was given back, not run out.
        let locks = Env::open(yielding).await?.with_ttl(LONG);
        Ok(Self { locks, next: env.locks().await?, observer: env.observer().await? })
    }

    async fn nothing_stays(&self, env: &Env, name: &str) -> Result<()> {
        self.observer.sees_nothing(&env.key(name)).await?;
        let guard = soon("the next gets in", self.next.lock(env.name(name))).await??;
        guard.release().await?;
        Ok(())
    }
}

/// Runs `scenario` with 0, 1, 2, … polls, all at once, until one of them was enough.
async fn at_each_point<F>(mut scenario: impl FnMut(usize) -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    for from in (0..256).step_by(16) {
        let done = try_join_all((from..from + 16).map(&mut scenario)).await?;
        if from == 0 {
            assert!(!done[0] && !done[1], "without a poll nothing is done, and with one not all");
        }
        if done.into_iter().any(|done| done) {
            return Ok(());
        }
    }
    anyhow::bail!("256 polls were not enough")
}

async fn a_request_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    let stage = &Stage::of(&env).await?;
    let env = &env;
    at_each_point(|polls| async move {
        let name = format!("free {polls}");
        let guard = polled(stage.locks.lock(env.name(&name)).into_future(), polls).await;
        let done = guard.is_some();
        if let Some(guard) = guard {
            guard?.release().await?;
        }
        stage.nothing_stays(env, &name).await?;
        anyhow::Ok(done)
    })
    .await
}

async fn a_waiting_request_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    let stage = &Stage::of(&env).await?;
    let env = &env;
    at_each_point(|polls| async move {
        let name = format!("queued {polls}");
        let key = env.key(&name);
        let holder = stage.next.lock(env.name(&name)).await?;
        let request = stage.locks.lock(env.name(&name)).into_future();
        let waiting = tokio::spawn(polled(request, polls));
        eventually("it is dropped, or in the queue", || async {
            let queued = stage.observer.view(&key).await?.is_some_and(|view| view.waiting > 0);
            Ok((queued || waiting.is_finished()).then_some(()))
        })
        .await?;
        assert!(holder.is_trusted());
        holder.release().await?;
        let guard: Option<Result<Guard, _>> = soon("it ends either way", waiting).await??;
        let done = guard.is_some();
        if let Some(guard) = guard {
            guard?.release().await?;
        }
        stage.nothing_stays(env, &name).await?;
        anyhow::Ok(done)
    })
    .await
}

async fn a_release_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    let stage = &Stage::of(&env).await?;
    let env = &env;
    at_each_point(|polls| async move {
        let name = format!("release {polls}");
        let guard = stage.locks.lock(env.name(&name)).await?;
        let released = polled(guard.release(), polls).await;
        let done = released.is_some();
        released.transpose()?;
        stage.nothing_stays(env, &name).await?;
        anyhow::Ok(done)
    })
    .await
}

/// Aborts a task and waits until its future is gone: until then it could still go on.
async fn dropped<T>(task: tokio::task::JoinHandle<T>) {
    task.abort();
    let _ = task.await;
}

async fn a_grant_that_nobody_heard_of_is_given_back(env: Env) -> Result<()> {
    let (counting, locks) = env.counted().await?;
    let (observer, other) = (env.observer().await?, env.locks().await?);
    for point in [Point::Before(VerbName::Acquire), Point::After(VerbName::Acquire)] {
        let name = format!("{point:?}");
        let mut pause = counting.pause(point, 1);
        let asking = tokio::spawn(locks.lock(env.name(&name)).ttl(LONG).into_future());
        soon("the ask comes to the point", pause.reached()).await?;
        if point == Point::After(VerbName::Acquire) {
            let view = observer.view(&env.key(&name)).await?.context("the store has granted")?;
            assert!(view.holder().is_some());
        }
        dropped(asking).await;
        observer.sees_nothing(&env.key(&name)).await?;
        soon("the next gets in", other.lock(env.name(&name))).await??.release().await?;
        pause.resume();
    }
    Ok(())
}

async fn a_release_whose_answer_nobody_heard_is_not_repeated_on_the_next(env: Env) -> Result<()> {
    let (counting, locks) = env.counted().await?;
    let (other, name) = (env.locks().await?, env.name("release"));
    let guard = locks.lock(&name).ttl(LONG).await?;
    let mut pause = counting.pause(Point::After(VerbName::Release), 1);
    let releasing = tokio::spawn(guard.release());
    soon("the store has released", pause.reached()).await?;
    let next = soon("the next gets in", other.lock(&name)).await??;
    let before = counting.counts().releases;
    dropped(releasing).await;
    eventually("the background release has gone out", || async {
        Ok((counting.counts().releases > before).then_some(()))
    })
    .await?;
    pause.resume();
    assert!(locks.try_lock(&name).await?.is_none(), "it did not free the next one's lock");
    assert!(next.is_trusted());
    next.release().await?;
    Ok(())
}
