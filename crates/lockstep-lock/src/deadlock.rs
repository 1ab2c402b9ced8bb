//! Circles of owners who wait for each other: found by following who is before whom, and refused.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner, StoreError};

use crate::drive::{bounded, sleep_until};
use crate::locks::Inner;
use crate::share::{Share, WHOLE};
use crate::store::{LockView, Query, WaiterView};

/// How long a claim waits before it looks for a circle for the first time; then ever less often.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const RAREST_LOOK: Duration = Duration::from_secs(8);

/// How many owners one look follows.
const OWNERS_MAX: usize = 256;

/// Owners who wait for each other in a circle. The one that began to wait last is refused, so that
/// the others can go on: give back what is held, and begin again. Callers who take all they need
/// with [`lock_all`](crate::Locks::lock_all) never meet this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// Each waits for a lock that the next one has, or is before it in the queue for; the last
    /// one for a lock of the first.
    pub circle: Vec<Waiting>,
}

/// One owner in a circle, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The claim that waits.
    pub claim: ClaimId,
    /// Who waits.
    pub owner: Owner,
    /// Who waits, for people.
    pub label: Label,
    /// What for.
    pub key: Key,
    /// Since when, in milliseconds of the store's wall clock.
    pub since_ms: u64,
}

impl std::error::Error for Deadlock {}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("waiting would never end: ")?;
        for (place, waiting) in self.circle.iter().enumerate() {
            let next = &self.circle[(place + 1) % self.circle.len()];
            let comma = if place == 0 { "" } else { ", " };
            let (label, key, before) = (&waiting.label, &waiting.key, &next.label);
            write!(f, "{comma}`{label}` waits for lock `{key}` behind `{before}`")?;
        }
        Ok(())
    }
}

impl Deadlock {
    /// Which claim is to give way: everybody who looks must come to the same answer. An owner that
    /// nobody has named holds nothing else, and does not look.
    fn gives_way(&self) -> Option<ClaimId> {
        let named = self.circle.iter().filter(|w| w.owner.as_u128() != w.claim.as_u128());
        named.max_by_key(|waiting| (waiting.since_ms, waiting.claim)).map(|waiting| waiting.claim)
    }
}

/// Resolves when this claim waits in a circle and is the one to give way. Cancel safe.
pub(crate) async fn watch(inner: &Inner, owner: Owner, claim: ClaimId) -> Deadlock {
    let mut pause = FIRST_LOOK;
    loop {
        sleep_until(&*inner.clock, inner.clock.now() + pause).await;
        pause = (pause * 2).min(RAREST_LOOK);
        match look(inner, owner).await {
            Ok(Some(deadlock)) if deadlock.gives_way() == Some(claim) => return deadlock,
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "could not look for a circle of waiters"),
        }
    }
}

async fn look(inner: &Inner, owner: Owner) -> Result<Option<Deadlock>, StoreError> {
    let mut search = Search::from(owner);
    while let Some(next) = search.next() {
        // Looked at before and after: what the store says may be older than what became of it since, and
        // younger than what was dropped after it was asked.
        let mut returning = inner.keeper.returning();
        let query = Query::WaitedForBy(next);
        let verb = inner.store.inspect(&query);
        let mut waited_for = bounded(inner.facts.store, inner.op_timeout, verb).await?.locks;
        returning.extend(inner.keeper.returning());
        // What this handle has dropped is on its way back, and in nobody's way for long.
        for lock in &mut waited_for {
            lock.holders.retain(|holder| !returning.contains(&holder.claim));
            lock.waiters.retain(|waiter| !returning.contains(&waiter.claim));
        }
        if let Some(deadlock) = search.saw(next, &waited_for) {
            return Ok(Some(deadlock));
        }
    }
    Ok(None)
}

/// Looks for the shortest circle through an owner, without asking anybody itself.
struct Search {
    me: Owner,
    to_see: VecDeque<Owner>,
    met: HashSet<Owner>,
    came_by: HashMap<Owner, Waiting>,
}

impl Search {
    fn from(me: Owner) -> Self {
        Self { me, to_see: [me].into(), met: [me].into(), came_by: HashMap::new() }
    }

    /// Whose waits to look at next.
    fn next(&mut self) -> Option<Owner> {
        self.to_see.pop_front()
    }

    /// Takes what this owner waits for; answers with the circle, if that closes one.
    fn saw(&mut self, owner: Owner, waited_for: &[LockView]) -> Option<Deadlock> {
        waited_for.iter().find_map(|lock| self.saw_lock(owner, lock))
    }

    fn saw_lock(&mut self, owner: Owner, lock: &LockView) -> Option<Deadlock> {
        let mut waits_here = VecDeque::from([owner]);
        while let Some(owner) = waits_here.pop_front() {
            let waiters = lock.waiters.iter().enumerate().filter(|(_, w)| w.owner == owner);
            for (place, waiter) in waiters {
                for before in in_the_way(lock, place, waiter) {
                    if before == self.me {
                        let last = Waiting::new(waiter, &lock.key);
                        return Some(Deadlock { circle: self.way_to(last) });
                    }
                    if self.met.len() < OWNERS_MAX && self.met.insert(before) {
                        self.came_by.insert(before, Waiting::new(waiter, &lock.key));
                        // Who was never named waits nowhere else, so that stores need not find it.
                        let unnamed = is_unnamed(lock, before);
                        if unnamed { &mut waits_here } else { &mut self.to_see }.push_back(before);
                    }
                }
            }
        }
        None
    }

    /// The steps that led here, from the first.
    fn way_to(&mut self, last: Waiting) -> Vec<Waiting> {
        let mut circle = vec![last];
        while let Some(earliest) = circle.last()
            && let Some(before) = self.came_by.remove(&earliest.owner)
        {
            circle.push(before);
        }
        circle.reverse();
        circle
    }
}

impl Waiting {
    fn new(waiter: &WaiterView, key: &Key) -> Self {
        let WaiterView { claim, owner, ref label, since_ms, .. } = *waiter;
        Self { claim, owner, label: label.clone(), key: key.clone(), since_ms }
    }
}

/// Whether this owner has one claim only, whose name it has.
fn is_unnamed(lock: &LockView, owner: Owner) -> bool {
    let holders = lock.holders.iter().map(|holder| (holder.owner, holder.claim));
    let waiters = lock.waiters.iter().map(|waiter| (waiter.owner, waiter.claim));
    let of_owner = holders.chain(waiters).filter(|(other, _)| *other == owner);
    of_owner.map(|(_, claim)| claim.as_u128()).any(|claim| claim == owner.as_u128())
}

/// Whom a waiter waits for: all of them, not any. Permits are left out, because any of their
/// holders may be the one that makes room; and so is a holder that an operator has broken, because
/// it will end.
fn in_the_way(lock: &LockView, place: usize, waiter: &WaiterView) -> Vec<Owner> {
    if waiter.share.of() != WHOLE {
        return vec![];
    }
    let excludes = |other: Share| Share::Exclusive == other || Share::Exclusive == waiter.share;
    let holders = lock.holders.iter().filter(|holder| holder.broken.is_none());
    let holders = holders.filter(|holder| excludes(holder.share)).map(|holder| holder.owner);
    let ahead = lock.waiters[..place].iter().filter(|other| excludes(other.share));
    holders.chain(ahead.map(|other| other.owner)).collect()
}

#[cfg(test)]
#[path = "deadlock_tests.rs"]
mod tests;
