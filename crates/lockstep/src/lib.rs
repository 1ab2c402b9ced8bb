//! Keeps services in step: distributed locks that tell the truth about holding, on the
//! infrastructure you already run.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let locks = lockstep::connect("memory:").await?; // or redis://… postgres://… etcd://… zookeeper://… sqlite:PATH
//! let guard = locks.lock("order:42").within(std::time::Duration::from_secs(5)).await?;
//! // … send guard.token() with every write; stop when guard.lost() resolves …
//! guard.release().await?;
//! # Ok::<(), lockstep::LockError>(()) }).unwrap();
//! ```

pub mod blocking;
mod store;

/// Plain Redis writes that a replaced holder cannot make.
#[cfg(feature = "redis")]
pub use lockstep_redis::fence as redis_fence;
/// Inside your own tx: [`verify`](sql::verify), [`lock_in`](sql::lock_in), optimistic updates.
#[cfg(feature = "sql")]
pub use lockstep_sql::tx as sql;
/// The same inside a tx that was opened with sqlx.
#[cfg(feature = "sqlx")]
pub use lockstep_sqlx as sqlx;

pub use lockstep_core::time::{Clock, Moment};
pub use lockstep_core::{
    ClaimId, Drift, Effect, ErrorKind, Key, KeyError, Label, Owner, StoreError, Token,
};
pub use lockstep_lock::store::{HolderView, LockView, Page, WaiterView};
pub use lockstep_lock::{
    Campaign, DEFAULT_OP_TIMEOUT, DEFAULT_TTL, Deadlock, Election, Fencing, Guard, Guards, Leader,
    Leadership, Leaked, LockAllRequest, LockError, LockRequest, Locks, Lost, LostCause,
    MAX_PERMITS, Need, Options, Origin, ParseLeakedError, ParseShareError, Permits, PermitsRequest,
    Scope, Share, StoreFacts, TryLockAllRequest, TryLockRequest, TryPermitsRequest, Waiting,
};
pub use store::Store;

/// Opens a handle on the store that the URL names; see [`Store::from_url`].
///
/// # Errors
/// A URL that no store understands, or a store that cannot be reached.
pub async fn connect(url: &str) -> Result<Locks, LockError> {
    Locks::open(Store::from_url(url)?).await
}
