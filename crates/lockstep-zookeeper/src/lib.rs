//! Lockstep's locks on ZooKeeper 3.5 or newer, one server or an ensemble, in the names of Apache
//! Curator.
//!
//! A claim is an ephemeral node with a number; the lowest holds, and everybody else watches only the
//! one it waits for. The token of a hold is the transaction that made its node. A hold is proved by what
//! comes back through the leader, never by a ping: a server that has lost its leader answers pings.
//! A new session never takes over what an old one left.
//!
//! What is where: `config` reads URLs, `names` names nodes and `note` says what is in them, `client`
//! speaks the protocol, `engine` is the thread that all lanes of a handle share, `book` knows what
//! belongs to it, `basic` is the layout of one node, `park` finds out where a claim stands and hears when that changes, `store` and
//! `inspect` are the verbs, `error` says what an error means.

mod basic;
mod book;
mod client;
mod config;
mod engine;
mod error;
mod inspect;
mod names;
mod note;
mod park;
mod store;
#[cfg(test)]
mod tests;

pub use config::ZooKeeper;
