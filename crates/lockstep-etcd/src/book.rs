//! What this handle has at etcd: every claim that holds or waits, and until when.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::ClaimId;
use lockstep_core::time::Moment;
use lockstep_lock::Inbox;
use lockstep_lock::deadlines::Deadlines;
use lockstep_lock::store::Claim;

use crate::session::Session;

/// The claims of one handle.
#[derive(Default)]
pub(crate) struct Book {
    claims: HashMap<ClaimId, Claimed>,
    deadlines: Deadlines<ClaimId>,
    /// Grants in the order they came, until they are old enough to be worth a watch.
    fresh: VecDeque<(Moment, ClaimId)>,
    /// When the thread looks by itself.
    pub(crate) wakes_at: Option<Moment>,
}

/// One claim.
#[derive(Clone)]
pub(crate) struct Claimed {
    pub(crate) entry: Arc<[u8]>,
    pub(crate) session: Arc<Session>,
    /// The revision of its key's creation, once etcd has said it.
    pub(crate) create: Option<i64>,
    pub(crate) held: bool,
    /// Whether the thread listens for it.
    pub(crate) heeded: bool,
    /// Whether it is being deleted because its time is over.
    pub(crate) ending: bool,
    /// Whether its owner is giving it back.
    pub(crate) releasing: bool,
    pub(crate) inbox: Option<Inbox>,
    pub(crate) broken: Option<String>,
}

/// Whether a claim may be asked for, or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Fine,
    /// Its time was over before; what is left of it must go first.
    Lapsed,
}

impl Book {
    /// A request for this claim is about to be sent.
    pub(crate) fn begin(
        &mut self,
        now: Moment,
        claim: &Claim,
        entry: &[u8],
        session: &Arc<Session>,
        inbox: Option<&Inbox>,
    ) -> Begun {
        let lapsed = self.has_lapsed(now, claim.id);
        if lapsed {
            self.remove(claim.id);
        }
        let claimed = self.claims.entry(claim.id).or_insert_with(|| Claimed {
            entry: entry.into(),
            session: Arc::clone(session),
            create: None,
            held: false,
            heeded: false,
            ending: false,
            releasing: false,
            inbox: None,
            broken: None,
        });
        claimed.session = Arc::clone(session);
        if let Some(inbox) = inbox {
            claimed.inbox = Some(inbox.clone());
        }
        // If the answer is lost and nobody asks again, what etcd may have written ends here.
        self.deadlines.extend(claim.id, now + claim.ttl);
        if lapsed { Begun::Lapsed } else { Begun::Fine }
    }

    fn has_lapsed(&self, now: Moment, claim: ClaimId) -> bool {
        self.claims.get(&claim).is_some_and(|claimed| claimed.ending)
            || self.deadlines.end(claim).is_some_and(|end| end <= now)
    }

    /// etcd has confirmed the claim, as a holder or as a waiter: it lives for another ttl.
    pub(crate) fn confirmed(&mut self, now: Moment, claim: &Claim, create: i64, held: bool) {
        let Some(claimed) = self.claims.get_mut(&claim.id).filter(|claimed| !claimed.ending) else {
            return;
        };
        if claimed.create != Some(create) {
            // What was known of a key of the same name is not true of this one.
            (claimed.held, claimed.broken) = (false, None);
        }
        let first = held && !claimed.held;
        claimed.create = Some(create);
        claimed.held |= held;
        self.deadlines.extend(claim.id, now + claim.ttl);
        if first {
            self.fresh.push_back((now, claim.id));
        }
    }

    /// A renewal has confirmed a hold; `false` if its time was over.
    pub(crate) fn renewed(&mut self, now: Moment, claim: ClaimId, ttl: Duration) -> bool {
        if self.has_lapsed(now, claim) || !self.claims.contains_key(&claim) {
            return false;
        }
        self.deadlines.extend(claim, now + ttl);
        true
    }

    pub(crate) fn get(&self, claim: ClaimId) -> Option<&Claimed> {
        self.claims.get(&claim)
    }

    pub(crate) fn get_mut(&mut self, claim: ClaimId) -> Option<&mut Claimed> {
        self.claims.get_mut(&claim)
    }

    pub(crate) fn remove(&mut self, claim: ClaimId) -> Option<Claimed> {
        self.deadlines.remove(claim);
        self.claims.remove(&claim)
    }

    /// What is left of a claim of ours.
    pub(crate) fn left(&self, now: Moment, claim: ClaimId) -> Option<Duration> {
        self.deadlines.end(claim).map(|end| end.since(now))
    }

    /// When something ends next.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.deadlines.next()
    }

    /// The next claim whose time is over: it must be deleted, and cannot be renewed any more.
    pub(crate) fn take_ended(&mut self, now: Moment) -> Option<(ClaimId, Claimed)> {
        loop {
            let claim = self.deadlines.take_ended(now)?;
            if let Some(claimed) = self.claims.get_mut(&claim) {
                claimed.ending = true;
                return Some((claim, claimed.clone()));
            }
        }
    }

    /// The next hold that is at least so old and that nobody listens for.
    pub(crate) fn take_settled(&mut self, now: Moment, age: Duration) -> Option<ClaimId> {
        while let Some((since, claim)) = self.fresh.front().copied()
            && since + age <= now
        {
            self.fresh.pop_front();
            if self.claims.get(&claim).is_some_and(|claimed| claimed.held && !claimed.heeded) {
                return Some(claim);
            }
        }
        None
    }

    /// Nobody listens any more; holds are listened for again soon.
    pub(crate) fn heed_nobody(&mut self, now: Moment) {
        for (claim, claimed) in &mut self.claims {
            if std::mem::take(&mut claimed.heeded) && claimed.held {
                self.fresh.push_back((now, *claim));
            }
        }
    }

    /// The claims that live with this lease.
    pub(crate) fn with_lease(&self, lease: i64) -> Vec<ClaimId> {
        let with = self.claims.iter().filter(|(_, claimed)| claimed.session.lease == lease);
        with.map(|(claim, _)| *claim).collect()
    }

    pub(crate) fn uses(&self, lease: i64) -> bool {
        self.claims.values().any(|claimed| claimed.session.lease == lease)
    }
}
