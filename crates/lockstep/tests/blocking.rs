//! The blocking handle does what the other does, from threads that have no runtime.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockstep::blocking::{self, Locks};
use lockstep::{Fencing, LockError, LostCause, Need, Owner, Share};

const PATIENCE: Duration = Duration::from_secs(30);

/// Two handles of one store, as two processes have them.
fn handles() -> (tempfile::TempDir, Locks, Locks) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let open = || blocking::connect(&url).unwrap();
    let (one, other) = (open(), open());
    (folder, one, other)
}

#[test]
fn threads_exclude_each_other() {
    let (_folder, one, other) = handles();
    one.require(Need::Fencing(Fencing::Strong)).unwrap();
    let counter = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for locks in [&one, &one, &other, &other] {
            scope.spawn(|| {
                for _ in 0..25 {
                    let guard = locks.lock("counter").within(PATIENCE).acquire().unwrap();
                    let seen = counter.load(Ordering::Relaxed);
                    std::thread::yield_now();
                    counter.store(seen + 1, Ordering::Relaxed);
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(counter.into_inner(), 100);
}

#[test]
fn a_held_lock_is_renewed_while_its_thread_is_busy_and_freed_when_dropped() {
    let (_folder, one, other) = handles();
    let ttl = Duration::from_secs(1);
    let guard = one.lock("job").ttl(ttl).label("the import").acquire().unwrap();
    let token = guard.token();
    assert!(guard.lost_within(ttl * 3).is_none(), "it is renewed");
    assert!(guard.is_trusted() && guard.check().is_ok());
    assert!(other.try_lock("job").acquire().unwrap().is_none());
    let late = other.lock("job").within(Duration::from_millis(50)).acquire();
    assert!(matches!(late, Err(LockError::TimedOut { .. })), "{late:?}");
    let view = other.inspect("job").unwrap().unwrap();
    assert_eq!(view.holder().unwrap().label.as_str(), "the import");
    drop(guard);
    let next = other.lock("job").within(PATIENCE).acquire().unwrap();
    assert!(next.token() > token);
    next.release().unwrap();
}

#[test]
fn losses_owners_and_several_locks_work_as_well() {
    let (_folder, one, other) = handles();
    let owner = Owner::new();
    let outer = one.lock("a").owner(&owner).acquire().unwrap();
    let both = one.lock_all(["b", "a"]).owner(&owner).within(PATIENCE).acquire().unwrap();
    assert_eq!(both.get("a").unwrap().token(), outer.token());
    assert!(other.try_lock_all(["b", "c"]).acquire().unwrap().is_none());
    assert!(other.break_lock_now("b", "moving house").unwrap());
    let lost = both.lost_within(PATIENCE).expect("it is told");
    assert!(matches!(&lost.cause, LostCause::Broken(reason) if reason == "moving house"), "{lost}");
    assert!(matches!(both.release(), Err(LockError::NotHeld { .. })));

    let leaked = outer.leak().expect("nobody else uses it");
    let adopted = other.adopt(leaked).unwrap();
    assert!(adopted.is_trusted());
    one.close();
    assert!(matches!(one.lock("d").acquire(), Err(LockError::Closed)));
    adopted.release().unwrap();
}

#[test]
fn readers_permits_and_elections_work_as_well() {
    let (_folder, one, other) = handles();
    let mut writer = one.write("prices").acquire().unwrap();
    assert!(other.try_read("prices").acquire().unwrap().is_none());
    writer.downgrade().unwrap();
    assert_eq!(writer.share(), Share::Read);
    let reader = other.read("prices").within(PATIENCE).acquire().unwrap();
    writer.release().unwrap();
    reader.release().unwrap();

    let printers = one.permits("printers", 3);
    let two = printers.acquire(2).within(PATIENCE).acquire().unwrap();
    assert!(other.permits("printers", 3).try_acquire(2).acquire().unwrap().is_none());
    let differs = other.permits("printers", 4).acquire(1).acquire();
    assert!(matches!(differs, Err(LockError::Differs { of: 3, .. })), "{differs:?}");
    two.release().unwrap();

    let election = one.election("scheduler");
    let leadership = election.campaign().label("here").acquire().unwrap();
    let leader = other.election("scheduler").observe().next().unwrap().unwrap().unwrap();
    assert_eq!((leader.name.as_str(), leader.term), ("here", leadership.term()));
    assert!(leadership.is_trusted() && leadership.check().is_ok());
    leadership.resign().unwrap();
    assert_eq!(election.leader().unwrap(), None);
}
