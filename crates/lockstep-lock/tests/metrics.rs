//! What a dashboard gets to see. A recorder is for the whole process, so this is a test of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use lockstep_lock::Locks;
use lockstep_lock::memory::Memory;
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

#[tokio::test(flavor = "multi_thread")]
async fn waits_holds_hand_overs_renewals_and_losses_are_measured() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let store = Memory::new();
    let locks = Locks::open(store.clone()).await.unwrap();
    let others = Locks::open(store).await.unwrap();

    let ttl = Duration::from_millis(600);
    let held = locks.lock("job").ttl(ttl).await.unwrap();
    let waiting = tokio::spawn(others.lock("job").into_future());
    let queued = async {
        while locks.inspect("job").await.unwrap().is_none_or(|lock| lock.waiting == 0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, queued).await.unwrap();
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
    let next = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    let seen = look(&snapshotter);
    let [hold] = times(&seen, "lockstep_hold_seconds")[..] else { panic!("{seen:?}") };
    let [wait] = times(&seen, "lockstep_wait_seconds")[..] else { panic!("{seen:?}") };
    let [hand_over] = times(&seen, "lockstep_hand_over_seconds")[..] else { panic!("{seen:?}") };
    assert!(hold >= ttl.as_secs_f64() / 3.0, "held until it was renewed: {hold}");
    assert!(wait >= hand_over, "{wait}, of which {hand_over} since it was free");

    locks.break_lock_now("job", "moving house").await.unwrap();
    tokio::time::timeout(PATIENCE, next.lost()).await.unwrap();
    assert_eq!(count(&look(&snapshotter), "lockstep_losses_total"), 1);

    let held = locks.lock("job").await.unwrap();
    let late = others.lock("job").within(Duration::from_millis(30)).await;
    assert!(late.is_err());
    assert_eq!(count(&look(&snapshotter), "lockstep_timeouts_total"), 1);
    held.release().await.unwrap();
}
