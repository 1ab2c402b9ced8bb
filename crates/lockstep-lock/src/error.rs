use std::time::Duration;

use lockstep_core::{Effect, Key, KeyError, StoreError};

use crate::deadlock::Deadlock;
use crate::facts::Need;
use crate::share::{MAX_PERMITS, in_words};

/// Why there is no lock, or no longer one. Each variant is something the caller does differently.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The name cannot be a key.
    #[error(transparent)]
    Name(#[from] KeyError),
    /// The ttl is outside what the store takes.
    #[error("a ttl is between {min:?} and {max:?} on {store}; {ttl:?} is not")]
    Ttl {
        /// What was asked for.
        ttl: Duration,
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
        /// The store.
        store: &'static str,
    },
    /// More permits than there are, none at all, or more than a lock can be made of.
    #[error(
        "{count} of {of} permits cannot be had: ask for at least 1 and at most all of them, and make a lock of at most {MAX_PERMITS}"
    )]
    Permits {
        /// How many were asked for.
        count: u32,
        /// Of how many.
        of: u32,
    },
    /// Somebody uses the lock with another total. All callers must say the same.
    #[error("lock `{key}` is in use as {}; this caller asked for it as {}", in_words(*of), in_words(*asked))]
    Differs {
        /// The key.
        key: Key,
        /// The total that was asked for.
        asked: u32,
        /// The total it is in use with; [`WHOLE`](crate::store::WHOLE) for one that is not made of
        /// permits.
        of: u32,
    },
    /// This owner reads and wants to write. It must give the read lock back first: two readers who
    /// both wait to become the writer would wait for each other for ever.
    #[error(
        "lock `{key}` is held for reading by this owner and cannot become a writer's: release it first"
    )]
    Upgrade {
        /// The key.
        key: Key,
    },
    /// Other guards of the same owner rely on what is to be given back.
    #[error("lock `{key}` was entered again by its owner, who still relies on writing")]
    Reentered {
        /// The key.
        key: Key,
    },
    /// Waiting would never end.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
    /// Somebody else had it until the time was up. "No" is not "broken".
    #[error("lock `{key}` was not free within {waited:?}{}", ahead.map(|n| format!(" ({n} waiting ahead)")).unwrap_or_default())]
    TimedOut {
        /// The key.
        key: Key,
        /// How long was waited.
        waited: Duration,
        /// How many were still before us when the store last said.
        ahead: Option<u64>,
    },
    /// The lock was held and is not any more.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The release found nothing to give back: the lease had run out before.
    #[error("lock `{key}` was not held any more when it was released")]
    NotHeld {
        /// The key.
        key: Key,
    },
    /// A leaked lock was adopted through this handle before, and its guard lives or is just being given back,
    /// or it is being adopted at this moment.
    #[error("lock `{key}` is adopted already: a leaked lock is for one guard")]
    Adopted {
        /// The key.
        key: Key,
    },
    /// The store does not offer what was required.
    #[error("{store} does not offer {need}")]
    Unmet {
        /// What was required.
        need: Need,
        /// The store.
        store: &'static str,
    },
    /// The handle was closed.
    #[error("this Locks handle has been closed")]
    Closed,
    /// The store could not be asked, or did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LockError {
    /// Whether asking the same again can help.
    pub fn may_retry(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Lost(_) | Self::Deadlock(_) => true,
            Self::Store(error) => error.may_retry(),
            _ => false,
        }
    }

    /// Whether the request may have taken effect at the store all the same. A lock that may have
    /// been acquired this way is given back in the background, at the latest by its ttl.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Store(error) if error.effect() == Effect::Unknown)
    }
}

/// Trust in a lock has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lock `{key}` is lost: {cause}")]
pub struct Lost {
    /// The key.
    pub key: Key,
    /// Why.
    pub cause: LostCause,
}

/// Why trust in a lock has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LostCause {
    /// No renewal was confirmed in time.
    #[error("it could not be renewed in time")]
    Expired,
    /// The store says that it is not ours.
    #[error("the store says it is not ours any more")]
    Taken,
    /// An operator has broken it.
    #[error("broken by an operator: {0}")]
    Broken(String),
    /// It was held as long as it may be at most.
    #[error("it was held for the maximum time")]
    MaxHold,
    /// The handle was closed.
    #[error("its Locks handle was closed")]
    Closed,
}
