//! Redlock: one lock on several Redis servers that know nothing of each other.
//!
//! Each keeps the key as in the plain layout, all with the same value, so that whoever follows the same
//! rule on the same nodes (node-redlock, redsync, rslock) is in mutual exclusion with us. There is no token:
//! what a quorum of leases is worth, and what not, is in the guide (`docs/guide/redlock.md`), and why it is
//! done like this in decision 12.
//!
//! What is where: [`arithmetic`], [`round`], `count` and [`standing`] decide, without a clock or a socket. `nodes` keeps a
//! connection to each node and what is known of it, `greeting` asks who it is, `lane` is all of them, `ask`
//! drives a round, `renew` and `view` do what their names say, `waiters` knows who is to be told, `debts`,
//! `earlier` and `renewing` what is not settled yet; `config` reads URLs, and `store` is the lock store.

pub mod arithmetic;
mod ask;
mod config;
mod count;
mod debts;
mod earlier;
mod greeting;
mod lane;
mod nodes;
mod renew;
mod renewing;
pub mod round;
pub mod standing;
mod store;
mod view;
mod waiters;

pub use config::Redlock;
