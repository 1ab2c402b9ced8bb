//! Who waits for which key, and is told when it changes. The server knows none of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockstep_core::ClaimId;
use lockstep_lock::{Inbox, Signal};
use parking_lot::Mutex;

use crate::push::Changed;

/// The waiters of all lanes to one store. All know of all, because a lane that does not wait is the one
/// through which a waiter gives up.
#[derive(Default)]
pub(crate) struct Waiters {
    by_key: Mutex<HashMap<String, HashMap<ClaimId, Waiter>>>,
    lanes: AtomicU64,
}

struct Waiter {
    lane: u64,
    inbox: Inbox,
    /// Its ask is under way, and may have read the key before or after what is told meanwhile: it is
    /// told, and stays to be told again.
    asking: bool,
}

/// An ask under way. Unless it is [queued](Self::queued), there is nobody to tell when it ends.
pub(crate) struct Asking<'a> {
    waiters: &'a Waiters,
    key: &'a str,
    claim: ClaimId,
}

impl Waiters {
    /// A number that no other lane has.
    pub(crate) fn lane(&self) -> u64 {
        self.lanes.fetch_add(1, Ordering::Relaxed)
    }

    /// To be called before the ask is sent: what is told while its answer is on its way must not be lost.
    pub(crate) fn asks<'a>(
        &'a self,
        lane: u64,
        key: &'a str,
        claim: ClaimId,
        inbox: Inbox,
    ) -> Asking<'a> {
        let mut by_key = self.by_key.lock();
        let waiter = Waiter { lane, inbox, asking: true };
        by_key.entry(key.to_owned()).or_default().insert(claim, waiter);
        Asking { waiters: self, key, claim }
    }

    /// It waits no more, whatever its lane.
    pub(crate) fn gone(&self, key: &str, claim: ClaimId) {
        let mut by_key = self.by_key.lock();
        if let Some(claims) = by_key.get_mut(key) {
            claims.remove(&claim);
            if claims.is_empty() {
                by_key.remove(key);
            }
        }
    }

    /// Tells those who wait through this lane. The server tells of a key once; who still wants to know asks
    /// again.
    pub(crate) fn tell(&self, lane: u64, changed: Changed<'_>) {
        let mut told: Vec<(ClaimId, Inbox)> = vec![];
        let mut tell = |claims: &mut HashMap<ClaimId, Waiter>| {
            claims.retain(|claim, waiter| {
                if waiter.lane == lane {
                    told.push((*claim, waiter.inbox.clone()));
                }
                waiter.lane != lane || waiter.asking
            });
            !claims.is_empty()
        };
        let mut by_key = self.by_key.lock();
        match changed {
            Changed::All => by_key.retain(|_, claims| tell(claims)),
            Changed::Key(key) => {
                let Ok(key) = std::str::from_utf8(key) else { return };
                if by_key.get_mut(key).is_some_and(|claims| !tell(claims)) {
                    by_key.remove(key);
                }
            }
        }
        drop(by_key);
        for (claim, inbox) in told {
            inbox.deliver(Signal::AskAgain { claim });
        }
    }
}

impl Asking<'_> {
    /// The key is somebody else's: it is told of the next change.
    pub(crate) fn queued(self) {
        let mut by_key = self.waiters.by_key.lock();
        let waiter = by_key.get_mut(self.key).and_then(|claims| claims.get_mut(&self.claim));
        if let Some(waiter) = waiter {
            waiter.asking = false;
        }
        drop(by_key);
        std::mem::forget(self);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.waiters.gone(self.key, self.claim);
    }
}

/// What tells the waiters of one lane.
pub(crate) fn hear(
    waiters: &Arc<Waiters>,
    lane: u64,
) -> Arc<dyn Fn(Changed<'_>) + Send + Sync + 'static> {
    let waiters = Arc::clone(waiters);
    Arc::new(move |changed| waiters.tell(lane, changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard() -> (Inbox, Arc<Mutex<Vec<ClaimId>>>) {
        let heard: Arc<Mutex<Vec<ClaimId>>> = Arc::default();
        let ear = Arc::clone(&heard);
        let inbox = Inbox::tapped(move |signal| match signal {
            Signal::AskAgain { claim } => ear.lock().push(claim),
            other => panic!("{other:?}"),
        });
        (inbox, heard)
    }

    #[test]
    fn who_waits_is_told_once_and_who_asks_every_time() {
        let (waiters, (inbox, heard)) = (Waiters::default(), heard());
        let [a, b] = [1, 2].map(ClaimId::from_u128);
        waiters.asks(0, "k", a, inbox.clone()).queued();
        let asking = waiters.asks(0, "k", b, inbox.clone());
        waiters.tell(0, Changed::Key(b"other"));
        assert_eq!(*heard.lock(), []);
        waiters.tell(0, Changed::Key(b"k"));
        waiters.tell(0, Changed::Key(b"k"));
        let mut told = heard.lock().clone();
        told.sort();
        assert_eq!(told, [a, b, b]);
        // What was told while it asked may have been about what it then read, or not: it stays.
        asking.queued();
        waiters.tell(0, Changed::All);
        assert_eq!(heard.lock().last(), Some(&b));
        assert_eq!(heard.lock().len(), 4);
        assert!(waiters.by_key.lock().is_empty());
    }

    #[test]
    fn an_ask_that_ends_otherwise_leaves_nobody() {
        let (waiters, (inbox, heard)) = (Waiters::default(), heard());
        drop(waiters.asks(0, "k", ClaimId::from_u128(1), inbox.clone()));
        waiters.asks(0, "k", ClaimId::from_u128(2), inbox).queued();
        waiters.gone("k", ClaimId::from_u128(2));
        waiters.tell(0, Changed::All);
        assert_eq!(*heard.lock(), []);
        assert!(waiters.by_key.lock().is_empty());
    }

    #[test]
    fn lanes_do_not_speak_for_each_other() {
        let (waiters, (inbox, heard)) = (Waiters::default(), heard());
        let [a, b] = [1, 2].map(ClaimId::from_u128);
        waiters.asks(0, "k", a, inbox.clone()).queued();
        waiters.asks(1, "k", b, inbox).queued();
        waiters.tell(1, Changed::Key(b"k"));
        assert_eq!(*heard.lock(), [b]);
        waiters.tell(0, Changed::Key(b"k"));
        assert_eq!(*heard.lock(), [b, a]);
    }
}
