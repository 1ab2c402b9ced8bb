use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::future::join;
use lockstep_core::time::Moment;
use lockstep_core::{Key, Lease, Owner, Token};
use tracing::{Instrument, Span, debug_span};

use crate::drive::bounded;
use crate::error::{LockError, Lost};
use crate::facts::Origin;
use crate::keeper::Trust;
use crate::leaked::Leaked;
use crate::locks::Inner;
use crate::share::Share;
use crate::stake::Stake;
use crate::store::{Claim, Release, Released};

/// A held lock.
///
/// **The promise**: for a lease that runs out, with no data loss in the store and no step of its
/// clock, [`is_trusted`](Self::is_trusted) turns false before anybody else can be granted. The
/// lease is renewed in the background, by a thread of its own, every third of its ttl.
///
/// Dropping a guard releases it without blocking, in the background; [`release`](Self::release)
/// waits for the store to say so. At the end of a program use that, or
/// [`Locks::close`](crate::Locks::close): a process that exits takes its background work with it,
/// and then only the ttl frees the lock.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    held: Arc<Held>,
}

/// What all guards of one owner on one key share; the last one gives it back.
pub(crate) struct Held {
    stint: Stint,
    token: Option<Token>,
    trust: Arc<Trust>,
    stake: Stake,
    downgraded: AtomicBool,
}

/// From the grant to the end.
struct Stint {
    inner: Arc<Inner>,
    claim: Claim,
    since: Moment,
    _span: Span,
}

impl Held {
    fn share(&self) -> Share {
        match self.downgraded.load(Ordering::SeqCst) {
            true => Share::Read,
            false => self.stint.claim.share,
        }
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.stint.inner.clock.now() < self.trust.until()
    }

    fn key(&self) -> &Key {
        &self.stint.claim.key
    }
}

impl Drop for Stint {
    fn drop(&mut self) {
        // Ends the trust of nobody: a guard that could look is what kept this alive. The stake,
        // dropped after this, stops the renewals first and then queues the release.
        self.inner.meters.held(self.inner.clock.now().since(self.since));
        self.inner.reentry.left(&self.claim.key, self.claim.owner);
    }
}

impl Guard {
    pub(crate) fn new(
        inner: Arc<Inner>,
        claim: Claim,
        stake: Stake,
        token: Option<Token>,
        lease: Lease,
        limit: Moment,
    ) -> Self {
        let trust = inner.keeper.keep(stake.hold().clone(), lease, limit);
        let since = inner.clock.now();
        // Not a child of the caller's: a span does not end before its children, and a lock that is held for
        // days would keep open the one in which it was taken.
        let _span = debug_span!(
            parent: None, "hold",
            key = %claim.key, claim = %claim.id, token = token.map(Token::get)
        );
        _span.follows_from(Span::current());
        let (stint, downgraded) = (Stint { inner, claim, since, _span }, AtomicBool::new(false));
        let held = Held { stint, token, trust, stake, downgraded };
        Self { held: Arc::new(held) }
    }

    pub(crate) fn again(held: Arc<Held>) -> Self {
        Self { held }
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// The key.
    pub fn key(&self) -> &Key {
        self.held.key()
    }

    /// Who holds it.
    pub fn owner(&self) -> Owner {
        self.held.stint.claim.owner
    }

    /// How much of the lock it holds.
    pub fn share(&self) -> Share {
        self.held.share()
    }

    /// The fencing token, to be sent along with every write that the lock protects; `None` where
    /// the store cannot count. See [`StoreFacts::fencing`](crate::StoreFacts).
    pub fn token(&self) -> Option<Token> {
        self.held.token
    }

    /// The name of the store that granted it.
    pub fn store(&self) -> &'static str {
        self.held.stint.inner.facts.store
    }

    /// Which store of that name it was; a token means nothing without.
    pub fn origin(&self) -> &Origin {
        &self.held.stint.inner.facts.origin
    }

    /// Whether the lock may be acted upon. Reads the clock each time; this is the promise itself.
    pub fn is_trusted(&self) -> bool {
        self.held.is_trusted()
    }

    /// Until when the lock may be acted upon if no further renewal succeeds, on the clock of the
    /// handle; moves on with every renewal.
    pub fn trusted_until(&self) -> Moment {
        self.held.trust.until()
    }

    /// The same as an error, for `?`.
    ///
    /// # Errors
    /// [`Lost`], if trust has ended.
    pub fn check(&self) -> Result<(), Lost> {
        if self.is_trusted() { Ok(()) } else { Err(self.why_lost()) }
    }

    /// Resolves when trust has ended.
    ///
    /// # Cancel safety
    /// Safe; nothing is lost by dropping it.
    pub async fn lost(&self) -> Lost {
        let cause = self.held.trust.ended().await;
        Lost { key: self.held.key().clone(), cause }
    }

    /// Runs `work` and stops it (drops its future) when trust ends first: the clock is read before each
    /// step of it. What is already on its way to a database then may still arrive: send the
    /// [`token`](Self::token) with it.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let locks = lockstep_lock::Locks::open(lockstep_lock::memory::Memory::new()).await?;
    /// let guard = locks.lock("report").await?;
    /// let total = guard.run(async { 40 + 2 }).await?;
    /// assert_eq!(total, 42);
    /// guard.release().await?;
    /// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Lost`], if trust ended before the work did, also within its last step.
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the lock stays held by the guard.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_trusted(|| self.check(), self.lost(), work).await
    }

    /// Gives the lock back and waits until the store has it. If other guards of the same owner
    /// are alive, only this one ends.
    ///
    /// # Errors
    /// [`LockError::NotHeld`] if the lease had run out before: somebody else may have held the
    /// lock meanwhile. A store error means that the outcome is unknown; it is tried again in the
    /// background.
    ///
    /// # Cancel safety
    /// Safe: if dropped, the release goes on in the background.
    pub async fn release(self) -> Result<(), LockError> {
        let Some(held) = Arc::into_inner(self.held) else { return Ok(()) };
        let was_trusted = held.is_trusted();
        let Held { stint, mut stake, trust, .. } = held;
        let inner = Arc::clone(&stint.inner);
        let id = stake.hold().id;
        inner.keeper.returns(id);
        let what = Release::Mine(stake.hold().clone());
        let span = debug_span!("release", key = %what.key(), claim = %id);
        let mut rest = Some((stint, trust));
        let mut unsure = false;
        loop {
            let verb = bounded(inner.facts.store, inner.op_timeout, inner.store.release(&what));
            // The rest is put away while the store works; nobody has to wait for that afterwards.
            let put_away = async { drop(rest.take()) };
            let (answer, ()) = join(verb.instrument(span.clone()), put_away).await;
            match answer {
                Ok(Released::Done) => {
                    stake.settled();
                    inner.keeper.returned(id);
                    return Ok(());
                }
                Ok(Released::NotHeld) => {
                    stake.settled();
                    inner.keeper.returned(id);
                    // After a lost reply "nothing to give back" is what success looks like; not to
                    // who had lost it before.
                    let (given_back, key) = (unsure && was_trusted, what.key().clone());
                    return if given_back { Ok(()) } else { Err(LockError::NotHeld { key }) };
                }
                // Once more at once, for a connection that broke while it was idle; beyond that
                // the keeper goes on, and the caller shall know.
                Err(error) if error.may_retry() && !unsure => unsure = true,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Becomes a reader of a lock that is held for writing, and lets in the readers that wait. The
    /// token stays the same. A reader's guard stays what it is. There is no way back:
    /// see [`Locks::read`](crate::Locks::read).
    ///
    /// # Errors
    /// [`LockError::Reentered`] if other guards of the same owner still rely on writing;
    /// [`LockError::NotHeld`] if the lease had run out before. After a store error the outcome is
    /// unknown: the guard may only be relied on for reading, and this may be called again.
    ///
    /// # Cancel safety
    /// If dropped, the outcome is unknown, as after a store error.
    pub async fn downgrade(&mut self) -> Result<(), LockError> {
        let held = &self.held;
        let key = || held.key().clone();
        match held.stint.claim.share {
            Share::Exclusive => {}
            Share::Read => return Ok(()),
            Share::Permits { count, of } => return Err(LockError::Permits { count, of }),
        }
        // Before the count is read: who enters again sees it, or is seen here.
        let before = held.downgraded.swap(true, Ordering::SeqCst);
        if !before && Arc::strong_count(held) > 1 {
            held.downgraded.store(false, Ordering::SeqCst);
            return Err(LockError::Reentered { key: key() });
        }
        let inner = &held.stint.inner;
        let what = Release::Downgrade(held.stake.hold().clone());
        let mut tried = false;
        loop {
            let verb = inner.store.release(&what);
            match bounded(inner.facts.store, inner.op_timeout, verb).await {
                Ok(Released::Done) => return Ok(()),
                Ok(Released::NotHeld) => return Err(LockError::NotHeld { key: key() }),
                Err(error) if error.may_retry() && !tried => tried = true,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Stops looking after the lock without giving it back, and names it so that somebody else
    /// can [`adopt`](crate::Locks::adopt) it, in this process or in another. Unless adopted, it
    /// runs out by itself. A [`max_hold`](crate::LockRequest::max_hold) is not handed over: what looks after
    /// the lock next decides for itself.
    ///
    /// # Errors
    /// Other guards of the same owner still use it, trust in it has ended, or the store cannot hand locks over
    /// ([`StoreFacts::hands_over`](crate::StoreFacts)). The guard comes back as it was; to drop it gives the lock
    /// back, so whoever wants the lease to run out keeps it until then.
    pub fn leak(self) -> Result<Leaked, Self> {
        // What is lost stays lost, although the store may have it for some time yet.
        if !self.held.stint.inner.facts.hands_over || !self.is_trusted() {
            return Err(self);
        }
        match Arc::try_unwrap(self.held) {
            Err(held) => Err(Self { held }),
            Ok(mut held) => {
                held.stint.inner.keeper.forget(held.stake.hold().id);
                held.stake.settled();
                let claim = Claim { share: held.share(), ..held.stint.claim.clone() };
                Ok(Leaked { claim, token: held.token })
            }
        }
    }

    fn why_lost(&self) -> Lost {
        Lost { key: self.held.key().clone(), cause: self.held.trust.cause() }
    }
}

/// Stops the work (drops its future) when the loss comes first. `lost` wakes it up; what decides is `check`,
/// because after a pause the work may be polled before anybody has noticed the loss.
pub(crate) async fn run_trusted<F: Future>(
    check: impl Fn() -> Result<(), Lost>,
    lost: impl Future<Output = Lost>,
    work: F,
) -> Result<F::Output, Lost> {
    let mut work = pin!(work);
    let step = poll_fn(|context| {
        if let Err(lost) = check() {
            return Poll::Ready(Err(lost));
        }
        work.as_mut().poll(context).map(|output| check().map(|()| output))
    });
    tokio::select! {
        biased;
        lost = lost => Err(lost),
        output = step => output,
    }
}

/// For what takes a guard of any kind.
impl AsRef<Guard> for Guard {
    fn as_ref(&self) -> &Guard {
        self
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", self.key())
            .field("share", &self.share())
            .field("token", &self.token())
            .field("trusted", &self.is_trusted())
            .finish_non_exhaustive()
    }
}
