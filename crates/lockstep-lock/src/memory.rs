//! Locks between the tasks of one process.

use std::collections::HashMap;
use std::sync::Arc;

use lockstep_core::ClaimId;
use lockstep_core::time::Clock;
use parking_lot::Mutex;

use crate::clock::{SystemClock, wall_ms};
use crate::facts::{Fencing, Origin, Scope, StoreFacts};
use crate::inbox::{Inbox, Signal};
use crate::queue::{Now, TTL_MAX, TTL_MIN, Table, Told};
use crate::store::{
    Answer, Claim, Connect, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};

/// A store in this process's memory. Its clones are the same store: open several handles on them
/// and they exclude each other.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use lockstep_lock::{Locks, memory::Memory};
///
/// let store = Memory::new();
/// let (one, other) = (Locks::open(store.clone()).await?, Locks::open(store).await?);
/// let guard = one.lock("report").await?;
/// assert!(other.try_lock("report").await?.is_none());
/// # guard.release().await?;
/// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Memory(Arc<Shared>);

struct Shared {
    /// Tokens start again with every store in memory, so each is an origin of its own.
    origin: Origin,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    table: Table,
    /// Which handle a claim that waits or holds came through.
    inboxes: HashMap<ClaimId, Inbox>,
    /// With this many it is looked for those that have run out and that nobody gives back.
    sweeps_at: usize,
}

struct Lane {
    shared: Arc<Shared>,
    inbox: Option<Inbox>,
}

impl Memory {
    /// A new, empty store.
    #[expect(clippy::new_without_default, reason = "two defaults would be two different stores")]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// The same with another clock, for tests.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let origin = Origin { id: None, prefix: ClaimId::new().to_string() };
        Self(Arc::new(Shared { origin, clock, state: Mutex::default() }))
    }
}

impl Connect for Memory {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        let lane = Lane { shared: Arc::clone(&self.0), inbox };
        Box::pin(async { Ok(Arc::new(lane) as Arc<dyn LockStore>) })
    }
}

impl Lane {
    fn now(&self) -> Now {
        Now { moment: self.shared.clock.now(), wall_ms: wall_ms() }
    }
}

/// How many claims a store may have before it looks for what has run out for the first time.
const FIRST_SWEEP: usize = 1024;

impl State {
    /// Next when there are twice as many as are left: so that each claim pays for a look at two.
    fn sweep(&mut self, now: Now) {
        if self.inboxes.len() >= self.sweeps_at.max(FIRST_SWEEP) {
            let left = self.table.sweep_all(now);
            self.inboxes.retain(|claim, _| left.contains(claim));
            self.sweeps_at = self.inboxes.len() * 2;
        }
    }

    fn tell(&mut self, told: Told) {
        let (claim, signal) = match told {
            Told::Granted(claim, token) => {
                (claim.id, Signal::Granted { claim: claim.id, token: Some(token) })
            }
            Told::Lost(claim, reason) => (claim.id, Signal::Lost { claim: claim.id, reason }),
        };
        if let Some(inbox) = self.inboxes.get(&claim) {
            inbox.deliver(signal);
        }
    }
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            store: "memory",
            fencing: Fencing::Strong,
            scope: Scope::Process,
            fair: true,
            shared: true,
            deadlocks: true,
            push: true,
            ends_with_connection: false,
            hands_over: true,
            clock: "this machine's CLOCK_BOOTTIME",
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
            two_holders_if: "never within the process; tokens start again with it",
            warnings: vec![],
            origin: self.shared.origin.clone(),
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async move {
            let mut state = self.shared.state.lock();
            let (answer, told) = state.table.acquire(self.now(), claim);
            if let Some(inbox) = &self.inbox
                && matches!(answer, Answer::Granted { .. } | Answer::Queued { .. })
            {
                state.inboxes.insert(claim.id, inbox.clone());
                state.sweep(self.now());
            }
            told.into_iter().for_each(|told| state.tell(told));
            Ok(answer)
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        Box::pin(async move {
            let mut state = self.shared.state.lock();
            Ok(holds.iter().map(|hold| state.table.renew(self.now(), hold)).collect())
        })
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            let mut state = self.shared.state.lock();
            let (released, told) = state.table.release(self.now(), what);
            told.into_iter().for_each(|told| state.tell(told));
            state.table.sweep(what.key());
            if let Release::Mine(hold) = what {
                state.inboxes.remove(&hold.id);
            }
            Ok(released)
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        Box::pin(async move { Ok(self.shared.state.lock().table.inspect(self.now(), query)) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockstep_core::time::Moment;
    use lockstep_core::{Key, Label, Owner};

    use super::*;
    use crate::share::Share;

    #[derive(Debug)]
    struct Hand(Mutex<Moment>);

    impl Clock for Hand {
        fn now(&self) -> Moment {
            *self.0.lock()
        }
    }

    /// Who leaks a lock, or adopts one and is gone, leaves it to its ttl.
    #[tokio::test]
    async fn what_has_run_out_and_nobody_has_given_back_takes_no_room() {
        let clock = Arc::new(Hand(Mutex::new(Moment::ZERO)));
        let store = Memory::with_clock(clock.clone());
        let lane = store.open(Some(Inbox::new())).await.unwrap();
        let (ttl, step) = (Duration::from_secs(1), Duration::from_millis(10));
        for number in 0..10 * FIRST_SWEEP {
            // Two ask for each: one holds it, and one waits.
            let claim = Claim {
                id: ClaimId::new(),
                owner: Owner::new(),
                key: Key::new(format!("order:{}", number / 2)).unwrap(),
                label: Label::new("test"),
                share: Share::Exclusive,
                ttl,
                wait: true,
            };
            *clock.0.lock() = Moment::ZERO + step * number as u32;
            lane.acquire(&claim).await.unwrap();
        }
        let state = store.0.state.lock();
        // A row, its holder and its waiter.
        let names = format!("{:?}", state.table).matches("order:").count();
        assert!(state.inboxes.len() <= FIRST_SWEEP && names <= FIRST_SWEEP * 3 / 2, "{names}");
        let living = state.table.clone().sweep_all(Now { moment: clock.now(), wall_ms: 0 });
        assert_eq!(living.len(), 100);
        assert!(living.iter().all(|claim| state.inboxes.contains_key(claim)));
    }
}
