use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{Effect, ErrorKind, StoreError};
use lockstep_lock::Inbox;
use lockstep_lock::store::{Connect, LockStore, Verb};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::relay::{self, Around, Call, VerbName};

/// A store whose replies get lost on order, or that cannot be reached at all.
pub struct FailingVerbs {
    inner: Arc<dyn Connect>,
    faults: Arc<Faults>,
}

/// How the store is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// As usual.
    Open,
    /// Every verb fails at once, undone, as if the connection were refused.
    Refused,
    /// No verb arrives, and none is answered, as behind a network that swallows packets.
    Silent,
}

struct Faults {
    planned: Mutex<Vec<Planned>>,
    reach: watch::Sender<Reach>,
    renewals: watch::Sender<Reach>,
    slowness: Mutex<Duration>,
}

struct Planned {
    verb: VerbName,
    left: u64,
}

impl FailingVerbs {
    /// The store, for now without faults.
    pub fn new(inner: Arc<dyn Connect>) -> Self {
        let open = || watch::Sender::new(Reach::Open);
        let (planned, slowness) = (Mutex::default(), Mutex::default());
        let faults = Faults { planned, reach: open(), renewals: open(), slowness };
        Self { inner, faults: Arc::new(faults) }
    }

    /// The `nth` of these verbs from now on (the next is 1) is carried out, but its reply is
    /// lost: the caller sees [`ErrorKind::Unavailable`] with [`Effect::Unknown`].
    pub fn lose_reply(&self, verb: VerbName, nth: u64) {
        self.faults.planned.lock().push(Planned { verb, left: nth });
    }

    /// From now on the whole store is reached like this, by both lanes.
    pub fn set_reach(&self, reach: Reach) {
        self.faults.reach.send_replace(reach);
    }

    /// From now on renewals reach the store like this; other verbs are left alone. A holder whose
    /// renewals are cut is one whose work takes longer than its ttl.
    pub fn set_reach_of_renewals(&self, reach: Reach) {
        self.faults.renewals.send_replace(reach);
    }

    /// From now on renewals are carried out at once and answered only after this long, as by a server that
    /// has too much to do.
    pub fn slow_renewals(&self, by: Duration) {
        *self.faults.slowness.lock() = by;
    }
}

impl Connect for FailingVerbs {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async move {
            let faults = Arc::clone(&self.faults);
            faults.passable(&faults.reach).await?;
            relay::open(&*self.inner, faults, inbox).await
        })
    }
}

impl Faults {
    /// Waits, if need be for ever, until requests get through or fail.
    async fn passable(&self, reach: &watch::Sender<Reach>) -> Result<(), StoreError> {
        let now = reach.subscribe().wait_for(|reach| *reach != Reach::Silent).await.map(|r| *r);
        match now {
            Ok(Reach::Refused) => Err(unavailable(Effect::None, "the test has cut the store off")),
            _ => Ok(()),
        }
    }

    /// Whether this verb is the one whose reply shall be lost.
    fn takes_reply(&self, verb: VerbName) -> bool {
        let mut planned = self.planned.lock();
        for plan in planned.iter_mut().filter(|plan| plan.verb == verb) {
            plan.left -= 1;
        }
        let before = planned.len();
        planned.retain(|plan| plan.left > 0);
        planned.len() < before
    }
}

impl Around for Faults {
    fn inbox(self: Arc<Self>, inbox: Inbox) -> Inbox {
        inbox
    }

    fn before<'a>(&'a self, call: Call<'a>) -> Verb<'a, ()> {
        Box::pin(async move {
            self.passable(&self.reach).await?;
            if call.name() == VerbName::Renew {
                self.passable(&self.renewals).await?;
            }
            Ok(())
        })
    }

    fn after<'a>(&'a self, call: Call<'a>) -> Verb<'a, ()> {
        Box::pin(async move {
            if call.name() == VerbName::Renew {
                let slowness = *self.slowness.lock();
                tokio::time::sleep(slowness).await;
            }
            match self.takes_reply(call.name()) {
                true => Err(unavailable(Effect::Unknown, "the test has lost the reply")),
                false => Ok(()),
            }
        })
    }
}

fn unavailable(effect: Effect, why: &str) -> StoreError {
    StoreError::new("failing", ErrorKind::Unavailable, effect, why)
}
