//! The fair queue of every lock, pure: what each verb of a store must do, written once without
//! clock, task or lock. The memory store is this table behind a mutex; the scripts and SQL of the
//! other stores are held to it by the conformance suite, and the model checker explores it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{Key, Token};

use crate::store::{
    Answer, Claim, Hold, HolderView, LockView, Page, Query, Release, Released, Renewal, WaiterView,
};

/// All locks of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    rows: BTreeMap<Key, Row>,
}

/// A row stays when its lock is free: its token must only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    token: u64,
    holder: Option<Holder>,
    queue: VecDeque<Waiter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    claim: Claim,
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
    pub fn acquire(&mut self, now: Now, claim: &Claim) -> (Answer, Option<Told>) {
        let row = self.rows.entry(claim.key.clone()).or_default();
        let told = row.heal(now);
        let answer = row.ask(now, claim);
        // Telling the asker what its own answer already says would only wake it twice.
        let told = told.filter(|told| !matches!(told, Told::Granted(to, _) if to.id == claim.id));
        (answer, told)
    }

    /// See [`LockStore::renew`](crate::store::LockStore::renew).
    pub fn renew(&mut self, now: Now, hold: &Hold) -> Renewal {
        let holder = self.rows.get_mut(&hold.key).and_then(|row| row.holder.as_mut());
        match holder.filter(|holder| holder.claim.id == hold.id && now.moment < holder.until) {
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
        let key = match what {
            Release::Mine(hold) => &hold.key,
            Release::Break { key, .. } => key,
        };
        let Some(row) = self.rows.get_mut(key) else { return (Released::NotHeld, vec![]) };
        // Not healed before: an operator who breaks a holder that has run out must not hit the
        // innocent one that is next.
        row.expire(now);
        let mut told = vec![];
        let released = match what {
            Release::Mine(hold) => row.give_back(hold),
            Release::Break { reason, now: false, .. } => row.mark_broken(reason),
            Release::Break { reason, now: true, .. } => {
                let lost = row.holder.take();
                let released = if lost.is_some() { Released::Done } else { Released::NotHeld };
                told.extend(lost.map(|holder| Told::Lost(holder.claim, reason.clone())));
                released
            }
        };
        told.extend(row.heal(now));
        (released, told)
    }

    /// See [`LockStore::inspect`](crate::store::LockStore::inspect).
    pub fn inspect(&self, now: Now, query: &Query) -> Page {
        match query {
            Query::One(key) => {
                let view = self.rows.get(key).and_then(|row| row.view(now, key, true));
                Page { locks: view.into_iter().collect(), more: false }
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
    /// Ends a lease that has run out, forgets dead waiters at the head of the queue, and grants
    /// a free lock to the first that lives.
    fn heal(&mut self, now: Now) -> Option<Told> {
        self.expire(now);
        if self.holder.is_some() {
            return None;
        }
        let next = std::iter::from_fn(|| self.queue.pop_front()).find(|w| now.moment < w.until)?;
        let token = self.grant(now, &next.claim);
        Some(Told::Granted(next.claim, token))
    }

    fn expire(&mut self, now: Now) {
        self.holder.take_if(|holder| holder.until <= now.moment);
    }

    fn ask(&mut self, now: Now, claim: &Claim) -> Answer {
        match &mut self.holder {
            None => Answer::Granted { token: Some(self.grant(now, claim)) },
            Some(holder) if holder.claim.id == claim.id => match &holder.broken {
                Some(reason) => Answer::Broken { reason: reason.clone() },
                None => {
                    holder.until = now.moment + claim.ttl;
                    Answer::Granted { token: Some(Token::new(self.token)) }
                }
            },
            Some(_) if !claim.wait => Answer::Busy,
            Some(holder) => {
                let holder_left = holder.until.since(now.moment);
                let place = self.enqueue(now, claim);
                let live = |waiter: &&Waiter| now.moment < waiter.until;
                let ahead = self.queue.range(..place).filter(live).count() as u64;
                Answer::Queued { ahead, holder_left, behind: Some(Token::new(self.token)) }
            }
        }
    }

    fn grant(&mut self, now: Now, claim: &Claim) -> Token {
        self.token += 1;
        self.holder = Some(Holder {
            claim: claim.clone(),
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

    fn give_back(&mut self, hold: &Hold) -> Released {
        if self.holder.as_ref().is_some_and(|holder| holder.claim.id == hold.id) {
            self.holder = None;
            return Released::Done;
        }
        match self.queue.iter().position(|waiter| waiter.claim.id == hold.id) {
            Some(place) => {
                self.queue.remove(place);
                Released::Done
            }
            None => Released::NotHeld,
        }
    }

    fn mark_broken(&mut self, reason: &str) -> Released {
        match &mut self.holder {
            Some(holder) => {
                holder.broken = Some(reason.to_owned());
                Released::Done
            }
            None => Released::NotHeld,
        }
    }

    fn view(&self, now: Now, key: &Key, particulars: bool) -> Option<LockView> {
        let holder = self.holder.as_ref().filter(|holder| now.moment < holder.until);
        let live: Vec<&Waiter> = self.queue.iter().filter(|w| now.moment < w.until).collect();
        if holder.is_none() && live.is_empty() {
            return None;
        }
        let waiting = live.len() as u64;
        let waiters = live.into_iter().filter(|_| particulars).map(|waiter| WaiterView {
            claim: waiter.claim.id,
            owner: waiter.claim.owner,
            label: waiter.claim.label.clone(),
            since_ms: waiter.since_ms,
        });
        Some(LockView {
            key: key.clone(),
            holder: holder.map(|holder| HolderView {
                claim: holder.claim.id,
                owner: holder.claim.owner,
                label: holder.claim.label.clone(),
                token: Some(Token::new(self.token)),
                since_ms: holder.since_ms,
                left: holder.until.since(now.moment),
                broken: holder.broken.clone(),
            }),
            waiting,
            waiters: waiters.collect(),
        })
    }
}

/// The shortest ttl every store takes: below it the drift allowance would eat the lease.
pub const TTL_MIN: Duration = Duration::from_millis(20);
/// The longest ttl every store takes.
pub const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
