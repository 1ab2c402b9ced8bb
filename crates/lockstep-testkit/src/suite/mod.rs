//! The conformance suite of [`LockStore`](lockstep_lock::store::LockStore): one for all stores.
//!
//! An adapter's own test file is about ten lines:
//!
//! ```
//! use std::sync::Arc;
//! use lockstep_lock::memory::Memory;
//! use lockstep_testkit::suite::{self, Subject};
//!
//! # async fn doc() {
//! let store = Memory::new();
//! let subject = Subject::new("memory", move || Arc::new(store.clone()));
//! suite::run(&subject).await.assert_passed();
//! # }
//! ```
//!
//! A store that cannot promise everything says so in its `facts()`, and its test says so too, with
//! [`Subject::without`]: what a store does not claim is not tried, and a claim that was lost by mistake would
//! pass otherwise.
//!
//! Cases are on two levels. Those about *verbs* ask the store directly; those about the *handle*
//! use [`Locks`](lockstep_lock::Locks) and run three times: as the store is, with signals that
//! never come, and with signals that come all the time. (A verb listens to no signal, so there is
//! nothing to repeat.)
//!
//! What every case keeps to: keys of its own, so that all can run at once; no assertion about how
//! fast anything is, only about order and generous bounds; where a short lease is part of the
//! case, a run that the machine was too slow for is void and repeated, not judged.

pub(crate) mod case;
pub(crate) mod client;
pub(crate) mod env;
mod handle;
mod report;
mod subject;
mod verbs;

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use case::Fact;
pub use env::Signals;
use env::{Env, facts_of};
pub use report::{Entry, Matrix, Outcome, REPORTS_ENV, Report};
pub use subject::Subject;

/// Runs every case on the store and reports. Prints a line per case as it ends.
///
/// # Panics
/// If the store cannot even be opened.
pub async fn run(subject: &Subject) -> Report {
    run_some(subject, "").await
}

/// The same for the cases whose names contain `part`: for working on one of them.
///
/// # Panics
/// If the store cannot even be opened.
pub async fn run_some(subject: &Subject, part: &str) -> Report {
    let facts = facts_of(subject).await;
    let turns = Arc::new(Semaphore::new(subject.parallel));
    let mut running = JoinSet::new();
    let mut report = Report::new("case", &subject.name, Some(facts.clone()));
    for case in verbs::cases().chain(handle::cases()).filter(|case| case.name.contains(part)) {
        for signals in case.signals() {
            if !case.backs.iter().all(|fact| fact.is_claimed(&facts)) {
                report.add(Entry::not_claimed(case, signals));
                continue;
            }
            let env = Env::new(subject, &facts, case, signals);
            let turns = Arc::clone(&turns);
            running.spawn(async move {
                let _turn = turns.acquire().await;
                case.run(env, signals).await
            });
        }
    }
    while let Some(entry) = running.join_next().await {
        report.add(entry.expect("a case catches its own panics"));
    }
    if part.is_empty() {
        report.look_for_facts_without_cases();
        report.look_for_unexpected_refusals(&subject.lacks);
    }
    report.save_if_asked();
    report
}
