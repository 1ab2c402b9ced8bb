//! Which holds are renewed when, and when trust in them ends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Drift, Key, Lease};
use lockstep_lock::LostCause;
use lockstep_lock::renewals::{Change, Renewals, patience};
use lockstep_lock::store::{Hold, RENEW_BATCH, Renewal};

const TTL: Duration = Duration::from_millis(900);

fn at(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(ms)
}

fn hold(number: u128) -> Hold {
    Hold { id: ClaimId::from_u128(number), key: Key::new(format!("k{number}")).unwrap(), ttl: TTL }
}

#[test]
fn a_hold_is_renewed_at_a_third_of_its_ttl_and_ends_without() {
    let mut renewals = Renewals::default();
    let end = renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
    assert_eq!(renewals.next(), Some(at(300)));
    assert!(renewals.take_due(at(299)).is_none());
    let (batch, late) = renewals.take_due(at(310)).unwrap();
    assert_eq!((batch.as_slice(), late), ([hold(1)].as_slice(), Duration::from_millis(10)));
    renewals.failed(at(400), at(310), &batch);
    assert_eq!(renewals.next(), Some(at(490)), "an error never ends the schedule");
    assert_eq!(renewals.take_ended(end), vec![(ClaimId::from_u128(1), LostCause::Expired)]);
    assert_eq!(renewals.next(), None);
}

/// Two renewals may fail, also if all that is heard of them is nothing.
#[test]
fn a_store_that_is_silent_is_asked_three_times_before_the_lease_ends() {
    for ttl_ms in [1_250, 3_000, 10_000, 60_000] {
        let hold = Hold { ttl: Duration::from_millis(ttl_ms), ..hold(1) };
        let lease = Lease::new(at(0), hold.ttl, Drift::default());
        let mut renewals = Renewals::default();
        let end = renewals.insert(hold, lease, Moment::MAX);
        let mut asked = 0;
        while let Some(now) = renewals.next().filter(|now| *now < end) {
            let (batch, _) = renewals.take_due(now).unwrap();
            asked += 1;
            renewals.failed(now + patience(&batch, Duration::from_secs(2)), now, &batch);
        }
        assert!(asked >= 3, "{asked} times within {ttl_ms} ms");
    }
}

/// What comes of one hold whose renewals are all carried out and answered after `slow`; how long it was
/// trusted, of `for_ms`.
fn trusted_although_slow(ttl_ms: u64, slow_ms: u64, for_ms: u64) -> u64 {
    let (slow, operation) = (Duration::from_millis(slow_ms), Duration::from_secs(2));
    let hold = Hold { ttl: Duration::from_millis(ttl_ms), ..hold(1) };
    let lease = Lease::new(at(0), hold.ttl, Drift::default());
    let mut renewals = Renewals::default();
    renewals.insert(hold.clone(), lease, Moment::MAX);
    let holds = [hold];
    let (mut answers, mut ends_of_patience) = (BTreeMap::new(), BTreeMap::new());
    for ms in 0..for_ms {
        let now = at(ms);
        if let Some(asked_at) = ends_of_patience.remove(&now) {
            renewals.failed(now, asked_at, &holds);
        }
        if let Some(asked_at) = answers.remove(&now) {
            let answer = vec![Renewal::Renewed];
            renewals.answered(now, asked_at, &holds, answer, Drift::default());
        }
        if !renewals.take_ended(now).is_empty() {
            return ms;
        }
        if renewals.take_due(now).is_some() {
            // Nobody waits for longer than an operation may take.
            if slow <= operation {
                answers.insert(now + slow, now);
            }
            let patience = patience(&holds, operation);
            if patience < slow {
                ends_of_patience.insert(now + patience, now);
            }
        }
    }
    for_ms
}

#[test]
fn a_store_that_is_slow_costs_no_lock() {
    for ttl_ms in [1_000, 3_000, 5_000] {
        for slow_ms in [1, ttl_ms / 5 + 60, ttl_ms / 2, ttl_ms * 3 / 5] {
            let slow_ms = slow_ms.min(2_000);
            let long = ttl_ms * 20;
            assert_eq!(trusted_although_slow(ttl_ms, slow_ms, long), long, "{ttl_ms}, {slow_ms}");
        }
    }
    assert!(trusted_although_slow(1_000, 900, 20_000) < 1_000, "no answer can come in time");
    assert!(trusted_although_slow(5_000, 2_001, 20_000) < 5_000, "no answer is waited for");
}

#[test]
fn a_late_answer_to_an_earlier_renewal_counts_and_moves_no_later_one() {
    let mut renewals = Renewals::default();
    renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
    let (batch, _) = renewals.take_due(at(300)).unwrap();
    assert_eq!(renewals.failed(at(550), at(300), &batch), 1);
    renewals.failed(at(560), at(300), &batch);
    assert_eq!(renewals.next(), Some(at(640)), "what is planned is planned once");
    renewals.take_due(at(640)).unwrap();
    assert_eq!(renewals.failed(at(650), at(300), &batch), 0, "it was asked about again");
    let mut answered = |now: u64, asked: u64| {
        let renewed = vec![Renewal::Renewed];
        renewals.answered(at(now), at(asked), &batch, renewed, Drift::default())
    };
    let until = |asked: u64| Lease::new(at(asked), TTL, Drift::default()).trusted_until();
    let id = ClaimId::from_u128(1);
    assert_eq!(answered(700, 300), [Change::Extended(id, until(300))]);
    assert_eq!(answered(800, 640), [Change::Extended(id, until(640))]);
    assert_eq!(answered(810, 300), [Change::Extended(id, until(640))], "it shortens nothing");
    assert_eq!(renewals.next(), Some(at(940)), "a third of the ttl after the last");
}

/// It went to another handle and came back, which was not yet told what had become of the one before.
#[test]
fn what_was_asked_about_an_earlier_hold_says_nothing_about_this_one() {
    for answer in [Renewal::Lost, Renewal::Broken { reason: "x".into() }, Renewal::Renewed] {
        let mut renewals = Renewals::default();
        renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
        let (batch, _) = renewals.take_due(at(300)).unwrap();
        renewals.remove(ClaimId::from_u128(1));
        renewals.insert(hold(1), Lease::new(at(400), TTL, Drift::default()), Moment::MAX);
        assert_eq!(renewals.answered(at(500), at(300), &batch, vec![answer], Drift::default()), []);
        assert_eq!(renewals.next(), Some(at(700)), "it is renewed as planned");
    }
}

#[test]
fn what_has_run_out_is_not_brought_back_by_a_late_answer() {
    let mut renewals = Renewals::default();
    let end = renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
    let (batch, _) = renewals.take_due(at(300)).unwrap();
    let renewed = vec![Renewal::Renewed];
    assert_eq!(renewals.answered(end, at(300), &batch, renewed, Drift::default()), []);
    assert_eq!(renewals.take_ended(end), [(ClaimId::from_u128(1), LostCause::Expired)]);
}

/// Or the thread would look for it for ever.
#[test]
fn what_is_lost_is_not_planned_any_more() {
    for answer in [Renewal::Lost, Renewal::Broken { reason: "x".into() }] {
        let mut renewals = Renewals::default();
        renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
        let (batch, _) = renewals.take_due(at(300)).unwrap();
        renewals.failed(at(550), at(300), &batch);
        renewals.answered(at(560), at(300), &batch, vec![answer], Drift::default());
        assert_eq!(renewals.next(), None);
    }
}

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let mut renewals = Renewals::default();
    renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
    let (batch, _) = renewals.take_due(at(300)).unwrap();
    let changes =
        renewals.answered(at(300), at(300), &batch, vec![Renewal::Renewed], Drift::default());
    let until = Lease::new(at(300), TTL, Drift::default()).trusted_until();
    assert_eq!(changes, vec![Change::Extended(ClaimId::from_u128(1), until)]);
}

#[test]
fn an_unsure_renewal_changes_nothing_for_its_hold_and_is_asked_again() {
    let mut renewals = Renewals::default();
    let end = renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
    renewals.insert(hold(2), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
    let (batch, _) = renewals.take_due(at(300)).unwrap();
    let unsure = |hold: &Hold| match hold.id == ClaimId::from_u128(1) {
        true => Renewal::Unsure { why: "two of five".into() },
        false => Renewal::Renewed,
    };
    let answers = batch.iter().map(unsure).collect();
    let changes = renewals.answered(at(300), at(300), &batch, answers, Drift::default());
    let until = Lease::new(at(300), TTL, Drift::default()).trusted_until();
    assert_eq!(changes, vec![Change::Extended(ClaimId::from_u128(2), until)]);
    assert_eq!(renewals.next(), Some(at(390)), "it is asked again before the others");
    assert_eq!(renewals.take_ended(end), vec![(ClaimId::from_u128(1), LostCause::Expired)]);
}

#[test]
fn what_was_let_go_stays_gone_whatever_comes_back() {
    let mut renewals = Renewals::default();
    renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
    let (batch, _) = renewals.take_due(at(300)).unwrap();
    renewals.remove(ClaimId::from_u128(1));
    assert!(
        renewals
            .answered(at(300), at(300), &batch, vec![Renewal::Renewed], Drift::default())
            .is_empty()
    );
    assert_eq!(renewals.next(), None);
}

#[test]
fn the_maximum_hold_ends_trust_although_renewals_succeed() {
    let mut renewals = Renewals::default();
    let end = renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), at(500));
    assert_eq!(end, at(500));
    let (batch, _) = renewals.take_due(at(300)).unwrap();
    renewals.answered(at(300), at(300), &batch, vec![Renewal::Renewed], Drift::default());
    assert!(renewals.take_due(at(499)).is_none(), "no renewal beyond the limit");
    assert_eq!(renewals.take_ended(at(500)), vec![(ClaimId::from_u128(1), LostCause::MaxHold)]);
}

#[test]
fn batches_are_bounded() {
    let mut renewals = Renewals::default();
    for number in 0..1_200 {
        renewals.insert(hold(number), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
    }
    let sizes: Vec<usize> =
        std::iter::from_fn(|| renewals.take_due(at(300)).map(|(batch, _)| batch.len())).collect();
    assert_eq!(sizes, [RENEW_BATCH, RENEW_BATCH, 200]);
}

#[test]
fn what_is_due_soon_goes_along_and_nothing_is_sent_for_it_alone() {
    let mut renewals = Renewals::default();
    for ms in [0, 10, 30, 31] {
        renewals.insert(hold(ms.into()), Lease::new(at(ms), TTL, Drift::default()), Moment::MAX);
    }
    assert!(renewals.take_due(at(299)).is_none(), "the first is not due yet");
    let (batch, late) = renewals.take_due(at(300)).unwrap();
    assert_eq!((batch, late), (vec![hold(0), hold(10), hold(30)], Duration::ZERO));
    assert_eq!(renewals.next(), Some(at(331)), "the last is on its own");
}
