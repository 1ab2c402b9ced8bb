//! Three members, and one of them fails.

use std::time::Duration;

use anyhow::Result;
use lockstep_core::{ErrorKind, time::Clock};
use lockstep_lock::clock::SystemClock;
use lockstep_lock::{LockError, LostCause};
use lockstep_testkit::servers::{EtcdOptions, EtcdServer};

use super::{eventually, locks, soon};

fn three() -> EtcdServer {
    let options = EtcdOptions { members: 3, ..EtcdOptions::default() };
    EtcdServer::start(options).expect("a cluster of three")
}

/// The URL with this member first.
fn through(server: &EtcdServer, first: usize) -> String {
    let hosts: Vec<String> = (0..3).map(|n| server.address((first + n) % 3)).collect();
    format!("etcd://{}", hosts.join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_killed_costs_nobody_a_lock() -> Result<()> {
    let mut server = three();
    for leads in [true, false] {
        let leader = server.leader()?;
        let victim = if leads { leader } else { (leader + 1) % 3 };
        let (one, other) = (
            locks(&through(&server, victim)).await?.with_ttl(Duration::from_secs(15)),
            locks(&through(&server, victim)).await?.with_ttl(Duration::from_secs(15)),
        );
        let name = format!("kept {leads}");
        let guard = one.lock(&name).await?;
        let waits = tokio::spawn(other.lock(&name).into_future());
        eventually("it waits", async || {
            other.inspect(&name).await.unwrap().is_some_and(|view| view.waiting == 1)
        })
        .await;
        server.kill(victim)?;
        let until = guard.trusted_until();
        eventually("it is renewed through another", async || guard.trusted_until() > until).await;
        assert!(guard.is_trusted() && !waits.is_finished());
        guard.release().await?;
        soon("who waits is served", waits).await??.release().await?;
        server.restart(victim)?;
        server.wait_healthy(victim)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_stands_still_costs_nobody_a_lock() -> Result<()> {
    let mut server = three();
    let victim = (server.leader()? + 1) % 3;
    let locks = locks(&through(&server, victim)).await?.with_ttl(Duration::from_secs(15));
    let guard = locks.lock("kept").await?;
    server.pause(victim)?;
    let until = guard.trusted_until();
    eventually("it is renewed through another", async || guard.trusted_until() > until).await;
    assert!(guard.is_trusted());
    soon("others are locked as before", locks.lock("another")).await?.release().await?;
    guard.release().await?;
    server.resume(victim)?;
    Ok(())
}

/// The leader is cut off, or stands still, with A on its side; the others elect a new one, A's lease ends
/// there and B is granted. By then A has not believed in its lock for a while, and its token is the smaller
/// one. A leader that is only cut off goes on answering A until it notices, which is the trap.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_with_the_leader_stops_before_the_next_begins() -> Result<()> {
    let options = EtcdOptions { members: 3, can_be_cut: true, ..EtcdOptions::default() };
    let mut server = EtcdServer::start(options)?;
    for round in 0..4 {
        let leader = server.leader()?;
        let name = format!("split {round}");
        // A knows this member only; B the others as well.
        let a = locks(&format!("etcd://{}", server.address(leader))).await?;
        // B's lease outlasts two changes of the leader on a slow machine.
        let b = locks(&through(&server, (leader + 1) % 3)).await?.with_ttl(Duration::from_secs(20));
        let held = a.lock(&name).await?;
        let waits = tokio::spawn({
            let request = b.lock(&name);
            async move { request.await.map(|guard| (guard, SystemClock.now())) }
        });
        eventually("B waits", async || {
            b.inspect(&name).await.unwrap().is_some_and(|view| view.waiting == 1)
        })
        .await;
        let stands_still = round % 2 == 1;
        if stands_still {
            server.pause(leader)?;
        } else {
            server.cut_off(leader)?;
        }
        let (next, since) = soon("the others go on", waits).await??;
        assert!(!held.is_trusted(), "round {round}: two believe in it");
        assert_eq!(soon("A was told", held.lost()).await.cause, LostCause::Expired);
        assert!(held.trusted_until() < since);
        assert!(next.token() > held.token());
        if stands_still {
            server.resume(leader)?;
        } else {
            server.heal(leader)?;
        }
        server.wait_healthy(leader)?;
        // A's connection works again, and nothing of B's is given back by A.
        drop(held);
        a.close().await;
        assert!(next.is_trusted());
        assert!(b.try_lock(&name).await?.is_none());
        next.release().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_granted_and_nobody_hangs() -> Result<()> {
    let mut server = three();
    let leader = server.leader()?;
    let locks = locks(&through(&server, leader)).await?;
    let guard = locks.lock("kept").await?;
    for member in [(leader + 1) % 3, (leader + 2) % 3] {
        server.pause(member)?;
    }
    let refused = soon("no hang", locks.lock("another").within(Duration::from_secs(10))).await;
    match refused.expect_err("one of three decides nothing") {
        LockError::Store(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        other => panic!("{other:?}"),
    }
    let lost = soon("trust ends", guard.lost()).await;
    assert_eq!(lost.cause, LostCause::Expired);
    for member in [(leader + 1) % 3, (leader + 2) % 3] {
        server.resume(member)?;
        server.wait_healthy(member)?;
    }
    drop(guard);
    soon("it goes on", locks.lock("kept")).await?.release().await?;
    Ok(())
}
