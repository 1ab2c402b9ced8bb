use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{ClaimId, Token};
use lockstep_lock::store::{Connect, LockStore, Release, Verb};
use lockstep_lock::{Inbox, Signal};
use parking_lot::Mutex;

use super::relay::{self, Around, Call};

/// How often every claim of a noisy handle hears something untrue. Each "ask again" costs the
/// store a request, so faster noise would measure the machine and not the protocol.
const NOISE: Duration = Duration::from_millis(50);

/// A store whose signals never arrive, although it says that it pushes.
pub struct SilentSignals(Arc<dyn Connect>);

impl SilentSignals {
    /// The store without its signals.
    pub fn new(inner: Arc<dyn Connect>) -> Self {
        Self(inner)
    }
}

impl Connect for SilentSignals {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        self.0.open(inbox.map(|_| Inbox::tapped(drop)))
    }
}

/// A store that also signals when there is nothing to say, all the time, to everybody: asks to
/// ask again, grants without a token, grants with a token from long ago, and losses of claims
/// that nobody has.
pub struct NoisySignals(Arc<dyn Connect>);

impl NoisySignals {
    /// The store with noise.
    pub fn new(inner: Arc<dyn Connect>) -> Self {
        Self(inner)
    }
}

impl Connect for NoisySignals {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(relay::open(&*self.0, Arc::new(Noise::default()), inbox))
    }
}

#[derive(Default)]
struct Noise {
    claims: Mutex<HashSet<ClaimId>>,
}

impl Noise {
    fn make(&self, inbox: &Inbox, round: u64) {
        let claims: Vec<ClaimId> = self.claims.lock().iter().copied().collect();
        for claim in claims {
            inbox.deliver(match round % 3 {
                0 => Signal::AskAgain { claim },
                1 => Signal::Granted { claim, token: None },
                // No holder has a smaller token, so this is always a grant from the past.
                _ => Signal::Granted { claim, token: Some(Token::new(0)) },
            });
        }
        inbox.deliver(Signal::Lost { claim: ClaimId::new(), reason: "nobody's".to_owned() });
        if round.is_multiple_of(5) {
            inbox.deliver(Signal::AskAllAgain);
        }
    }
}

impl Around for Noise {
    fn inbox(self: Arc<Self>, inbox: Inbox) -> Inbox {
        let noise = Arc::downgrade(&self);
        let to = inbox.clone();
        tokio::spawn(async move {
            for round in 0u64.. {
                tokio::time::sleep(NOISE).await;
                let Some(noise) = noise.upgrade() else { return };
                noise.make(&to, round);
            }
        });
        inbox
    }

    fn before<'a>(&'a self, call: Call<'a>) -> Verb<'a, ()> {
        if let Call::Acquire(claim) = call {
            self.claims.lock().insert(claim.id);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn after<'a>(&'a self, call: Call<'a>) -> Verb<'a, ()> {
        if let Call::Release(Release::Mine(hold)) = call {
            self.claims.lock().remove(&hold.id);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
