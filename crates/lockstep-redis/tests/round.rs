//! Rounds as text: `testdata/round`, read as [`lockstep_testkit::scripts`] says; and as properties.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::time::Duration;

use lockstep_core::Drift;
use lockstep_core::time::Moment;
use lockstep_redis::redlock::arithmetic::quorum;
use lockstep_redis::redlock::round::{Effect, Event, Outcome, Round, Terms, Vote};
use lockstep_testkit::scripts::{Words, replay_all};
use proptest::prelude::*;

#[test]
fn the_machine_says_what_the_scripts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/round");
    replay_all(&folder, || {
        let mut machine = None;
        move |words| {
            let effects = if words.verb == "terms" {
                let (round, effects) = Round::start(terms(words), words.at());
                machine = Some(round);
                effects
            } else {
                let machine = machine.as_mut().expect("a script starts with its terms");
                machine.step(words.at(), event(words))
            };
            Some(show(&effects))
        }
    });
}

fn terms(words: &Words<'_>) -> Terms {
    let min_validity = words.get("min").map_or(Duration::ZERO, |_| words.ms("min"));
    let nodes = words.number("nodes") as usize;
    Terms { nodes, ttl: words.ms("ttl"), drift: Drift::default(), min_validity }
}

fn event(words: &Words<'_>) -> Event {
    let vote = match words.verb {
        "deadline" => return Event::Deadline,
        "granted" => Vote::Granted,
        "refused" => Vote::Refused { left: words.ms("left"), by: words.number("by") },
        "broken" => Vote::Broken("stuck".into()),
        "void" => Vote::Void(words.get("why").unwrap().to_owned()),
        verb => panic!("no event is called {verb}"),
    };
    Event::Answered { node: words.number("node") as usize, vote }
}

fn show(effects: &[Effect]) -> String {
    let list = |nodes: Vec<usize>| match nodes[..] {
        [] => String::new(),
        _ => nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    };
    let of = |pick: fn(&Effect) -> Option<usize>| list(effects.iter().filter_map(pick).collect());
    let asks = of(|effect| match effect {
        Effect::Ask(node) => Some(*node),
        _ => None,
    });
    let backs = of(|effect| match effect {
        Effect::GiveBack(node) => Some(*node),
        _ => None,
    });
    let mut words = vec![];
    if !asks.is_empty() {
        words.push(format!("ask {asks}"));
    }
    if !backs.is_empty() {
        words.push(format!("give-back {backs}"));
    }
    for effect in effects {
        if let Effect::Settled(outcome) = effect {
            words.push(match outcome {
                Outcome::Granted { safe_end } => {
                    format!("granted safe-end={}", safe_end.since(Moment::ZERO).as_millis())
                }
                Outcome::Refused { held_for: None } => "refused split".into(),
                Outcome::Refused { held_for: Some(left) } => {
                    format!("refused held-for={}", left.as_millis())
                }
                Outcome::Broken(reason) => format!("broken reason={reason}"),
                Outcome::TooLate => "too-late".into(),
                Outcome::NoQuorum(void) => {
                    let void = void.iter().map(|(node, why)| format!("{node}:{why}"));
                    format!("no-quorum {}", void.collect::<Vec<_>>().join(" "))
                }
            });
        }
    }
    if words.is_empty() { "-".into() } else { words.join("; ") }
}

fn vote() -> impl Strategy<Value = Vote> {
    prop_oneof![
        Just(Vote::Granted),
        (0u64..1000, 0u64..3)
            .prop_map(|(left, by)| Vote::Refused { left: Duration::from_millis(left), by }),
        Just(Vote::Void("why".into())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Whatever answers come in whatever order: the round is settled once, granted exactly if a quorum
    /// granted before it could be ruled out, at the latest at its deadline; and what is not granted is
    /// given back at every node.
    #[test]
    fn a_round_always_ends_and_never_leaves_anything(
        votes in prop::collection::vec(vote(), 1..=9),
        order in Just((0..9).collect::<Vec<usize>>()).prop_shuffle(),
        answer in 0usize..=9,
        slow in 0u64..200,
    ) {
        let nodes = votes.len();
        let ttl = Duration::from_millis(100);
        let terms =
            Terms { nodes, ttl, drift: Drift::default(), min_validity: Duration::ZERO };
        let (mut round, asks) = Round::start(terms, Moment::ZERO);
        prop_assert_eq!(asks.len(), nodes);
        let late = Moment::ZERO + Duration::from_millis(slow);
        let mut effects = vec![];
        let mut granted = 0;
        let mut void = 0;
        let mut refused = 0;
        for node in order.into_iter().filter(|node| *node < nodes).take(answer) {
            let open = !effects.iter().any(|effect| matches!(effect, Effect::Settled(_)));
            if open {
                match votes[node] {
                    Vote::Granted => granted += 1,
                    Vote::Refused { .. } => refused += 1,
                    Vote::Void(_) => void += 1,
                    Vote::Broken(_) => unreachable!("not drawn"),
                }
            }
            effects.extend(round.step(late, Event::Answered { node, vote: votes[node].clone() }));
        }
        effects.extend(round.step(late, Event::Deadline));
        let settled: Vec<&Outcome> = effects.iter().filter_map(|effect| match effect {
            Effect::Settled(outcome) => Some(outcome),
            _ => None,
        }).collect();
        prop_assert_eq!(settled.len(), 1, "{:?}", effects);
        let q = quorum(nodes);
        match settled[0] {
            Outcome::Granted { safe_end } => {
                prop_assert!(granted == q && late < *safe_end);
            }
            Outcome::Broken(_) => unreachable!("not drawn"),
            Outcome::TooLate => prop_assert!(granted == q && late >= Moment::ZERO + ttl * 97 / 100),
            Outcome::Refused { .. } => prop_assert!(granted < q && granted + refused >= q),
            Outcome::NoQuorum(why) => {
                prop_assert!(granted < q && why.len() > nodes - q && void <= why.len());
            }
        }
        if !matches!(settled[0], Outcome::Granted { .. }) {
            for node in 0..nodes {
                prop_assert!(effects.contains(&Effect::GiveBack(node)), "{node}: {effects:?}");
            }
        }
    }
}
