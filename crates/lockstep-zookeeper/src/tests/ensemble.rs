//! Three servers: killed, paused, and cut off from their leader.

use std::time::Duration;

use lockstep_lock::store::{Answer, Claim, Connect};
use lockstep_lock::{Inbox, Share};
use lockstep_testkit::oracle::{Oracle, Recorder};
use lockstep_testkit::proxy::{Match, Protocol, Proxy};
use lockstep_testkit::servers::ZooKeeperEnsemble;

use super::*;

fn ensemble(sync_limit: &str) -> ZooKeeperEnsemble {
    let settings = vec![("syncLimit".to_owned(), sync_limit.to_owned())];
    let options = ZooKeeperOptions { settings, ..ZooKeeperOptions::default() };
    ZooKeeperEnsemble::start(&options).unwrap()
}

/// A follower that has lost its leader answers pings for as long as it believes in it, while the
/// leader expires the sessions that it does not hear of. A ping is no proof.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_follower_that_is_cut_off_trust_ends_before_the_next_grant() {
    // A hundred seconds: neither side notices.
    let ensemble = ensemble("1000");
    let leader = ensemble.leader().unwrap();
    let follower = (leader + 1) % 3;
    let proxy = Proxy::start(ensemble.servers[follower].addr(), Protocol::ZooKeeper);
    let one = locks(&format!("zookeeper://127.0.0.1:{}", proxy.port())).await;
    let other = locks(&ensemble.servers[leader].url()).await;
    let (first, second) = (Recorder::in_memory("one"), Recorder::in_memory("other"));

    let mut attempt = first.asks("x");
    let guard = one.lock("x").ttl(Duration::from_secs(3)).await.unwrap();
    attempt.granted(&guard);
    let mut next = second.asks("x");
    let waiting = tokio::spawn(other.lock("x").ttl(Duration::from_secs(3)).into_future());
    until("its place", async || {
        other.inspect("x").await.unwrap().is_some_and(|lock| lock.waiting == 1)
    })
    .await;
    ensemble.cut(follower, leader);
    proxy.clear_log();
    let lost = soon("the loss", guard.lost()).await;
    attempt.lost();
    let grant = soon("the next grant", waiting).await.unwrap().unwrap();
    next.granted(&grant);
    assert!(!guard.is_trusted(), "{lost:?}");
    assert!(grant.token() > guard.token());
    // The follower was asked all the time, and its word was not believed.
    let asked = Match::when(|ask| ask.name == "PING" || ask.name == "MULTI");
    assert!(proxy.count(asked) > 0, "nobody asked");
    let verdict = Oracle::default().with(first.events()).with(second.events()).check();
    assert_eq!((verdict.grants, &verdict.violations[..]), (2, &[][..]));
}

/// What proves a hold goes through the leader, although it changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_is_not_answered_by_a_follower_alone() {
    let ensemble = ensemble("1000");
    let leader = ensemble.leader().unwrap();
    let follower = (leader + 1) % 3;
    let store = ZooKeeper::from_url(&ensemble.servers[follower].url()).unwrap();
    let lane = store.open(Some(Inbox::new())).await.unwrap();
    let claim = Claim {
        id: lockstep_core::ClaimId::new(),
        key: lockstep_core::Key::new("x").unwrap(),
        owner: lockstep_core::Owner::new(),
        label: lockstep_core::Label::new("x"),
        share: Share::Exclusive,
        ttl: LONG,
        wait: true,
    };
    assert!(matches!(lane.acquire(&claim).await.unwrap(), Answer::Granted { .. }));
    let raw = Raw::to(&ensemble.servers[follower].url());
    assert_eq!(raw.children("/lockstep/x").await.len(), 1);
    ensemble.cut(follower, leader);
    // Reading still works there, which is the trap.
    assert_eq!(raw.children("/lockstep/x").await.len(), 1);
    let half_a_second = Duration::from_millis(500);
    let renewed = tokio::time::timeout(half_a_second, lane.renew(&[claim.hold()])).await;
    assert!(renewed.is_err(), "{renewed:?}");
    let asked = tokio::time::timeout(half_a_second, lane.acquire(&claim)).await;
    assert!(asked.is_err(), "{asked:?}");
    ensemble.heal(follower, leader);
    // The answers that were lost are lost; asking again through a new connection is not.
    let asked = async || lane.renew(&[claim.hold()]).await.is_ok();
    until("a renewal", asked).await;
}

/// Whoever is killed, paused or cut off: nobody holds together, and it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_may_be_killed_or_paused_or_cut_off() {
    let mut ensemble = ensemble("20");
    let ttl = Duration::from_secs(4);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let served = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let workers: Vec<_> = (0..3)
        .map(|n| {
            let (url, stop, served) = (ensemble.url(), Arc::clone(&stop), Arc::clone(&served));
            tokio::spawn(async move {
                let recorder = Recorder::in_memory(format!("worker {n}"));
                let locks = locks(&url).await;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut attempt = recorder.asks("x");
                    // While there is no leader, an error is right.
                    let Ok(guard) = locks.lock("x").ttl(ttl).await else {
                        attempt.gave_up();
                        continue;
                    };
                    attempt.granted(&guard);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    attempt.releases(&guard);
                    let _ = guard.release().await;
                    served.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
                recorder.events()
            })
        })
        .collect();
    let more = |served: &Arc<std::sync::atomic::AtomicU64>, when: &'static str| {
        let served = Arc::clone(served);
        let goal = served.load(std::sync::atomic::Ordering::Relaxed) + 10;
        async move {
            until(&format!("ten more grants {when}"), async || {
                served.load(std::sync::atomic::Ordering::Relaxed) >= goal
            })
            .await;
        }
    };
    more(&served, "at first").await;
    let leader = ensemble.leader().unwrap();
    ensemble.servers[leader].kill().unwrap();
    more(&served, "after a kill").await;
    ensemble.servers[leader].restart().unwrap();
    ensemble.wait_until_all_serve().unwrap();
    // The leader cannot be reached by anybody, and does not know it.
    let leader = ensemble.leader().unwrap();
    ensemble.servers[leader].pause().unwrap();
    more(&served, "after a pause").await;
    ensemble.servers[leader].resume().unwrap();
    ensemble.wait_until_all_serve().unwrap();
    let leader = ensemble.leader().unwrap();
    let follower = (leader + 1) % 3;
    ensemble.cut(follower, leader);
    more(&served, "after a cut").await;
    ensemble.heal(follower, leader);
    more(&served, "in the end").await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut oracle = Oracle::default();
    for worker in workers {
        oracle = oracle.with(soon("the worker's end", worker).await.unwrap());
    }
    let verdict = oracle.check();
    assert_eq!(verdict.violations, [], "of {} grants", verdict.grants);
    assert!(verdict.grants >= 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_there_is_an_error_and_no_hang() {
    let mut ensemble = ensemble("20");
    let locks = locks(&ensemble.url()).await;
    locks.lock("x").await.unwrap().release().await.unwrap();
    let leader = ensemble.leader().unwrap();
    let others: Vec<usize> = (0..3).filter(|it| *it != leader).collect();
    for it in &others {
        ensemble.servers[*it].kill().unwrap();
    }
    let refused = soon("an answer", locks.lock("x")).await;
    assert!(matches!(refused, Err(lockstep_lock::LockError::Store(_))), "{refused:?}");
    for it in &others {
        ensemble.servers[*it].restart().unwrap();
    }
    ensemble.wait_for_leader().unwrap();
    until("the lock", async || locks.try_lock("x").await.is_ok_and(|got| got.is_some())).await;
}
