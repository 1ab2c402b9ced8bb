//! The part that every wrapper shares: a store that passes each verb on and lets somebody act
//! around it.

use std::sync::Arc;

use lockstep_core::StoreError;
use lockstep_lock::store::{
    Answer, Claim, Connect, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Inbox, StoreFacts};

/// Which verb of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerbName {
    /// [`LockStore::acquire`].
    Acquire,
    /// [`LockStore::renew`].
    Renew,
    /// [`LockStore::release`].
    Release,
    /// [`LockStore::inspect`].
    Inspect,
}

/// A verb that is being sent.
#[derive(Clone, Copy)]
pub(super) enum Call<'a> {
    Acquire(&'a Claim),
    Renew(&'a [Hold]),
    Release(&'a Release),
    Inspect,
}

impl Call<'_> {
    pub(super) fn name(self) -> VerbName {
        match self {
            Self::Acquire(_) => VerbName::Acquire,
            Self::Renew(_) => VerbName::Renew,
            Self::Release(_) => VerbName::Release,
            Self::Inspect => VerbName::Inspect,
        }
    }
}

/// What a wrapper does around every verb. No method is provided: a wrapper that forgets one would
/// quietly test less than its name says.
pub(super) trait Around: Send + Sync + 'static {
    /// The inbox that the store sees instead of the handle's; called on the handle's runtime.
    fn inbox(self: Arc<Self>, inbox: Inbox) -> Inbox;

    /// Before the verb reaches the store; an error means that it never does.
    fn before<'a>(&'a self, call: Call<'a>) -> Verb<'a, ()>;

    /// After the store has done it and before the caller hears of it; an error takes the place
    /// of the answer.
    fn after<'a>(&'a self, call: Call<'a>) -> Verb<'a, ()>;
}

/// Opens a lane through `around`.
pub(super) async fn open(
    inner: &dyn Connect,
    around: Arc<dyn Around>,
    inbox: Option<Inbox>,
) -> Result<Arc<dyn LockStore>, StoreError> {
    let inbox = inbox.map(|inbox| Arc::clone(&around).inbox(inbox));
    let store = inner.open(inbox).await?;
    Ok(Arc::new(Relay { store, around }))
}

struct Relay {
    store: Arc<dyn LockStore>,
    around: Arc<dyn Around>,
}

impl Relay {
    /// The verb is only made when it may go on its way, in case making it does some of its work.
    fn pass<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        verb: impl FnOnce(&'a dyn LockStore) -> Verb<'a, T> + Send + 'a,
    ) -> Verb<'a, T> {
        Box::pin(async move {
            self.around.before(call).await?;
            let answer = verb(&*self.store).await?;
            self.around.after(call).await?;
            Ok(answer)
        })
    }
}

impl LockStore for Relay {
    fn facts(&self) -> StoreFacts {
        self.store.facts()
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        self.pass(Call::Acquire(claim), |store| store.acquire(claim))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        self.pass(Call::Renew(holds), |store| store.renew(holds))
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        self.pass(Call::Release(what), |store| store.release(what))
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        self.pass(Call::Inspect, |store| store.inspect(query))
    }
}
