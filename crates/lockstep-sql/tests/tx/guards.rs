//! Guards of a store that is not the database.

use std::sync::Arc;

use lockstep_lock::memory::Memory;
use lockstep_lock::store::{
    Answer, Claim, Connect, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Fencing, Guard, Inbox, Locks, StoreFacts};
use lockstep_sql::tx::VerifyError;

/// A holder that was replaced, and who replaced it. Their store must live as long as they do.
pub async fn late_and_next(key: &str) -> (Guard, Guard, Locks) {
    let locks = Locks::open(Memory::new()).await.unwrap();
    let late = locks.lock(key).await.unwrap();
    assert!(locks.break_lock_now(key, "test").await.unwrap());
    let next = locks.lock(key).await.unwrap();
    (late, next, locks)
}

pub fn stale(result: Result<(), VerifyError>) -> (u64, u64) {
    match result {
        Err(VerifyError::Stale { token, seen, .. }) => (token.get(), seen.get()),
        other => panic!("expected a stale guard, got {other:?}"),
    }
}

/// A store in memory that keeps its tokens to itself, like those that cannot count.
pub struct Uncounted(pub Memory);

struct Lane(Arc<dyn LockStore>);

impl Connect for Uncounted {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async { Ok(Arc::new(Lane(self.0.open(inbox).await?)) as Arc<dyn LockStore>) })
    }
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        StoreFacts { fencing: Fencing::None, ..self.0.facts() }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async {
            Ok(match self.0.acquire(claim).await? {
                Answer::Granted { .. } => Answer::Granted { token: None },
                other => other,
            })
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        self.0.renew(holds)
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        self.0.release(what)
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        self.0.inspect(query)
    }
}
