//! A line of entries is the fair queue seen from outside: it names the same holders and the same
//! waiters, no wake-up is missed by watching only what it says, and nobody is granted too early.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Key, Label, Owner};
use lockstep_lock::Share;
use lockstep_lock::line::{Entry, Line, Standing};
use lockstep_lock::queue::{Now, Table};
use lockstep_lock::store::{Answer, Claim, Query, Release};
use proptest::prelude::*;

const NOW: Now = Now { moment: Moment::ZERO, wall_ms: 0 };

#[derive(Clone, Debug)]
enum Deed {
    Come(Share),
    Go(usize),
    Downgrade(usize),
}

fn share() -> impl Strategy<Value = Vec<Share>> {
    let writers = prop_oneof![Just(Share::Exclusive), Just(Share::Read), Just(Share::Read)];
    let permits = (1u32..=5).prop_map(|count| Share::Permits { count, of: 5 });
    prop_oneof![
        prop::collection::vec(writers, 1..12),
        prop::collection::vec(permits, 1..12),
        prop::collection::vec(Just(Share::Exclusive), 1..12),
    ]
}

/// Comings in one order, mixed with goings.
fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let changes = prop::collection::vec((any::<bool>(), 0usize..12, 0u8..4), 0..24);
    (share(), changes).prop_map(|(shares, changes)| {
        let mut deeds: Vec<Deed> = shares.into_iter().map(Deed::Come).collect();
        for (early, place, what) in changes {
            let deed = if what == 0 { Deed::Downgrade(place) } else { Deed::Go(place) };
            let at = if early { place.min(deeds.len()) } else { deeds.len() };
            deeds.insert(at, deed);
        }
        deeds
    })
}

fn claim(number: usize, share: Share) -> Claim {
    Claim {
        id: ClaimId::from_u128(number as u128 + 1),
        key: Key::new("k").unwrap(),
        owner: Owner::new(),
        label: Label::default(),
        share,
        ttl: Duration::from_secs(1),
        wait: true,
    }
}

/// The queue and the line side by side.
#[derive(Default)]
struct Both {
    table: Table,
    claims: Vec<Claim>,
    /// Those that are there, in the order they came.
    here: Vec<usize>,
    shares: Vec<Share>,
}

impl Both {
    fn line(&self) -> Line<usize> {
        Line::new(self.here.iter().map(|n| Entry { id: *n, share: self.shares[*n] }).collect())
    }

    /// Answers with who has gone or become less.
    fn act(&mut self, deed: &Deed) -> Option<usize> {
        match deed {
            Deed::Come(share) => {
                let (number, mine) = (self.claims.len(), claim(self.claims.len(), *share));
                self.table.acquire(NOW, &mine);
                self.claims.push(mine);
                self.shares.push(*share);
                self.here.push(number);
                None
            }
            Deed::Go(place) => {
                if *place >= self.here.len() {
                    return None;
                }
                let number = self.here.remove(*place);
                self.table.release(NOW, &Release::Mine(self.claims[number].hold()));
                Some(number)
            }
            Deed::Downgrade(place) => {
                let number = *self.here.get(*place)?;
                let holds = self.line().standing(&number) == Some(Standing::Holds);
                if !holds || self.shares[number] != Share::Exclusive {
                    return None;
                }
                self.table.release(NOW, &Release::Downgrade(self.claims[number].hold()));
                self.shares[number] = Share::Read;
                Some(number)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn the_line_says_what_the_queue_says(deeds in deeds()) {
        let mut both = Both::default();
        for deed in &deeds {
            both.act(deed);
            let line = both.line();
            let view = both.table.inspect(NOW, &Query::One(Key::new("k").unwrap())).locks.pop();
            let (held, waiting) = view.map_or((vec![], vec![]), |view| (
                view.holders.iter().map(|holder| holder.claim).collect(),
                view.waiters.iter().map(|waiter| waiter.claim).collect(),
            ));
            let ids: Vec<ClaimId> = both.here.iter().map(|n| both.claims[*n].id).collect();
            prop_assert_eq!(&ids[..line.holders()], &held[..]);
            prop_assert_eq!(&ids[line.holders()..], &waiting[..]);
            for number in both.here.clone() {
                let answer = both.table.acquire(NOW, &both.claims[number]).0;
                match line.standing(&number).unwrap() {
                    Standing::Holds => {
                        let granted = matches!(answer, Answer::Granted { .. });
                        prop_assert!(granted, "{:?}", answer);
                    }
                    Standing::Waits { ahead, .. } => {
                        let same = matches!(answer, Answer::Queued { ahead: a, .. } if a == ahead);
                        prop_assert!(same, "{:?}, {}", answer, ahead);
                    }
                    Standing::Differs { .. } => prop_assert!(false, "all agree"),
                }
            }
        }
    }

    /// Everybody who waits looks once and then only at what it watches.
    #[test]
    fn nobody_misses_its_turn_and_nobody_is_granted_early(deeds in deeds()) {
        let mut both = Both::default();
        let mut seen: Vec<(usize, Line<usize>)> = vec![];
        for deed in &deeds {
            let before = both.here.len();
            let changed = both.act(deed);
            if let Deed::Come(_) = deed {
                seen.push((both.here[before], both.line()));
            }
            seen.retain(|(me, _)| both.here.contains(me));
            let truth = both.line();
            for (me, line) in &mut seen {
                let now = truth.standing(me).unwrap();
                let known = line.standing(me).unwrap();
                let Standing::Waits { watch, .. } = &known else {
                    prop_assert_eq!(now, Standing::Holds, "who holds goes on holding");
                    continue;
                };
                let told = changed.filter(|changed| watch.contains(changed));
                let Some(changed) = told else {
                    prop_assert!(now != Standing::Holds, "{} was not told: {:?}", me, known);
                    continue;
                };
                match both.here.contains(&changed) {
                    true => line.weaken(&changed, both.shares[changed]),
                    false => line.leave(&changed),
                }
                if line.standing(me) == Some(Standing::Holds) {
                    prop_assert_eq!(now, Standing::Holds, "without looking again");
                }
                // Looks again.
                *line = truth.clone();
            }
        }
    }

    #[test]
    fn who_wants_everything_watches_the_one_before_it(shares in share()) {
        let entries = shares.iter().enumerate().map(|(id, share)| Entry { id, share: *share });
        let line = Line::new(entries.collect());
        for (place, share) in shares.iter().enumerate().skip(1) {
            if share.weight() == share.of() {
                let ahead = (place - line.holders()) as u64;
                let expected = Standing::Waits { ahead, watch: vec![place - 1] };
                prop_assert_eq!(line.standing(&place), Some(expected));
            }
        }
    }
}

fn exclusive(ids: impl IntoIterator<Item = usize>) -> Vec<Entry<usize>> {
    ids.into_iter().map(|id| Entry { id, share: Share::Exclusive }).collect()
}

#[test]
fn the_one_behind_the_only_holder_needs_not_look_again() {
    let mut line = Line::new(exclusive([1, 2, 3]));
    assert_eq!(line.standing(&2), Some(Standing::Waits { ahead: 0, watch: vec![1] }));
    assert_eq!(line.standing(&3), Some(Standing::Waits { ahead: 1, watch: vec![2] }));
    assert_eq!(line.standing(&4), None);
    line.leave(&1);
    assert_eq!(line.standing(&2), Some(Standing::Holds));
    assert_eq!(line.standing(&3), Some(Standing::Waits { ahead: 0, watch: vec![2] }));
}

#[test]
fn a_line_with_a_gap_is_never_the_front() {
    let mut line = Line::with_gap(exclusive([1, 2]), 5, exclusive([8, 9]));
    assert_eq!(line.holders(), 1);
    assert_eq!(line.standing(&9), Some(Standing::Waits { ahead: 7, watch: vec![8] }));
    line.leave(&8);
    line.leave(&1);
    line.leave(&2);
    let nothing_known = Standing::Waits { ahead: 5, watch: vec![] };
    assert_eq!(line.standing(&9), Some(nothing_known), "the five may all be there");
    let readers = vec![Entry { id: 8, share: Share::Read }, Entry { id: 9, share: Share::Read }];
    let line = Line::with_gap(exclusive([1]), 5, readers);
    let nothing_known = Standing::Waits { ahead: 6, watch: vec![] };
    assert_eq!(line.standing(&9), Some(nothing_known), "the writer may be in the gap");
}

#[test]
fn a_reader_watches_the_last_writer_before_it() {
    let entry = |id, share| Entry { id, share };
    let line = Line::new(vec![
        entry(1, Share::Exclusive),
        entry(2, Share::Exclusive),
        entry(3, Share::Read),
        entry(4, Share::Read),
    ]);
    assert_eq!(line.standing(&4), Some(Standing::Waits { ahead: 2, watch: vec![2] }));
}

#[test]
fn another_total_differs_and_is_passed_by_nobody() {
    let five = |id| Entry { id, share: Share::Permits { count: 1, of: 5 } };
    let mut line = Line::new(vec![five(1), Entry { id: 2, share: Share::Exclusive }, five(3)]);
    assert_eq!(line.holders(), 1);
    assert_eq!(line.standing(&2), Some(Standing::Differs { of: 5 }));
    let waits = Standing::Waits { ahead: 1, watch: vec![1, 2] };
    assert_eq!(line.standing(&3), Some(waits), "until the other has gone");
    line.leave(&2);
    assert_eq!(line.standing(&3), Some(Standing::Holds));
}
