//! Properties of the machines that hold a guard's promise: who is granted, and what an acquisition makes of
//! whatever it hears.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{
    ClaimId, Drift, Effect, ErrorKind, Key, Label, Lease, Owner, StoreError, Token,
};
use lockstep_lock::Share;
use lockstep_lock::acquisition::{Acquisition, Event, Step, Terms};
use lockstep_lock::queue::{Now, Table, Told};
use lockstep_lock::store::{Answer, Claim, Query, Release, Released, Renewal};
use proptest::prelude::*;

const TTL: Duration = Duration::from_millis(900);

fn at(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(ms)
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

/// What an acquisition hears, and how long after what it did last.
#[derive(Clone, Debug)]
struct Heard {
    after_ms: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Granted(u64),
    Queued {
        ahead: u64,
        left_ms: u64,
        behind: u64,
    },
    Failed {
        may_retry: bool,
    },
    Pushed(u64),
    Hinted,
    /// Nothing, until the moment that it waits for.
    Silence,
}

fn heard() -> impl Strategy<Value = Vec<Heard>> {
    let what = prop_oneof![
        1 => (1u64..9).prop_map(What::Granted),
        4 => (0u64..3, 0u64..2_000, 1u64..9)
            .prop_map(|(ahead, left_ms, behind)| What::Queued { ahead, left_ms, behind }),
        3 => any::<bool>().prop_map(|may_retry| What::Failed { may_retry }),
        2 => (1u64..9).prop_map(What::Pushed),
        2 => Just(What::Hinted),
        3 => Just(What::Silence),
    ];
    let after_ms = prop_oneof![2 => Just(0u64), 4 => 0u64..300, 2 => 0u64..1_500];
    let heard = (after_ms, what).prop_map(|(after_ms, what)| Heard { after_ms, what });
    prop::collection::vec(heard, 1..40)
}

/// After an ask that failed it pauses for so long at most, also when its place should be looked after.
const LONGEST_PAUSE: Duration = Duration::from_millis(300);

/// What it was told of its place.
struct Place {
    asked_at: Moment,
    behind: Token,
}

proptest! {
    /// Whatever is heard, and however late: who is said to hold was granted, by an answer to an ask or by a push
    /// with a token that is new, and may trust it now and no longer than from the ask that it goes
    /// back to; nobody waits beyond its deadline, or so long that its place is lost; and with a
    /// deadline every acquisition ends.
    #[test]
    fn an_acquisition_believes_only_what_it_may(
        heard in heard(),
        deadline_ms in prop::option::of(0u64..3_000),
        push in any::<bool>(),
        random in any::<u64>(),
    ) {
        let drift = Drift::default();
        let deadline = deadline_ms.map(at);
        let mut machine = Acquisition::new(Terms { ttl: TTL, drift, deadline, push });
        let mut now = at(0);
        let mut place: Option<Place> = None;
        let mut granted: Option<(Token, Moment)> = None;
        let mut step = machine.step(now, Event::Start, random);
        // When the script is over the store is silent, and every ask fails in the end.
        let silence = std::iter::repeat(Heard { after_ms: 2_000, what: What::Silence });
        for (steps, next) in heard.into_iter().chain(silence).enumerate() {
            let after = Duration::from_millis(next.after_ms);
            let event = match step {
                Step::Ask => {
                    let asked_at = now;
                    now = now + after;
                    Event::Answered(match next.what {
                        What::Granted(token) => {
                            granted = Some((Token::new(token), asked_at));
                            Ok(Answer::Granted { token: Some(Token::new(token)) })
                        }
                        What::Queued { ahead, left_ms, behind } => {
                            let behind = Token::new(behind);
                            place = Some(Place { asked_at, behind });
                            let holder_left = Duration::from_millis(left_ms);
                            Ok(Answer::Queued { ahead, holder_left, behind: Some(behind) })
                        }
                        other => {
                            let sure = matches!(other, What::Failed { may_retry: false });
                            let kind = if sure { ErrorKind::Denied } else { ErrorKind::Unavailable };
                            Err(StoreError::new("test", kind, Effect::Unknown, "no answer"))
                        }
                    })
                }
                Step::Wait(until) => {
                    prop_assert!(deadline.is_none_or(|deadline| until <= deadline.max(now)));
                    if let Some(place) = &place {
                        prop_assert!(until <= (place.asked_at + TTL / 3).max(now + LONGEST_PAUSE));
                    }
                    // What comes at once comes first, also when it is time already to go on.
                    let comes_at = now + after;
                    let in_time = after.is_zero() || comes_at < until;
                    match next.what {
                        What::Pushed(token) if in_time => {
                            now = comes_at;
                            let token = Token::new(token);
                            let new = place.as_ref().filter(|place| place.behind < token);
                            granted = new.map(|place| (token, place.asked_at));
                            Event::Pushed(Some(token))
                        }
                        What::Hinted if in_time => {
                            now = comes_at;
                            Event::Hinted
                        }
                        _ => {
                            now = until.max(now);
                            Event::Woke
                        }
                    }
                }
                Step::Held { token, lease } => {
                    let (by, since) = granted.expect("somebody granted it");
                    prop_assert_eq!(token, Some(by));
                    prop_assert_eq!(lease, Lease::new(since, TTL, drift));
                    prop_assert!(lease.is_trusted(now));
                    return Ok(());
                }
                Step::TimedOut { .. } => {
                    // Or three answers in a row came too late to be trusted.
                    prop_assert!(deadline.is_some_and(|deadline| deadline <= now) || granted.is_some());
                    return Ok(());
                }
                Step::Failed(_) => return Ok(()),
                other => panic!("nothing of that was heard: {other:?}"),
            };
            prop_assert!(deadline.is_none() || steps < 1_000, "it does not end");
            if steps > 1_000 {
                return Ok(());
            }
            step = machine.step(now, event, random.rotate_left(steps as u32));
        }
    }
}
