//! Locks on a PostgreSQL server, for every machine that reaches it.
//!
//! Each verb is one call of a function in the database and one commit (`sql/*.sql`). The lock's row
//! is locked first and judged by the server's clock after that; a release passes the lock on in
//! the same commit and notifies only the one that got it. The row of a free lock stays, so that
//! its token only grows.
//!
//! # URL
//!
//! `postgres://user:password@host:5432/database?…`; several hosts may be given as `h1:p1,h2:p2`,
//! and the one that takes writes is used; never may two that do not share a database take them at once.
//! One that is frozen or cut off holds up the next for a quarter of a second, and the one that served
//! last is tried first. A socket directory is given as `?host=/run/postgresql`.
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `prefix` | | a tenant: handles with different prefixes never meet; letters, digits, `_`, `-`, at most 64 |
//! | `schema` | `public` | where the tables are |
//! | `pool` | 8 | connections for asking and releasing; one more listens, up to four more renew and give back |
//! | `migrate` | `auto` | `auto` creates missing tables if the role may; `never` leaves it to `lockstep migrate` |
//! | `on_disconnect` | `keep` | `release`: a lock passes on within a second when the connection of its holder's handle is lost; see below |
//! | `sslmode` | `prefer` | `disable`, `prefer`, `require`, `verify-full`, as in libpq |
//! | `sslrootcert` | the public authorities | a PEM file to check the server against; with `verify-full` only |
//! | `password_file` | | a file with the password, instead of one in the URL, read when the store is created |
//! | `application_name` | `lockstep` | what `pg_stat_activity` shows |
//! | `host`, `port` | | a host name or a socket directory, for URLs that name no host |
//!
//! As in libpq, `prefer` encrypts if the server offers it and `require` always, but **neither checks
//! who the server is**; only `verify-full` does. Use it wherever the network is not your own.
//!
//! # Poolers
//!
//! A transaction pooler (PgBouncer with `pool_mode = transaction` and its relatives) cannot deliver
//! notifications. That is found out when a handle opens: [`facts`](lockstep_lock::StoreFacts)
//! then say `push: false` with a warning, and waiters ask at intervals. Locks are as safe there as
//! on a direct connection.
//!
//! # When a connection is lost
//!
//! The lease decides: a holder that has lost its connections has until the lease ends to get new ones. With
//! `on_disconnect=release` a lock passes on as soon as somebody who waits sees that the one connection is gone on which
//! its holder's handle listens. A process that dies is then replaced at once and not after a ttl. But a
//! connection can be lost while the work goes on, and the holder only hears of it at its next renewal: for up to a
//! third of its ttl two may act. Only a fence makes that harmless.
//!
//! # Durability
//!
//! Grants and renewals are on disk before anybody is told of them, and so is a release that passes
//! the lock on. A release that nobody waits for is not: if the server crashes within the next half
//! second, the lock is free when its lease ends. A place in the queue is not either: a crash may
//! forget it, and the waiter, whose connection is then lost as well, asks again.
//!
//! # What it costs
//!
//! A lock that was ever asked for keeps its row (about 200 bytes) for ever; deleting it would start
//! its tokens again. Taking and giving back a free lock is two round trips and two commits. A
//! commit that notifies waits for every other that does, on the whole server, so all hand-overs
//! to waiters together are as many as its disk can write one after another.

mod config;
mod error;
mod hosts;
mod listen;
mod migrate;
mod pool;
mod rows;
mod store;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lockstep_core::StoreError;
use lockstep_lock::Inbox;
use lockstep_lock::store::{Connect, LockStore, Verb};

use config::Settings;

pub(crate) use error::judge_state;
pub(crate) use migrate::tx_schema;

/// A PostgreSQL server as a lock store.
///
/// ```no_run
/// # async fn example() -> Result<(), lockstep_core::StoreError> {
/// use lockstep_lock::store::Connect;
/// use lockstep_sql::postgres::Postgres;
///
/// let postgres = Postgres::from_url("postgres://app:secret@db.example:5432/app?prefix=shop")?;
/// let lane = postgres.open(None).await?;
/// assert_eq!(lane.facts().store, "postgres");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Postgres {
    settings: Arc<Settings>,
    /// What the first lane finds out.
    route: Arc<AtomicU8>,
}

/// What is known about the way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Route {
    /// Nothing yet: nothing is taken for granted.
    Unknown = 0,
    /// A connection is a session of the server: it can listen and keep prepared statements.
    Session = 1,
    /// A pooler in between gives every transaction another session.
    Pooled = 2,
}

impl Postgres {
    /// Reads the URL, and the files that it names; connects to nothing yet.
    ///
    /// # Errors
    /// [`Config`](lockstep_core::ErrorKind::Config) for a URL that can never work. The message
    /// never repeats the password.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        Ok(Self {
            settings: Arc::new(Settings::parse(url)?),
            route: Arc::new(AtomicU8::new(Route::Unknown as u8)),
        })
    }

    /// Creates the tables and functions, or leaves them as they are. May run anywhere, at any time
    /// and twice at once.
    ///
    /// Dropping the future leaves either everything or nothing created.
    ///
    /// # Errors
    /// [`Denied`](lockstep_core::ErrorKind::Denied) if the role may not create them.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        migrate::run(&self.settings).await
    }

    /// The SQL that [`migrate`](Self::migrate) runs, for people who let others run it.
    pub fn schema_sql(&self) -> String {
        migrate::script(&self.settings.schema)
    }

    fn route(&self) -> Route {
        match self.route.load(Ordering::Relaxed) {
            1 => Route::Session,
            2 => Route::Pooled,
            _ => Route::Unknown,
        }
    }

    fn set_route(&self, route: Route) {
        self.route.store(route as u8, Ordering::Relaxed);
    }
}

impl Connect for Postgres {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async move {
            Ok(Arc::new(store::Lane::open(self, inbox).await?) as Arc<dyn LockStore>)
        })
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("settings", &self.settings).finish_non_exhaustive()
    }
}
