//! Drives a [`Round`]: the one place where its asks are sent, waited for and given back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;

use super::lane::Lane;
use super::nodes::{Ask, Ballot};
use super::round::{Effect, Event, Outcome, Round, Terms, Vote};
use super::waiters::Nodes;
use crate::plain::node::{self, Lease};

/// What came of a round.
pub(super) struct Asked {
    pub(super) outcome: Outcome,
    /// Who has it for somebody else, and who could not be asked.
    pub(super) blocking: Nodes,
    pub(super) void: Nodes,
    pub(super) took: Duration,
}

impl Lane {
    /// One round of asks. What a round that was not won leaves is given back in the background.
    pub(super) async fn ask(&self, lease: &Arc<Lease>) -> Asked {
        // A claim that asks again: what its last round left is given back first.
        let owing = self
            .members
            .iter()
            .filter(|member| member.debts().owes(&lease.value) && member.node.link.is_up());
        let settled = join_all(owing.map(|member| member.debts().settled(&lease.value)));
        let _ = tokio::time::timeout(self.patience(lease.ttl), settled).await;
        let ask = Arc::new(Ask { lease: Arc::clone(lease), call: node::set_if_free(lease) });
        let asked_at = SystemClock.now();
        let terms = Terms {
            nodes: self.members.len(),
            ttl: lease.ttl,
            drift: self.config.rules.drift,
            min_validity: Duration::ZERO,
        };
        let (mut round, mut effects) = Round::start(terms, asked_at);
        let mut ballots = FuturesUnordered::new();
        let (mut answered, mut blocking, mut void): (Nodes, Nodes, Nodes) = (0, 0, 0);
        let deadline = tokio::time::sleep(self.patience(lease.ttl));
        tokio::pin!(deadline);
        let outcome = loop {
            let mut settled = None;
            for effect in effects {
                match effect {
                    Effect::Ask(node) => {
                        let member = Arc::clone(&self.members[node]);
                        tracing::trace!(node = member.address, key = lease.key, "asks");
                        ballots.push(member.vote(Arc::clone(&ask), asked_at));
                    }
                    Effect::GiveBack(node) => self.members[node].give_back_later(lease),
                    Effect::Settled(outcome) => settled = Some(outcome),
                }
            }
            if let Some(outcome) = settled {
                break outcome;
            }
            let event = tokio::select! {
                biased;
                Some(ballot) = ballots.next() => {
                    let Ballot { node, vote } = ballot;
                    answered |= 1 << node;
                    let address = &self.members[node].address;
                    tracing::trace!(node = address, key = lease.key, ?vote, "votes");
                    match vote {
                        Vote::Granted | Vote::Broken(_) => {}
                        Vote::Refused { .. } => blocking |= 1 << node,
                        Vote::Void(_) => void |= 1 << node,
                    }
                    Event::Answered { node, vote }
                }
                () = &mut deadline => Event::Deadline,
            };
            effects = round.step(SystemClock.now(), event);
        };
        tracing::trace!(node = self.members[0].address, key = lease.key, ?outcome, "settles");
        if !matches!(outcome, Outcome::Granted { .. }) && !ballots.is_empty() {
            let (members, lease) = (self.members.clone(), Arc::clone(lease));
            // Before the claim asks again: what is given back for the sake of this round must not be
            // what the next one has been granted.
            for member in members.iter().filter(|member| answered & (1 << member.index) == 0) {
                member.debts().will_owe(&lease.value);
            }
            tokio::spawn(async move {
                while let Some(Ballot { node, vote }) = ballots.next().await {
                    for effect in round.step(SystemClock.now(), Event::Answered { node, vote }) {
                        if let Effect::GiveBack(node) = effect {
                            members[node].give_back_later(&lease);
                        }
                    }
                    members[node].debts().cross_out(&lease.value);
                }
            });
        }
        Asked { outcome, blocking, void, took: SystemClock.now().since(asked_at) }
    }
}
