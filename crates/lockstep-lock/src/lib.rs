//! Distributed locks whose guards know, on their own clock, until when they may act.
//!
//! Users hold [`Locks`] and [`Guard`]; a store implements [`store::LockStore`]. Everything between
//! the two is written once, here: waiting, deadlines, renewal, loss, re-entry, cancellation.
//!
//! Decisions are pure ([`acquisition`], [`renewals`], [`queue`]); only `drive.rs` and `keeper.rs`
//! own tasks and timers. No store's name and no driver appears in this crate.

pub mod acquisition;
mod all;
pub mod clock;
pub mod deadlines;
mod deadlock;
mod drive;
mod election;
mod error;
mod facts;
mod guard;
mod inbox;
mod keeper;
mod leaked;
pub mod line;
mod locks;
pub mod memory;
mod meters;
mod permits;
pub mod queue;
mod reentry;
pub mod renewals;
mod request;
mod share;
mod stake;
pub mod store;

pub use all::{Guards, LockAllRequest, TryLockAllRequest};
pub use deadlock::{Deadlock, Waiting};
pub use election::{Campaign, Election, Leader, Leadership};
pub use error::{LockError, Lost, LostCause};
pub use facts::{Fencing, Need, Origin, Scope, StoreFacts};
pub use guard::Guard;
pub use inbox::{Inbox, Signal};
pub use leaked::{Leaked, ParseLeakedError};
pub use locks::{DEFAULT_OP_TIMEOUT, DEFAULT_TTL, Locks, Options};
pub use permits::{Permits, PermitsRequest, TryPermitsRequest};
pub use request::{LockRequest, TryLockRequest};
pub use share::{MAX_PERMITS, ParseShareError, Share};
