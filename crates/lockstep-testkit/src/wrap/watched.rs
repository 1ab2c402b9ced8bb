use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lockstep_core::{ClaimId, Key, StoreError};
use lockstep_lock::store::{
    Answer, Claim, Connect, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Inbox, StoreFacts};
use parking_lot::Mutex;

/// Who was told by a store to wait, and has neither been granted nor given up since: what a test can
/// know of waiters where the store knows nothing of them.
#[derive(Clone, Default)]
pub struct Waiters(Arc<Mutex<HashMap<Key, HashSet<ClaimId>>>>);

impl Waiters {
    /// The store, with its waiters written down from here on.
    pub fn watch(&self, inner: Arc<dyn Connect>) -> Arc<dyn Connect> {
        Arc::new(Watched { inner, waiters: self.clone() })
    }

    /// How many wait for this lock.
    pub fn of(&self, key: &Key) -> u64 {
        self.0.lock().get(key).map_or(0, |claims| claims.len() as u64)
    }

    fn answered(&self, claim: &Claim, answer: &Answer) {
        let mut keys = self.0.lock();
        let claims = keys.entry(claim.key.clone()).or_default();
        match answer {
            Answer::Queued { .. } => claims.insert(claim.id),
            _ => claims.remove(&claim.id),
        };
    }

    fn gone(&self, what: &Release) {
        if let Release::Mine(hold) = what
            && let Some(claims) = self.0.lock().get_mut(&hold.key)
        {
            claims.remove(&hold.id);
        }
    }
}

struct Watched {
    inner: Arc<dyn Connect>,
    waiters: Waiters,
}

impl Connect for Watched {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async move {
            let store = self.inner.open(inbox).await?;
            let waiters = self.waiters.clone();
            Ok::<Arc<dyn LockStore>, StoreError>(Arc::new(Lane { store, waiters }))
        })
    }
}

struct Lane {
    store: Arc<dyn LockStore>,
    waiters: Waiters,
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        self.store.facts()
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async move {
            let answer = self.store.acquire(claim).await?;
            self.waiters.answered(claim, &answer);
            Ok(answer)
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        self.store.renew(holds)
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            let released = self.store.release(what).await?;
            self.waiters.gone(what);
            Ok(released)
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        self.store.inspect(query)
    }
}
