//! Properties of the two machines that hold a guard's promise: what is renewed, and when trust
//! ends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Drift, Key, Label, Lease, Owner, Token};
use lockstep_lock::LostCause;
use lockstep_lock::Share;
use lockstep_lock::queue::{Now, Table, Told};
use lockstep_lock::renewals::{Change, Renewals, patience};
use lockstep_lock::store::{Answer, Claim, Hold, Query, RENEW_BATCH, Release, Released, Renewal};
use proptest::prelude::*;

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

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let mut renewals = Renewals::default();
    renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), Moment::MAX);
    let (batch, _) = renewals.take_due(at(300)).unwrap();
    let changes = renewals.answered(at(300), &batch, vec![Renewal::Renewed], Drift::default());
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
    let changes = renewals.answered(at(300), &batch, answers, Drift::default());
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
        renewals.answered(at(300), &batch, vec![Renewal::Renewed], Drift::default()).is_empty()
    );
    assert_eq!(renewals.next(), None);
}

#[test]
fn the_maximum_hold_ends_trust_although_renewals_succeed() {
    let mut renewals = Renewals::default();
    let end = renewals.insert(hold(1), Lease::new(at(0), TTL, Drift::default()), at(500));
    assert_eq!(end, at(500));
    let (batch, _) = renewals.take_due(at(300)).unwrap();
    renewals.answered(at(300), &batch, vec![Renewal::Renewed], Drift::default());
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

#[derive(Clone, Debug)]
enum Deed {
    Ask(u8),
    Renew(u8),
    Release(u8),
    Break(bool),
    Pass(u16),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (0u8..5).prop_map(Deed::Ask),
        2 => (0u8..5).prop_map(Deed::Renew),
        3 => (0u8..5).prop_map(Deed::Release),
        1 => any::<bool>().prop_map(Deed::Break),
        2 => (1u16..700).prop_map(Deed::Pass),
    ];
    prop::collection::vec(deed, 1..60)
}

/// What claims ask for: a lock of one kind is always of that kind.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Exclusive,
    ReadWrite,
    Permits,
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Exclusive), Just(Kind::ReadWrite), Just(Kind::Permits)]
}

fn claim(kind: Kind, number: u8) -> Claim {
    let share = match (kind, number) {
        (Kind::ReadWrite, 1..) => Share::Read,
        (Kind::Exclusive | Kind::ReadWrite, _) => Share::Exclusive,
        (Kind::Permits, _) => Share::Permits { count: 1 + u32::from(number) % 3, of: 4 },
    };
    Claim {
        id: ClaimId::from_u128(number.into()),
        key: Key::new("k").unwrap(),
        owner: Owner::from_u128(number.into()),
        label: Label::default(),
        share,
        ttl: TTL,
        wait: true,
    }
}

/// A program may lock a name for every order that it handles, for years.
#[test]
fn a_lock_that_is_free_takes_no_room_and_its_token_goes_on() {
    let mut table = Table::default();
    let now = Now { moment: at(0), wall_ms: 0 };
    let mut take = |name: &str| {
        let asked = Claim { key: Key::new(name).unwrap(), ..claim(Kind::Exclusive, 1) };
        let (answer, _) = table.acquire(now, &asked);
        let (released, _) = table.release(now, &Release::Mine(asked.hold()));
        assert_eq!(released, Released::Done);
        table.sweep(&asked.key);
        match answer {
            Answer::Granted { token } => token.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let before = take("order:1");
    take("order:2");
    assert!(take("order:1") > before);
    let empty = format!("{table:?}");
    assert!(!empty.contains("order"), "{empty}");
}

proptest! {
    /// The table against a bookkeeper that only believes answers and pushes: those who may trust
    /// what they hold never take more than there is (unless broken at once), tokens do not go
    /// back, and only readers share one.
    #[test]
    fn the_table_never_grants_what_is_trusted(kind in kinds(), deeds in deeds()) {
        let mut table = Table::default();
        let mut ms = 0u64;
        let mut trusted: BTreeMap<u8, u64> = BTreeMap::new(); // who, until when
        let mut tokens: BTreeMap<u64, u8> = BTreeMap::new();
        for deed in deeds {
            let now = Now { moment: at(ms), wall_ms: ms };
            let mut grants: Vec<(u8, Token)> = vec![];
            match deed {
                Deed::Pass(by) => {
                    ms += u64::from(by);
                    trusted.retain(|_, until| ms < *until);
                    continue;
                }
                Deed::Ask(who) => {
                    let (answer, told) = table.acquire(now, &claim(kind, who));
                    if let Answer::Granted { token } = answer {
                        grants.push((who, token.unwrap()));
                    }
                    grants.extend(told.into_iter().filter_map(granted));
                }
                Deed::Renew(who) => {
                    let renewed = table.renew(now, &claim(kind, who).hold()) == Renewal::Renewed;
                    if renewed {
                        trusted.insert(who, ms + 900);
                    }
                }
                Deed::Release(who) => {
                    let mine = Release::Mine(claim(kind, who).hold());
                    let (released, told) = table.release(now, &mine);
                    if released == Released::Done {
                        trusted.remove(&who);
                    }
                    grants.extend(told.into_iter().filter_map(granted));
                }
                Deed::Break(at_once) => {
                    let key = claim(kind, 0).key;
                    let what = Release::Break { key, reason: "x".into(), now: at_once };
                    let (_, told) = table.release(now, &what);
                    if at_once {
                        trusted.clear();
                    }
                    grants.extend(told.into_iter().filter_map(granted));
                }
            }
            for (who, token) in grants {
                trusted.insert(who, ms + 900);
                let reads = claim(kind, who).share == Share::Read;
                let known = tokens.insert(token.get(), who);
                prop_assert!(known.is_none_or(|other| other == who || reads), "{token} used twice");
                let newest = tokens.keys().last().copied();
                let may_be_older = matches!(kind, Kind::Permits);
                prop_assert!(may_be_older || newest == Some(token.get()), "token went back");
            }
            let taken: u64 =
                trusted.keys().map(|who| u64::from(claim(kind, *who).share.weight())).sum();
            let of = claim(kind, 0).share.of();
            prop_assert!(taken <= u64::from(of), "{trusted:?} trust {taken} of {of}");
            let page = table.inspect(now, &Query::One(claim(kind, 0).key));
            prop_assert!(page.locks.len() <= 1);
        }
    }
}

fn granted(told: Told) -> Option<(u8, Token)> {
    match told {
        Told::Granted(claim, token) => Some((claim.id.as_u128() as u8, token)),
        Told::Lost(..) => None,
    }
}
