//! Who waits for which key, and is told when enough nodes have let go of it. No node knows of it.

use std::collections::HashMap;

use lockstep_core::ClaimId;
use lockstep_lock::{Inbox, Signal};
use parking_lot::Mutex;

use super::arithmetic::quorum;
use crate::push::Changed;

/// A set of nodes.
pub(super) type Nodes = u16;

/// The waiters of one handle.
///
/// Of several that wait for the same key here, only the first is told: they would only take votes from
/// each other. Who is told and goes away hands the word on.
pub(super) struct Waiters {
    nodes: usize,
    by_key: Mutex<HashMap<String, Vec<Waiter>>>,
}

struct Waiter {
    claim: ClaimId,
    inbox: Inbox,
    /// Those that have it for somebody else and have not told of a change since.
    blocking: Nodes,
    /// Those that could not be asked.
    void: Nodes,
    /// Those that have told of a change while the ask was under way: what was read there may be old.
    heard: Nodes,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asking,
    Waiting,
    /// It was told that asking is worth it.
    Told,
}

/// An ask under way. Unless it is [queued](Self::queued), there is nobody to tell when it ends.
pub(super) struct Asking<'a> {
    waiters: &'a Waiters,
    key: &'a str,
    claim: ClaimId,
}

impl Waiters {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, by_key: Mutex::default() }
    }

    /// To be called before the asks are sent: what is told while answers are on their way must not be lost.
    pub(super) fn asks<'a>(&'a self, key: &'a str, claim: ClaimId, inbox: &Inbox) -> Asking<'a> {
        let mut by_key = self.by_key.lock();
        let waiters = by_key.entry(key.to_owned()).or_default();
        // Who asks again keeps its turn.
        match waiters.iter_mut().find(|waiter| waiter.claim == claim) {
            Some(waiter) => {
                waiter.heard = 0;
                waiter.state = State::Asking;
            }
            None => waiters.push(Waiter {
                claim,
                inbox: inbox.clone(),
                blocking: 0,
                void: 0,
                heard: 0,
                state: State::Asking,
            }),
        }
        Asking { waiters: self, key, claim }
    }

    /// It waits no more. If it was the one to ask, another one is.
    pub(super) fn gone(&self, key: &str, claim: ClaimId) {
        self.remove(key, claim, true);
    }

    fn remove(&self, key: &str, claim: ClaimId, hand_on: bool) {
        let mut by_key = self.by_key.lock();
        let Some(waiters) = by_key.get_mut(key) else { return };
        let Some(at) = waiters.iter().position(|waiter| waiter.claim == claim) else { return };
        let gone = waiters.remove(at);
        if waiters.is_empty() {
            by_key.remove(key);
            return;
        }
        let told = match gone.state {
            State::Waiting => None,
            State::Asking | State::Told => hand_on.then(|| self.next(waiters)).flatten(),
        };
        drop(by_key);
        tell(told);
    }

    /// Takes in what one node tells.
    pub(super) fn changed(&self, node: usize, changed: Changed<'_>) {
        let bit: Nodes = 1 << node;
        let mut told = vec![];
        let mut note = |waiters: &mut Vec<Waiter>| {
            for waiter in waiters.iter_mut() {
                waiter.blocking &= !bit;
                waiter.heard |= bit;
            }
            told.extend(self.next(waiters));
        };
        let mut by_key = self.by_key.lock();
        match changed {
            Changed::All => by_key.values_mut().for_each(note),
            Changed::Key(key) => {
                let waiters = std::str::from_utf8(key).ok().and_then(|key| by_key.get_mut(key));
                waiters.into_iter().for_each(&mut note);
            }
        }
        drop(by_key);
        told.into_iter().for_each(|told| tell(Some(told)));
    }

    /// The first whose nodes have let go of the key, unless one has been told already or is about to know.
    fn next(&self, waiters: &mut [Waiter]) -> Option<(ClaimId, Inbox)> {
        if waiters.iter().any(|waiter| waiter.state != State::Waiting) {
            return None;
        }
        let worth = |waiter: &&mut Waiter| {
            let out = (waiter.blocking | waiter.void).count_ones() as usize;
            self.nodes - out >= quorum(self.nodes)
        };
        let waiter = waiters.iter_mut().find(worth)?;
        waiter.state = State::Told;
        Some((waiter.claim, waiter.inbox.clone()))
    }
}

impl Asking<'_> {
    /// The key is its own: who else waits here need not ask now.
    pub(super) fn granted(self) {
        self.waiters.remove(self.key, self.claim, false);
        std::mem::forget(self);
    }

    /// These nodes have it for somebody else, those could not be asked: it is told when enough have let go.
    pub(super) fn queued(self, blocking: Nodes, void: Nodes) {
        let mut by_key = self.waiters.by_key.lock();
        let waiters = by_key.get_mut(self.key);
        let told = waiters.and_then(|waiters| {
            if let Some(waiter) = waiters.iter_mut().find(|waiter| waiter.claim == self.claim) {
                waiter.blocking = blocking & !waiter.heard;
                waiter.void = void;
                waiter.state = State::Waiting;
            }
            self.waiters.next(waiters)
        });
        drop(by_key);
        std::mem::forget(self);
        tell(told);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.waiters.gone(self.key, self.claim);
    }
}

fn tell(told: Option<(ClaimId, Inbox)>) {
    if let Some((claim, inbox)) = told {
        inbox.deliver(Signal::AskAgain { claim });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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

    const K: Changed<'static> = Changed::Key(b"k");

    #[test]
    fn one_is_told_when_a_quorum_may_be_free() {
        let (waiters, (inbox, heard)) = (Waiters::new(5), heard());
        let [a, b] = [1, 2].map(ClaimId::from_u128);
        waiters.asks("k", a, &inbox).queued(0b00111, 0);
        waiters.asks("k", b, &inbox).queued(0b00111, 0);
        waiters.changed(4, K);
        waiters.changed(1, Changed::Key(b"other"));
        assert_eq!(*heard.lock(), []);
        waiters.changed(0, K);
        assert_eq!(*heard.lock(), [a], "two block still, three may be free");
        waiters.changed(1, K);
        waiters.changed(2, Changed::All);
        assert_eq!(*heard.lock(), [a], "the second is not sent into the first one's way");
        waiters.gone("k", a);
        assert_eq!(*heard.lock(), [a, b], "but takes over from it");
        waiters.gone("k", b);
        assert!(waiters.by_key.lock().is_empty());
    }

    #[test]
    fn nodes_that_are_out_of_reach_are_not_free() {
        let (waiters, (inbox, heard)) = (Waiters::new(5), heard());
        let a = ClaimId::from_u128(1);
        waiters.asks("k", a, &inbox).queued(0b00111, 0b11000);
        waiters.changed(0, K);
        waiters.changed(1, K);
        assert_eq!(*heard.lock(), []);
        waiters.changed(2, K);
        assert_eq!(*heard.lock(), [a]);
    }

    #[test]
    fn who_fails_hands_the_word_on_and_who_is_granted_does_not() {
        let (waiters, (inbox, heard)) = (Waiters::new(3), heard());
        let [a, b] = [1, 2].map(ClaimId::from_u128);
        waiters.asks("k", b, &inbox).queued(0b011, 0);
        let asking = waiters.asks("k", a, &inbox);
        waiters.changed(0, K);
        asking.granted();
        assert_eq!(*heard.lock(), []);
        drop(waiters.asks("k", a, &inbox));
        assert_eq!(*heard.lock(), [b]);
    }

    #[test]
    fn what_is_told_while_asking_is_not_lost() {
        let (waiters, (inbox, heard)) = (Waiters::new(3), heard());
        let a = ClaimId::from_u128(1);
        let asking = waiters.asks("k", a, &inbox);
        waiters.changed(0, K);
        waiters.changed(1, K);
        assert_eq!(*heard.lock(), [], "it is asking already");
        asking.queued(0b111, 0);
        assert_eq!(*heard.lock(), [a]);
        waiters.asks("k", a, &inbox).granted();
        assert!(waiters.by_key.lock().is_empty());
    }
}
