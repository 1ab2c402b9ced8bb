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

/// How long the answer to a renewal is waited for before it is asked for once more beside it, as a part of the
/// ttl: a store that lets one fall silent is asked twice more before the lease ends. The first is not given up
/// for that. A store that is merely slow would otherwise never be heard, and what notices that a connection is
/// dead is whoever goes on waiting for it. Where all go over one connection, that takes up to two seconds, so
/// with a short ttl the others may share its fate.
const PATIENCE_PART: u32 = 5;
/// A store that is far away has this long to answer, however short the lease. Below 1.25 s there is room for
/// fewer tries.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);

/// How long to wait for the answer to this batch before it is asked again, where any operation gets
/// `op_timeout`.
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
    /// What was sent before this was about an earlier hold of the same claim, which was leaked since.
    began: Moment,
    lease: Lease,
    /// Trust ends here whatever is renewed: the maximum hold.
    limit: Moment,
    due: Option<Moment>,
    /// When the last renewal of it was sent. What becomes of that one decides when the next is due; an
    /// earlier one may still be answered, and that counts as well.
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
        let began = lease.asked_at();
        let mut entry = Entry { hold, began, lease, limit, due: None, asked: None };
        let ends = entry.trusted_until();
        self.ends.insert((ends, id));
        self.plan(&mut entry, lease.renew_at());
        self.entries.insert(id, entry);
        ends
    }

    /// Lets a hold go. What is on its way for it is ignored when it comes back.
    pub fn remove(&mut self, id: ClaimId) -> Option<Hold> {
        let mut entry = self.take(id)?;
        self.unplan(&mut entry);
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

    /// A batch that was taken at `asked_at` was answered, perhaps after it had counted as failed.
    /// What has run out by `now` stays lost, whatever the answer.
    pub fn answered(
        &mut self,
        now: Moment,
        asked_at: Moment,
        holds: &[Hold],
        answers: Vec<Renewal>,
        drift: Drift,
    ) -> Vec<Change> {
        assert_eq!(holds.len(), answers.len(), "a store answers every hold it was asked about");
        let mut changes = Vec::new();
        for (hold, answer) in holds.iter().zip(answers) {
            let Some(mut entry) = self.take(hold.id) else { continue };
            match answer {
                _ if asked_at < entry.began => self.put_back(entry),
                Renewal::Renewed if entry.trusted_until() <= now => self.put_back(entry),
                Renewal::Renewed => {
                    let lease = Lease::new(asked_at, entry.hold.ttl, drift);
                    // A renewal that was overtaken by a later one must not shorten the lease.
                    if lease.trusted_until() > entry.lease.trusted_until() {
                        entry.lease = lease;
                    }
                    changes.push(Change::Extended(hold.id, entry.trusted_until()));
                    if entry.asked == Some(asked_at) {
                        self.unplan(&mut entry);
                        self.plan(&mut entry, lease.renew_at());
                    }
                    self.put_back(entry);
                }
                Renewal::Unsure { .. } => {
                    self.plan_again(&mut entry, asked_at, asked_at);
                    self.put_back(entry);
                }
                Renewal::Lost => {
                    self.unplan(&mut entry);
                    changes.push(Change::Lost(hold.id));
                }
                Renewal::Broken { reason } => {
                    self.unplan(&mut entry);
                    changes.push(Change::Broken(hold.id, reason));
                }
            }
        }
        changes
    }

    /// A batch was not answered, or not yet: try each again soon. Only "not yours" or the end of the lease
    /// ends a hold, never an error. Says for how many of them no later renewal has been sent.
    pub fn failed(&mut self, now: Moment, asked_at: Moment, holds: &[Hold]) -> usize {
        let mut last = 0;
        for hold in holds {
            let Some(mut entry) = self.take(hold.id) else { continue };
            last += usize::from(entry.asked == Some(asked_at));
            self.plan_again(&mut entry, asked_at, now);
            self.put_back(entry);
        }
        last
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

    /// Takes the entry out, but for its place among those that are due.
    fn take(&mut self, id: ClaimId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.ends.remove(&(entry.trusted_until(), id));
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

    /// Plans the next try some time after `since`, if the renewal of `asked_at` is the last one and nothing has
    /// been planned for it yet.
    fn plan_again(&mut self, entry: &mut Entry, asked_at: Moment, since: Moment) {
        if entry.asked == Some(asked_at) && entry.due.is_none() {
            let at = since + entry.hold.ttl / RETRY_PART;
            self.plan(entry, at);
        }
    }

    fn unplan(&mut self, entry: &mut Entry) {
        if let Some(at) = entry.due.take() {
            self.due.remove(&(at, entry.hold.id));
        }
    }
}
