//! Locks on a MariaDB or MySQL server, for every machine that reaches it.
//!
//! A free lock is taken and given back by one `UPDATE` each; everything else is one call of a
//! procedure in the database and one commit (`sql/*.sql`). The lock's row is locked first and judged
//! by the server's clock after that; a release passes the lock on in the same commit and wakes only
//! the one that got it. The row of a free lock stays, so that its token only grows.
//!
//! Tested against MariaDB 10.11, the one that Debian has. The SQL keeps to what MySQL 8.0.29 and later
//! understand as well, but has **not been run there**.
//!
//! # URL
//!
//! `mysql://user:password@host:3306/database?…`, or `mariadb://…`.
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `prefix` | | a tenant: handles with different prefixes never meet; letters, digits, `_`, `-`, at most 64 |
//! | `pool` | 8 | connections for asking and releasing; one more listens while somebody waits, up to four more renew and give back |
//! | `migrate` | `auto` | `auto` creates missing tables if the user may; `never` leaves it to `lockstep migrate` |
//! | `sslmode` | `prefer` | `disable`, `prefer`, `require`, `verify-full`, with the meaning they have in libpq |
//! | `sslrootcert` | the public authorities | a PEM file to check the server against; with `verify-full` only |
//! | `password_file` | | a file with the password, instead of one in the URL, read when the store is created |
//!
//! `prefer` encrypts if the server offers it and `require` always, but **neither checks who the
//! server is**; only `verify-full` does. Use it wherever the network is not your own. Encrypting sets
//! rustls's provider for the process to aws-lc-rs if the process has none: the driver insists on it.
//!
//! # Who is told at once
//!
//! The server cannot notify anybody. A handle with waiters therefore keeps one connection waiting in
//! `GET_LOCK`, and whoever passes a lock on to it interrupts that with `KILL QUERY`, right after the
//! commit and in the same call (docs/decisions/0009-mysql-push.md). It needs no privilege as long as all use the same user. Whether it
//! works is tried out when a handle opens; where it does not, as behind some proxies,
//! [`facts`](lockstep_lock::StoreFacts) say `push: false` with a warning, and waiters ask at
//! intervals. Locks are as safe there as on a direct connection.
//!
//! A holder whose lock is broken at once hears of it at its next renewal, after at most a third of
//! its ttl.
//!
//! # Durability
//!
//! Every grant, renewal, release and place in the queue is a commit of its own, and as durable as
//! the server's settings make it; what could lose one is a warning in the facts.
//!
//! # What it costs
//!
//! A lock that was ever asked for keeps its row (about 200 bytes) for ever; deleting it would start
//! its tokens again. Taking and giving back a free lock is two round trips and two commits; a lock that
//! was never asked for takes one round trip more. Two user locks per handle that waits.

mod config;
mod error;
mod hints;
mod listen;
mod migrate;
mod pool;
mod rows;
mod store;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lockstep_core::StoreError;
use lockstep_lock::Inbox;
use lockstep_lock::store::{Connect, LockStore, Verb};

use config::Settings;

/// A MariaDB or MySQL server as a lock store.
///
/// ```no_run
/// # async fn example() -> Result<(), lockstep_core::StoreError> {
/// use lockstep_lock::store::Connect;
/// use lockstep_sql::mysql::MySql;
///
/// let mysql = MySql::from_url("mysql://app:secret@db.example:3306/app?prefix=shop")?;
/// let lane = mysql.open(None).await?;
/// assert_eq!(lane.facts().store, "mysql");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MySql {
    settings: Arc<Settings>,
    /// What the first lane finds out.
    route: Arc<AtomicU8>,
}

/// What is known about the way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Route {
    Unknown = 0,
    /// A statement of ours that waits can be found and interrupted.
    Direct = 1,
    /// It cannot.
    Deaf = 2,
}

impl MySql {
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

    /// Creates the tables and procedures, or leaves them as they are. May run anywhere, at any time
    /// and twice at once.
    ///
    /// Dropping the future may leave some created and others not; running it again adds what is missing.
    ///
    /// # Errors
    /// [`Denied`](lockstep_core::ErrorKind::Denied) if the user may not create them.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        migrate::run(&self.settings).await
    }

    /// The SQL that [`migrate`](Self::migrate) runs, for people who let others run it, with the
    /// `DELIMITER` lines that the `mysql` and `mariadb` commands need.
    pub fn schema_sql(&self) -> String {
        migrate::script()
    }

    fn route(&self) -> Route {
        match self.route.load(Ordering::Relaxed) {
            1 => Route::Direct,
            2 => Route::Deaf,
            _ => Route::Unknown,
        }
    }

    fn set_route(&self, route: Route) {
        self.route.store(route as u8, Ordering::Relaxed);
    }
}

impl Connect for MySql {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async move {
            Ok(Arc::new(store::Lane::open(self, inbox).await?) as Arc<dyn LockStore>)
        })
    }
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySql").field("settings", &self.settings).finish_non_exhaustive()
    }
}
