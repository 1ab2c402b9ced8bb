//! The same without `async`, for programs that have no runtime.
//!
//! Every call here runs the asynchronous one to its end, on a runtime that belongs to the handle; there is
//! no second logic. Renewals have a thread of their own in either case, so a guard stays held while
//! your code computes.
//!
//! ```
//! use std::time::Duration;
//!
//! let locks = lockstep::blocking::connect("memory:")?; // or redis://… postgres://… etcd://… zookeeper://… sqlite:PATH
//! let guard = locks.lock("order:42").within(Duration::from_secs(5)).acquire()?;
//! for _step in 0..3 {
//!     guard.check()?; // stop when the lock is lost
//!     // … send guard.token() with every write …
//! }
//! guard.release()?;
//! # Ok::<(), lockstep::LockError>(())
//! ```
//!
//! # Panics
//! Calls that wait for the store panic when they are made from asynchronous code, whose thread they would
//! block. Use [`Locks::asynchronous`] there.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lockstep_core::time::Moment;
use lockstep_core::{Effect, ErrorKind, Key, Owner, StoreError, Token};
use tokio::runtime::Runtime;

use crate::{
    Campaign, Leader, LockAllRequest, LockError, LockRequest, LockView, Lost, Need, Page,
    PermitsRequest, Share, StoreFacts, TryLockAllRequest, TryLockRequest, TryPermitsRequest,
};

/// Opens a handle on the store that the URL names; see [`Store::from_url`](crate::Store::from_url).
///
/// # Errors
/// A URL that no store understands, or a store that cannot be reached.
pub fn connect(url: &str) -> Result<Locks, LockError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("lockstep-blocking")
        .enable_all()
        .build()
        .map_err(|error| {
            let message = format!("cannot start the thread that talks to the store: {error}");
            StoreError::new("store", ErrorKind::Busy, Effect::None, message)
        })?;
    let locks = runtime.block_on(crate::connect(url))?;
    Ok(Locks { locks, runtime: Arc::new(runtime) })
}

/// A handle to the locks of one store; see [`crate::Locks`]. Cloning is cheap.
#[derive(Clone)]
pub struct Locks {
    locks: crate::Locks,
    runtime: Arc<Runtime>,
}

impl Locks {
    /// This handle with another default ttl.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { locks: self.locks.with_ttl(ttl), ..self }
    }

    /// This handle with another default label.
    #[must_use]
    pub fn with_label(self, label: impl AsRef<str>) -> Self {
        Self { locks: self.locks.with_label(label), ..self }
    }

    /// Asks for a lock and waits for it; see [`crate::Locks::lock`].
    pub fn lock(&self, name: impl AsRef<str>) -> Request<LockRequest> {
        self.request(self.locks.lock(name))
    }

    /// Asks once; see [`crate::Locks::try_lock`].
    pub fn try_lock(&self, name: impl AsRef<str>) -> Request<TryLockRequest> {
        self.request(self.locks.try_lock(name))
    }

    /// Asks for a lock that readers hold together; see [`crate::Locks::read`].
    pub fn read(&self, name: impl AsRef<str>) -> Request<LockRequest> {
        self.request(self.locks.read(name))
    }

    /// Asks once; see [`crate::Locks::try_read`].
    pub fn try_read(&self, name: impl AsRef<str>) -> Request<TryLockRequest> {
        self.request(self.locks.try_read(name))
    }

    /// Another name of [`lock`](Self::lock), for locks that have readers too.
    pub fn write(&self, name: impl AsRef<str>) -> Request<LockRequest> {
        self.request(self.locks.write(name))
    }

    /// A lock that is made of permits; see [`crate::Locks::permits`].
    pub fn permits(&self, name: impl AsRef<str>, of: u32) -> Permits {
        Permits { permits: self.locks.permits(name, of), locks: self.clone() }
    }

    /// An election; see [`crate::Locks::election`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election { election: self.locks.election(name), locks: self.clone() }
    }

    /// Asks for several locks; see [`crate::Locks::lock_all`].
    pub fn lock_all(&self, names: impl IntoIterator<Item: AsRef<str>>) -> Request<LockAllRequest> {
        self.request(self.locks.lock_all(names))
    }

    /// Asks once for several locks; see [`crate::Locks::try_lock_all`].
    pub fn try_lock_all(
        &self,
        names: impl IntoIterator<Item: AsRef<str>>,
    ) -> Request<TryLockAllRequest> {
        self.request(self.locks.try_lock_all(names))
    }

    /// What the store, as it is configured, can promise.
    pub fn facts(&self) -> &StoreFacts {
        self.locks.facts()
    }

    /// Fails at start-up instead of at three in the morning; see [`crate::Locks::require`].
    ///
    /// # Errors
    /// [`LockError::Unmet`], if the store does not offer it.
    pub fn require(&self, need: Need) -> Result<&Self, LockError> {
        self.locks.require(need).map(|_| self)
    }

    /// Takes over a lock that was leaked; see [`crate::Locks::adopt`].
    ///
    /// # Errors
    /// [`LockError::Lost`] if it is not held any more; a store error leaves it as it is.
    pub fn adopt(&self, leaked: crate::Leaked) -> Result<Guard, LockError> {
        let guard = self.runtime.block_on(self.locks.adopt(leaked))?;
        Ok(self.guard(guard))
    }

    /// Who holds a lock and who waits; see [`crate::Locks::inspect`].
    ///
    /// # Errors
    /// A bad name, or the store did not answer.
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Option<LockView>, LockError> {
        self.runtime.block_on(self.locks.inspect(name))
    }

    /// The locks whose names start with `prefix`; see [`crate::Locks::list`].
    ///
    /// # Errors
    /// The store did not answer.
    pub fn list(&self, prefix: &str, limit: usize) -> Result<Page, LockError> {
        self.runtime.block_on(self.locks.list(prefix, limit))
    }

    /// Takes a lock away from its holder; see [`crate::Locks::break_lock`].
    ///
    /// # Errors
    /// A bad name, or the store did not answer.
    pub fn break_lock(&self, name: impl AsRef<str>, reason: &str) -> Result<bool, LockError> {
        self.runtime.block_on(self.locks.break_lock(name, reason))
    }

    /// The same at once, which waives the promise; see [`crate::Locks::break_lock_now`].
    ///
    /// # Errors
    /// A bad name, or the store did not answer.
    pub fn break_lock_now(&self, name: impl AsRef<str>, reason: &str) -> Result<bool, LockError> {
        self.runtime.block_on(self.locks.break_lock_now(name, reason))
    }

    /// Ends the handle and gives everything back; see [`crate::Locks::close`].
    pub fn close(&self) {
        self.runtime.block_on(self.locks.close());
    }

    /// The same handle for asynchronous code.
    pub fn asynchronous(&self) -> &crate::Locks {
        &self.locks
    }

    fn request<R>(&self, request: R) -> Request<R> {
        Request { request, locks: self.clone() }
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        Guard { guard, runtime: Arc::clone(&self.runtime) }
    }

    fn guards(&self, guards: crate::Guards) -> Guards {
        Guards { guards, runtime: Arc::clone(&self.runtime) }
    }
}

/// A lock that is made of permits; see [`crate::Permits`].
#[derive(Clone)]
pub struct Permits {
    permits: crate::Permits,
    locks: Locks,
}

impl Permits {
    /// Asks for this many permits and waits for them; see [`crate::Permits::acquire`].
    pub fn acquire(&self, count: u32) -> Request<PermitsRequest> {
        self.locks.request(self.permits.acquire(count))
    }

    /// Asks once; see [`crate::Permits::try_acquire`].
    pub fn try_acquire(&self, count: u32) -> Request<TryPermitsRequest> {
        self.locks.request(self.permits.try_acquire(count))
    }
}

/// An election; see [`crate::Election`].
#[derive(Clone)]
pub struct Election {
    election: crate::Election,
    locks: Locks,
}

impl Election {
    /// Waits to become the leader; see [`crate::Election::campaign`].
    pub fn campaign(&self) -> Request<Campaign> {
        self.locks.request(self.election.campaign())
    }

    /// Who leads now.
    ///
    /// # Errors
    /// The store did not answer, or cannot count.
    pub fn leader(&self) -> Result<Option<Leader>, LockError> {
        self.locks.runtime.block_on(self.election.leader())
    }

    /// Who leads, now and whenever that changes; it never ends. See [`crate::Election::observe`].
    pub fn observe(&self) -> impl Iterator<Item = Result<Option<Leader>, LockError>> {
        let (mut leaders, runtime) =
            (Box::pin(self.election.observe()), Arc::clone(&self.locks.runtime));
        std::iter::from_fn(move || runtime.block_on(leaders.next()))
    }
}

/// Being the leader; see [`crate::Leadership`].
#[must_use = "leadership is given up when this is dropped"]
#[derive(Debug)]
pub struct Leadership {
    leadership: crate::Leadership,
    runtime: Arc<Runtime>,
}

impl Leadership {
    /// The term: send it along with everything that a leader decides.
    pub fn term(&self) -> Token {
        self.leadership.term()
    }

    /// Whether it still leads. Reads the clock each time.
    pub fn is_trusted(&self) -> bool {
        self.leadership.is_trusted()
    }

    /// The same as an error, for `?`: between two steps of the work.
    ///
    /// # Errors
    /// [`Lost`], if leadership has ended.
    pub fn check(&self) -> Result<(), Lost> {
        self.leadership.check()
    }

    /// Gives it up and waits until the store has it.
    ///
    /// # Errors
    /// As for [`Guard::release`].
    pub fn resign(self) -> Result<(), LockError> {
        self.runtime.block_on(self.leadership.resign())
    }
}

/// Locks that are being asked for: set what matters, then [`acquire`](Self::acquire).
#[must_use = "a request does nothing until it is acquired"]
pub struct Request<R> {
    request: R,
    locks: Locks,
}

macro_rules! requests {
    ($($request:ident: |$locks:ident, $got:ident: $async:ty| $wrap:expr => $guard:ty;)+) => { $(
        impl Request<$request> {
            /// Asks as this owner: if it already holds the key through this handle, it enters again.
            pub fn owner(mut self, owner: &Owner) -> Self {
                self.request = self.request.owner(owner);
                self
            }

            /// How long the store lets the lease live without a renewal.
            pub fn ttl(mut self, ttl: Duration) -> Self {
                self.request = self.request.ttl(ttl);
                self
            }

            /// What people see when they ask who holds it.
            pub fn label(mut self, label: impl AsRef<str>) -> Self {
                self.request = self.request.label(label);
                self
            }

            /// Trust ends after this long, renewals or not.
            pub fn max_hold(mut self, limit: Duration) -> Self {
                self.request = self.request.max_hold(limit);
                self
            }

            /// Asks, and blocks this thread until there is an answer.
            ///
            /// # Errors
            /// As for awaiting the asynchronous request.
            pub fn acquire(self) -> Result<$guard, LockError> {
                let Self { request, locks: $locks } = self;
                let $got: $async = $locks.runtime.block_on(request.into_future())?;
                Ok($wrap)
            }
        }
    )+ };
}

requests! {
    LockRequest: |locks, got: crate::Guard| locks.guard(got) => Guard;
    TryLockRequest: |locks, got: Option<crate::Guard>| got.map(|got| locks.guard(got)) => Option<Guard>;
    PermitsRequest: |locks, got: crate::Guard| locks.guard(got) => Guard;
    TryPermitsRequest: |locks, got: Option<crate::Guard>| got.map(|got| locks.guard(got)) => Option<Guard>;
    Campaign: |locks, got: crate::Leadership| Leadership { leadership: got, runtime: locks.runtime } => Leadership;
    LockAllRequest: |locks, got: crate::Guards| locks.guards(got) => Guards;
    TryLockAllRequest: |locks, got: Option<crate::Guards>| got.map(|got| locks.guards(got)) => Option<Guards>;
}

macro_rules! waiting {
    ($($request:ident)+) => { $(
        impl Request<$request> {
            /// Waits at most this long, store and all; the default is for ever.
            pub fn within(mut self, limit: Duration) -> Self {
                self.request = self.request.within(limit);
                self
            }
        }
    )+ };
}

waiting!(LockRequest PermitsRequest Campaign LockAllRequest);

/// A held lock; see [`crate::Guard`], whose promise it has.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    guard: crate::Guard,
    runtime: Arc<Runtime>,
}

/// For what takes a guard of any kind, such as `sql::verify`.
impl AsRef<crate::Guard> for Guard {
    fn as_ref(&self) -> &crate::Guard {
        &self.guard
    }
}

impl Guard {
    /// The key.
    pub fn key(&self) -> &Key {
        self.guard.key()
    }

    /// Who holds it.
    pub fn owner(&self) -> Owner {
        self.guard.owner()
    }

    /// The fencing token; see [`crate::Guard::token`].
    pub fn token(&self) -> Option<Token> {
        self.guard.token()
    }

    /// How much of the lock it holds.
    pub fn share(&self) -> Share {
        self.guard.share()
    }

    /// Becomes a reader; see [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// As for the asynchronous one.
    pub fn downgrade(&mut self) -> Result<(), LockError> {
        self.runtime.block_on(self.guard.downgrade())
    }

    /// Hands it to somebody else; see [`crate::Guard::leak`].
    ///
    /// # Errors
    /// Other guards of the same owner still use it: it is given back unchanged.
    pub fn leak(self) -> Result<crate::Leaked, Self> {
        let Self { guard, runtime } = self;
        guard.leak().map_err(|guard| Self { guard, runtime })
    }
}

/// Several locks that are held together; see [`crate::Guards`].
#[must_use = "the locks are released when the guards are dropped"]
#[derive(Debug)]
pub struct Guards {
    guards: crate::Guards,
    runtime: Arc<Runtime>,
}

impl Guards {
    /// Each of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &crate::Guard> {
        self.guards.iter()
    }

    /// The one with this name.
    pub fn get(&self, name: &str) -> Option<&crate::Guard> {
        self.guards.get(name)
    }
}

macro_rules! held {
    ($guard:ident . $inner:ident) => {
        impl $guard {
            /// Whether it may be acted upon. Reads the clock each time; this is the promise itself.
            pub fn is_trusted(&self) -> bool {
                self.$inner.is_trusted()
            }

            /// Until when it may be acted upon if no further renewal succeeds.
            pub fn trusted_until(&self) -> Moment {
                self.$inner.trusted_until()
            }

            /// The same as an error, for `?`: between two steps of the work.
            ///
            /// # Errors
            /// [`Lost`], if trust has ended.
            pub fn check(&self) -> Result<(), Lost> {
                self.$inner.check()
            }

            /// Waits until trust has ended, at most this long; `None` if it has not.
            pub fn lost_within(&self, limit: Duration) -> Option<Lost> {
                self.runtime
                    .block_on(async { tokio::time::timeout(limit, self.$inner.lost()).await.ok() })
            }

            /// Gives it back and waits until the store has it.
            ///
            /// # Errors
            /// As for the asynchronous one: above all, that the lease had run out before.
            pub fn release(self) -> Result<(), LockError> {
                self.runtime.block_on(self.$inner.release())
            }
        }
    };
}

held!(Guard.guard);
held!(Guards.guards);
