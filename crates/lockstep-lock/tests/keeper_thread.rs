//! The end of the keeper's thread. Alone in its process, because it counts threads.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::Duration;

use lockstep_core::time::Clock;
use lockstep_lock::Locks;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::memory::Memory;

/// How many keepers this process has. The kernel keeps 15 characters of a thread's name.
fn keepers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks
        .filter_map(|task| name(task.ok()?).ok())
        .filter(|name| "lockstep-keeper".starts_with(name.trim_end()))
        .count()
}

async fn eventually_keepers(count: usize) {
    let give_up = SystemClock.now() + Duration::from_secs(60);
    while keepers() != count {
        assert!(SystemClock.now() < give_up, "{} keepers, not {count}", keepers());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn ends_with_its_handle_and_not_before_its_guards() {
    assert_eq!(keepers(), 0);
    let store = Memory::new();
    let locks = Locks::open(store.clone()).await.unwrap();
    eventually_keepers(1).await;
    let clone = locks.clone();
    let guard = locks.lock("k").await.unwrap();
    drop(locks);
    drop(clone);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(keepers(), 1, "a guard is still renewed");
    assert!(guard.is_trusted());
    drop(guard);
    eventually_keepers(0).await;

    let other = Locks::open(store).await.unwrap();
    let next = other.try_lock("k").await.unwrap();
    assert!(next.is_some(), "what the guard left was given back before the thread ended");
    other.close().await;
    eventually_keepers(0).await;

    // A request that was dropped, not only a guard.
    let third = Locks::open(Memory::new()).await.unwrap();
    let held = third.lock("k").await.unwrap();
    let waiting = tokio::spawn(third.lock("k").into_future());
    tokio::task::yield_now().await;
    waiting.abort();
    drop((held, third));
    eventually_keepers(0).await;
}
