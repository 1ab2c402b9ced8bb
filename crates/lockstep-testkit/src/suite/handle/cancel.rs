//! Futures dropped at each await point: nothing stays behind, and not for a whole ttl.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::{BoxFuture, TryFutureExt, try_join_all};
use lockstep_core::Owner;
use lockstep_lock::{Guard, LockError, Locks};

use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, Observer, STEADY, eventually, soon};
use crate::wrap::{Counting, Point, VerbName};

/// A lease that outlasts what anybody here waits for: what is gone was given back, not run out. And hardly
/// longer, because a waiter that is not told asks at each third of it.
const OUTLASTS: Duration = Duration::from_secs(36);
/// A lease that is meant to end, and long enough to be leaked and adopted before.
const RUNS_OUT: Duration = Duration::from_secs(1);

cases! { Handle:
    a_request_may_be_dropped_at_any_point backs CancelSafe;
    a_request_that_does_not_wait_may_be_dropped_at_any_point backs CancelSafe;
    an_owners_request_may_be_dropped_at_any_point backs CancelSafe Reentry;
    a_request_with_its_work_may_be_dropped_at_any_point backs CancelSafe;
    a_request_to_read_may_be_dropped_at_any_point backs CancelSafe Shared;
    a_waiting_request_may_be_dropped_at_any_point backs CancelSafe;
    an_owners_waiting_request_may_be_dropped_at_any_point backs CancelSafe Reentry;
    a_waiting_request_with_its_work_may_be_dropped_at_any_point backs CancelSafe;
    a_waiting_request_to_read_may_be_dropped_at_any_point backs CancelSafe Shared;
    an_adoption_may_be_dropped_at_any_point backs CancelSafe HandOver;
    a_dropped_adoption_leaves_nothing_after_the_ttl backs CancelSafe HandOver Leases;
    a_release_may_be_dropped_at_any_point backs CancelSafe;
    a_close_may_be_dropped_at_any_point backs CancelSafe;
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
        let locks = Env::open(yielding).await?.with_ttl(OUTLASTS);
        Ok(Self { locks, next: env.locks().await?, observer: env.observer().await? })
    }

    async fn nothing_stays(&self, env: &Env, name: &str) -> Result<()> {
        self.observer.sees_nothing(&env.key(name)).await?;
        let guard = soon("the next gets in", self.next.lock(env.name(name))).await??;
        guard.release().await?;
        Ok(())
    }

    /// The same, and whoever asked gets its turn if it asks again at once. Returns whether it was done.
    async fn nothing_stays_of(
        &self,
        env: &Env,
        name: &str,
        owner: &Owner,
        asked: Option<Result<Option<Guard>, LockError>>,
    ) -> Result<bool> {
        let done = asked.is_some();
        if let Some(guard) = asked.transpose()?.flatten() {
            guard.release().await?;
        }
        // It waits for what is being given back, and may not be told: then it has to ask. An ask that was
        // overtaken by what gives it back is held for a while, and its owner does not wait for itself.
        let again = self.locks.lock(env.name(name)).owner(owner).ttl(STEADY);
        soon("its second request gets its turn", again).await??.release().await?;
        self.nothing_stays(env, name).await?;
        Ok(done)
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

/// In the end there is a guard, or all that was to be done under it is done.
type Asked = BoxFuture<'static, Result<Option<Guard>, LockError>>;
/// A way to ask for a lock.
type Ask = fn(&Locks, String, &Owner) -> Asked;

fn unnamed(locks: &Locks, name: String, _: &Owner) -> Asked {
    Box::pin(locks.lock(name).into_future().map_ok(Some))
}

fn without_waiting(locks: &Locks, name: String, _: &Owner) -> Asked {
    Box::pin(locks.try_lock(name).into_future())
}

fn as_owner(locks: &Locks, name: String, owner: &Owner) -> Asked {
    Box::pin(locks.lock(name).owner(owner).into_future().map_ok(Some))
}

fn with_work(locks: &Locks, name: String, _: &Owner) -> Asked {
    Box::pin(locks.lock(name).run(async |_| tokio::task::yield_now().await).map_ok(|()| None))
}

fn to_read(locks: &Locks, name: String, _: &Owner) -> Asked {
    Box::pin(locks.read(name).into_future().map_ok(Some))
}

async fn dropped_while_free(env: Env, ask: Ask) -> Result<()> {
    let stage = &Stage::of(&env).await?;
    let env = &env;
    at_each_point(|polls| async move {
        let (name, owner) = (format!("free {polls}"), Owner::new());
        let asked = polled(ask(&stage.locks, env.name(&name), &owner), polls).await;
        stage.nothing_stays_of(env, &name, &owner, asked).await
    })
    .await
}

async fn dropped_while_queued(env: Env, ask: Ask) -> Result<()> {
    let stage = &Stage::of(&env).await?;
    let env = &env;
    at_each_point(|polls| async move {
        let (name, owner) = (format!("queued {polls}"), Owner::new());
        let key = env.key(&name);
        let holder = stage.next.lock(env.name(&name)).await?;
        let request = ask(&stage.locks, env.name(&name), &owner);
        let waiting = tokio::spawn(polled(request, polls));
        eventually("it is dropped, or in the queue", || async {
            let queued = stage.observer.waiting(&key).await? > 0;
            Ok((queued || waiting.is_finished()).then_some(()))
        })
        .await?;
        assert!(holder.is_trusted());
        holder.release().await?;
        let asked = soon("it ends either way", waiting).await??;
        stage.nothing_stays_of(env, &name, &owner, asked).await
    })
    .await
}

async fn a_request_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    dropped_while_free(env, unnamed).await
}

async fn a_request_that_does_not_wait_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    dropped_while_free(env, without_waiting).await
}

async fn an_owners_request_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    dropped_while_free(env, as_owner).await
}

async fn a_request_with_its_work_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    dropped_while_free(env, with_work).await
}

async fn a_request_to_read_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    dropped_while_free(env, to_read).await
}

async fn a_waiting_request_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    dropped_while_queued(env, unnamed).await
}

async fn an_owners_waiting_request_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    dropped_while_queued(env, as_owner).await
}

async fn a_waiting_request_with_its_work_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    dropped_while_queued(env, with_work).await
}

async fn a_waiting_request_to_read_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    dropped_while_queued(env, to_read).await
}

async fn an_adoption_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    let stage = &Stage::of(&env).await?;
    let env = &env;
    at_each_point(|polls| async move {
        let name = format!("adopted {polls}");
        let guard = stage.locks.lock(env.name(&name)).await?;
        let leaked = guard.leak().ok().context("the only guard")?;
        let adopted = polled(stage.locks.adopt(leaked.clone()), polls).await;
        let done = adopted.is_some();
        // It is as it was: somebody else may adopt it.
        let guard = match adopted {
            Some(guard) => guard?,
            None => stage.next.adopt(leaked).await?,
        };
        guard.release().await?;
        stage.nothing_stays(env, &name).await?;
        anyhow::Ok(done)
    })
    .await
}

async fn a_dropped_adoption_leaves_nothing_after_the_ttl(env: Env) -> Result<()> {
    let stage = &Stage::of(&env).await?;
    let env = &env;
    let ttl = RUNS_OUT.max(env.facts.ttl_min);
    at_each_point(|polls| async move {
        let name = format!("left {polls}");
        let guard = stage.locks.lock(env.name(&name)).ttl(ttl).await?;
        let leaked = guard.leak().ok().context("the only guard")?;
        // On a slow machine it has run out before it is adopted.
        let done = polled(stage.locks.adopt(leaked), polls).await.is_some();
        soon("it runs out", stage.next.lock(env.name(&name))).await??.release().await?;
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

async fn a_close_may_be_dropped_at_any_point(env: Env) -> Result<()> {
    let (next, observer) = (env.locks().await?, env.observer().await?);
    for polls in 0..3 {
        let name = format!("closed {polls}");
        let locks = env.locks().await?;
        let guard = locks.lock(env.name(&name)).ttl(OUTLASTS).await?;
        polled(locks.close(), polls).await;
        assert_eq!(guard.is_trusted(), polls == 0, "it is ended with the first step");
        drop((guard, locks));
        observer.sees_nothing(&env.key(&name)).await?;
        soon("the next gets in", next.lock(env.name(&name))).await??.release().await?;
    }
    Ok(())
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
