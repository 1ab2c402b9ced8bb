//! The fair queue of every lock, pure: what each verb of a store must do, written once without
//! clock, task or lock. The memory store is this table behind a mutex; the scripts and SQL of the
//! other stores are held to it by the conformance suite, and the model checker explores it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Key, Owner, Token};

use crate::share::{Share, WHOLE};
use crate::store::{
    Answer, Claim, Hold, HolderView, LockView, Page, Query, Release, Released, Renewal, WaiterView,
};

/// All locks of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    rows: BTreeMap<Key, Row>,
    /// The largest token of a row that was swept: a new row begins above it.
    floor: u64,
}

/// A row stays when its lock is free, because its token must only grow, until it is [swept](Table::sweep).
///
/// All who hold it or wait for it agree on its total; those who hold it take no more than that
/// together; and who waits is not before somebody that lives and came earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    token: u64,
    holders: Vec<Holder>,
    queue: VecDeque<Waiter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    claim: Claim,
    token: u64,
    until: Moment,
    since_ms: u64,
    broken: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    claim: Claim,
    until: Moment,
    since_ms: u64,
}

/// What the outside must be told after a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// This claim, which was waiting, now holds the lock.
    Granted(Claim, Token),
    /// This claim held the lock and has been broken at once.
    Lost(Claim, String),
}

/// The moment of a verb: the clock that judges leases, and the wall clock for display.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Judges leases.
    pub moment: Moment,
    /// Shown to people.
    pub wall_ms: u64,
}

impl Table {
    /// See [`LockStore::acquire`](crate::store::LockStore::acquire).
    pub fn acquire(&mut self, now: Now, claim: &Claim) -> (Answer, Vec<Told>) {
        let token = self.floor;
        let row =
            self.rows.entry(claim.key.clone()).or_insert_with(|| Row { token, ..Row::default() });
        let mut told = row.heal(now);
        let answer = row.ask(now, claim);
        // Telling the asker what its own answer already says would only wake it twice.
        told.retain(|told| !matches!(told, Told::Granted(to, _) if to.id == claim.id));
        (answer, told)
    }

    /// See [`LockStore::renew`](crate::store::LockStore::renew).
    pub fn renew(&mut self, now: Now, hold: &Hold) -> Renewal {
        let holder = self.rows.get_mut(&hold.key).and_then(|row| row.holder(hold.id));
        match holder.filter(|holder| now.moment < holder.until) {
            None => Renewal::Lost,
            Some(Holder { broken: Some(reason), .. }) => Renewal::Broken { reason: reason.clone() },
            Some(holder) => {
                holder.until = now.moment + hold.ttl;
                Renewal::Renewed
            }
        }
    }

    /// See [`LockStore::release`](crate::store::LockStore::release).
    pub fn release(&mut self, now: Now, what: &Release) -> (Released, Vec<Told>) {
        let Some(row) = self.rows.get_mut(what.key()) else { return (Released::NotHeld, vec![]) };
        // Not healed before: an operator who breaks a holder that has run out must not hit the
        // innocent one that is next.
        row.expire(now);
        let mut told = vec![];
        let done = match what {
            Release::Mine(hold) => row.give_back(now, hold.id),
            Release::Downgrade(hold) => row.downgrade(hold.id),
            Release::Break { reason, now: false, .. } => row.mark_broken(reason),
            Release::Break { reason, now: true, .. } => {
                let lost = std::mem::take(&mut row.holders);
                told.extend(lost.into_iter().map(|h| Told::Lost(h.claim, reason.clone())));
                !told.is_empty()
            }
        };
        told.extend(row.heal(now));
        (if done { Released::Done } else { Released::NotHeld }, told)
    }

    /// Forgets a lock that is free, for who has more names than memory. Its next token is larger all the same.
    pub fn sweep(&mut self, key: &Key) {
        let is_free = |row: &Row| row.holders.is_empty() && row.queue.is_empty();
        if self.rows.get(key).is_some_and(is_free) {
            let token = self.rows.remove(key).map_or(0, |row| row.token);
            self.floor = self.floor.max(token);
        }
    }

    /// Forgets all that has run out, and every lock that is free then; says which claims are left.
    pub fn sweep_all(&mut self, now: Now) -> HashSet<ClaimId> {
        for row in self.rows.values_mut() {
            row.expire(now);
            row.queue.retain(|waiter| now.moment < waiter.until);
        }
        let keys: Vec<Key> = self.rows.keys().cloned().collect();
        keys.iter().for_each(|key| self.sweep(key));
        let claims = |row: &Row| {
            let holders = row.holders.iter().map(|holder| holder.claim.id);
            holders.chain(row.queue.iter().map(|waiter| waiter.claim.id)).collect::<Vec<_>>()
        };
        self.rows.values().flat_map(claims).collect()
    }

    /// See [`LockStore::inspect`](crate::store::LockStore::inspect).
    pub fn inspect(&self, now: Now, query: &Query) -> Page {
        match query {
            Query::One(key) => {
                let view = self.rows.get(key).and_then(|row| row.view(now, key, true));
                Page { locks: view.into_iter().collect(), more: false }
            }
            Query::WaitedForBy(owner) => {
                let waited = self.rows.iter().filter(|(_, row)| row.is_waited_for_by(now, *owner));
                let locks = waited.filter_map(|(key, row)| row.view(now, key, true)).collect();
                Page { locks, more: false }
            }
            Query::All { prefix, limit } => {
                let mut locks: Vec<LockView> = self
                    .rows
                    .iter()
                    .filter(|(key, _)| key.as_str().starts_with(prefix))
                    .filter_map(|(key, row)| row.view(now, key, false))
                    .take(limit + 1)
                    .collect();
                let more = locks.len() > *limit;
                locks.truncate(*limit);
                Page { locks, more }
            }
        }
    }
}

impl Row {
    /// Ends leases that have run out, forgets dead waiters at the head of the queue, and grants the
    /// first that live, as many as fit.
    fn heal(&mut self, now: Now) -> Vec<Told> {
        self.expire(now);
        let mut told = vec![];
        while let Some(next) = self.queue.front() {
            let lives = now.moment < next.until;
            if lives && !self.fits(next.claim.share) {
                break;
            }
            let next = self.queue.pop_front().expect("invariant: there is a front");
            if lives {
                let token = self.grant(now, &next.claim);
                told.push(Told::Granted(next.claim, token));
            }
        }
        told
    }

    fn expire(&mut self, now: Now) {
        self.holders.retain(|holder| now.moment < holder.until);
    }

    fn fits(&self, share: Share) -> bool {
        let used: u64 = self.holders.iter().map(|h| u64::from(h.claim.share.weight())).sum();
        used + u64::from(share.weight()) <= u64::from(share.of())
    }

    fn holder(&mut self, id: ClaimId) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.claim.id == id)
    }

    fn ask(&mut self, now: Now, claim: &Claim) -> Answer {
        if let Some(holder) = self.holder(claim.id) {
            if let Some(reason) = &holder.broken {
                return Answer::Broken { reason: reason.clone() };
            }
            holder.until = now.moment + claim.ttl;
            return Answer::Granted { token: Some(Token::new(holder.token)) };
        }
        if let Some(holder) = self.holders.first()
            && holder.claim.share.of() != claim.share.of()
        {
            return Answer::Differs { of: holder.claim.share.of() };
        }
        // The row is healed: whoever is first in the queue lives and does not fit.
        if self.queue.is_empty() && self.fits(claim.share) {
            return Answer::Granted { token: Some(self.grant(now, claim)) };
        }
        if !claim.wait {
            return Answer::Busy;
        }
        let ends = self.holders.iter().map(|holder| holder.until).min().unwrap_or(now.moment);
        let place = self.enqueue(now, claim);
        let live = |waiter: &&Waiter| now.moment < waiter.until;
        let ahead = self.queue.range(..place).filter(live).count() as u64;
        let holder_left = ends.since(now.moment);
        Answer::Queued { ahead, holder_left, behind: Some(Token::new(self.token)) }
    }

    /// Readers that hold together have one token: it says after which writer they read. Everybody
    /// else gets one of its own.
    fn grant(&mut self, now: Now, claim: &Claim) -> Token {
        if claim.share != Share::Read || self.holders.is_empty() {
            self.token += 1;
        }
        self.holders.push(Holder {
            claim: claim.clone(),
            token: self.token,
            until: now.moment + claim.ttl,
            since_ms: now.wall_ms,
            broken: None,
        });
        Token::new(self.token)
    }

    /// Keeps or gives the claim a place; a place whose lease has run out is lost, and the claim
    /// goes to the end.
    fn enqueue(&mut self, now: Now, claim: &Claim) -> usize {
        let until = now.moment + claim.ttl;
        if let Some(place) = self.queue.iter().position(|waiter| waiter.claim.id == claim.id) {
            if now.moment < self.queue[place].until {
                self.queue[place].until = until;
                return place;
            }
            self.queue.remove(place);
        }
        self.queue.push_back(Waiter { claim: claim.clone(), until, since_ms: now.wall_ms });
        self.queue.len() - 1
    }

    /// A place whose lease has run out is not there any more, whether or not it was forgotten yet.
    fn give_back(&mut self, now: Now, id: ClaimId) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.claim.id != id);
        let place = self.queue.iter().position(|waiter| waiter.claim.id == id);
        let waiter = place.and_then(|place| self.queue.remove(place));
        self.holders.len() < before || waiter.is_some_and(|waiter| now.moment < waiter.until)
    }

    fn downgrade(&mut self, id: ClaimId) -> bool {
        match self.holder(id) {
            Some(holder) if holder.claim.share.of() == WHOLE => {
                holder.claim.share = Share::Read;
                true
            }
            _ => false,
        }
    }

    fn mark_broken(&mut self, reason: &str) -> bool {
        for holder in &mut self.holders {
            holder.broken = Some(reason.to_owned());
        }
        !self.holders.is_empty()
    }

    fn is_waited_for_by(&self, now: Now, owner: Owner) -> bool {
        self.queue.iter().any(|waiter| waiter.claim.owner == owner && now.moment < waiter.until)
    }

    fn view(&self, now: Now, key: &Key, particulars: bool) -> Option<LockView> {
        let holders = self.holders.iter().filter(|holder| now.moment < holder.until);
        let holders: Vec<HolderView> = holders.map(|holder| holder.view(now)).collect();
        let live: Vec<&Waiter> = self.queue.iter().filter(|w| now.moment < w.until).collect();
        if holders.is_empty() && live.is_empty() {
            return None;
        }
        let waiting = live.len() as u64;
        let waiters = live.into_iter().filter(|_| particulars).map(|waiter| WaiterView {
            claim: waiter.claim.id,
            owner: waiter.claim.owner,
            label: waiter.claim.label.clone(),
            share: waiter.claim.share,
            since_ms: waiter.since_ms,
        });
        Some(LockView { key: key.clone(), holders, waiting, waiters: waiters.collect() })
    }
}

impl Holder {
    fn view(&self, now: Now) -> HolderView {
        HolderView {
            claim: self.claim.id,
            owner: self.claim.owner,
            label: self.claim.label.clone(),
            share: self.claim.share,
            token: Some(Token::new(self.token)),
            since_ms: self.since_ms,
            left: self.until.since(now.moment),
            broken: self.broken.clone(),
        }
    }
}

/// The shortest ttl every store takes: below it the drift allowance would eat the lease.
pub const TTL_MIN: Duration = Duration::from_millis(20);
/// The longest ttl every store takes.
pub const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
