//! Real processes that die, stand still, and count together.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::{Guard, Share};

use super::puppet::Puppet;
use super::stage;
use crate::oracle::{Counter, Fence, LostUpdates, Oracle};
use crate::suite::Subject;
use crate::suite::client::claim;
use crate::suite::env::{Env, LONG, PATIENCE, SHORT, at_least, soon};

/// What a holder in these stories asks for: long enough to be renewed on a busy machine.
const TTL: Duration = Duration::from_secs(2);

/// The lock is set, the client dies before it sets the expiry, and everybody waits for ever. Here
/// there is no moment without an expiry: whoever dies at whatever point, its lock and its place
/// end by themselves.
///
/// # Errors
/// They do not, on this store.
pub async fn set_without_expiry(subject: &Subject) -> Result<()> {
    let env = stage(subject, "set_without_expiry").await;
    let client = env.client().await?;
    let ttl = SHORT.max(env.facts.ttl_min);
    // A holder, a waiter, and a holder that was broken; none of them ever says another word.
    let held = claim(&env.key("held"), ttl);
    client.granted(&held).await?;
    let broken = claim(&env.key("broken"), ttl);
    client.granted(&broken).await?;
    client.break_lock(&broken.key, "and forgotten", false).await?;
    let waited = env.key("waited");
    let holder = claim(&waited, LONG);
    client.granted(&holder).await?;
    client.queued(&claim(&waited, ttl)).await?;
    for view in client.list(env.prefix(), 10).await?.locks {
        let left = view.holder().map(|holder| holder.left);
        assert!(left.is_none_or(|left| left <= LONG), "{left:?}");
    }
    no_orphans(&env).await?;
    client.release(&holder).await?;
    for key in [&held.key, &broken.key, &waited] {
        client.granted_in_the_end(&claim(key, LONG)).await?;
    }
    no_orphans(&env).await?;

    if subject.processes.is_some() {
        // Killed when the store has written and nobody has heard of it.
        let mut puppet = Puppet::start(subject).await?;
        let (name, other) = (env.name("killed"), env.locks().await?);
        puppet.locks_unheard(&name, TTL).await?;
        puppet.kill().await?;
        no_orphans(&env).await?;
        soon("its lease ends", other.lock(&name)).await??.release().await?;
    }
    no_orphans(&env).await
}

async fn no_orphans(env: &Env) -> Result<()> {
    if let Some(check) = &env.subject.orphans {
        let orphans = check().await?;
        anyhow::ensure!(orphans.is_empty(), "these would stay for ever: {orphans:?}");
    }
    Ok(())
}

/// Waits for a lock whose holder is gone, and checks that it is not granted too early.
async fn inherits(env: &Env, name: &str) -> Result<Guard> {
    let (locks, observer) = (env.locks().await?, env.observer().await?);
    let key = lockstep_core::Key::new(name)?;
    let looked = SystemClock.now();
    let left = observer
        .view(&key)
        .await?
        .and_then(|view| view.holders.into_iter().next())
        .map(|holder| holder.left);
    let guard = soon("its lease ends", locks.lock(name)).await??;
    if let Some(left) = left {
        let waited = SystemClock.now().since(looked);
        assert!(waited >= at_least(left), "granted after {waited:?}, with {left:?} to go");
    }
    Ok(guard)
}

/// The holder is killed, and nobody releases. Here its lease ends, not earlier and not never, and
/// a killed waiter holds nobody up.
///
/// # Errors
/// It does not, on this store; or the subject has no processes.
pub async fn holder_killed(subject: &Subject) -> Result<()> {
    let env = stage(subject, "holder_killed").await;
    let name = env.name("holder");
    let (mut holder, mut waiter) =
        tokio::try_join!(Puppet::start(subject), Puppet::start(subject))?;
    let theirs = holder.locks(&name, TTL).await?;
    waiter.asks(&name, TTL).await?;
    let observer = env.observer().await?;
    if env.knows_who() {
        observer.sees_waiting(&env.key("holder"), 1).await?;
    }
    tokio::try_join!(holder.kill(), waiter.kill())?;
    let guard = inherits(&env, &name).await?;
    assert!(theirs.token.is_none() || guard.token() > theirs.token, "{theirs:?}, {guard:?}");
    assert!(theirs.trusted_until < SystemClock.now());
    guard.release().await?;
    Ok(())
}

/// The holder is killed, and its handle had asked that its locks end with its connection: the next
/// one has it long before the lease ends, and so has one of several who waits for permits.
///
/// # Errors
/// It has not, on this store; or the subject has no processes, or has not asked for it.
pub async fn holder_killed_and_replaced_at_once(subject: &Subject) -> Result<()> {
    let env = stage(subject, "holder_killed_and_replaced_at_once").await;
    anyhow::ensure!(env.facts.ends_with_connection, "{:?}", env.facts);
    let (name, shared) = (env.name("holder"), env.name("permits"));
    let locks = env.locks().await?;
    let mut holders =
        tokio::try_join!(Puppet::start(subject), Puppet::start(subject), Puppet::start(subject))?;
    let theirs = holders.0.locks(&name, LONG).await?;
    let two = Share::Permits { count: 2, of: 3 };
    let one = Share::Permits { count: 1, of: 3 };
    holders.1.shares(&shared, two, LONG).await?;
    holders.2.shares(&shared, one, LONG).await?;
    assert!(locks.try_lock(&name).await?.is_none(), "it lives");
    assert!(locks.permits(&shared, 3).try_acquire(1).await?.is_none(), "they live");
    tokio::try_join!(holders.0.kill(), holders.1.kill())?;
    let guard = soon("it is replaced", locks.lock(&name)).await??;
    assert!(guard.token() > theirs.token, "{theirs:?}, {guard:?}");
    let permits = soon("so are the permits", locks.permits(&shared, 3).acquire(2)).await??;
    assert!(locks.permits(&shared, 3).try_acquire(1).await?.is_none(), "the other still lives");
    assert!(LONG > PATIENCE, "the leases would not have ended yet");
    guard.release().await?;
    permits.release().await?;
    assert!(holders.2.releases().await?);
    holders.2.ends().await
}

/// The holder checks its lease, is paused past its end, and writes after somebody else has. No
/// lock can prevent that write; here a resource that checks tokens refuses it, and the holder
/// does not trust its lock when it wakes up.
///
/// # Errors
/// It does, or the write is accepted, on this store; or the subject has no processes.
pub async fn holder_paused(subject: &Subject) -> Result<()> {
    let env = stage(subject, "holder_paused").await;
    let (name, fence) = (env.name("paused"), Fence::default());
    let mut holder = Puppet::start(subject).await?;
    let theirs = holder.locks(&name, TTL).await?;
    let counts = "a store that counts gives tokens";
    let old = theirs.token.context(counts)?;
    fence.write(old)?;
    holder.stop().await?;
    let guard = inherits(&env, &name).await?;
    fence.write(guard.token().context(counts)?)?;
    // The order waits in the pipe: it is the first thing the holder does when it wakes up.
    holder.shall_look().await?;
    holder.resume()?;
    assert!(!holder.saw_trust().await?, "at once");
    let stale = fence.write(old).expect_err("the late write is refused");
    assert_eq!(Some(stale.newest), guard.token());
    assert!(!holder.releases().await?, "nor can it release what is not its own");
    assert!(guard.is_trusted());
    guard.release().await?;
    holder.ends().await
}

/// The same without a fence: the holder has read a number, is paused past the end of its lease, and
/// writes when it wakes up. An increment of its successor is lost, on every store: this is what a
/// lock alone cannot prevent, and if it did not happen here, the other story would prove nothing.
///
/// # Errors
/// The late write did no harm; or the subject has no processes.
pub async fn holder_paused_without_fence(subject: &Subject) -> Result<()> {
    let env = stage(subject, "holder_paused_without_fence").await;
    let folder = tempfile::tempdir()?;
    let (name, count) = (env.name("unfenced"), folder.path().join("counter"));
    let counter = Counter::in_file(&count);
    let mut holder = Puppet::start(subject).await?;
    holder.locks(&name, TTL).await?;
    holder.reads(&count).await?;
    holder.stop().await?;
    let guard = inherits(&env, &name).await?;
    counter.increment().await?;
    // The order waits in the pipe: it is the first thing the holder does when it wakes up.
    holder.shall_write(&count).await?;
    holder.shall_look().await?;
    holder.resume()?;
    holder.has_written().await?;
    assert!(!holder.saw_trust().await?, "it would have known, had it looked before it wrote");
    let lost = counter.check(2).expect_err("a write that nobody checks overwrites another");
    assert_eq!(lost.downcast_ref(), Some(&LostUpdates { acknowledged: 2, value: 1 }));
    guard.release().await?;
    assert!(!holder.releases().await?);
    holder.ends().await
}

/// Several processes read a number, wait, and write it plus one. Without a lock that works some
/// of the increments are lost.
///
/// # Errors
/// Some are, on this store; or the subject has no processes.
pub async fn many_processes_one_counter(subject: &Subject) -> Result<()> {
    const ROUNDS: u64 = 25;
    let env = stage(subject, "many_processes_one_counter").await;
    let folder = tempfile::tempdir()?;
    let (name, count) = (env.name("counter"), folder.path().join("counter"));
    let mut puppets = try_join_all((0..3).map(|_| Puppet::start(subject))).await?;
    let logs: Vec<_> =
        (0..puppets.len()).map(|n| folder.path().join(format!("{n}.jsonl"))).collect();
    for (n, (puppet, log)) in puppets.iter_mut().zip(&logs).enumerate() {
        puppet.shall_work(&name, ROUNDS, &count, log, format!("process {n}")).await?;
    }
    let mut acknowledged = 0;
    for mut puppet in puppets {
        acknowledged += puppet.has_worked().await?;
        puppet.ends().await?;
    }
    assert_eq!(acknowledged, 3 * ROUNDS);
    Counter::in_file(count).check(acknowledged)?;
    let mut oracle = Oracle::default();
    for log in &logs {
        oracle = oracle.with_log(log).context("every process has left a log")?;
    }
    assert_eq!(env.judge(&oracle).into_result()? as u64, acknowledged);
    Ok(())
}
