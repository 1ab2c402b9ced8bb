//! The thread's decisions without a server: what it concludes from answers, on a clock of our own.

use std::sync::atomic::{AtomicU64, Ordering};

use lockstep_core::time::Clock;
use lockstep_core::{Key, Label, Owner};
use lockstep_lock::store::Claim;
use lockstep_lock::{Inbox, Share};
use parking_lot::Mutex;

use super::*;
use crate::config::Etcd;
use crate::look::Seen;

#[derive(Default)]
struct Hand(AtomicU64);

impl Hand {
    fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Moment {
        at(self.0.load(Ordering::SeqCst))
    }
}

fn at(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(ms)
}

fn worker(clock: &Arc<Hand>) -> Worker {
    let config = Etcd::from_url("etcd://127.0.0.1:1").expect("a good URL").config;
    let shared = Shared {
        link: Link::new(config),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        book: Mutex::default(),
        sessions: Mutex::default(),
    };
    Worker::new(Arc::new(shared))
}

fn session(worker: &Worker) -> Arc<Session> {
    let session = Arc::new(Session::new(7, 2, Duration::from_secs(2), at(0)));
    worker.shared.sessions.lock().insert(2, Arc::clone(&session));
    session
}

#[tokio::test]
async fn a_lease_counts_from_when_its_keep_alive_was_sent() {
    let clock = Arc::new(Hand::default());
    let mut worker = worker(&clock);
    let session = session(&worker);
    clock.set(500);
    worker.keep_alive(&session, at(500));
    clock.set(900);
    worker.kept_alive(&LeaseKeepAliveResponse { id: 7, ttl: 2 });
    assert!(session.lives_until(at(2_500)));
    assert!(!session.lives_until(at(2_501)), "the answer took its time, and that was the lease's");
    // An answer to nothing that was asked proves nothing.
    clock.set(1_500);
    worker.kept_alive(&LeaseKeepAliveResponse { id: 7, ttl: 2 });
    assert!(!session.lives_until(at(2_501)));
}

#[tokio::test]
async fn an_answer_from_an_earlier_stream_is_not_taken_for_a_new_one() {
    let clock = Arc::new(Hand::default());
    let mut worker = worker(&clock);
    let session = session(&worker);
    worker.keep_alive(&session, at(0));
    worker.reconnect(at(100));
    clock.set(1_000);
    worker.keep_alive(&session, at(1_000));
    worker.heard(Heard::KeptAlive(0, Some(LeaseKeepAliveResponse { id: 7, ttl: 2 })));
    assert!(!session.lives_until(at(2_001)), "that was the answer to the first");
}

/// A waiter whose turn comes; what it is told.
fn turn_comes(when_ms: u64, dies: bool) -> Vec<Signal> {
    let clock = Arc::new(Hand::default());
    let mut worker = worker(&clock);
    let session = session(&worker);
    let told: Arc<Mutex<Vec<Signal>>> = Arc::default();
    let ear = Arc::clone(&told);
    let inbox = Inbox::tapped(move |signal| ear.lock().push(signal));
    let claim = Claim {
        id: ClaimId::from_u128(1),
        key: Key::new("k").expect("a good name"),
        owner: Owner::from_u128(2),
        label: Label::default(),
        share: Share::Exclusive,
        ttl: Duration::from_secs(1),
        wait: true,
    };
    let entry = {
        let mut book = worker.shared.book.lock();
        let (_, entry) = book.begin(at(0), &claim, b"k/", &session, Some(&inbox));
        book.confirmed(at(0), &claim, 9, false);
        entry.to_vec()
    };
    let line = || {
        let entry =
            |id: &[u8]| lockstep_lock::line::Entry { id: id.to_vec(), share: Share::Exclusive };
        lockstep_lock::line::Line::new(vec![entry(b"k/0"), entry(b"k/7")])
    };
    let parked = Parked {
        claim: claim.id,
        line: b"k/".to_vec(),
        entry: entry.clone(),
        create: 9,
        share: Share::Exclusive,
        seen: Seen::default(),
    };
    let (waiter, _) = Waiter::new(entry, line(), 9);
    worker.waiters.insert(claim.id, (waiter, parked));
    clock.set(when_ms);
    if dies {
        session.die();
    }
    let steps = worker.waiters.get_mut(&claim.id).map(|(waiter, _)| waiter.left(b"k/0", 10));
    worker.act(claim.id, steps.expect("it waits"));
    let mut told = told.lock();
    std::mem::take(&mut *told)
}

#[test]
fn a_grant_names_a_live_lease() {
    let claim = ClaimId::from_u128(1);
    assert_eq!(turn_comes(500, false), [Signal::Granted { claim, token: Some(token(9)) }]);
    assert_eq!(turn_comes(500, true), [Signal::AskAgain { claim }], "its lease is gone");
    assert_eq!(turn_comes(2_001, false), [Signal::AskAgain { claim }], "nobody has confirmed it");
}
