//! Renewals: a hold is renewed when a quorum of nodes has extended it in this very renewal.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockstep_core::StoreError;
use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::store::{Hold, Renewal};

use super::debts;
use super::lane::Lane;
use super::nodes::Member;
use super::waiters::Nodes;
use crate::error;
use crate::plain::node::{Extended, Lease};

/// What the nodes say about one hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Those that extended it, and count.
    extended: usize,
    /// Those that do not have it.
    gone: usize,
    broken: Option<String>,
    /// Those that did not answer, or do not count.
    void: Vec<(usize, String)>,
}

impl Tally {
    /// The verdict, with `why` for one that is open.
    fn renewal(self, nodes: usize, quorum: usize, why: impl Fn(Self) -> String) -> Renewal {
        match self {
            // Even if all others have it, they are no quorum; also if some still say that it was broken.
            Self { gone, .. } if gone > nodes - quorum => Renewal::Lost,
            Self { broken: Some(reason), .. } => Renewal::Broken { reason },
            Self { extended, .. } if extended >= quorum => Renewal::Renewed,
            open => Renewal::Unsure { why: why(open) },
        }
    }
}

impl Lane {
    pub(super) async fn renew_all(&self, holds: &[Hold]) -> Vec<Renewal> {
        for hold in holds {
            self.shared.renewing.start(hold.id);
        }
        let done = Done { lane: self, holds };
        let asked_at = SystemClock.now();
        let leases: Vec<Arc<Lease>> = holds.iter().map(|hold| self.lease(hold)).collect();
        // Before it is asked: what it gives back after it has extended, it does not have.
        let owing: Vec<Nodes> = leases.iter().map(|lease| self.owing(lease)).collect();
        let answers = self.extend(&leases, holds).await;
        let mut renewals = Vec::with_capacity(holds.len());
        for (at, (hold, lease)) in holds.iter().zip(&leases).enumerate() {
            let mut tally = Tally::default();
            let mut forgetful = vec![];
            for (member, answer) in self.members.iter().zip(&answers) {
                match answer.as_ref().map(|extended| &extended[at]) {
                    Ok(Extended::Mine) if owing[at] & (1 << member.index) != 0 => {
                        tally.void.push((member.index, debts::OWES.into()));
                    }
                    Ok(Extended::Mine) => match self.shared.counts(member.index, asked_at) {
                        Ok(()) => tally.extended += 1,
                        Err(bar) => tally.void.push((member.index, bar.told(asked_at))),
                    },
                    Ok(Extended::Gone) => {
                        tally.gone += 1;
                        forgetful.push(Arc::clone(member));
                    }
                    Ok(Extended::Broken { reason }) => tally.broken = Some(reason.clone()),
                    Err(why) => tally.void.push((member.index, why.clone())),
                }
            }
            let renewal = tally.renewal(self.members.len(), self.quorum(), |tally| {
                let forgot =
                    forgetful.iter().map(|member| (member.index, "it has forgotten it".into()));
                self.no_quorum(tally.void.into_iter().chain(forgot))
            });
            match &renewal {
                // It counts when it is renewed next, not now: it may have granted it to others meanwhile.
                Renewal::Renewed => self.bring_back(forgetful, hold, lease),
                Renewal::Lost => {
                    self.members.iter().for_each(|member| member.give_back_later(lease))
                }
                Renewal::Unsure { why } => tracing::warn!(key = %hold.key, "not renewed: {why}"),
                Renewal::Broken { .. } => {}
            }
            renewals.push(renewal);
        }
        drop(done);
        renewals
    }

    /// Those that are to give it back, and have not said that they did.
    fn owing(&self, lease: &Lease) -> Nodes {
        let owing = self.members.iter().filter(|member| member.debts().owes(&lease.value));
        owing.fold(0, |nodes, member| nodes | 1 << member.index)
    }

    /// What each node says, in the order of the nodes. Those that have not answered in time are not waited
    /// for, but have been asked.
    async fn extend(
        &self,
        leases: &[Arc<Lease>],
        holds: &[Hold],
    ) -> Vec<Result<Vec<Extended>, String>> {
        let shortest = holds.iter().map(|hold| hold.ttl).min().unwrap_or_default();
        let leases: Vec<Lease> = leases.iter().map(|lease| (**lease).clone()).collect();
        let ask = |member: &Arc<Member>| {
            let (member, leases) = (Arc::clone(member), &leases);
            async move { (member.index, member.node.extend(leases).await) }
        };
        let mut asks: FuturesUnordered<_> = self.members.iter().map(ask).collect();
        let mut answers = vec![Err("it did not answer in time".to_owned()); self.members.len()];
        let deadline = tokio::time::sleep(self.patience(shortest));
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                biased;
                answer = asks.next() => match answer {
                    Some((node, answer)) => answers[node] = answer.map_err(|e: StoreError| error::words(&e)),
                    None => return answers,
                },
                () = &mut deadline => return answers,
            }
        }
    }

    /// Gives nodes that have forgotten a hold its key again, so that it outlives their restarts one after
    /// the other.
    fn bring_back(&self, forgetful: Vec<Arc<Member>>, hold: &Hold, lease: &Arc<Lease>) {
        for member in forgetful {
            let (shared, lease, claim) = (Arc::clone(&self.shared), Arc::clone(lease), hold.id);
            shared.renewing.start(claim);
            tokio::spawn(async move {
                if !shared.renewing.is_released(claim) {
                    let set = member.node.set(&lease).await;
                    tracing::debug!(node = member.address, key = lease.key, ?set, "brought back");
                }
                if shared.renewing.is_released(claim) {
                    member.give_back_later(&lease);
                }
                shared.renewing.end(claim);
            });
        }
    }
}

/// Ends what was started, also when the renewal is dropped.
struct Done<'a> {
    lane: &'a Lane,
    holds: &'a [Hold],
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        for hold in self.holds {
            self.lane.shared.renewing.end(hold.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_renewed_by_a_quorum_and_lost_when_there_cannot_be_one() {
        let said = |extended: usize, gone: usize| {
            let void = vec![(0, String::new()); 5 - extended - gone];
            Tally { extended, gone, broken: None, void }.renewal(5, 3, |_| "why".into())
        };
        let unsure = Renewal::Unsure { why: "why".into() };
        assert_eq!(said(5, 0), Renewal::Renewed);
        assert_eq!(said(3, 2), Renewal::Renewed);
        assert_eq!(said(3, 0), Renewal::Renewed);
        assert_eq!(said(2, 2), unsure, "one more might have it");
        assert_eq!(said(2, 3), Renewal::Lost);
        assert_eq!(said(0, 3), Renewal::Lost);
        assert_eq!(said(0, 0), unsure);
        let broken = |extended, gone| {
            let broken = Some("stuck".into());
            Tally { broken, extended, gone, void: vec![] }.renewal(5, 3, |_| String::new())
        };
        assert_eq!(broken(4, 0), Renewal::Broken { reason: "stuck".into() });
        assert_eq!(broken(0, 2), Renewal::Broken { reason: "stuck".into() });
        assert_eq!(broken(0, 3), Renewal::Lost, "its lease has ended");
    }
}
