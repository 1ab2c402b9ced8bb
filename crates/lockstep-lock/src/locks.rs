use std::sync::Arc;
use std::time::Duration;

use lockstep_core::time::{Clock, Moment};
use lockstep_core::{Drift, Effect, ErrorKind, Key, Label, Lease, StoreError, Token};

use crate::all::{LockAllRequest, TryLockAllRequest};
use crate::clock::SystemClock;
use crate::drive::bounded;
use crate::election::Election;
use crate::error::{LockError, Lost, LostCause};
use crate::facts::{Need, StoreFacts};
use crate::guard::Guard;
use crate::inbox::Inbox;
use crate::keeper::{self, Keeper};
use crate::leaked::Leaked;
use crate::meters::Meters;
use crate::permits::Permits;
use crate::reentry::Reentry;
use crate::request::{LockRequest, TryLockRequest};
use crate::share::Share;
use crate::stake::Stake;
use crate::store::{
    Answer, Claim, Connect, LockStore, LockView, Page, Query, Release, Released, Renewal,
};

/// The default ttl.
pub const DEFAULT_TTL: Duration = Duration::from_secs(10);
/// The default limit of one store operation.
pub const DEFAULT_OP_TIMEOUT: Duration = Duration::from_secs(2);

/// A handle to the locks of one store. Cloning is cheap; the clones share connections, the
/// renewal thread and the owners' re-entry counts.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
/// use lockstep_lock::{Locks, memory::Memory};
///
/// let locks = Locks::open(Memory::new()).await?;
/// let guard = locks.lock("order:42").within(Duration::from_secs(5)).await?;
/// assert!(guard.is_trusted());
/// println!("writes carry the token {:?}", guard.token());
/// guard.release().await?;
/// locks.close().await;
/// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Locks {
    pub(crate) inner: Arc<Inner>,
    pub(crate) defaults: Defaults,
}

#[derive(Clone)]
pub(crate) struct Defaults {
    pub(crate) ttl: Duration,
    pub(crate) label: Label,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) facts: StoreFacts,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) drift: Drift,
    pub(crate) op_timeout: Duration,
    pub(crate) inbox: Inbox,
    pub(crate) keeper: Keeper,
    pub(crate) reentry: Reentry,
    pub(crate) meters: Meters,
}

/// What a handle is opened with; the default is right outside tests.
pub struct Options {
    /// The clock that trust is read from.
    pub clock: Arc<dyn Clock>,
    /// What the store's clock may be off against it.
    pub drift: Drift,
    /// The limit of one store operation.
    pub op_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let clock = Arc::new(SystemClock);
        Self { clock, drift: Drift::default(), op_timeout: DEFAULT_OP_TIMEOUT }
    }
}

impl Locks {
    /// Opens a handle on a store.
    ///
    /// # Errors
    /// The store cannot be reached, or refuses.
    pub async fn open(store: impl Connect) -> Result<Self, LockError> {
        Self::open_with(Arc::new(store), Options::default()).await
    }

    /// The same with another clock, drift or time limit.
    ///
    /// # Errors
    /// The store cannot be reached, or refuses.
    pub async fn open_with(store: Arc<dyn Connect>, options: Options) -> Result<Self, LockError> {
        let Options { clock, drift, op_timeout } = options;
        let inbox = Inbox::with_clock(Arc::clone(&clock));
        let opening = store.open(Some(inbox.clone()));
        let lane = bounded("store", op_timeout * keeper::OPENING, opening).await?;
        let facts = lane.facts();
        let setup = keeper::Setup { store: facts.store, clock: clock.clone(), drift, op_timeout };
        let keeper = Keeper::start(store, setup)?;
        inbox.on_lost(keeper.on_broken());
        for warning in &facts.warnings {
            tracing::warn!(store = facts.store, "{warning}");
        }
        let reentry = Reentry::default();
        let meters = Meters::of(facts.store);
        let inner =
            Inner { store: lane, facts, clock, drift, op_timeout, inbox, keeper, reentry, meters };
        let defaults = Defaults { ttl: DEFAULT_TTL, label: default_label() };
        Ok(Self { inner: Arc::new(inner), defaults })
    }

    /// This handle with another default ttl.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.defaults.ttl = ttl;
        self
    }

    /// This handle with another default label; it starts as host, process id and program.
    #[must_use]
    pub fn with_label(mut self, label: impl AsRef<str>) -> Self {
        self.defaults.label = Label::new(label);
        self
    }

    /// Asks for a lock and waits for it, in the order of arrival.
    pub fn lock(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest::new(self, name.as_ref(), Share::Exclusive)
    }

    /// Asks once; `None` means that somebody else has it, or waits for it.
    pub fn try_lock(&self, name: impl AsRef<str>) -> TryLockRequest {
        TryLockRequest::new(self, name.as_ref(), Share::Exclusive)
    }

    /// Asks for a lock that any number of readers hold together, and waits for it. Readers and
    /// writers are served in the order they came, so neither starves: a reader does not pass a
    /// writer that waits. All readers up to the next writer are granted together.
    ///
    /// A reader cannot become a writer without releasing first: two who tried would wait for each
    /// other for ever. A writer can become a reader: [`Guard::downgrade`].
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let locks = lockstep_lock::Locks::open(lockstep_lock::memory::Memory::new()).await?;
    /// let (one, other) = (locks.read("prices").await?, locks.read("prices").await?);
    /// assert!(locks.try_lock("prices").await?.is_none());
    /// one.release().await?;
    /// other.release().await?;
    /// let mut guard = locks.write("prices").await?;
    /// // change them, and then let readers in
    /// guard.downgrade().await?;
    /// assert!(locks.try_read("prices").await?.is_some());
    /// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
    /// ```
    pub fn read(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest::new(self, name.as_ref(), Share::Read)
    }

    /// Asks once; `None` means that a writer has it, or waits for it.
    pub fn try_read(&self, name: impl AsRef<str>) -> TryLockRequest {
        TryLockRequest::new(self, name.as_ref(), Share::Read)
    }

    /// Another name of [`lock`](Self::lock), for locks that have readers too.
    pub fn write(&self, name: impl AsRef<str>) -> LockRequest {
        self.lock(name)
    }

    /// A lock that is made of `of` permits: together, at most so many are held at a time. All
    /// callers must say the same total, or they get [`LockError::Differs`]; it may change when
    /// nobody holds any.
    ///
    /// The tokens of permits tell holders apart, but a fence that compares them cannot be used:
    /// several hold at the same time.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let locks = lockstep_lock::Locks::open(lockstep_lock::memory::Memory::new()).await?;
    /// let printers = locks.permits("printers", 5);
    /// let three = printers.acquire(3).await?;
    /// assert!(printers.try_acquire(3).await?.is_none());
    /// let two = printers.acquire(2).await?;
    /// # three.release().await?;
    /// # two.release().await?;
    /// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
    /// ```
    pub fn permits(&self, name: impl AsRef<str>, of: u32) -> Permits {
        Permits::new(self, name.as_ref(), of)
    }

    /// Asks for a share that is only known when the program runs, and waits for it.
    pub fn share(&self, name: impl AsRef<str>, share: Share) -> LockRequest {
        LockRequest::new(self, name.as_ref(), share)
    }

    /// The same without waiting.
    pub fn try_share(&self, name: impl AsRef<str>, share: Share) -> TryLockRequest {
        TryLockRequest::new(self, name.as_ref(), share)
    }

    /// An election: one of those who campaign leads, and its [term](crate::Leadership::term) is the
    /// token of the lock of that name. Only stores that can count may elect.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self, name.as_ref())
    }

    /// Asks for several locks at once and waits until it has all of them. If it fails, it has none.
    ///
    /// They are taken in the order of their names, whatever the order here, so callers who take all
    /// they need this way never wait for each other in a circle. A name that is given twice is one
    /// lock.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let locks = lockstep_lock::Locks::open(lockstep_lock::memory::Memory::new()).await?;
    /// let (from, to) = ("account:7", "account:3");
    /// let both = locks.lock_all([from, to]).await?;
    /// both.run(async { /* move the money */ }).await?;
    /// both.release().await?;
    /// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
    /// ```
    pub fn lock_all(&self, names: impl IntoIterator<Item: AsRef<str>>) -> LockAllRequest {
        LockAllRequest::new(self, names)
    }

    /// Asks once for several locks; `None` means that one of them was not free, and then it has
    /// none.
    pub fn try_lock_all(&self, names: impl IntoIterator<Item: AsRef<str>>) -> TryLockAllRequest {
        TryLockAllRequest::new(self, names)
    }

    /// What the store, as it is configured, can promise.
    pub fn facts(&self) -> &StoreFacts {
        &self.inner.facts
    }

    /// Fails at start-up instead of at three in the morning.
    ///
    /// # Errors
    /// [`LockError::Unmet`], if the store does not offer it.
    pub fn require(&self, need: Need) -> Result<&Self, LockError> {
        let facts = &self.inner.facts;
        if facts.meets(need) {
            Ok(self)
        } else {
            Err(LockError::Unmet { need, store: facts.store })
        }
    }

    /// The clock of this handle, to compare with [`Guard::trusted_until`].
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// Takes over a lock that was [leaked](Guard::leak), if it has not run out. The token stays
    /// the same.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it is not held any more; [`LockError::Adopted`] if this handle has a guard for it
    /// already, adopts it, or gives it back (of other handles that cannot be known); [`LockError::Unmet`] where a
    /// lock cannot be handed over; a store error leaves it leaked.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lock leaked; it may be adopted again until it runs out.
    pub async fn adopt(&self, leaked: Leaked) -> Result<Guard, LockError> {
        let inner = &self.inner;
        let Leaked { mut claim, token } = leaked;
        inner.check_ttl(claim.ttl)?;
        self.require(Need::HandOver)?;
        if inner.keeper.is_closed() {
            return Err(LockError::Closed);
        }
        let adoption = inner.keeper.adopt(claim.id);
        let _adoption = adoption.ok_or_else(|| LockError::Adopted { key: claim.key.clone() })?;
        claim.label = self.defaults.label.clone();
        let asked_at = inner.clock.now();
        let mut gone = self.not_renewed(&claim).await?;
        if gone.is_none() && inner.facts.ends_with_connection {
            gone = self.not_bound(&claim, token).await?;
        }
        let lease = Lease::new(asked_at, claim.ttl, inner.drift);
        if gone.is_none() && !lease.is_trusted(inner.clock.now()) {
            // The answers took longer than the lease. A guard would give back what the store has of it.
            gone = Some(LostCause::Expired);
        }
        if let Some(cause) = gone {
            return Err(Lost { key: claim.key, cause }.into());
        }
        if inner.keeper.is_closed() {
            return Err(LockError::Closed);
        }
        let stake = Stake::held(inner.keeper.clone(), claim.hold());
        let entry = inner.reentry.entry(&claim.key, claim.owner);
        let counted = matches!(claim.share, Share::Permits { .. });
        let guard = Guard::new(Arc::clone(inner), claim, stake, token, lease, Moment::MAX);
        // From here on its owner enters again, instead of waiting for itself.
        if let Some(turn) = entry.try_turn().filter(|_| !counted) {
            turn.entered(&guard);
        }
        Ok(guard)
    }

    /// Why the store does not let the claim go on holding, if it does not.
    async fn not_renewed(&self, claim: &Claim) -> Result<Option<LostCause>, LockError> {
        let inner = &self.inner;
        let holds = [claim.hold()];
        let verb = inner.store.renew(&holds);
        match bounded(inner.facts.store, inner.op_timeout, verb).await?.pop() {
            Some(Renewal::Renewed) => Ok(None),
            Some(Renewal::Broken { reason }) => Ok(Some(LostCause::Broken(reason))),
            Some(Renewal::Unsure { why }) => {
                let store = inner.facts.store;
                let error = StoreError::new(store, ErrorKind::Unavailable, Effect::Unknown, why);
                Err(error.into())
            }
            Some(Renewal::Lost) | None => Ok(Some(LostCause::Taken)),
        }
    }

    /// The same, where a hold lives with a connection: from now on with this handle's, not with the other's.
    async fn not_bound(
        &self,
        claim: &Claim,
        token: Option<Token>,
    ) -> Result<Option<LostCause>, LockError> {
        let inner = &self.inner;
        // Whoever broke it meanwhile must not find it in a queue.
        let asks = Claim { wait: false, ..claim.clone() };
        let verb = inner.store.acquire(&asks);
        match bounded(inner.facts.store, inner.op_timeout, verb).await? {
            Answer::Granted { token: now } if now == token => Ok(None),
            Answer::Granted { .. } => {
                // It was free meanwhile, and is held anew. That is not what was leaked.
                drop(Stake::held(inner.keeper.clone(), claim.hold()));
                Ok(Some(LostCause::Taken))
            }
            Answer::Broken { reason } => Ok(Some(LostCause::Broken(reason))),
            _ => Ok(Some(LostCause::Taken)),
        }
    }

    /// Who holds a lock, since when, with which token, and who waits, in order. `None` if nobody
    /// does either.
    ///
    /// # Errors
    /// A bad name, or the store did not answer.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<LockView>, LockError> {
        let page = self.look(Query::One(Key::new(name)?)).await?;
        Ok(page.locks.into_iter().next())
    }

    /// The locks that are held or waited for and whose names start with `prefix`, in order of
    /// names, at most `limit`.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn list(&self, prefix: &str, limit: usize) -> Result<Page, LockError> {
        self.look(Query::All { prefix: prefix.to_owned(), limit }).await
    }

    /// Takes a lock away from its holder: renewals are refused from now on, and the lock passes on
    /// when the lease runs out. The holder's guard is told, with the reason, at its next renewal.
    /// Returns whether anybody held it.
    ///
    /// # Errors
    /// A bad name, or the store did not answer.
    pub async fn break_lock(&self, name: impl AsRef<str>, reason: &str) -> Result<bool, LockError> {
        self.break_with(name, reason, false).await
    }

    /// The same, but the lock passes on **at once**. This waives the promise: the holder may go on
    /// believing in it until it hears of the break, so for a while two may act.
    ///
    /// # Errors
    /// A bad name, or the store did not answer.
    pub async fn break_lock_now(
        &self,
        name: impl AsRef<str>,
        reason: &str,
    ) -> Result<bool, LockError> {
        self.break_with(name, reason, true).await
    }

    /// Ends the handle: every guard still held through it is lost and given back, what dropped
    /// guards left behind is given back too, and the renewal thread stops. Returns when the store
    /// has been told, or after three operations' time if the store does not answer: then the thread goes on
    /// trying as long as the process lives, and the ttl frees what it does not reach. Later requests, and
    /// those that still wait, fail with [`LockError::Closed`].
    pub async fn close(&self) {
        self.inner.keeper.close().await;
    }

    async fn look(&self, query: Query) -> Result<Page, LockError> {
        let verb = self.inner.store.inspect(&query);
        Ok(bounded(self.inner.facts.store, self.inner.op_timeout, verb).await?)
    }

    async fn break_with(
        &self,
        name: impl AsRef<str>,
        reason: &str,
        now: bool,
    ) -> Result<bool, LockError> {
        let key = Key::new(name)?;
        let reason = Label::new(reason).as_str().to_owned();
        tracing::warn!(%key, reason, now, "breaking a lock");
        let what = Release::Break { key, reason, now };
        let verb = self.inner.store.release(&what);
        let released = bounded(self.inner.facts.store, self.inner.op_timeout, verb).await?;
        Ok(released == Released::Done)
    }
}

impl Inner {
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), LockError> {
        let StoreFacts { store, ttl_min, ttl_max, .. } = self.facts;
        if (ttl_min..=ttl_max).contains(&ttl) {
            return Ok(());
        }
        Err(LockError::Ttl { ttl, min: ttl_min, max: ttl_max, store })
    }
}

fn default_label() -> Label {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let program = std::env::args_os().next().unwrap_or_default();
    let program = std::path::Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
    Label::new(format!("{host} {} {program}", std::process::id()))
}
