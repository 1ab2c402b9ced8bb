//! Stores that misbehave on demand: wrappers around any [`Connect`], so that the handle above it
//! meets silent or spurious signals, lost replies, an unreachable store, or stops at a point that
//! the test has chosen.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use std::sync::Arc;
//! use lockstep_lock::{Locks, Options, memory::Memory};
//! use lockstep_testkit::wrap::{FailingVerbs, VerbName};
//!
//! let store = Arc::new(FailingVerbs::new(Arc::new(Memory::new())));
//! let locks = Locks::open_with(store.clone(), Options::default()).await?;
//! store.lose_reply(VerbName::Release, 1);
//! let guard = locks.lock("order:42").await?;
//! guard.release().await?; // the second try finds it done
//! # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
//! ```
//!
//! What is absent: nothing here knows a driver, and nothing lies about a grant. A wrapper may
//! withhold, repeat or delay what the store says, as networks do; it never invents an answer.
//!
//! [`Connect`]: lockstep_lock::store::Connect

mod clock;
mod counting;
mod failing;
mod relay;
mod signals;
mod watched;

pub use clock::JumpingClock;
pub use counting::{Counting, Counts, Pause, Point};
pub use failing::{FailingVerbs, Reach};
pub use relay::VerbName;
pub use signals::{NoisySignals, SilentSignals};
pub use watched::Waiters;
