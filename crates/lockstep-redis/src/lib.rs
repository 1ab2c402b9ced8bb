//! Lockstep's locks on one Redis server (6 or newer, or Valkey).
//!
//! Every verb of the store is one script, judged by the server's own clock; a release hands the
//! lock to the next waiter in the same step and tells that waiter alone, through one inbox channel
//! per handle. Every key has a ttl: nothing that this crate writes stays for ever.
//!
//! `?layout=plain` is another store on the same server: the lock that everybody writes by hand, with neither
//! queue nor tokens, to be in mutual exclusion with those who did. It is in `plain`.
//!
//! This crate knows nothing of guards, renewal schedules or deadlines, and it never retries a verb:
//! it reconnects, and says what may have happened. Redis Cluster and Sentinel are refused.
//!
//! What is where: `config` reads URLs, `keys` names keys, `hello` makes a connection, `line` talks
//! over it, `frame` finds where an answer ends, `link` keeps one alive, `push` reads signals, `scan` goes through keys, `scripts/*.lua` decide, `store` and `inspect` ask them, `probe` looks at the server
//! once, `error` says what an error means. [`fence`] is for writes of users.

mod config;
mod error;
pub mod fence;
mod frame;
mod hello;
mod inspect;
mod keys;
mod line;
mod link;
mod plain;
mod probe;
mod push;
pub mod redlock;
mod scan;
mod scripts;
mod store;
mod words;

pub use config::Redis;
pub use redlock::Redlock;
