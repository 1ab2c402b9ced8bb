//! Where the truth about locks is kept: one small trait for those who write stores. Users never
//! see it; they hold [`Locks`](crate::Locks).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockstep_core::{ClaimId, Key, Label, Owner, StoreError, Token};

use crate::facts::StoreFacts;
use crate::inbox::Inbox;
use crate::share::Share;
pub use crate::share::WHOLE;

/// The longest list that [`LockStore::renew`] is called with.
pub const RENEW_BATCH: usize = 500;

/// A verb of the store on its way.
pub type Verb<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// How a store is reached. A handle opens two lanes: one on the caller's runtime for asking and
/// releasing, and one on the keeper's own thread for renewals and for what dropped guards leave
/// behind, so that a busy executor cannot starve them. The lanes must not share a connection.
pub trait Connect: Send + Sync + 'static {
    /// Opens one lane on the current runtime. Signals go to `inbox`, armed before this returns;
    /// a lane without inbox is never waited on.
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>>;
}

/// A lock store is a few verbs and a fact sheet.
///
/// What is common to all verbs: each is one atomic step at the store, judged by the store's own
/// clock; each may be sent twice; dropping the future leaves the outcome unknown, nothing worse.
pub trait LockStore: Send + Sync + 'static {
    /// What this store, as it is configured, can promise.
    fn facts(&self) -> StoreFacts;

    /// Asks once. Idempotent per claim id: the holder gets its grant again with the same token
    /// and a fresh ttl; a waiter keeps its place and gets a fresh waiter's lease of one ttl.
    ///
    /// Waiters are served strictly in the order they came, whatever share of the lock they want:
    /// nobody is granted anything while somebody who came earlier, and lives, waits. All that fit
    /// together are granted together.
    ///
    /// Tokens grow from writer to writer, and a reader's lies between those of the writers before
    /// and after it. Readers that hold together have one in common, or each its own in the order
    /// in which they came.
    ///
    /// Every ask also heals the lock: what holders whose leases have run out leave is granted to the
    /// first waiters whose own leases live, whoever asked.
    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer>;

    /// Extends each hold by its full ttl from now, if it is still the holder's and neither run out
    /// nor broken; never brings one back. Answers in the order of `holds`, at most
    /// [`RENEW_BATCH`] of them. This is the only proof of still holding.
    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>>;

    /// Gives back a hold, a part of it or a place in the queue, or breaks somebody else's. What is
    /// given back passes in the same step to the first waiters whose leases live, as many as fit,
    /// and only those are signalled.
    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released>;

    /// Looks without changing anything.
    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page>;
}

/// One acquisition, named before the first byte is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Its name.
    pub id: ClaimId,
    /// What is asked for.
    pub key: Key,
    /// Who asks.
    pub owner: Owner,
    /// Who asks, for people.
    pub label: Label,
    /// How much of the lock is asked for.
    pub share: Share,
    /// How long the store lets the lease, and the waiter's lease, live.
    pub ttl: Duration,
    /// Whether to take a place in the queue if the lock is not free.
    pub wait: bool,
}

impl Release {
    /// The key it is about.
    pub fn key(&self) -> &Key {
        match self {
            Self::Mine(hold) | Self::Downgrade(hold) => &hold.key,
            Self::Break { key, .. } => key,
        }
    }
}

impl Claim {
    /// What is held if this claim is granted.
    pub fn hold(&self) -> Hold {
        Hold { id: self.id, key: self.key.clone(), ttl: self.ttl }
    }
}

/// What is held, as renewals and releases name it: never a bare key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The claim that was granted.
    pub id: ClaimId,
    /// Its key.
    pub key: Key,
    /// Its ttl.
    pub ttl: Duration,
}

/// The store's answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lock is this claim's for one ttl from the moment the store says so.
    Granted {
        /// `None` where the store cannot count.
        token: Option<Token>,
    },
    /// The claim has a place in the queue.
    Queued {
        /// How many live places are before it. Where counting costs it may count the dead too, as long as
        /// the first lives or there are more than 16, and 100 means 100 or more.
        ahead: u64,
        /// What is left of the holder's lease; of several, of the one that ends first. Less than that where
        /// somebody has to look whether a holder still has its connection.
        holder_left: Duration,
        /// The token of the last grant before it, or any between that and its own (every store that
        /// counts must say one): a pushed grant whose token is not larger is an old one that came
        /// late, for a lease that has passed on since.
        behind: Option<Token>,
    },
    /// Somebody else has it, or waits for it, and this claim did not want to wait.
    Busy,
    /// The lock is in use with another total: see [`Share::of`]. Whoever asks must have meant another
    /// lock, or has another configuration.
    Differs {
        /// The total it is in use with.
        of: u32,
    },
    /// This claim held the lock, and an operator has broken it.
    Broken {
        /// The operator's words.
        reason: String,
    },
}

/// What a renewal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Still held, for another full ttl.
    Renewed,
    /// Not held any more: run out, passed on, or gone.
    Lost,
    /// Broken by an operator; what is left of the lease is the last.
    Broken {
        /// The operator's words.
        reason: String,
    },
    /// Neither: of the several places that must agree, too few have answered. Like an error, but for this
    /// hold alone: trust goes on until the end of the lease, and it is asked again.
    Unsure {
        /// Which, and why.
        why: String,
    },
}

/// What to give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// My hold, or my place in the queue.
    Mine(Hold),
    /// All but a reader's share of my exclusive hold. What is a reader's already stays one.
    Downgrade(Hold),
    /// Whoever holds the key loses it.
    Break {
        /// The key.
        key: Key,
        /// Why; the holder is told.
        reason: String,
        /// `false`: renewals are refused, and the lock passes on when the lease runs out.
        /// `true`: it passes on at once, and the holder may still believe in it.
        now: bool,
    },
}

/// What was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The hold or the place in the queue was there and is gone (or, for a break, is marked).
    Done,
    /// There was nothing to give back.
    NotHeld,
}

/// What to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One lock, with its waiters in order.
    One(Key),
    /// The locks that this owner waits for, with their waiters in order. Only asked where
    /// [`StoreFacts::deadlocks`] says that the store can tell.
    WaitedForBy(Owner),
    /// Every lock that is held or waited for and whose name starts like this, in order of names,
    /// without the waiters' particulars.
    All {
        /// The start of the names; empty for all.
        prefix: String,
        /// At most this many.
        limit: usize,
    },
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The locks; for [`Query::One`] at most one, and none if nobody holds or waits.
    pub locks: Vec<LockView>,
    /// Whether the limit cut something off.
    pub more: bool,
}

/// One lock, as it was when somebody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    /// Its name.
    pub key: Key,
    /// Who holds it, in the order of their grants: one, or several that share it.
    pub holders: Vec<HolderView>,
    /// How many wait whose leases live.
    pub waiting: u64,
    /// Who waits, in the order they will be served (only when one lock was asked for).
    pub waiters: Vec<WaiterView>,
}

impl LockView {
    /// Its holder; of several that share it, the one that was granted first.
    pub fn holder(&self) -> Option<&HolderView> {
        self.holders.first()
    }
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// The claim.
    pub claim: ClaimId,
    /// The owner.
    pub owner: Owner,
    /// The owner, for people.
    pub label: Label,
    /// How much of it.
    pub share: Share,
    /// The fencing token.
    pub token: Option<Token>,
    /// Since when, in milliseconds of the store's wall clock; 0 where the store does not keep that. For
    /// display only.
    pub since_ms: u64,
    /// What is left of its lease; [`Duration::MAX`] if it never ends, which only strangers write.
    pub left: Duration,
    /// Why an operator has broken it, if one has.
    pub broken: Option<String>,
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// The claim.
    pub claim: ClaimId,
    /// The owner.
    pub owner: Owner,
    /// The owner, for people.
    pub label: Label,
    /// How much of the lock it wants.
    pub share: Share,
    /// Since when, in milliseconds of the store's wall clock. For display only.
    pub since_ms: u64,
}
