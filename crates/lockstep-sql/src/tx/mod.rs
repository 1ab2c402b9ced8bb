//! Inside your own tx: the checks that a database can make for you, in a tx that you have opened
//! with your own driver and that you commit yourself.
//!
//! | technique | words | it holds |
//! |---|---|---|
//! | pessimistic | [`lock_in`]`(&mut tx, key)` | a row lock, until the tx ends |
//! | optimistic | [`expect_one`]`(rows)`, [`retry`] | nothing: a conflict is noticed, and tried again |
//! | lease and fence | [`verify`]`(&mut tx, &guard)` | the guard's lock: a holder that has been replaced writes nothing |
//!
//! The words are the same for every driver. With one that knows no `async` (rusqlite) they answer at once:
//! leave out the `.await`, and end [`lock_in`] with `.take()`. A driver is one implementation of [`Tx`], and all
//! drivers of one database send the same text, so every check is one round trip.
//!
//! The tables are created by the script that [`schema`] returns; on PostgreSQL and MySQL they come with
//! `lockstep migrate` as well.
//!
//! ```
//! use lockstep_lock::{Locks, memory::Memory};
//! use lockstep_sql::tx as sql;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let mut db = rusqlite::Connection::open_in_memory()?;
//! db.execute_batch(&sql::schema(sql::Dialect::Sqlite))?;
//! db.execute_batch("CREATE TABLE ledger (balance INTEGER); INSERT INTO ledger VALUES (7)")?;
//! let locks = Locks::open(Memory::new()).await?;
//! let guard = locks.lock("ledger").await?;
//!
//! let mut tx = db.transaction()?;
//! sql::verify(&mut tx, &guard)?; // Err(Stale): somebody else has the lock by now
//! tx.execute("UPDATE ledger SET balance = balance - 5", [])?;
//! tx.commit()?;
//! guard.release().await?; // only now: see `verify`
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod ask;
mod conflict;
mod dialect;
mod driver;
mod lock_in;
pub(crate) mod mysql;
mod postgres;
mod retry;
mod sqlite;
mod verify;

pub use ask::{Failure, Question, Tx};
pub use conflict::{Conflict, NotOneRow, expect_one, is_conflict};
pub use dialect::{Dialect, schema};
pub use driver::{MysqlAsync, Rusqlite, TokioPostgres};
pub use lock_in::{LockIn, LockInError, TryLockIn, lock_in};
pub use retry::{Failed, Retry, retry};
pub use verify::{VerifyError, verify};
