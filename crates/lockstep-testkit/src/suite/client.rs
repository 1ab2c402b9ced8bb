//! A client that speaks to the store in verbs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use lockstep_core::{ClaimId, Key, Label, Owner, Token};
use lockstep_lock::store::{
    Answer, Claim, Connect, Hold, LockStore, LockView, Page, Query, Release, Released, Renewal,
};
use lockstep_lock::{Inbox, Share, Signal};
use parking_lot::Mutex;

use super::env::eventually;

/// A client without a handle: it asks once, and hears what the store says by itself.
pub(crate) struct Client {
    store: Arc<dyn LockStore>,
    heard: Arc<Mutex<Vec<Signal>>>,
}

/// A place in the queue, as the store described it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) ahead: u64,
    pub(crate) holder_left: Duration,
    pub(crate) behind: Option<Token>,
}

impl Client {
    pub(crate) async fn open(connect: Arc<dyn Connect>) -> Result<Self> {
        let heard: Arc<Mutex<Vec<Signal>>> = Arc::default();
        let ear = Arc::clone(&heard);
        let inbox = Inbox::tapped(move |signal| ear.lock().push(signal));
        Ok(Self { store: connect.open(Some(inbox)).await?, heard })
    }

    /// Asks, and must be granted.
    pub(crate) async fn granted(&self, claim: &Claim) -> Result<Option<Token>> {
        match self.ask(claim).await? {
            Answer::Granted { token } => Ok(token),
            other => bail!("{} should have been granted: {other:?}", claim.key),
        }
    }

    /// Asks, and must be given a place in the queue.
    pub(crate) async fn queued(&self, claim: &Claim) -> Result<Place> {
        match self.ask(claim).await? {
            Answer::Queued { ahead, holder_left, behind } => {
                Ok(Place { ahead, holder_left, behind })
            }
            other => bail!("{} should have been queued: {other:?}", claim.key),
        }
    }

    /// Asks until it is granted.
    pub(crate) async fn granted_in_the_end(&self, claim: &Claim) -> Result<Option<Token>> {
        eventually(&format!("{} is granted", claim.key), || async {
            Ok(match self.ask(claim).await? {
                Answer::Granted { token } => Some(token),
                _ => None,
            })
        })
        .await
    }

    pub(crate) async fn ask(&self, claim: &Claim) -> Result<Answer> {
        Ok(self.store.acquire(claim).await?)
    }

    pub(crate) async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        let mut answers = self.renew_all(&[claim.hold()]).await?;
        anyhow::ensure!(answers.len() == 1, "one hold, one answer: {answers:?}");
        Ok(answers.remove(0))
    }

    pub(crate) async fn renew_all(&self, holds: &[Hold]) -> Result<Vec<Renewal>> {
        Ok(self.store.renew(holds).await?)
    }

    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released> {
        Ok(self.store.release(&Release::Mine(claim.hold())).await?)
    }

    pub(crate) async fn downgrade(&self, claim: &Claim) -> Result<Released> {
        Ok(self.store.release(&Release::Downgrade(claim.hold())).await?)
    }

    pub(crate) async fn look(&self, query: &Query) -> Result<Page> {
        Ok(self.store.inspect(query).await?)
    }

    pub(crate) async fn break_lock(&self, key: &Key, reason: &str, now: bool) -> Result<Released> {
        let what = Release::Break { key: key.clone(), reason: reason.to_owned(), now };
        Ok(self.store.release(&what).await?)
    }

    pub(crate) async fn view(&self, key: &Key) -> Result<Option<LockView>> {
        let page = self.store.inspect(&Query::One(key.clone())).await?;
        anyhow::ensure!(page.locks.len() <= 1 && !page.more, "one lock, one view: {page:?}");
        Ok(page.locks.into_iter().next())
    }

    /// Who holds the lock.
    pub(crate) async fn holder(&self, key: &Key) -> Result<Option<ClaimId>> {
        let view = self.view(key).await?;
        Ok(view.and_then(|view| view.holder().map(|holder| holder.claim)))
    }

    /// Who waits for the lock, in order.
    pub(crate) async fn waiters(&self, key: &Key) -> Result<Vec<ClaimId>> {
        let waiters = self.view(key).await?.map(|view| view.waiters).unwrap_or_default();
        Ok(waiters.into_iter().map(|waiter| waiter.claim).collect())
    }

    pub(crate) async fn list(&self, prefix: &str, limit: usize) -> Result<Page> {
        let query = Query::All { prefix: prefix.to_owned(), limit };
        Ok(self.store.inspect(&query).await?)
    }

    /// What the store has said by itself about this claim.
    pub(crate) fn heard_of(&self, claim: &Claim) -> Vec<Signal> {
        let heard = self.heard.lock();
        let about = |signal: &&Signal| match signal {
            Signal::Granted { claim: id, .. }
            | Signal::AskAgain { claim: id }
            | Signal::Lost { claim: id, .. } => *id == claim.id,
            Signal::AskAllAgain => false,
        };
        heard.iter().filter(about).cloned().collect()
    }
}

/// A new claim that would wait.
pub(crate) fn claim(key: &Key, ttl: Duration) -> Claim {
    Claim {
        id: ClaimId::new(),
        key: key.clone(),
        owner: Owner::new(),
        label: Label::new("a client of the suite"),
        ttl,
        share: Share::Exclusive,
        wait: true,
    }
}

/// A new claim that does not wait.
pub(crate) fn hasty(key: &Key, ttl: Duration) -> Claim {
    Claim { wait: false, ..claim(key, ttl) }
}
