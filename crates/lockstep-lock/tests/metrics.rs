//! What a dashboard gets to see. A recorder is for the whole process, so this is a test of its own.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockstep_lock::memory::Memory;
use lockstep_lock::store::{Connect, LockStore, Verb};
use lockstep_lock::{Guard, Inbox, LockError, Locks, Options, Signal};
use lockstep_testkit::wrap::{FailingVerbs, VerbName};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

const PATIENCE: Duration = Duration::from_secs(30);

/// Everything measured since the last look, by name; the store's label is checked on the way.
fn look(snapshotter: &Snapshotter) -> BTreeMap<String, DebugValue> {
    let measured = snapshotter.snapshot().into_vec();
    let named = measured.into_iter().map(|(key, _, _, value)| {
        let labels: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
        assert_eq!(labels, [("store", "memory")], "{key:?}");
        (key.key().name().to_owned(), value)
    });
    named.collect()
}

fn times(seen: &BTreeMap<String, DebugValue>, name: &str) -> Vec<f64> {
    match seen.get(name) {
        Some(DebugValue::Histogram(times)) => times.iter().map(|time| time.into_inner()).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

fn count(seen: &BTreeMap<String, DebugValue>, name: &str) -> u64 {
    match seen.get(name) {
        Some(DebugValue::Counter(count)) => *count,
        None => 0,
        other => panic!("{name}: {other:?}"),
    }
}

/// A store that does not say who has the lock, only that it is worth asking.
struct Hinting(Memory);

impl Connect for Hinting {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        let hint = |inbox: Inbox| {
            Inbox::tapped(move |signal| {
                inbox.deliver(match signal {
                    Signal::Granted { claim, .. } => Signal::AskAgain { claim },
                    other => other,
                })
            })
        };
        self.0.open(inbox.map(hint))
    }
}

/// Returns when somebody waits for the lock besides its holder. Who waits is no task of its own: it does
/// nothing while nobody asks it to.
async fn until_it_waits(
    waiting: &mut (impl Future<Output = Result<Guard, LockError>> + Unpin),
    holder: &Locks,
) {
    let queued = async {
        while holder.inspect("job").await.unwrap().is_none_or(|lock| lock.waiting == 0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = waiting => panic!("it is held"),
        queued = tokio::time::timeout(PATIENCE, queued) => queued.unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_holds_hand_overs_renewals_and_losses_are_measured() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let store = Memory::new();
    let locks = Locks::open(store.clone()).await.unwrap();
    let others = Locks::open(store.clone()).await.unwrap();

    let ttl = Duration::from_secs(3);
    let held = locks.lock("job").ttl(ttl).await.unwrap();
    let mut waiting = others.lock("job").into_future();
    until_it_waits(&mut waiting, &locks).await;
    // Its lease ends without a renewal, so trust beyond it shows that there was one.
    let granted_until = held.trusted_until();
    let renewed = async {
        while held.trusted_until() == granted_until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.unwrap();
    let seen = look(&snapshotter);
    assert_eq!(times(&seen, "lockstep_wait_seconds").len(), 1, "only one has got it so far");
    assert_eq!(count(&seen, "lockstep_grants_total"), 1);
    assert!(count(&seen, "lockstep_renewals_total") >= 1, "{seen:?}");
    assert!(!times(&seen, "lockstep_renewal_lateness_seconds").is_empty());
    assert_eq!(seen["lockstep_queue_length"], DebugValue::Gauge(1.0.into()));
    assert_eq!(count(&seen, "lockstep_losses_total"), 0);

    held.release().await.unwrap();
    // It has been told, and is slow to notice.
    let slow = Duration::from_millis(20);
    tokio::time::sleep(slow).await;
    let next = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    let seen = look(&snapshotter);
    let [hold] = times(&seen, "lockstep_hold_seconds")[..] else { panic!("{seen:?}") };
    let [wait] = times(&seen, "lockstep_wait_seconds")[..] else { panic!("{seen:?}") };
    let [hand_over] = times(&seen, "lockstep_hand_over_seconds")[..] else { panic!("{seen:?}") };
    // It is renewed a third of the ttl after it was asked for, and held from a little later on.
    assert!(hold >= ttl.as_secs_f64() / 6.0, "held until it was renewed: {hold}");
    assert!(hand_over >= slow.as_secs_f64(), "{hand_over} since it was told");
    assert!(wait >= hand_over, "{wait}, of which {hand_over} since it was told");
    assert_eq!(seen["lockstep_queue_length"], DebugValue::Gauge((-1.0).into()), "one less waits");

    locks.break_lock_now("job", "moving house").await.unwrap();
    tokio::time::timeout(PATIENCE, next.lost()).await.unwrap();
    assert_eq!(count(&look(&snapshotter), "lockstep_losses_total"), 1);

    let held = locks.lock("job").await.unwrap();
    let late = others.lock("job").within(Duration::from_millis(30)).await;
    assert!(late.is_err());
    assert_eq!(count(&look(&snapshotter), "lockstep_timeouts_total"), 1);
    held.release().await.unwrap();

    // Who is only told to ask is as late as it asked, and what it asks may be lost on the way.
    let held = locks.lock("job").await.unwrap();
    let failing = Arc::new(FailingVerbs::new(Arc::new(Hinting(store))));
    let hinted = Locks::open_with(failing.clone(), Options::default()).await.unwrap();
    let mut waiting = hinted.lock("job").into_future();
    until_it_waits(&mut waiting, &locks).await;
    look(&snapshotter);
    failing.lose_reply(VerbName::Acquire, 1);
    held.release().await.unwrap();
    tokio::time::sleep(slow).await;
    let next = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    let seen = look(&snapshotter);
    let [hand_over] = times(&seen, "lockstep_hand_over_seconds")[..] else { panic!("{seen:?}") };
    assert!(hand_over >= slow.as_secs_f64(), "{hand_over} since it was told");
    next.release().await.unwrap();

    let held = locks.lock("job").await.unwrap();
    let mut waiting = others.lock("job").into_future();
    until_it_waits(&mut waiting, &locks).await;
    drop(waiting);
    locks.close().await;
    assert!(!held.is_trusted());
    let seen = look(&snapshotter);
    assert_eq!(count(&seen, "lockstep_losses_total"), 0, "who closes its handle loses nothing");
    assert_eq!(seen["lockstep_queue_length"], DebugValue::Gauge(0.0.into()), "it has gone");
}
