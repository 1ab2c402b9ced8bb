//! [`verify`](lockstep_sql::tx::verify) and [`lock_in`](lockstep_sql::tx::lock_in) inside a tx that
//! you opened with sqlx: this crate borrows its connection for one statement and does nothing else.
//! One feature per database: `postgres`, `mysql`, `sqlite`.
//!
//! The words are those of [`lockstep_sql::tx`], which is here as [`sql`].
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! use lockstep_sqlx::sql;
//! use sqlx::Connection;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let locks = lockstep_lock::Locks::open(lockstep_lock::memory::Memory::new()).await?;
//! # let guard = locks.lock("ledger").await?;
//! let mut db = sqlx::SqliteConnection::connect("sqlite::memory:").await?;
//! let schema = sqlx::AssertSqlSafe(sql::schema(sql::Dialect::Sqlite));
//! sqlx::raw_sql(schema).execute(&mut db).await?;
//!
//! let mut tx = db.begin().await?;
//! sql::verify(&mut tx, &guard).await?;
//! // … your statements …
//! tx.commit().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A function that is given a `&mut PgConnection` may use it as well. Outside a tx it is refused, and sqlx
//! knows only of those that its own `begin` opened.

mod error;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod tx;

pub use error::is_conflict;
pub use lockstep_sql::tx as sql;

/// The driver sqlx.
#[derive(Debug)]
pub enum Sqlx {}
