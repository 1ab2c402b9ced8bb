//! Which holds to renew when, and when to stop trusting each: pure, for any number of holds.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Drift, Lease};

use crate::error::LostCause;
use crate::store::{Hold, RENEW_BATCH, Renewal};

/// How soon a renewal is tried again when the store did not answer, as a part of the ttl.
const RETRY_PART: u32 = 10;
/// How much earlier a renewal may be sent because another one is, as a part of the ttl. Locks that
/// were taken one after the other then cost one request and not one each.
const ALONG_PART: u32 = 30;

/// How long the answer to a renewal is waited for, as a part of the ttl: a store that is silent is asked twice
/// more before the lease ends, and over another connection if it has one.
const PATIENCE_PART: u32 = 5;
/// A store that is far away has this long to answer, however short the lease.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);

/// How long to wait for the answer to this batch, where any operation gets `op_timeout`.
pub fn patience(holds: &[Hold], op_timeout: Duration) -> Duration {
    let shortest = holds.iter().map(|hold| hold.ttl).min().unwrap_or_default();
    (shortest / PATIENCE_PART).max(LEAST_PATIENCE).min(op_timeout)
}

/// All holds of one handle.
#[derive(Debug, Default)]
pub struct Renewals {
    entries: HashMap<ClaimId, Entry>,
    due: BTreeSet<(Moment, ClaimId)>,
    ends: BTreeSet<(Moment, ClaimId)>,
}

#[derive(Debug)]
struct Entry {
    hold: Hold,
    lease: Lease,
    /// Trust ends here whatever is renewed: the maximum hold.
    limit: Moment,
    due: Option<Moment>,
    /// Which renewal of it is on its way.
    asked: Option<Moment>,
}

/// What came of a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// Trusted until later than before.
    Extended(ClaimId, Moment),
    /// Not held any more; trust ends now.
    Lost(ClaimId),
    /// Broken by an operator: trust ends now too, so that what is left of the lease is the time
    /// the holder has to stop.
    Broken(ClaimId, String),
}

impl Entry {
    fn trusted_until(&self) -> Moment {
        self.lease.trusted_until().min(self.limit)
    }
}

impl Renewals {
    /// Takes a hold in: from now on it is renewed until it is removed or ends.
    pub fn insert(&mut self, hold: Hold, lease: Lease, limit: Moment) -> Moment {
        let id = hold.id;
        let mut entry = Entry { hold, lease, limit, due: None, asked: None };
        let ends = entry.trusted_until();
        self.ends.insert((ends, id));
        self.plan(&mut entry, lease.renew_at());
        self.entries.insert(id, entry);
        ends
    }

    /// Lets a hold go. What is on its way for it is ignored when it comes back.
    pub fn remove(&mut self, id: ClaimId) -> Option<Hold> {
        let entry = self.entries.remove(&id)?;
        self.ends.remove(&(entry.trusted_until(), id));
        self.unplan(&entry);
        Some(entry.hold)
    }

    /// When something is to be done next.
    pub fn next(&self) -> Option<Moment> {
        let due = self.due.first().map(|(at, _)| *at);
        let end = self.ends.first().map(|(at, _)| *at);
        due.into_iter().chain(end).min()
    }

    /// The next batch of holds, if a renewal is due: those that are due, and those that soon will
    /// be. They count as asked at `now`. The second value is how late the first of them is.
    pub fn take_due(&mut self, now: Moment) -> Option<(Vec<Hold>, Duration)> {
        let late = now.since(self.due.first().filter(|(at, _)| *at <= now)?.0);
        let mut batch = Vec::new();
        while batch.len() < RENEW_BATCH
            && let Some((at, id)) = self.due.first().copied()
            && let Some(entry) = self.entries.get_mut(&id)
            && at <= now + entry.hold.ttl / ALONG_PART
        {
            self.due.remove(&(at, id));
            entry.due = None;
            entry.asked = Some(now);
            batch.push(entry.hold.clone());
        }
        Some((batch, late))
    }

    /// A batch that was taken at `asked_at` was answered.
    pub fn answered(
        &mut self,
        asked_at: Moment,
        holds: &[Hold],
        answers: Vec<Renewal>,
        drift: Drift,
    ) -> Vec<Change> {
        assert_eq!(holds.len(), answers.len(), "a store answers every hold it was asked about");
        let mut changes = Vec::new();
        for (hold, answer) in holds.iter().zip(answers) {
            let Some(mut entry) = self.take_asked(hold.id, asked_at) else { continue };
            match answer {
                Renewal::Renewed => {
                    let lease = Lease::new(asked_at, entry.hold.ttl, drift);
                    // A renewal that was overtaken by a later one must not shorten the lease.
                    if lease.trusted_until() > entry.lease.trusted_until() {
                        entry.lease = lease;
                    }
                    changes.push(Change::Extended(hold.id, entry.trusted_until()));
                    self.plan(&mut entry, lease.renew_at());
                    self.put_back(entry);
                }
                Renewal::Unsure { .. } => {
                    let again = asked_at + entry.hold.ttl / RETRY_PART;
                    self.plan(&mut entry, again);
                    self.put_back(entry);
                }
                Renewal::Lost => changes.push(Change::Lost(hold.id)),
                Renewal::Broken { reason } => changes.push(Change::Broken(hold.id, reason)),
            }
        }
        changes
    }

    /// A batch was not answered: try each again soon. Only "not yours" or the end of the lease
    /// ends a hold, never an error.
    pub fn failed(&mut self, now: Moment, asked_at: Moment, holds: &[Hold]) {
        for hold in holds {
            let Some(mut entry) = self.take_asked(hold.id, asked_at) else { continue };
            self.plan(&mut entry, now + hold.ttl / RETRY_PART);
            self.put_back(entry);
        }
    }

    /// The holds whose trust has ended by `now`, and why; they are removed.
    pub fn take_ended(&mut self, now: Moment) -> Vec<(ClaimId, LostCause)> {
        let mut ended = Vec::new();
        while let Some((at, id)) = self.ends.first().copied()
            && at <= now
        {
            let limited = self.entries.get(&id).is_some_and(|entry| entry.limit <= now);
            self.remove(id);
            ended.push((id, if limited { LostCause::MaxHold } else { LostCause::Expired }));
        }
        ended
    }

    /// Takes the entry out if the batch sent at `asked_at` is the last that carried it.
    fn take_asked(&mut self, id: ClaimId, asked_at: Moment) -> Option<Entry> {
        if self.entries.get(&id)?.asked != Some(asked_at) {
            return None;
        }
        let mut entry = self.entries.remove(&id)?;
        entry.asked = None;
        self.ends.remove(&(entry.trusted_until(), id));
        self.unplan(&entry);
        Some(entry)
    }

    fn put_back(&mut self, entry: Entry) {
        self.ends.insert((entry.trusted_until(), entry.hold.id));
        self.entries.insert(entry.hold.id, entry);
    }

    /// Plans the next renewal, unless trust ends before a renewal could help.
    fn plan(&mut self, entry: &mut Entry, at: Moment) {
        if at < entry.limit {
            entry.due = Some(at);
            self.due.insert((at, entry.hold.id));
        }
    }

    fn unplan(&mut self, entry: &Entry) {
        if let Some(at) = entry.due {
            self.due.remove(&(at, entry.hold.id));
        }
    }
}
