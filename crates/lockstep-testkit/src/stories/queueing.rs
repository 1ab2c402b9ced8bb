//! Waiting in line.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use lockstep_lock::{Locks, Options};

use super::puppet::Puppet;
use super::{serve, stage};
use crate::oracle::{Oracle, Recorder};
use crate::suite::Subject;
use crate::suite::env::{Env, LONG, STEADY, Stopwatch, eventually, soon};
use crate::wrap::{Counting, Counts, Point, SilentSignals, VerbName};

/// One release wakes a herd of waiters, and all but one go back to sleep. Here a hand-over costs
/// the store a fixed number of requests. Where the store has no queue there is a herd, of a known size;
/// where waiters must poll, they keep to their rate.
///
/// # Errors
/// It costs more, on this store.
pub async fn herd_on_release(subject: &Subject) -> Result<()> {
    let env = stage(subject, "herd_on_release").await;
    let (name, key, observer) = (env.name("herd"), env.key("herd"), env.observer().await?);
    let counted = try_join_all((0..4).map(|_| env.counted())).await?;
    let sum = |of: fn(&Counts) -> u64| -> u64 {
        counted.iter().map(|(counting, _)| of(&counting.counts())).sum()
    };
    let all = |counts: &Counts| counts.acquires + counts.releases + counts.renews;
    let guard = counted[0].1.lock(&name).ttl(LONG).await?;
    let waiters: Vec<_> = (0..40)
        .map(|n| {
            let request = counted[n % 4].1.lock(&name).ttl(LONG);
            tokio::spawn(async move { request.await?.release().await })
        })
        .collect();
    let hand_overs = waiters.len() as u64;
    observer.sees_waiting(&key, hand_overs).await?;
    let (requests, wakes, began) = (sum(all), sum(|c| c.wakes), Stopwatch::start());
    guard.release().await?;
    for waiter in waiters {
        soon("every waiter is served", waiter).await???;
    }
    let (requests, wakes) = (sum(all) - requests, sum(|counts| counts.wakes) - wakes);
    if env.facts.push && env.facts.fair {
        assert!(wakes <= 2 * hand_overs, "{wakes} wake-ups for {hand_overs} hand-overs");
        assert!(requests <= 8 * hand_overs, "{requests} requests for {hand_overs} hand-overs");
    } else if env.facts.push {
        // Where nobody hands a lock over, all who wait hear of each release, and all but one in vain: a
        // hand-over costs one wake-up and one ask per waiter, and not more. A grant changes nothing
        // that they have read since.
        let allowed = hand_overs * (hand_overs + 1);
        assert!(wakes <= allowed, "{wakes} wake-ups for {hand_overs} hand-overs");
        assert!(requests <= 2 * allowed, "{requests} requests for {hand_overs} hand-overs");
    } else {
        let polls = began.elapsed().as_millis() as u64 / 100 + 1;
        let allowed = hand_overs * (polls + 8);
        assert!(requests <= allowed, "{requests} requests where {allowed} are the promised rate");
    }
    Ok(())
}

/// H holds, W1 and W2 wait, W1 gives up: W2 is woken and takes the lock while H holds it. Here
/// being woken is not owning.
///
/// # Errors
/// It is, on this store.
pub async fn middle_waiter_gives_up(subject: &Subject) -> Result<()> {
    let env = stage(subject, "middle_waiter_gives_up").await;
    let ways = [GivesUp::Cancelled, GivesUp::TimedOut, GivesUp::Killed];
    let possible = |way: &GivesUp| *way != GivesUp::Killed || subject.processes.is_some();
    let env = &env;
    try_join_all(ways.into_iter().filter(possible).map(|way| gives_up(env, way))).await?;
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivesUp {
    Cancelled,
    TimedOut,
    Killed,
}

async fn gives_up(env: &Env, way: GivesUp) -> Result<()> {
    let (h, w1, w2) = (env.locks().await?, env.locks().await?, env.locks().await?);
    let name = env.name(&format!("{way:?}"));
    let (key, observer) = (env.key(&format!("{way:?}")), env.observer().await?);
    let recorder = Recorder::in_memory("client");
    let mut first = recorder.asks(&name);
    let guard = h.lock(&name).await?;
    first.granted(&guard);
    let middle = recorder.asks(&name);
    let mut puppet = None;
    let mut task = None;
    match way {
        GivesUp::Cancelled => task = Some(tokio::spawn(w1.lock(&name).into_future())),
        GivesUp::TimedOut => {
            let request = w1.lock(&name).within(Duration::from_millis(700));
            task = Some(tokio::spawn(request.into_future()));
        }
        GivesUp::Killed => {
            let mut other = Puppet::start(&env.subject).await?;
            other.asks(&name, Duration::from_secs(1)).await?;
            puppet = Some(other);
        }
    }
    // Another process that waits cannot be seen where the store does not know; it has been told to.
    let unseen = u64::from(way == GivesUp::Killed && !env.knows_who());
    observer.sees_waiting(&key, 1 - unseen).await?;
    let w2 = serve(recorder.asks(&name), w2.lock(&name));
    match way {
        // Too slow to be seen together is no failure: the order is what matters.
        GivesUp::TimedOut => observer.sees_waiting(&key, 1).await?,
        _ => observer.sees_waiting(&key, 2 - unseen).await?,
    }
    middle.gave_up();
    match (puppet, task) {
        (Some(puppet), _) => puppet.kill().await?,
        (_, Some(task)) if way == GivesUp::Cancelled => task.abort(),
        (_, Some(task)) => assert!(soon("it gives up", task).await??.is_err()),
        _ => {}
    }
    observer.sees_waiting(&key, 1).await?;
    let view = observer.view(&key).await?.and_then(|view| view.holders.into_iter().next());
    assert_eq!(view.and_then(|holder| holder.token), guard.token(), "H still holds it");
    assert!(guard.is_trusted() && !w2.is_finished(), "{way:?}");
    first.releases(&guard);
    guard.release().await?;
    let (mut last, guard) = soon("W2 is served", w2).await???;
    last.releases(&guard);
    guard.release().await?;
    env.judge(&Oracle::default().with(recorder.events())).into_result()?;
    Ok(())
}

/// The lock is released between asking and listening, and the waiter sleeps for ever. Here a
/// wake-up that comes early is kept, and one that never comes is made up for by asking.
///
/// # Errors
/// The waiter sleeps, on this store.
pub async fn lost_wakeup(subject: &Subject) -> Result<()> {
    let env = stage(subject, "lost_wakeup").await;
    let one = env.locks().await?;
    if env.facts.push {
        // So long that asking again by itself would come after our patience.
        let ttl = (LONG * 30).min(env.facts.ttl_max);
        let (counting, other) = env.counted().await?;
        let name = env.name("early");
        let guard = one.lock(&name).ttl(ttl).await?;
        let mut pause = counting.pause(Point::After(VerbName::Acquire), 1);
        let waiting = tokio::spawn(other.lock(&name).ttl(ttl).into_future());
        soon("the store has queued it", pause.reached()).await?;
        guard.release().await?;
        let before = counting.counts().wakes;
        eventually("the wake-up comes early", || async {
            Ok((counting.counts().wakes > before || before > 0).then_some(()))
        })
        .await?;
        pause.resume();
        soon("the waiter gets it", waiting).await???.release().await?;
    }

    let silent = Arc::new(SilentSignals::new(env.connect()));
    let deaf = Env::open(silent).await?;
    let (name, key, observer) = (env.name("never"), env.key("never"), env.observer().await?);
    let guard = one.lock(&name).await?;
    let waiting = tokio::spawn(deaf.lock(&name).into_future());
    observer.sees_waiting(&key, 1).await?;
    guard.release().await?;
    soon("the waiter asks by itself", waiting).await???.release().await?;

    let (name, other) = (env.name("ping-pong"), env.locks().await?);
    let players = [&one, &other, &one, &other].map(|locks| hand_overs(locks, &name, 25));
    soon("a hundred hand-overs", try_join_all(players)).await??;
    Ok(())
}

async fn hand_overs(locks: &Locks, name: &str, rounds: u32) -> Result<()> {
    for _ in 0..rounds {
        locks.lock(name).await?.release().await?;
    }
    Ok(())
}

/// A waiter is paused past its own lease, the holder releases, and the waiter is told that it has
/// the lock, with a lease that is long dead. Here it has lost its place and queues again.
///
/// # Errors
/// It is told so, on this store.
pub async fn lease_dies_while_queued(subject: &Subject) -> Result<()> {
    let env = stage(subject, "lease_dies_while_queued").await;
    let (name, key, observer) = (env.name("paused"), env.key("paused"), env.observer().await?);
    let (one, other) = (env.locks().await?, env.locks().await?);
    let counting = Arc::new(Counting::new(env.connect()));
    let patient = Options { op_timeout: LONG, ..Options::default() };
    let paused = Locks::open_with(counting.clone(), patient).await?;
    let recorder = Recorder::in_memory("client");
    let mut first = recorder.asks(&name);
    let guard = one.lock(&name).await?;
    first.granted(&guard);

    // Its first ask gives it a place; the second, which would keep the place, does not get out.
    let mut pause = counting.pause(Point::Before(VerbName::Acquire), 2);
    let sleeper = recorder.asks(&name);
    let waiting = tokio::spawn(paused.lock(&name).ttl(Duration::from_millis(600)).into_future());
    soon("it is paused", pause.reached()).await?;
    sleeper.gave_up();
    let queued = serve(recorder.asks(&name), other.lock(&name).label("awake"));
    eventually("the paused one has lost its place", || async {
        let waiters = observer.view(&key).await?.map(|view| view.waiters).unwrap_or_default();
        let labels: Vec<&str> = waiters.iter().map(|waiter| waiter.label.as_str()).collect();
        Ok((labels == ["awake"]).then_some(()))
    })
    .await?;
    let mut back = recorder.asks(&name);
    pause.resume();
    tokio::time::sleep(STEADY / 10).await;
    assert!(guard.is_trusted() && !waiting.is_finished() && !queued.is_finished());
    first.releases(&guard);
    guard.release().await?;
    let (mut next, guard) = soon("the one that stayed awake is served first", queued).await???;
    assert!(!waiting.is_finished());
    next.releases(&guard);
    guard.release().await?;
    let guard = soon("the paused one is served after it", waiting).await???;
    back.granted(&guard);
    back.releases(&guard);
    guard.release().await?;
    Oracle::default().with(recorder.events()).check().into_result()?;
    Ok(())
}
