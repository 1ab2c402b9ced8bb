//! Where a store's signals arrive: one inbox per handle, whatever the number of locks.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use lockstep_core::time::{Clock, Moment};
use lockstep_core::{ClaimId, Token};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A hint from the store. It may come late, twice or never; nothing is correct because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The store has granted this waiting claim, for one ttl.
    Granted {
        /// The claim.
        claim: ClaimId,
        /// Its token.
        token: Option<Token>,
    },
    /// Asking again is worth it for this claim.
    AskAgain {
        /// The claim.
        claim: ClaimId,
    },
    /// Signals may have been missed (a connection was lost): everybody had better ask again.
    AskAllAgain,
    /// The store has taken this hold away.
    Lost {
        /// The claim that held.
        claim: ClaimId,
        /// The operator's words.
        reason: String,
    },
}

/// The inbox of one handle. Stores call [`deliver`](Self::deliver); cloning is cheap.
#[derive(Clone, Default)]
pub struct Inbox(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<HashMap<ClaimId, Arc<Bell>>>,
    lost: Mutex<Option<OnLost>>,
    /// What the time of arrival is read from; without it, notes have none.
    clock: Option<Arc<dyn Clock>>,
    tap: Option<Box<dyn Fn(Signal) + Send + Sync>>,
}

type OnLost = Box<dyn Fn(ClaimId, String) + Send + Sync>;

#[derive(Default)]
struct Bell {
    rung: Notify,
    note: Mutex<Option<(Note, Option<Moment>)>>,
}

/// What a waiter is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Granted(Option<Token>),
    AskAgain,
}

impl Inbox {
    /// An inbox of its own; only tests and wrappers need one.
    pub fn new() -> Self {
        Self::default()
    }

    /// An inbox that knows when a signal came.
    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared { clock: Some(clock), ..Shared::default() }))
    }

    /// An inbox that hands every signal to `tap` and keeps none: for wrappers of stores that
    /// count, delay or swallow signals on their way to a handle's own inbox.
    pub fn tapped(tap: impl Fn(Signal) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { tap: Some(Box::new(tap)), ..Shared::default() }))
    }

    /// Passes a signal on to whom it concerns. Never blocks; unknown claims are ignored.
    pub fn deliver(&self, signal: Signal) {
        if let Some(tap) = &self.0.tap {
            return tap(signal);
        }
        match signal {
            Signal::Granted { claim, token } => self.ring(claim, Note::Granted(token)),
            Signal::AskAgain { claim } => self.ring(claim, Note::AskAgain),
            Signal::AskAllAgain => {
                let now = self.now();
                for bell in self.0.waiting.lock().values() {
                    bell.ring(Note::AskAgain, now);
                }
            }
            Signal::Lost { claim, reason } => {
                if let Some(lost) = &*self.0.lost.lock() {
                    lost(claim, reason);
                }
            }
        }
    }

    fn ring(&self, claim: ClaimId, note: Note) {
        let now = self.now();
        if let Some(bell) = self.0.waiting.lock().get(&claim) {
            bell.ring(note, now);
        }
    }

    fn now(&self) -> Option<Moment> {
        self.0.clock.as_ref().map(|clock| clock.now())
    }

    pub(crate) fn on_lost(&self, act: impl Fn(ClaimId, String) + Send + Sync + 'static) {
        *self.0.lost.lock() = Some(Box::new(act));
    }

    /// From now until the mailbox is dropped, signals for `claim` are kept in it.
    pub(crate) fn subscribe(&self, claim: ClaimId) -> Mailbox {
        let bell = Arc::new(Bell::default());
        self.0.waiting.lock().insert(claim, Arc::clone(&bell));
        Mailbox { claim, bell, inbox: Arc::downgrade(&self.0) }
    }
}

impl Bell {
    fn ring(&self, note: Note, now: Option<Moment>) {
        let mut kept = self.note.lock();
        *kept = match *kept {
            // A grant says more than "ask again" and must not be overwritten by it; "ask again" says the
            // same twice, and has said it since the first time.
            Some(first) if note == Note::AskAgain => Some(first),
            _ => Some((note, now)),
        };
        drop(kept);
        self.rung.notify_one();
    }
}

/// The signals of one waiting claim.
pub(crate) struct Mailbox {
    claim: ClaimId,
    bell: Arc<Bell>,
    inbox: Weak<Shared>,
}

impl Mailbox {
    /// The next note, and when it came. Cancel safe: a note is either returned or kept.
    pub(crate) async fn next(&self) -> (Note, Option<Moment>) {
        loop {
            if let Some(note) = self.bell.note.lock().take() {
                return note;
            }
            self.bell.rung.notified().await;
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if let Some(inbox) = self.inbox.upgrade() {
            inbox.waiting.lock().remove(&self.claim);
        }
    }
}
