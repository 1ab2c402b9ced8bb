//! Planted bugs: a suite that cannot fail proves nothing. Each canary is the memory store with one
//! mistake that real stores have made, and names the cases that must turn red.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::{Arc, Mutex};

use lockstep_core::{Key, Token};
use lockstep_lock::memory::Memory;
use lockstep_lock::store::{
    Answer, Claim, Connect, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Inbox, Signal, StoreFacts};
use lockstep_testkit::stories;
use lockstep_testkit::suite::{self, Outcome, Subject};

#[derive(Clone, Copy, Debug)]
enum Bug {
    /// A bare delete: whoever releases frees the lock.
    AnyoneReleases,
    /// Every grant has the same token.
    TokensStandStill,
    /// A renewal brings back what was lost.
    RenewalsResurrect,
    /// Who should wait is let in.
    EverybodyIsLetIn,
    /// A collation that does not see the difference.
    NamesAreFolded,
    /// A release wakes everybody.
    TheHerdIsWoken,
}

/// Everybody who ever listened.
type Herd = Arc<Mutex<Vec<Inbox>>>;

struct Canary {
    store: Memory,
    bug: Bug,
    herd: Herd,
}

struct Lane {
    store: Arc<dyn LockStore>,
    bug: Bug,
    herd: Herd,
}

impl Connect for Canary {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        self.herd.lock().unwrap().extend(inbox.clone());
        Box::pin(async {
            let (bug, herd) = (self.bug, Arc::clone(&self.herd));
            let store = self.store.open(inbox).await?;
            Ok(Arc::new(Lane { store, bug, herd }) as Arc<dyn LockStore>)
        })
    }
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        self.store.facts()
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async move {
            let mut claim = claim.clone();
            if matches!(self.bug, Bug::NamesAreFolded) {
                claim.key = Key::new(claim.key.as_str().to_lowercase()).unwrap();
            }
            Ok(match (self.bug, self.store.acquire(&claim).await?) {
                (Bug::TokensStandStill, Answer::Granted { .. }) => {
                    Answer::Granted { token: Some(Token::new(1)) }
                }
                (Bug::EverybodyIsLetIn, Answer::Queued { behind, .. }) => {
                    Answer::Granted { token: behind.map(|token| Token::new(token.get() + 1)) }
                }
                (_, answer) => answer,
            })
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        Box::pin(async move {
            let mut answers = self.store.renew(holds).await?;
            if matches!(self.bug, Bug::RenewalsResurrect) {
                answers.fill(Renewal::Renewed);
            }
            Ok(answers)
        })
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            if matches!(self.bug, Bug::TheHerdIsWoken) {
                let herd = self.herd.lock().unwrap().clone();
                herd.iter().for_each(|inbox| inbox.deliver(Signal::AskAllAgain));
            }
            match (self.bug, what) {
                (Bug::AnyoneReleases, Release::Mine(hold)) => {
                    let (key, reason) = (hold.key.clone(), "deleted".to_owned());
                    self.store.release(&Release::Break { key, reason, now: true }).await
                }
                _ => self.store.release(what).await,
            }
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        self.store.inspect(query)
    }
}

fn subject(bug: Bug) -> Subject {
    let (store, herd) = (Memory::new(), Herd::default());
    let name = format!("memory with a bug: {bug:?}");
    Subject::new(name, move || {
        Arc::new(Canary { store: store.clone(), bug, herd: Arc::clone(&herd) })
    })
}

/// Every run of the case must fail.
async fn turns_red(bug: Bug, case: &str) {
    let report = suite::run_some(&subject(bug), case).await;
    let failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
    let entries = report.entries();
    assert!(!entries.is_empty(), "there is no case named {case}");
    assert!(entries.iter().all(|entry| failed(&entry.outcome)), "{bug:?}\n{report}");
}

#[tokio::test]
async fn a_bare_delete_is_seen() {
    turns_red(Bug::AnyoneReleases, "a_release_by_somebody_else_changes_nothing").await;
    let subject = subject(Bug::AnyoneReleases);
    let story = tokio::spawn(async move { stories::deletes_successors_lock(&subject).await });
    assert!(!matches!(story.await, Ok(Ok(()))), "the story must end badly");
}

#[tokio::test]
async fn tokens_that_stand_still_are_seen() {
    turns_red(Bug::TokensStandStill, "tokens_only_grow").await;
}

#[tokio::test]
async fn renewals_that_resurrect_are_seen() {
    turns_red(Bug::RenewalsResurrect, "a_renewal_never_brings_a_lease_back").await;
    turns_red(Bug::RenewalsResurrect, "five_hundred_renewals_come_back_in_order").await;
}

/// By the oracle, which only knows what the clients saw.
#[tokio::test]
async fn two_holders_are_seen() {
    let subject = subject(Bug::EverybodyIsLetIn);
    let story = tokio::spawn(async move { stories::reply_lost_after_write(&subject).await });
    assert!(!matches!(story.await, Ok(Ok(()))), "the story must end badly");
    turns_red(Bug::EverybodyIsLetIn, "waiters_are_told_their_place").await;
}

#[tokio::test]
async fn folded_names_are_seen() {
    turns_red(Bug::NamesAreFolded, "different_names_are_different_locks").await;
}

#[tokio::test]
async fn a_herd_is_seen() {
    turns_red(Bug::TheHerdIsWoken, "one_release_wakes_one").await;
}
