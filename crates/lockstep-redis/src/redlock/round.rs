//! One round of questions to all nodes as a pure machine: it is told what the nodes answer and when,
//! and says what to do. It knows no clock, no task and no socket.
//!
//! What it guards:
//! - it settles at the quorum of grants, and as soon as a quorum cannot come any more: never for the
//!   slowest node's sake;
//! - a grant whose safe end is too near is none;
//! - a round that did not end in a grant is given back at *every* node: also where the ask failed or was
//!   not answered, because it may have been carried out; and once more where an answer comes late.

use std::time::Duration;

use lockstep_core::Drift;
use lockstep_core::time::Moment;

use super::arithmetic::{quorum, safe_end};

/// What is asked for, fixed from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How many nodes there are.
    pub nodes: usize,
    /// The lease asked for.
    pub ttl: Duration,
    /// What clocks may be off.
    pub drift: Drift,
    /// A grant that is good for less than this is none.
    pub min_validity: Duration,
}

/// What one node says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// The key is this claim's.
    Granted,
    /// Somebody else has it.
    Refused {
        /// For how long yet.
        left: Duration,
        /// Who: equal for the same value.
        by: u64,
    },
    /// The claim had it, and an operator broke it, with these words.
    Broken(String),
    /// Its answer does not count, or there was none: why.
    Void(String),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A node has answered, or failed to.
    Answered {
        /// Which.
        node: usize,
        /// What it says.
        vote: Vote,
    },
    /// Who has not answered by now is not waited for.
    Deadline,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask this node, now.
    Ask(usize),
    /// Take back at this node what it may have of this claim; again and again until it has answered or
    /// the ttl has passed.
    GiveBack(usize),
    /// The round is over for who asked.
    Settled(Outcome),
}

/// How a round ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A quorum has granted.
    Granted {
        /// Until when a quorum certainly has the key.
        safe_end: Moment,
    },
    /// Enough nodes answer, and too many of them have it for somebody else.
    Refused {
        /// When enough of those leases have ended for another try to be worth it; `None` if nobody has a
        /// quorum: the votes are split, and whoever comes back first by chance may win.
        held_for: Option<Duration>,
    },
    /// The claim had it, and an operator broke it: what is left of it ends with its ttl.
    Broken(String),
    /// A quorum has granted, but it took so long that too little is left.
    TooLate,
    /// Too few nodes answer, or count: which do not, and why.
    NoQuorum(Vec<(usize, String)>),
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    terms: Terms,
    asked_at: Moment,
    votes: Vec<Option<Vote>>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Open,
    Won,
    GivenUp,
}

impl Round {
    /// A round whose asks are all sent at `now`, and these.
    pub fn start(terms: Terms, now: Moment) -> (Self, Vec<Effect>) {
        let votes = vec![None; terms.nodes];
        let asks = (0..terms.nodes).map(Effect::Ask).collect();
        (Self { terms, asked_at: now, votes, phase: Phase::Open }, asks)
    }

    /// Takes one event.
    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Effect> {
        match (self.phase, event) {
            (Phase::Open, Event::Answered { vote: Vote::Broken(reason), .. }) => {
                self.phase = Phase::GivenUp;
                let granted = |node: &usize| self.votes[*node] == Some(Vote::Granted);
                let granted = (0..self.terms.nodes).filter(granted).map(Effect::GiveBack);
                granted.chain([Effect::Settled(Outcome::Broken(reason))]).collect()
            }
            (Phase::Open, Event::Answered { node, vote }) => {
                self.votes[node] = Some(vote);
                self.look(now)
            }
            (Phase::Open, Event::Deadline) => {
                for vote in self.votes.iter_mut().filter(|vote| vote.is_none()) {
                    *vote = Some(Vote::Void("it did not answer in time".into()));
                }
                self.look(now)
            }
            // It answers now, so that this time it hears.
            (Phase::GivenUp, Event::Answered { node, vote: Vote::Granted | Vote::Void(_) }) => {
                vec![Effect::GiveBack(node)]
            }
            // A late grant makes a hold that is won better; what else comes late changes nothing.
            (Phase::Won | Phase::GivenUp, _) => vec![],
        }
    }

    /// Whether a quorum has been reached, or cannot be any more.
    fn look(&mut self, now: Moment) -> Vec<Effect> {
        let Terms { nodes, ttl, drift, min_validity } = self.terms;
        let count = |is: fn(&Vote) -> bool| self.votes.iter().flatten().filter(|v| is(v)).count();
        let granted = count(|vote| matches!(vote, Vote::Granted));
        let refused = count(|vote| matches!(vote, Vote::Refused { .. }));
        let void = count(|vote| matches!(vote, Vote::Void(_)));
        if granted >= quorum(nodes) {
            let sent = vec![self.asked_at; granted];
            return match safe_end(nodes, sent, ttl, drift) {
                Some(safe_end) if safe_end.since(now) > min_validity => {
                    self.phase = Phase::Won;
                    vec![Effect::Settled(Outcome::Granted { safe_end })]
                }
                _ => self.give_up(Outcome::TooLate),
            };
        }
        let spare = nodes - quorum(nodes);
        if void > spare {
            let void = self.votes.iter().enumerate().filter_map(|(node, vote)| match vote {
                Some(Vote::Void(why)) => Some((node, why.clone())),
                _ => None,
            });
            let void = void.collect();
            return self.give_up(Outcome::NoQuorum(void));
        }
        // Refused only if those who answer would be a quorum, had nobody else the key.
        if refused + void > spare && granted + refused >= quorum(nodes) {
            let held_for = self.held_for(void);
            return self.give_up(Outcome::Refused { held_for });
        }
        vec![]
    }

    /// What to give back goes before the verdict: it must be under way before anybody asks again.
    fn give_up(&mut self, outcome: Outcome) -> Vec<Effect> {
        self.phase = Phase::GivenUp;
        let everywhere = (0..self.terms.nodes).map(Effect::GiveBack);
        everywhere.chain([Effect::Settled(outcome)]).collect()
    }

    /// How long whoever has a quorum keeps us from one, with `void` nodes out of reach.
    fn held_for(&self, void: usize) -> Option<Duration> {
        let refusals = || {
            self.votes.iter().flatten().filter_map(|vote| match vote {
                Vote::Refused { left, by } => Some((*left, *by)),
                _ => None,
            })
        };
        let quorum = quorum(self.terms.nodes);
        let wins = |by: u64| refusals().filter(|(_, other)| *other == by).count() >= quorum;
        if !refusals().any(|(_, by)| wins(by)) {
            return None;
        }
        let mut left: Vec<Duration> = refusals().map(|(left, _)| left).collect();
        left.sort_unstable();
        let free = self.terms.nodes - void - left.len();
        let needed = quorum.saturating_sub(free);
        left.get(needed.saturating_sub(1)).or(left.last()).copied()
    }
}
