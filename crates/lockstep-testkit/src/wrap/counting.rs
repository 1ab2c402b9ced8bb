use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_core::{ClaimId, Key};
use lockstep_lock::store::{Connect, LockStore, Verb};
use lockstep_lock::{Inbox, Signal};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::relay::{self, Around, Call, VerbName};

/// Counts what a handle asks of its store and what it hears from it, and can stop a verb at a
/// point that the test names.
pub struct Counting {
    inner: Arc<dyn Connect>,
    state: Arc<State>,
}

/// What was counted so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Asks.
    pub acquires: u64,
    /// Renewal requests, whatever the number of holds in each.
    pub renews: u64,
    /// Holds named by all renewal requests together.
    pub renewed_holds: u64,
    /// The most holds that one renewal request named.
    pub largest_batch: usize,
    /// Releases and breaks.
    pub releases: u64,
    /// Signals that concerned a claim of this handle, or all of them.
    pub wakes: u64,
}

/// A point on the way of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The verb has been called and has not reached the store.
    Before(VerbName),
    /// The store has done it, and the caller does not know yet.
    After(VerbName),
}

#[derive(Default)]
struct State {
    counts: Mutex<Counts>,
    claims: Mutex<HashSet<ClaimId>>,
    renewals: Mutex<HashMap<Key, u64>>,
    pauses: Mutex<Vec<Armed>>,
    yields: AtomicBool,
}

struct Armed {
    point: Point,
    left: u64,
    reached: oneshot::Sender<()>,
    resumed: oneshot::Receiver<()>,
}

impl Counting {
    /// The store, counted from here on.
    pub fn new(inner: Arc<dyn Connect>) -> Self {
        Self { inner, state: Arc::default() }
    }

    /// The same, and every verb also yields before and after it: each of those is then a place
    /// where a caller's future can be dropped, also on a store that answers at once.
    pub fn yielding(inner: Arc<dyn Connect>) -> Self {
        let counting = Self::new(inner);
        counting.state.yields.store(true, Ordering::Relaxed);
        counting
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.state.counts.lock().clone()
    }

    /// How many renewals of this key have been sent.
    pub fn renewals_of(&self, key: &Key) -> u64 {
        self.state.renewals.lock().get(key).copied().unwrap_or_default()
    }

    /// Stops the `nth` verb from now on (the next is 1) that comes to this point.
    pub fn pause(&self, point: Point, nth: u64) -> Pause {
        let (reached, is_reached) = oneshot::channel();
        let (resume, resumed) = oneshot::channel();
        self.state.pauses.lock().push(Armed { point, left: nth, reached, resumed });
        Pause { reached: is_reached, _resume: resume }
    }
}

/// A verb that stops at a point. It goes on when this is dropped.
pub struct Pause {
    reached: oneshot::Receiver<()>,
    _resume: oneshot::Sender<()>,
}

impl Pause {
    /// Resolves when the verb has come to the point.
    pub async fn reached(&mut self) {
        // An error means that the store is gone, and with it everybody who could come by.
        let _ = (&mut self.reached).await;
    }

    /// Lets the verb go on.
    pub fn resume(self) {}
}

impl Connect for Counting {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        let state = Arc::clone(&self.state);
        Box::pin(relay::open(&*self.inner, state, inbox))
    }
}

impl State {
    fn count(&self, call: Call<'_>) {
        let mut counts = self.counts.lock();
        match call {
            Call::Acquire(claim) => {
                counts.acquires += 1;
                self.claims.lock().insert(claim.id);
            }
            Call::Renew(holds) => {
                counts.renews += 1;
                counts.renewed_holds += holds.len() as u64;
                counts.largest_batch = counts.largest_batch.max(holds.len());
                let mut renewals = self.renewals.lock();
                for hold in holds {
                    *renewals.entry(hold.key.clone()).or_default() += 1;
                }
            }
            Call::Release(_) => counts.releases += 1,
            Call::Inspect => {}
        }
    }

    fn concerns(&self, signal: &Signal) -> bool {
        match signal {
            Signal::AskAllAgain => true,
            Signal::Granted { claim, .. }
            | Signal::AskAgain { claim }
            | Signal::Lost { claim, .. } => self.claims.lock().contains(claim),
        }
    }

    async fn pass(&self, point: Point) {
        if self.yields.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        let armed = {
            let mut pauses = self.pauses.lock();
            for armed in pauses.iter_mut().filter(|armed| armed.point == point) {
                armed.left -= 1;
            }
            pauses.iter().position(|armed| armed.left == 0).map(|at| pauses.remove(at))
        };
        if let Some(armed) = armed {
            let _ = armed.reached.send(());
            // Nobody ever sends: the end of the pause is its sender being dropped.
            let _ = armed.resumed.await;
        }
    }
}

impl Around for State {
    fn inbox(self: Arc<Self>, inbox: Inbox) -> Inbox {
        Inbox::tapped(move |signal| {
            if self.concerns(&signal) {
                self.counts.lock().wakes += 1;
            }
            inbox.deliver(signal);
        })
    }

    fn before<'a>(&'a self, call: Call<'a>) -> Verb<'a, ()> {
        self.count(call);
        Box::pin(async move {
            self.pass(Point::Before(call.name())).await;
            Ok(())
        })
    }

    fn after<'a>(&'a self, call: Call<'a>) -> Verb<'a, ()> {
        Box::pin(async move {
            self.pass(Point::After(call.name())).await;
            Ok(())
        })
    }
}
