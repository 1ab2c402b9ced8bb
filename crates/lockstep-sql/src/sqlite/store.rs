//! The lane: where verbs wait, and on which thread they run.
//!
//! With `synchronous=normal` a verb takes some microseconds and never waits for the disk: it runs
//! on the caller's thread, because a hop to another one would cost more than the verb. With
//! `synchronous=full` every commit waits for the disk, on a thread that may; except that of a release
//! that nobody waits for, which grants nothing.

use std::borrow::Borrow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lockstep_core::retry::Backoff;
use lockstep_core::{Effect, ErrorKind, StoreError};
use lockstep_lock::StoreFacts;
use lockstep_lock::store::{
    Answer, Claim, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use parking_lot::Mutex;
use uuid::Uuid;

use super::config::Synchronous;
use super::error::{Failure, STORE};
use super::open;
use super::table::Table;
use super::wake::{InboxId, Letterbox, Post};

/// How a verb that finds the file locked comes back, after the short patience of `open.rs`.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(20) };

/// For how long in total. A little less than the usual limit of one operation (2 s), so that the
/// caller gets this definite answer and not an unknown outcome.
const PATIENCE: Duration = Duration::from_millis(1_900);

/// What the short patience and the timer's grain add to each delay.
const PER_TRY: Duration = Duration::from_millis(2);

/// After how many commits a lane that never waits for the disk lets a thread do so.
const CHECKPOINT_EVERY: u32 = 1_000;

/// One lane.
pub(super) struct Lane {
    desk: Arc<Desk>,
    facts: StoreFacts,
    /// Where verbs take turns before they take a thread each.
    turn: Option<tokio::sync::Mutex<()>>,
    _letterbox: Option<Letterbox>,
}

/// What a verb needs, on whatever thread.
struct Desk {
    table: Mutex<Table>,
    inbox: Option<InboxId>,
    post: Arc<Post>,
    wake_folder: PathBuf,
    checkpoints: Option<Checkpoints>,
}

impl Lane {
    pub(super) fn new(
        table: Table,
        post: Arc<Post>,
        wake_folder: PathBuf,
        letterbox: Option<Letterbox>,
        facts: StoreFacts,
    ) -> Self {
        let synchronous = table.synchronous();
        let checkpoints =
            (synchronous == Synchronous::Normal).then(|| Checkpoints::of(table.path()));
        let inbox = letterbox.as_ref().map(|letterbox| letterbox.id);
        let table = Mutex::new(table);
        Self {
            desk: Arc::new(Desk { table, inbox, post, wake_folder, checkpoints }),
            facts,
            turn: (synchronous == Synchronous::Full).then(tokio::sync::Mutex::default),
            _letterbox: letterbox,
        }
    }

    async fn run<A, T>(
        &self,
        what: &A,
        verb: fn(&Desk, &A) -> Result<T, Failure>,
    ) -> Result<T, StoreError>
    where
        A: ToOwned<Owned: Send + 'static> + Sync + ?Sized + 'static,
        T: Send + 'static,
    {
        // A caller that only ever gets answers at once would never let others run.
        tokio::task::consume_budget().await;
        let mut patience = Patience::default();
        loop {
            let result = match &self.turn {
                None => verb(&self.desk, what),
                Some(turn) => {
                    let _turn = turn.lock().await;
                    let (desk, what) = (Arc::clone(&self.desk), what.to_owned());
                    on_thread(move || verb(&desk, what.borrow())).await
                }
            };
            match result {
                Ok(done) => return Ok(done),
                Err(failure) => patience.after(failure).await?,
            }
        }
    }
}

impl Lane {
    /// A long list would hold up the verbs: it is read on a thread, through its own connection.
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let mut patience = Patience::default();
        loop {
            let (reader, query) = (self.desk.table.lock().reader(), query.clone());
            match on_thread(move || reader.inspect(&query)).await {
                Ok(page) => return Ok(page),
                Err(failure) => patience.after(failure).await?,
            }
        }
    }
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        self.facts.clone()
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(self.run(claim, |desk, claim| {
            let (answer, told) = desk.table.lock().acquire(claim, desk.inbox)?;
            told.into_iter().for_each(|told| desk.post.tell(&desk.wake_folder, told));
            desk.committed();
            Ok(answer)
        }))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        Box::pin(self.run(holds, |desk, holds| {
            let renewals = desk.table.lock().renew(holds)?;
            desk.committed();
            Ok(renewals)
        }))
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            if let (Release::Mine(hold), Some(turn)) = (what, &self.turn) {
                // Here, and not on another thread, because it does not wait for the disk.
                let _turn = turn.lock().await;
                match self.desk.table.lock().release_without_disk(hold) {
                    Ok(true) => return Ok(Released::Done),
                    Err(Failure::Store(error)) => return Err(error),
                    // Somebody waits, or somebody else writes: the long way.
                    Ok(false) | Err(_) => {}
                }
            }
            let released = self.run(what, |desk, what| {
                let (released, told) = desk.table.lock().release(what)?;
                told.into_iter().for_each(|told| desk.post.tell(&desk.wake_folder, told));
                desk.committed();
                Ok(released)
            });
            released.await
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        match query {
            Query::One(_) | Query::WaitedForBy(_) => {
                Box::pin(self.run(query, |desk, query| desk.table.lock().inspect(query)))
            }
            Query::All { .. } => Box::pin(self.list(query)),
        }
    }
}

impl Desk {
    fn committed(&self) {
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.count();
        }
    }
}

/// Sleeps between tries on a locked file, without holding a thread, until it is enough.
#[derive(Default)]
pub(super) struct Patience {
    waited: Duration,
    tries: u32,
}

impl Patience {
    /// Returns when the step that failed may be tried again.
    pub(super) async fn after(&mut self, failure: Failure) -> Result<(), StoreError> {
        if let Failure::Store(error) = failure {
            return Err(error);
        }
        if self.waited >= PATIENCE {
            let message = format!("others have been writing the file for {:?}", self.waited);
            return Err(StoreError::new(STORE, ErrorKind::Busy, Effect::None, message));
        }
        self.tries += 1;
        let delay = BACKOFF.delay(self.tries, Uuid::new_v4().as_u128() as u64);
        self.waited += delay + PER_TRY;
        tokio::time::sleep(delay).await;
        Ok(())
    }
}

/// Runs what may wait for the disk.
pub(super) async fn on_thread<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(step).await.unwrap_or_else(|error| {
        let message = "the thread of the operation ended early";
        let error = StoreError::new(STORE, ErrorKind::Unavailable, Effect::Unknown, message)
            .with_source(error);
        Err(Failure::Store(error))
    })
}

/// Moves the log into the database from time to time, on a thread: that waits for the disk.
struct Checkpoints {
    path: PathBuf,
    commits: AtomicU32,
    running: Arc<AtomicBool>,
}

impl Checkpoints {
    fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), commits: AtomicU32::new(0), running: Arc::default() }
    }

    fn count(&self) {
        let commits = self.commits.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if !commits.is_multiple_of(CHECKPOINT_EVERY) || self.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let (path, running) = (self.path.clone(), Arc::clone(&self.running));
        let work = move || {
            if let Err(failure) = open::checkpoint(&path) {
                tracing::debug!(?failure, "the log was not checkpointed");
            }
            running.store(false, Ordering::Release);
        };
        // Verbs sleep, so they run in a runtime; but a log that grows is no reason to panic.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(work)),
            Err(_) => self.running.store(false, Ordering::Release),
        }
    }
}
