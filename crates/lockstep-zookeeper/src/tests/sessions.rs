//! Sessions that end, move and are stolen.

use std::time::Duration;

use lockstep_lock::LostCause;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_is_the_end_of_its_locks_at_once() {
    let raw = Raw::to(&SERVER.url());
    let (one, other) = (locks(&url("ends")).await, locks(&url("ends")).await);
    let guard = one.lock("x").ttl(LONG).await.unwrap();
    end_session(SERVER.addr(), raw.session_of("/ends/x").await);
    let lost = soon("the loss", guard.lost()).await;
    assert!(matches!(&lost.cause, LostCause::Broken(why) if why.contains("session")), "{lost:?}");
    let next = other.lock("x").ttl(LONG).await.unwrap();
    assert!(next.token() > guard.token());
    // The new session has nothing of the old one.
    assert!(one.try_lock("x").await.unwrap().is_none());
    assert!(!guard.is_trusted());
    drop(guard);
    next.release().await.unwrap();
    one.lock("x").await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_when_its_session_ends_asks_again_and_is_served() {
    let raw = Raw::to(&SERVER.url());
    let (one, other) = (locks(&url("waits")).await, locks(&url("waits")).await);
    let guard = one.lock("x").ttl(LONG).await.unwrap();
    let holder = raw.children("/waits/x").await;
    let waiting = tokio::spawn(other.lock("x").ttl(LONG).into_future());
    until("its node", async || raw.children("/waits/x").await.len() == 2).await;
    let mut children = raw.children("/waits/x").await;
    children.retain(|name| !holder.contains(name));
    let path = format!("/waits/x/{}", children[0]);
    let Ok(Reply::Stat(stat)) = raw.0.call(Op::Exists { path, watch: false }).await else {
        panic!("it is there")
    };
    end_session(SERVER.addr(), stat.owner);
    until("its new node", async || {
        let now = raw.children("/waits/x").await;
        now.len() == 2 && !now.contains(&children[0])
    })
    .await;
    guard.release().await.unwrap();
    soon("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_session_is_taken_back_and_its_end_is_noticed() {
    let raw = Raw::to(&SERVER.url());
    let locks = locks(&url("stolen")).await;
    let guard = locks.lock("x").ttl(Duration::from_secs(3)).await.unwrap();
    let session = raw.session_of("/stolen/x").await;
    for _ in 0..3 {
        // Ours is cut by that, and comes back, which cuts the thief's.
        assert!(steal(SERVER.addr(), session, &[]).is_some(), "it is there to be stolen");
    }
    let before = guard.trusted_until();
    until("a renewal", async || guard.trusted_until() > before).await;
    assert_eq!(raw.session_of("/stolen/x").await, session);
    end_session(SERVER.addr(), session);
    soon("the loss", guard.lost()).await;
}

/// A server takes what comes on one connection one by one.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_has_a_few_sessions_and_everybody_else_one() {
    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let locks = locks(&super::replies::through(&proxy, "crowd")).await;
    let again = async |locks: lockstep_lock::Locks, name: String| {
        for _ in 0..20 {
            locks.lock(&name).ttl(LONG).await.unwrap().release().await.unwrap();
        }
    };
    again(locks.clone(), "alone".into()).await;
    until("one session", async || proxy.connections() == 1).await;
    let crowd = (0..64).map(|n| tokio::spawn(again(locks.clone(), format!("{n}"))));
    for task in crowd.collect::<Vec<_>>() {
        soon("its locks", task).await.unwrap();
    }
    // How many depends on how fast they are opened.
    let opened = proxy.connections();
    assert!((2..=4).contains(&opened), "{opened}");
}

/// Curator's open bug: with a new session, the node of the old one is taken for one's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_session_is_never_adopted() {
    use lockstep_testkit::proxy::{Fault, Match, Protocol, Proxy};

    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let raw = Raw::to(&SERVER.url());
    let locks = locks(&format!("zookeeper://127.0.0.1:{}?prefix=adopted", proxy.port())).await;
    locks.lock("x").ttl(LONG).await.unwrap().release().await.unwrap();
    // The reply to the create is lost; before we are back, somebody gives the claim's name a node of
    // another session, as an expiry between the two would have left it behind.
    let creates = || Match::command("CREATE").with_arg("-lock-");
    proxy.rule(creates(), Fault::DropReplyAndCut);
    let gate = lockstep_testkit::proxy::Gate::new();
    proxy.rule(Match::command("CONNECT").nth(1), Fault::Hold(gate.clone()));
    let asking = tokio::spawn(locks.lock("x").ttl(LONG).into_future());
    until("its node", async || raw.children("/adopted/x").await.len() == 1).await;
    let name = raw.children("/adopted/x").await.remove(0);
    let path = format!("/adopted/x/{name}");
    raw.delete(&path).await;
    raw.create(&path, Mode::Ephemeral, Acl::Open).await;
    gate.open();
    let guard = soon("the lock", asking).await.unwrap().unwrap();
    let session = raw.session_of("/adopted/x").await;
    let (stranger, _) = raw.0.known().await.unwrap();
    assert_ne!(session, stranger, "it holds by a node of its own");
    guard.release().await.unwrap();
}
