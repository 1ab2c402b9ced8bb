//! The thread that renews: at scale, in batches, without a runtime around it, and its end.
//! What happens to it when executors block and machines sleep is told by the stories.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::memory::Memory;
use lockstep_lock::store::{Connect, LockStore, RENEW_BATCH, Verb};
use lockstep_lock::{Guard, Inbox, Locks, Options};
use lockstep_testkit::wrap::{Counting, FailingVerbs, Reach};

/// For what must come, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = SystemClock.now() + PATIENCE;
    while !is_so() {
        assert!(SystemClock.now() < give_up, "did not come true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn counted(store: &Memory) -> (Arc<Counting>, Locks) {
    let counting = Arc::new(Counting::new(Arc::new(store.clone())));
    let locks = Locks::open_with(counting.clone(), Options::default()).await.unwrap();
    (counting, locks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_guards_are_renewed_and_none_is_lost() {
    const GUARDS: u64 = 100_000;
    let (counting, locks) = counted(&Memory::new()).await;
    let began = SystemClock.now();
    let mut guards: Vec<Guard> = Vec::new();
    for n in 0..GUARDS {
        guards.push(locks.lock(format!("guard {n}")).await.unwrap());
    }
    println!("held after {:?}", SystemClock.now().since(began));
    let granted: Vec<_> = guards.iter().map(Guard::trusted_until).collect();
    let renewed = |(guard, granted): (&Guard, &_)| guard.trusted_until() > *granted;
    eventually("every guard is renewed", || guards.iter().zip(&granted).all(renewed)).await;
    println!("renewed after {:?}", SystemClock.now().since(began));
    assert!(guards.iter().all(Guard::is_trusted), "none is lost");
    let counts = counting.counts();
    assert!(counts.largest_batch <= RENEW_BATCH, "{counts:?}");
    assert!(counts.renews < counts.renewed_holds / 2, "they are batched: {counts:?}");
    locks.close().await;
    assert!(!guards.iter().any(Guard::is_trusted), "closing ends them all");
    assert!(locks.list("", 1).await.unwrap().locks.is_empty(), "and gives them all back");
}

#[tokio::test]
async fn what_is_due_together_is_renewed_together() {
    const GUARDS: u64 = 750;
    let (counting, locks) = counted(&Memory::new()).await;
    let locks = locks.with_ttl(Duration::from_secs(3));
    let requests = (0..GUARDS).map(|n| locks.lock(format!("{n}")).into_future());
    let guards = try_join_all(requests).await.unwrap();
    eventually("all are renewed", || counting.counts().renewed_holds >= GUARDS).await;
    let counts = counting.counts();
    assert!(counts.largest_batch > 1 && counts.largest_batch <= RENEW_BATCH, "{counts:?}");
    assert!(counts.renews < GUARDS / 2, "{counts:?}");
    drop(guards);
}

/// A store whose second lane, the keeper's, takes this long to open.
struct SlowLane(Memory, Duration);

impl Connect for SlowLane {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async move {
            if inbox.is_none() {
                tokio::time::sleep(self.1).await;
            }
            self.0.open(inbox).await
        })
    }
}

#[tokio::test]
async fn a_lane_that_takes_longer_to_open_than_an_operation_renews_all_the_same() {
    let op_timeout = Duration::from_millis(300);
    let store = Arc::new(SlowLane(Memory::new(), op_timeout * 2));
    let options = Options { op_timeout, ..Options::default() };
    let locks = Locks::open_with(store, options).await.unwrap().with_ttl(Duration::from_secs(5));
    let guard = locks.lock("k").await.unwrap();
    let granted_until = guard.trusted_until();
    eventually("it is renewed", || guard.trusted_until() > granted_until).await;
    assert!(guard.is_trusted());
}

#[tokio::test]
async fn closing_does_not_wait_a_day_for_a_store_that_is_gone() {
    let failing = Arc::new(FailingVerbs::new(Arc::new(Memory::new())));
    let options = Options { op_timeout: Duration::from_millis(50), ..Options::default() };
    let locks = Locks::open_with(failing.clone(), options).await.unwrap();
    let guard = locks.lock("k").ttl(Duration::from_secs(86_400)).await.unwrap();
    failing.set_reach(Reach::Refused);
    tokio::time::timeout(PATIENCE, locks.close()).await.unwrap();
    assert!(!guard.is_trusted());
    // The thread goes on trying.
    failing.set_reach(Reach::Open);
    let other = Locks::open_with(failing, Options::default()).await.unwrap();
    other.lock("k").within(PATIENCE).await.unwrap().release().await.unwrap();
}

/// Guards may outlive the runtime they were acquired on, and be dropped where there is none.
#[test]
fn a_guard_dropped_without_a_runtime_is_given_back() {
    let store = Memory::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (locks, guard) = runtime.block_on(async {
        let locks = Locks::open(store.clone()).await.unwrap();
        let guard = locks.lock("k").ttl(Duration::from_secs(600)).await.unwrap();
        (locks, guard)
    });
    drop(runtime);
    assert!(guard.is_trusted());
    drop(guard);
    drop(locks);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let other = Locks::open(store).await.unwrap();
        other.lock("k").within(PATIENCE).await.unwrap().release().await.unwrap();
    });
}

/// A request that lives on another runtime than its handle, dropped in the middle of the queue.
#[test]
fn a_waiter_dropped_with_its_runtime_leaves_the_queue() {
    let store = Memory::new();
    let outside = tokio::runtime::Runtime::new().unwrap();
    let (one, other) = outside.block_on(async {
        (Locks::open(store.clone()).await.unwrap(), Locks::open(store).await.unwrap())
    });
    let guard = outside.block_on(one.lock("k").into_future()).unwrap();
    let inside = tokio::runtime::Runtime::new().unwrap();
    inside.spawn(other.lock("k").ttl(Duration::from_secs(600)).into_future());
    let waiting = async || one.inspect("k").await.unwrap().map_or(0, |view| view.waiting);
    outside.block_on(async {
        while waiting().await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    drop(inside);
    outside.block_on(async {
        let give_up = SystemClock.now() + PATIENCE;
        while waiting().await > 0 {
            assert!(SystemClock.now() < give_up, "it still waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(guard.is_trusted());
        guard.release().await.unwrap();
    });
}
