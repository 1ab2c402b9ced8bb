//! One acquisition as a pure machine: it is told what happened and when, and says what to do
//! next. It knows no clock, no task and no store.
//!
//! What it guards:
//! - a lease counts from the moment its request was *sent*;
//! - a pushed grant is only trusted if its token is larger than the one the claim was queued
//!   behind, and only from the send time of the request that was answered *queued*; if little of
//!   that is left, or there are no tokens, it is confirmed by asking;
//! - one deadline for the whole call; a signal that never comes costs time, never correctness.

use std::time::Duration;

use lockstep_core::retry::Backoff;
use lockstep_core::time::Moment;
use lockstep_core::{Drift, Lease, StoreError, Token};

use crate::store::Answer;

/// How long to wait between tries while the store does not answer.
const RETRY: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };

/// What counts as a quick failure of a first ask.
const QUICK: Duration = Duration::from_secs(1);

/// How often a waiter asks where the store cannot push.
const POLL: Duration = Duration::from_millis(100);

/// What is wanted, fixed from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The lease asked for.
    pub ttl: Duration,
    /// What the store's clock may be off.
    pub drift: Drift,
    /// Until when to wait; `None` for ever.
    pub deadline: Option<Moment>,
    /// Whether the store tells waiters by itself.
    pub push: bool,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The machine was started.
    Start,
    /// The store answered the ask, or did not.
    Answered(Result<Answer, StoreError>),
    /// The store says by itself that the claim was granted.
    Pushed(Option<Token>),
    /// The store hints that asking again is worth it.
    Hinted,
    /// The moment waited for has come.
    Woke,
}

/// What to do next.
#[derive(Debug)]
pub enum Step {
    /// Ask the store, now.
    Ask,
    /// Wait for a signal, at most until this moment.
    Wait(Moment),
    /// The lock is held.
    Held {
        /// Its token.
        token: Option<Token>,
        /// How long to trust it.
        lease: Lease,
    },
    /// Somebody else has it, and this claim did not want to wait.
    Busy,
    /// The deadline has passed.
    TimedOut {
        /// How many were before it when the store last said.
        ahead: Option<u64>,
    },
    /// It is in use with another total.
    Differs(u32),
    /// An operator has broken it.
    Broken(String),
    /// The store cannot be asked.
    Failed(StoreError),
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquisition {
    terms: Terms,
    phase: Phase,
    failures: u32,
    stale: u32,
}

/// After this many answers in a row that came too late to be trusted, waiting longer is no help.
const STALE_MAX: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// A request is on its way.
    Asking {
        asked_at: Moment,
        place: Option<Place>,
    },
    /// There is a place in the queue.
    Waiting(Place),
    /// The store did not answer; the place may still be ours.
    Pausing {
        place: Option<Place>,
    },
    Done,
}

/// A place in the queue, as the store last confirmed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    /// When the request that was answered *queued* was sent.
    asked_at: Moment,
    ahead: u64,
    behind: Option<Token>,
}

impl Acquisition {
    /// A machine that has not been started.
    pub fn new(terms: Terms) -> Self {
        Self { terms, phase: Phase::Idle, failures: 0, stale: 0 }
    }

    /// Takes one event; `random` spreads retries.
    pub fn step(&mut self, now: Moment, event: Event, random: u64) -> Step {
        match (self.phase, event) {
            (Phase::Idle, _) => self.ask(now, None),
            (Phase::Asking { asked_at, place }, Event::Answered(answer)) => match answer {
                Ok(answer) => self.answered(now, asked_at, answer),
                Err(error) => self.failed(now, asked_at, place, error, random),
            },
            (Phase::Waiting(place), event) => self.waited(now, place, event),
            (Phase::Pausing { place }, _) => match self.past_deadline(now) {
                true => self.time_out(place),
                false => self.ask(now, place),
            },
            (phase, event) => unreachable!("{event:?} in {phase:?}"),
        }
    }

    fn ask(&mut self, now: Moment, place: Option<Place>) -> Step {
        self.phase = Phase::Asking { asked_at: now, place };
        Step::Ask
    }

    fn answered(&mut self, now: Moment, asked_at: Moment, answer: Answer) -> Step {
        self.failures = 0;
        match answer {
            Answer::Granted { token } => {
                let lease = Lease::new(asked_at, self.terms.ttl, self.terms.drift);
                if lease.is_trusted(now) {
                    return self.hold(token, lease);
                }
                // The answer took longer than the lease: it is nobody's to act upon. Asking again
                // renews it if it is still ours.
                self.stale += 1;
                if self.past_deadline(now) || self.stale == STALE_MAX {
                    self.time_out(None)
                } else {
                    self.ask(now, None)
                }
            }
            Answer::Queued { ahead, holder_left, behind } => {
                let place = Place { asked_at, ahead, behind };
                if self.past_deadline(now) {
                    return self.time_out(Some(place));
                }
                self.phase = Phase::Waiting(place);
                Step::Wait(self.ask_again_at(now, place, holder_left))
            }
            Answer::Busy => {
                self.phase = Phase::Done;
                Step::Busy
            }
            Answer::Differs { of } => {
                self.phase = Phase::Done;
                Step::Differs(of)
            }
            Answer::Broken { reason } => {
                self.phase = Phase::Done;
                Step::Broken(reason)
            }
        }
    }

    /// A waiter asks again at a third of its own lease, to keep it; the first in the queue also
    /// when the holder's lease ends, because a dead holder tells nobody.
    fn ask_again_at(&self, now: Moment, place: Place, holder_left: Duration) -> Moment {
        let mut at = place.asked_at + self.terms.ttl / 3;
        if place.ahead == 0 {
            at = at.min(now + holder_left + Duration::from_millis(1));
        }
        if !self.terms.push {
            at = at.min(now + POLL);
        }
        at.min(self.terms.deadline.unwrap_or(Moment::MAX))
    }

    fn waited(&mut self, now: Moment, place: Place, event: Event) -> Step {
        if let Event::Pushed(token) = event {
            // Whatever the deadline says: the lock is ours now, and a grant in hand is better
            // than one given back.
            let lease = Lease::new(place.asked_at, self.terms.ttl, self.terms.drift);
            // Where the store does not count, no token can say that a grant is new.
            let fresh = place.behind.is_some() && token > place.behind;
            if fresh && now < lease.renew_at() {
                return self.hold(token, lease);
            }
            return self.ask(now, Some(place));
        }
        match self.past_deadline(now) {
            true => self.time_out(Some(place)),
            false => self.ask(now, Some(place)),
        }
    }

    /// While the place in the queue may still live, keep asking; after that, or without a place,
    /// the caller decides. Only a first ask that failed quickly is sent once more: it is what a
    /// connection that broke while it was idle looks like, and the claim makes it harmless.
    fn failed(
        &mut self,
        now: Moment,
        asked_at: Moment,
        place: Option<Place>,
        error: StoreError,
        random: u64,
    ) -> Step {
        let alive = place.filter(|place| now < place.asked_at + self.terms.ttl);
        let quick = now.since(asked_at) < QUICK && self.failures == 0;
        if error.may_retry() && place.is_none() && quick && !self.past_deadline(now) {
            self.failures += 1;
            return self.ask(now, None);
        }
        if !error.may_retry() || alive.is_none() {
            self.phase = Phase::Done;
            return Step::Failed(error);
        }
        if self.past_deadline(now) {
            return self.time_out(place);
        }
        self.failures += 1;
        self.phase = Phase::Pausing { place };
        let until = now + RETRY.delay(self.failures, random).min(self.terms.ttl / 3);
        Step::Wait(until.min(self.terms.deadline.unwrap_or(Moment::MAX)))
    }

    fn hold(&mut self, token: Option<Token>, lease: Lease) -> Step {
        self.phase = Phase::Done;
        Step::Held { token, lease }
    }

    fn time_out(&mut self, place: Option<Place>) -> Step {
        self.phase = Phase::Done;
        Step::TimedOut { ahead: place.map(|place| place.ahead) }
    }

    fn past_deadline(&self, now: Moment) -> bool {
        self.terms.deadline.is_some_and(|deadline| deadline <= now)
    }
}
