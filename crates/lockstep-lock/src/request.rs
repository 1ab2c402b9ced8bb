use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, TryFutureExt};
use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Key, KeyError, Label, Owner, Token};
use tracing::{Instrument, field};

use crate::deadlock::{self, Deadlock};
use crate::drive::{self, Outcome};
use crate::error::LockError;
use crate::facts::Need;
use crate::guard::Guard;
use crate::locks::{Defaults, Locks};
use crate::share::Share;
use crate::store::Claim;

/// A lock that is being asked for: set what matters, then `.await` it.
///
/// # Cancel safety
/// Dropping the future at any point leaves nothing behind: a place in the queue or a lock that was
/// just granted is given back in the background, and at the latest by its ttl.
#[must_use = "a request does nothing until it is awaited"]
pub struct LockRequest(Request);

/// The same for a lock that is not waited for.
#[must_use = "a request does nothing until it is awaited"]
pub struct TryLockRequest(Request);

/// One lock, asked for once.
pub(crate) struct Request {
    pub(crate) locks: Locks,
    pub(crate) key: Result<Key, KeyError>,
    pub(crate) share: Share,
    pub(crate) terms: Terms,
    pub(crate) within: Option<Duration>,
    pub(crate) wait: bool,
}

/// What can be set for one lock and for several.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) owner: Option<Owner>,
    pub(crate) ttl: Duration,
    pub(crate) label: Label,
    pub(crate) max_hold: Option<Duration>,
}

impl Terms {
    pub(crate) fn of(locks: &Locks) -> Self {
        let Defaults { ttl, label } = locks.defaults.clone();
        Self { owner: None, ttl, label, max_hold: None }
    }
}

macro_rules! options {
    ($request:ident) => {
        impl $request {
            /// Asks as this owner: if it already holds the key through this handle, it enters
            /// again, with the same token. The lock keeps the ttl, the label and the maximum hold
            /// with which it was taken first, whatever is said here.
            pub fn owner(mut self, owner: &lockstep_core::Owner) -> Self {
                self.0.terms.owner = Some(*owner);
                self
            }

            /// How long the store lets the lease live without a renewal. Renewals are sent every
            /// third of it, so it bounds how long a crashed holder blocks others, not the work.
            pub fn ttl(mut self, ttl: Duration) -> Self {
                self.0.terms.ttl = ttl;
                self
            }

            /// What people see when they ask who holds it.
            pub fn label(mut self, label: impl AsRef<str>) -> Self {
                self.0.terms.label = lockstep_core::Label::new(label);
                self
            }

            /// Trust ends after this long, renewals or not: for work that may hang.
            pub fn max_hold(mut self, limit: Duration) -> Self {
                self.0.terms.max_hold = Some(limit);
                self
            }
        }
    };
}

pub(crate) use options;

options!(LockRequest);
options!(TryLockRequest);

impl LockRequest {
    pub(crate) fn new(locks: &Locks, name: &str, share: Share) -> Self {
        Self(Request::new(locks, name, share, true))
    }

    /// Waits at most this long, store and all; the default is for ever.
    pub fn within(mut self, limit: Duration) -> Self {
        self.0.within = Some(limit);
        self
    }

    /// Acquires, runs `work`, stops it if the lock is lost, and releases on every path.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let locks = lockstep_lock::Locks::open(lockstep_lock::memory::Memory::new()).await?;
    /// let answer = locks.lock("order:42").run(async |guard| guard.token()).await?;
    /// assert!(answer.is_some());
    /// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As for awaiting the request, and [`LockError::Lost`] if the lock was lost before the work
    /// was done. If the work was done and only the release failed, the output is returned: the
    /// release goes on in the background.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, LockError> {
        let guard = self.await?;
        let output = guard.run(work(&guard)).await?;
        if let Err(error) = guard.release().await {
            tracing::warn!(%error, "release after the work");
        }
        Ok(output)
    }
}

impl TryLockRequest {
    pub(crate) fn new(locks: &Locks, name: &str, share: Share) -> Self {
        Self(Request::new(locks, name, share, false))
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<Guard, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.0.acquire_or_wait())
    }
}

impl IntoFuture for TryLockRequest {
    type Output = Result<Option<Guard>, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.0.acquire())
    }
}

impl Request {
    pub(crate) fn new(locks: &Locks, name: &str, share: Share, wait: bool) -> Self {
        Self {
            locks: locks.clone(),
            key: Key::new(name),
            share,
            terms: Terms::of(locks),
            within: None,
            wait,
        }
    }

    /// For one that waits.
    pub(crate) fn acquire_or_wait(self) -> impl Future<Output = Result<Guard, LockError>> {
        let never_busy = "invariant: a claim that waits is never answered busy";
        self.acquire().map_ok(move |guard| guard.expect(never_busy))
    }

    // What is rare is boxed in here, so that the future of a lock that is free stays small: it is
    // allocated, and touched, for every lock.
    #[expect(clippy::manual_async_fn, reason = "`async fn` keeps its arguments twice")]
    pub(crate) fn acquire(self) -> impl Future<Output = Result<Option<Guard>, LockError>> {
        async move {
            let claim = self.claim()?;
            let started = self.locks.inner.clock.now();
            // Permits are counted: having some is no reason not to need more.
            let counted = matches!(self.share, Share::Permits { .. });
            match self.terms.owner.is_some() && !counted {
                true => Box::pin(self.enter(&claim, started)).await,
                false => self.ask(&claim, started).await,
            }
        }
    }

    /// What the store will be asked for, if it may be.
    fn claim(&self) -> Result<Claim, LockError> {
        let key = self.key.clone()?;
        let inner = &self.locks.inner;
        self.check_share()?;
        inner.check_ttl(self.terms.ttl)?;
        if inner.keeper.is_closed() {
            return Err(LockError::Closed);
        }
        let id = ClaimId::new();
        let Terms { owner, ttl, label, .. } = self.terms.clone();
        // Nobody can enter again as an owner that nobody has named: any value of its own will do.
        let owner = owner.unwrap_or(Owner::from_u128(id.as_u128()));
        Ok(Claim { id, key, owner, label, share: self.share, ttl, wait: self.wait })
    }

    fn deadline(&self, started: Moment) -> Option<Moment> {
        self.within.map(|limit| started + limit)
    }

    /// Asks as an owner that may have the lock already, after what else asks as it.
    async fn enter(&self, claim: &Claim, started: Moment) -> Result<Option<Guard>, LockError> {
        let inner = &self.locks.inner;
        let key = || claim.key.clone();
        let entry = inner.reentry.entry(&claim.key, claim.owner);
        let turn = match (self.wait, self.deadline(started)) {
            (false, _) => match entry.try_turn() {
                Some(turn) => turn,
                None => return Ok(None),
            },
            (true, None) => entry.turn().await,
            (true, Some(deadline)) => tokio::select! {
                turn = entry.turn() => turn,
                () = drive::sleep_until(&*inner.clock, deadline) => {
                    let waited = inner.clock.now().since(started);
                    return Err(LockError::TimedOut { key: key(), waited, ahead: None });
                }
            },
        };
        if let Some(guard) = turn.enter_again() {
            if self.share == Share::Exclusive && guard.share() == Share::Read {
                return Err(LockError::Upgrade { key: key() });
            }
            return Ok(Some(guard));
        }
        let guard = self.ask(claim, started).await?;
        if let Some(guard) = &guard {
            turn.entered(guard);
        }
        Ok(guard)
    }

    fn check_share(&self) -> Result<(), LockError> {
        if self.share != Share::Exclusive {
            self.locks.require(Need::Shared)?;
        }
        match self.share {
            Share::Permits { count, of } if Share::from_numbers(count, of) != Some(self.share) => {
                Err(LockError::Permits { count, of })
            }
            _ => Ok(()),
        }
    }

    async fn ask(&self, claim: &Claim, started: Moment) -> Result<Option<Guard>, LockError> {
        let inner = &self.locks.inner;
        // Only an owner that was named can hold something else.
        let looks = self.wait && self.terms.owner.is_some() && inner.facts.deadlocks;
        let deadlock: BoxFuture<'_, Deadlock> = match looks {
            true => Box::pin(deadlock::watch(inner, claim.owner, claim.id)),
            false => Box::pin(std::future::pending()),
        };
        let span =
            tracing::debug_span!("lock", key = %claim.key, claim = %claim.id, token = field::Empty);
        let asked = drive::acquire(inner, claim, started, self.deadline(started)).instrument(span);
        let mut asked = pin!(asked);
        let outcome = tokio::select! {
            biased;
            outcome = &mut asked => outcome?,
            deadlock = deadlock => return Err(deadlock.into()),
        };
        match outcome {
            Outcome::Busy => Ok(None),
            Outcome::Held { stake, token, lease } => {
                // In this span and no other: the current one may be the caller's own.
                asked.span().record("token", token.map(Token::get));
                let limit = match self.terms.max_hold {
                    Some(limit) => inner.clock.now() + limit,
                    None => Moment::MAX,
                };
                let inner = Arc::clone(inner);
                Ok(Some(Guard::new(inner, claim.clone(), stake, token, lease, limit)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    /// The largest piece of memory that glibc keeps ready for each thread; a larger one is looked for
    /// among all that is free, and costs a free lock on Redis a hundredth of its time.
    const KEPT_READY: usize = 1032;

    #[tokio::test]
    async fn the_future_of_a_lock_is_small() {
        let locks = Locks::open(Memory::new()).await.unwrap();
        let request = Request::new(&locks, "k", Share::Exclusive, true).acquire_or_wait();
        let size = size_of_val(&request);
        assert!(size <= KEPT_READY, "{size} bytes");
    }
}
