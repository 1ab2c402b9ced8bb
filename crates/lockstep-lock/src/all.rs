//! Several locks as one: all or none, in one order for everybody, and one loss ends all.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all, select_all};
use lockstep_core::time::Moment;
use lockstep_core::{Key, KeyError};

use crate::error::{LockError, Lost};
use crate::guard::{Guard, run_trusted};
use crate::locks::Locks;
use crate::request::{Request, Terms, options};
use crate::share::Share;

/// Several locks that are being asked for: set what matters, then `.await` it.
///
/// They are taken in the order of their names, so that two callers who want the same ones in
/// whatever order do not wait for each other in a circle. Those that are held already are renewed
/// while the next is waited for.
///
/// # Cancel safety
/// As for a single lock: dropping the future gives back what is held and every place in a queue.
#[must_use = "a request does nothing until it is awaited"]
pub struct LockAllRequest(All);

/// The same for locks that are not waited for.
#[must_use = "a request does nothing until it is awaited"]
pub struct TryLockAllRequest(All);

struct All {
    locks: Locks,
    keys: Result<BTreeSet<Key>, KeyError>,
    terms: Terms,
    within: Option<Duration>,
    wait: bool,
}

options!(LockAllRequest);
options!(TryLockAllRequest);

impl LockAllRequest {
    pub(crate) fn new(locks: &Locks, names: impl IntoIterator<Item: AsRef<str>>) -> Self {
        Self(All::new(locks, names, true))
    }

    /// Waits at most this long for all of them together; the default is for ever.
    pub fn within(mut self, limit: Duration) -> Self {
        self.0.within = Some(limit);
        self
    }
}

impl TryLockAllRequest {
    pub(crate) fn new(locks: &Locks, names: impl IntoIterator<Item: AsRef<str>>) -> Self {
        Self(All::new(locks, names, false))
    }
}

impl IntoFuture for LockAllRequest {
    type Output = Result<Guards, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async {
            let guards = self.0.acquire().await?;
            Ok(guards.expect("invariant: a claim that waits is never answered busy"))
        })
    }
}

impl IntoFuture for TryLockAllRequest {
    type Output = Result<Option<Guards>, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.0.acquire())
    }
}

impl All {
    fn new(locks: &Locks, names: impl IntoIterator<Item: AsRef<str>>, wait: bool) -> Self {
        let keys = names.into_iter().map(Key::new).collect();
        Self { locks: locks.clone(), keys, terms: Terms::of(locks), within: None, wait }
    }

    /// Ends with all of them, or with none.
    async fn acquire(self) -> Result<Option<Guards>, LockError> {
        let mut held = Guards::default();
        match self.take_each(&mut held).await {
            Ok(true) => Ok(Some(held)),
            no => {
                if let Err(error) = held.release().await {
                    tracing::warn!(%error, "giving back the locks that were already held");
                }
                no.map(|_| None)
            }
        }
    }

    async fn take_each(self, held: &mut Guards) -> Result<bool, LockError> {
        let Self { locks, keys, terms, within, wait } = self;
        let clock = locks.clock();
        let deadline = within.map(|limit| clock.now() + limit);
        for key in keys? {
            let (locks, terms) = (locks.clone(), terms.clone());
            let within = deadline.map(|deadline| deadline.since(clock.now()));
            let request =
                Request { locks, key: Ok(key), share: Share::Exclusive, terms, within, wait };
            // One that is lost while another is waited for ends the whole.
            match held.run(request.acquire()).await?? {
                Some(guard) => held.0.push(guard),
                None => return Ok(false),
            }
        }
        held.check()?;
        Ok(true)
    }
}

/// Several locks that are held together. It may be acted upon as long as every one of them may.
///
/// Dropping it releases all of them without blocking, in the background.
#[must_use = "the locks are released when the guards are dropped"]
#[derive(Default)]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// Each of them, in the order of their names; their tokens are told there.
    pub fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.0.iter()
    }

    /// The one with this name.
    pub fn get(&self, name: &str) -> Option<&Guard> {
        self.0.iter().find(|guard| guard.key().as_str() == name)
    }

    /// Whether all of them may be acted upon; see [`Guard::is_trusted`].
    pub fn is_trusted(&self) -> bool {
        self.0.iter().all(Guard::is_trusted)
    }

    /// Until when all of them may be acted upon if no further renewal succeeds.
    pub fn trusted_until(&self) -> Moment {
        self.0.iter().map(Guard::trusted_until).min().unwrap_or(Moment::MAX)
    }

    /// The same as an error, for `?`.
    ///
    /// # Errors
    /// [`Lost`] names the first one that is.
    pub fn check(&self) -> Result<(), Lost> {
        self.0.iter().try_for_each(Guard::check)
    }

    /// Resolves when trust in one of them has ended, and says which.
    ///
    /// # Cancel safety
    /// Safe; nothing is lost by dropping it.
    pub async fn lost(&self) -> Lost {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.0.iter().map(|guard| Box::pin(guard.lost()))).await.0
    }

    /// Runs `work` and stops it (drops its future) when trust in one of them ends first.
    ///
    /// # Errors
    /// [`Lost`], if trust ended before the work did, also within its last step.
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the locks stay held.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_trusted(|| self.check(), self.lost(), work).await
    }

    /// Gives all of them back and waits until the store has them.
    ///
    /// # Errors
    /// The first failure, as [`Guard::release`] tells it; the others are given back all the same.
    ///
    /// # Cancel safety
    /// Safe: if dropped, the releases go on in the background.
    pub async fn release(self) -> Result<(), LockError> {
        let released = join_all(self.0.into_iter().map(Guard::release)).await;
        released.into_iter().collect()
    }
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}
