//! The words Lockstep is written in.
//!
//! This crate never awaits, never opens anything and never reads a clock: time comes in as a
//! [`Moment`](time::Moment) or through a [`Clock`](time::Clock) that somebody else implements.

mod error;
mod key;
mod lease;
mod owner;
pub mod retry;
pub mod time;
mod token;

pub use error::{Effect, ErrorKind, StoreError};
pub use key::{Key, KeyError, MAX_KEY_BYTES};
pub use lease::{Drift, Lease};
pub use owner::{ClaimId, Label, MAX_LABEL_BYTES, Owner, ParseIdError};
pub use token::Token;
