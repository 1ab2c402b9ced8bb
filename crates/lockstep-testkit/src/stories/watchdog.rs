//! Work that takes longer than its lease, with and without somebody who renews it.

use std::future::pending;
use std::time::Duration;

use anyhow::Result;

use super::{serve, stage};
use crate::oracle::{Fence, Oracle, Recorder};
use crate::suite::Subject;
use crate::suite::env::{Env, Run, STEADY, Stopwatch, eventually, soon, unless_slow};
use crate::wrap::Reach;

/// The lease ends while the work goes on, and somebody else gets in. Nothing can prevent that when
/// renewals do not arrive; here the holder stops trusting itself *before*, and a resource that
/// checks tokens refuses its late write.
///
/// # Errors
/// The holder still trusted its lock when the next one was granted, on this store.
pub async fn ttl_shorter_than_work(subject: &Subject) -> Result<()> {
    let env = stage(subject, "ttl_shorter_than_work").await;
    let (failing, a) = env.failing().await?;
    let (b, name) = (env.locks().await?, env.name("slow"));
    let (fence, recorder) = (Fence::default(), Recorder::in_memory("client"));
    failing.set_reach_of_renewals(Reach::Silent);
    let mut slow = recorder.asks(&name);
    let guard = a.lock(&name).ttl(Duration::from_secs(1)).await?;
    slow.granted(&guard);
    if let Some(token) = guard.token() {
        fence.write(token)?;
    }
    let waiting = serve(recorder.asks(&name), b.lock(&name));
    let stopped = soon("the work is stopped", guard.run(pending::<()>())).await?;
    assert!(stopped.is_err() && !guard.is_trusted());
    slow.lost();
    let (mut next, successor) = soon("B gets it", waiting).await???;
    if let (Some(old), Some(new)) = (guard.token(), successor.token()) {
        fence.write(new)?;
        let late = fence.write(old).expect_err("a late write is refused");
        assert_eq!((late.token, late.newest), (old, new));
    }
    next.releases(&successor);
    successor.release().await?;
    env.judge(&Oracle::default().with(recorder.events())).into_result()?;
    Ok(())
}

/// The watchdog stops after one error, brings a lost lock back, or goes on after the release.
/// Here: half a ttl without the store costs nothing; more than one costs the lock, before it
/// passes on; what is lost stays lost; what is released is renewed no more.
///
/// # Errors
/// One of these is not so, on this store.
pub async fn watchdog(subject: &Subject) -> Result<()> {
    let env = stage(subject, "watchdog").await;
    let ways = [Reach::Refused, Reach::Silent];
    tokio::try_join!(
        survives_half_a_ttl(&env, ways[0]),
        survives_half_a_ttl(&env, ways[1]),
        is_lost_and_stays_lost(&env, ways[0]),
        is_lost_and_stays_lost(&env, ways[1]),
        ends_with_the_release(&env, false),
        ends_with_the_release(&env, true),
    )?;
    Ok(())
}

async fn survives_half_a_ttl(env: &Env, away: Reach) -> Result<()> {
    let (failing, a) = env.failing().await?;
    let (b, name) = (env.locks().await?, env.name(&format!("survives {away:?}")));
    let guard = a.lock(&name).await?;
    failing.set_reach(away);
    tokio::time::sleep(STEADY / 2).await;
    failing.set_reach(Reach::Open);
    let back = Stopwatch::start();
    while back.elapsed() < STEADY {
        assert!(guard.is_trusted(), "lost {:?} after the store was back", back.elapsed());
        assert!(b.try_lock(&name).await?.is_none());
        tokio::time::sleep(STEADY / 20).await;
    }
    guard.release().await?;
    Ok(())
}

async fn is_lost_and_stays_lost(env: &Env, away: Reach) -> Result<()> {
    let (failing, a) = env.failing().await?;
    let (name, key) = (env.name(&format!("lost {away:?}")), env.key(&format!("lost {away:?}")));
    let (b, observer) = (env.locks().await?, env.observer().await?);
    let recorder = Recorder::in_memory("client");
    let ttl = Duration::from_secs(2);
    let mut lost = recorder.asks(&name);
    let guard = a.lock(&name).ttl(ttl).await?;
    lost.granted(&guard);
    // Renewed at least once, so that what ends is what a renewal has given.
    let granted_until = guard.trusted_until();
    eventually("it is renewed", || async {
        Ok((guard.trusted_until() > granted_until).then_some(()))
    })
    .await?;
    failing.set_reach(away);
    let gone = Stopwatch::start();
    let waiting = serve(recorder.asks(&name), b.lock(&name));
    // A renewal that had left before may still move the end of trust.
    while guard.is_trusted() {
        lost.looks(&guard);
        tokio::time::sleep(ttl / 40).await;
    }
    soon("the guard hears of it", guard.lost()).await?;
    lost.lost();
    let (mut next, successor) = soon("it passes on", waiting).await???;
    if let Some(left) = (ttl + ttl / 2).checked_sub(gone.elapsed()) {
        tokio::time::sleep(left).await;
    }
    failing.set_reach(Reach::Open);
    next.releases(&successor);
    successor.release().await?;
    // The old guard is alive, its handle has its store back, and still nothing comes back.
    let back = Stopwatch::start();
    while back.elapsed() < ttl {
        assert_eq!(observer.view(&key).await?, None, "{:?} after the release", back.elapsed());
        assert!(!guard.is_trusted());
        tokio::time::sleep(ttl / 10).await;
    }
    drop(guard);
    env.judge(&Oracle::default().with(recorder.events())).into_result()?;
    Ok(())
}

/// However the guard ends.
async fn ends_with_the_release(env: &Env, dropped: bool) -> Result<()> {
    let (counting, locks) = env.counted().await?;
    unless_slow(|round| {
        let (counting, locks) = (&counting, &locks);
        let name = format!("end {dropped} {round}");
        let (name, key) = (env.name(&name), env.key(&name));
        async move {
            let guard = locks.lock(&name).await?;
            eventually("it is renewed", || async {
                Ok((counting.renewals_of(&key) > 0).then_some(()))
            })
            .await?;
            match dropped {
                true => drop(guard),
                false => guard.release().await?,
            }
            let renewals = counting.renewals_of(&key);
            tokio::time::sleep(STEADY).await;
            // One may have been on its way if the machine stood still for a third of the ttl.
            let late = counting.renewals_of(&key) - renewals;
            assert!(late <= 1, "{late} renewals after the release");
            Ok(if late == 0 { Run::Judged(()) } else { Run::TooSlow })
        }
    })
    .await
}
