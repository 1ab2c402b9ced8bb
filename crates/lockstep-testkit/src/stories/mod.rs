//! Each trap that people write about is a story: a named test that runs on every store.
//!
//! ```
//! use std::sync::Arc;
//! use lockstep_lock::memory::Memory;
//! use lockstep_testkit::{stories, suite::Subject};
//!
//! # async fn doc() -> anyhow::Result<()> {
//! let store = Memory::new();
//! let subject = Subject::new("memory", move || Arc::new(store.clone()));
//! stories::deletes_successors_lock(&subject).await?; // one of them
//! stories::run(&subject).await.assert_passed(); // all of them
//! # Ok(()) }
//! ```
//!
//! Stories with real processes need a subject that says how those reach the store
//! ([`Subject::with_processes`]) and a test that plays them ([`child::act`]). What a store does not claim
//! is left out only if its test says so too ([`Subject::without`]).

pub mod child;
mod clocks;
mod ownership;
mod processes;
pub(crate) mod puppet;
mod queueing;
mod replies;
mod sharing;
mod watchdog;
mod words;

use std::sync::Arc;

use anyhow::Result;
use futures_util::future::BoxFuture;
use lockstep_lock::{Guard, LockRequest, Scope, StoreFacts};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

pub use clocks::{blocked_executor, blocked_waiter, suspended_clock};
pub use ownership::{
    deletes_successors_lock, reentrant_method, same_label_is_not_same_owner, two_tries_one_unlock,
    unlock_without_holding,
};
pub use processes::{
    holder_killed, holder_killed_and_replaced_at_once, holder_paused, holder_paused_without_fence,
    many_processes_one_counter, set_without_expiry,
};
pub use queueing::{herd_on_release, lease_dies_while_queued, lost_wakeup, middle_waiter_gives_up};
pub use replies::reply_lost_after_write;
pub use sharing::{crossing_transfers, leaked_permits, starved_writer};
pub use watchdog::{ttl_shorter_than_work, watchdog};

use crate::oracle::Attempt;
use crate::suite::case::judged;
use crate::suite::env::{Env, Signals, facts_of};
use crate::suite::{Entry, Fact, Outcome, Report, Subject};

struct Story {
    name: &'static str,
    needs: Needs,
    /// What the store must claim; elsewhere the trap is the store's own, and its facts say so.
    claims: &'static [Fact],
    run: for<'a> fn(&'a Subject) -> BoxFuture<'a, Result<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Handles,
    Processes,
}

macro_rules! stories {
    ($($run:ident needs $needs:ident $(claims $($fact:ident)+)?;)+) => {
        const STORIES: &[Story] = &[$(
            Story {
                name: stringify!($run),
                needs: Needs::$needs,
                claims: &[$($(Fact::$fact),+)?],
                run: |subject| Box::pin($run(subject)),
            },
        )+];
    };
}

stories! {
    set_without_expiry needs Handles;
    deletes_successors_lock needs Handles;
    same_label_is_not_same_owner needs Handles;
    unlock_without_holding needs Handles;
    two_tries_one_unlock needs Handles;
    reentrant_method needs Handles;
    ttl_shorter_than_work needs Handles;
    watchdog needs Handles;
    blocked_executor needs Handles;
    blocked_waiter needs Handles claims Fair;
    suspended_clock needs Handles;
    reply_lost_after_write needs Handles;
    lease_dies_while_queued needs Handles claims Fair;
    lost_wakeup needs Handles;
    middle_waiter_gives_up needs Handles;
    herd_on_release needs Handles;
    starved_writer needs Handles claims Shared;
    crossing_transfers needs Handles claims Deadlocks;
    leaked_permits needs Processes claims Shared;
    holder_killed needs Processes;
    holder_paused needs Processes claims Fencing;
    holder_paused_without_fence needs Processes;
    many_processes_one_counter needs Processes;
}

/// Runs every story on the store and reports. Prints a line per story as it ends.
///
/// # Panics
/// If the store cannot even be opened.
pub async fn run(subject: &Subject) -> Report {
    let facts = facts_of(subject).await;
    let mut report = Report::new("story", &subject.name, None);
    let turns = Arc::new(Semaphore::new(subject.parallel));
    let mut running = JoinSet::new();
    for story in STORIES {
        let entry = |outcome, took| Entry::new(story.name, Signals::AsTheyCome, &[], outcome, took);
        if let Some(outcome) = story.left_out(subject, &facts) {
            report.add(entry(outcome, std::time::Duration::ZERO));
            continue;
        }
        let (subject, turns) = (subject.clone(), Arc::clone(&turns));
        running.spawn(async move {
            let _turn = turns.acquire().await;
            let (outcome, took) = judged(async move { (story.run)(&subject).await }).await;
            entry(outcome, took)
        });
    }
    while let Some(entry) = running.join_next().await {
        report.add(entry.expect("a story catches its own panics"));
    }
    report.save_if_asked();
    report
}

impl Story {
    /// What becomes of it if it cannot be tried. That must have been announced: otherwise a claim that was
    /// lost by mistake would pass.
    fn left_out(&self, subject: &Subject, facts: &StoreFacts) -> Option<Outcome> {
        if self.needs == Needs::Processes && subject.processes.is_none() {
            return Some(match facts.scope {
                Scope::Process => Outcome::NotClaimed(
                    "one process cannot kill or pause another it is part of".to_owned(),
                ),
                wider => Outcome::Failed(format!(
                    "its scope is {wider}, and the test does not say how other processes come to it"
                )),
            });
        }
        let fact = self.claims.iter().find(|fact| !fact.is_claimed(facts))?;
        Some(match subject.lacks.contains(fact) {
            true => Outcome::NotClaimed(format!(
                "the store does not claim `{fact}`, so the trap is there"
            )),
            false => Outcome::Failed(format!(
                "`{fact}` is not claimed, and the test does not expect that"
            )),
        })
    }
}

/// Waits for a lock and writes down the grant at the moment it is heard of, whatever the story
/// does meanwhile.
fn serve(mut attempt: Attempt, request: LockRequest) -> JoinHandle<Result<(Attempt, Guard)>> {
    tokio::spawn(async move {
        let guard = request.await?;
        attempt.granted(&guard);
        Ok((attempt, guard))
    })
}

/// The surroundings of a story.
async fn stage(subject: &Subject, name: &str) -> Env {
    Env::named(subject, &facts_of(subject).await, name, Signals::AsTheyCome)
}

#[cfg(test)]
mod tests {
    use lockstep_lock::memory::Memory;

    use super::*;

    fn story(name: &str) -> &'static Story {
        STORIES.iter().find(|story| story.name == name).unwrap()
    }

    #[tokio::test]
    async fn a_story_that_is_left_out_by_mistake_fails() {
        let subject = Subject::new("memory", || Arc::new(Memory::new()));
        let facts = facts_of(&subject).await;
        let shared = story("starved_writer");
        assert_eq!(shared.left_out(&subject, &facts), None);
        let fewer = StoreFacts { shared: false, ..facts.clone() };
        assert!(matches!(shared.left_out(&subject, &fewer), Some(Outcome::Failed(_))));
        let announced = subject.clone().without(&[Fact::Shared]);
        assert!(matches!(shared.left_out(&announced, &fewer), Some(Outcome::NotClaimed(_))));

        let killed = story("holder_killed");
        assert!(matches!(killed.left_out(&subject, &facts), Some(Outcome::NotClaimed(_))));
        let wider = StoreFacts { scope: Scope::Machine, ..facts };
        assert!(matches!(killed.left_out(&subject, &wider), Some(Outcome::Failed(_))));
        let reached = subject.with_processes("url", "story_child");
        assert_eq!(killed.left_out(&reached, &wider), None);
    }
}
