//! Locks that several hold, and several locks that one holds.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use futures_util::future::{join, try_join_all};
use lockstep_core::Owner;
use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::{LockError, Locks, Share};

use super::puppet::Puppet;
use super::stage;
use crate::suite::Subject;
use crate::suite::env::{at_least, soon};

/// Readers come and go, there is always one, and the writer waits for ever. Here nobody who comes
/// later passes it.
///
/// # Errors
/// It waits for ever, on this store.
pub async fn starved_writer(subject: &Subject) -> Result<()> {
    let env = stage(subject, "starved_writer").await;
    let handles = try_join_all((0..3).map(|_| env.locks())).await?;
    let (name, served) = (env.name("starved"), AtomicBool::new(false));
    let readers = handles.iter().map(|locks| async {
        let mut last = locks.read(&name).await?;
        while !served.load(Ordering::SeqCst) {
            // Each has the next before it gives back the last: as long as that is allowed, there is
            // always a reader.
            match locks.try_read(&name).await? {
                Some(next) => std::mem::replace(&mut last, next).release().await?,
                None => {
                    last.release().await?;
                    last = locks.read(&name).await?;
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        last.release().await
    });
    let writer = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let guard = handles[0].write(&name).await?;
        served.store(true, Ordering::SeqCst);
        guard.release().await
    };
    let (readers, writer) = soon("the writer gets in", join(try_join_all(readers), writer)).await?;
    readers?;
    writer?;
    Ok(())
}

/// One transfer takes the lock of account A and then that of B, another the other way round, and
/// both wait for ever. Here the one that closes the circle is told, gives back what it has, and
/// tries again; no money is lost.
///
/// # Errors
/// They wait for ever, or money is lost, on this store.
pub async fn crossing_transfers(subject: &Subject) -> Result<()> {
    let env = stage(subject, "crossing_transfers").await;
    if !env.facts.deadlocks {
        return Ok(());
    }
    let (one, other) = (env.locks().await?, env.locks().await?);
    let names = [env.name("account a"), env.name("account b")];
    let accounts = [AtomicI64::new(100), AtomicI64::new(100)];
    let (there, back) = soon(
        "both transfers are made",
        join(
            transfer(&one, &names, &accounts, [0, 1], 10),
            transfer(&other, &names, &accounts, [1, 0], 30),
        ),
    )
    .await?;
    let refused = there? + back?;
    assert!(refused <= 2, "each gives way once at most, here {refused} times");
    assert_eq!(accounts.map(AtomicI64::into_inner), [120, 80]);
    Ok(())
}

/// Takes the two locks one by one, with time for the other to do the same; answers with how often
/// it had to give way.
async fn transfer(
    locks: &Locks,
    names: &[String; 2],
    accounts: &[AtomicI64; 2],
    [from, to]: [usize; 2],
    amount: i64,
) -> Result<u32> {
    let owner = Owner::new();
    let mut refused = 0;
    loop {
        let first = locks.lock(&names[from]).owner(&owner).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        match locks.lock(&names[to]).owner(&owner).await {
            Ok(second) => {
                for (account, change) in [(from, -amount), (to, amount)] {
                    let balance = accounts[account].load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    accounts[account].store(balance + change, Ordering::SeqCst);
                }
                second.release().await?;
                first.release().await?;
                return Ok(refused);
            }
            Err(LockError::Deadlock(deadlock)) => {
                assert_eq!(deadlock.circle.len(), 2, "{deadlock}");
                refused += 1;
                first.release().await?;
            }
            Err(other) => bail!(other),
        }
    }
}

/// A semaphore counts down, the process dies, and its permits are gone for ever. Here they are
/// leases like every other lock: they come back when the lease ends, not earlier and not never.
///
/// # Errors
/// They do not, on this store; or the subject has no processes.
pub async fn leaked_permits(subject: &Subject) -> Result<()> {
    let env = stage(subject, "leaked_permits").await;
    let (name, ttl) = (env.name("permits"), Duration::from_secs(2));
    let locks = env.locks().await?;
    let mut dies = Puppet::start(subject).await?;
    let theirs = dies.shares(&name, Share::Permits { count: 2, of: 3 }, ttl).await?;
    let permits = locks.permits(&name, 3);
    let stays = permits.acquire(1).await?;
    assert!(permits.try_acquire(1).await?.is_none());
    dies.kill().await?;
    let looked = SystemClock.now();
    let seen = locks.inspect(&name).await?.map(|lock| lock.holders).unwrap_or_default();
    let left = seen.iter().find(|holder| holder.token == theirs.token).map(|holder| holder.left);
    let guard = soon("its lease ends", permits.acquire(2)).await??;
    if let Some(left) = left {
        let waited = SystemClock.now().since(looked);
        assert!(waited >= at_least(left), "granted after {waited:?}, with {left:?} to go");
    }
    assert!(theirs.trusted_until < SystemClock.now());
    assert!(stays.is_trusted(), "who lives keeps its own");
    guard.release().await?;
    stays.release().await?;
    Ok(())
}
