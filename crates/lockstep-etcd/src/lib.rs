//! Lockstep's locks on etcd (3.4 or newer), one server or a cluster.
//!
//! A lock is a line of keys under its name, in the order of their creation: the layout of etcd's own
//! `concurrency` package, so that `etcdctl lock` and services in Go exclude us and we them. The
//! token of a grant is the revision at which its key was created.
//!
//! This crate knows nothing of guards, renewal schedules or waiting times of callers. What lives as
//! long as a handle (the lease, the watches, the deadlines of claims) is kept by a thread of its
//! own; see docs/decisions/0013 and 0014.
//!
//! What is where: `config` reads URLs, `proto` is what goes over the wire, `link` keeps a connection
//! to one of the endpoints, `change` and `group` send many changes as one, `layout` names keys, `entry` reads and
//! writes their values, `waiting` decides what a waiter listens to and `departures` who has left a line (both
//! pure), `worker` is the thread and `hub` what lanes see of it, `session`, `book` and `streams` are what
//! it keeps, `look` reads lines, `store` and `inspect` are the verbs, `error` says what an error means.

mod book;
mod change;
mod config;
mod departures;
mod entry;
mod error;
mod group;
mod hub;
mod inspect;
mod layout;
mod link;
mod look;
mod proto;
mod session;
mod store;
mod streams;
mod waiting;
mod worker;

pub use config::Etcd;
