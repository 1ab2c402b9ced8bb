//! A row lock that dies with the tx.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use lockstep_core::{Key, KeyError, StoreError};

use super::ask::{Failure, Tx};
use super::dialect::Patience;

/// Locks a key in the tx: a row lock, which another tx that asks for the same key waits for, and
/// which ends when the tx does, however it ends. No lease, no renewal, no token: while the
/// tx lives it holds.
///
/// Await it, or with a driver without async call [`take`](LockIn::take). It waits as long as the tx is
/// set to (`lock_timeout`, `innodb_lock_wait_timeout`, `busy_timeout`); [`no_wait`](LockIn::no_wait),
/// [`within`](LockIn::within) and [`skip_locked`](LockIn::skip_locked) say otherwise, and **after
/// their refusal the tx can go on**. These locks and those of [`Locks`](lockstep_lock::Locks) know
/// nothing of each other.
///
/// On **SQLite** the row lock is the write lock of the whole file: there are no others. Two keys exclude each
/// other there, and so does any other write. A tx that has read something (a refused attempt counts) and
/// finds the file changed since must begin again, and [`is_conflict`](super::is_conflict) says so:
/// lock first, read afterwards.
///
/// ```
/// use lockstep_sql::tx as sql;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("app.db");
/// let (mut one, mut other) = (rusqlite::Connection::open(&path)?, rusqlite::Connection::open(&path)?);
/// one.execute_batch(&sql::schema(sql::Dialect::Sqlite))?;
///
/// let mut tx = one.transaction()?;
/// sql::lock_in(&mut tx, "account:7").take()?;
/// let mut late = other.transaction()?;
/// assert!(!sql::lock_in(&mut late, "account:7").skip_locked().take()?);
/// tx.commit()?;
/// assert!(sql::lock_in(&mut late, "account:7").skip_locked().take()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lock_in<'a, Via, T: Tx<Via>>(tx: &'a mut T, key: impl AsRef<str>) -> LockIn<'a, Via, T> {
    LockIn { tx, key: Key::new(key), patience: Patience::Yours, via: PhantomData }
}

/// A row lock that is about to be asked for; see [`lock_in`].
#[must_use = "nothing is locked until it is awaited or taken"]
pub struct LockIn<'a, Via, T> {
    tx: &'a mut T,
    key: Result<Key, KeyError>,
    patience: Patience,
    via: PhantomData<fn() -> Via>,
}

/// The same with `false` for "another tx has it"; see [`LockIn::skip_locked`].
#[must_use = "nothing is locked until it is awaited or taken"]
pub struct TryLockIn<'a, Via, T>(LockIn<'a, Via, T>);

/// Why the key is not locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockInError {
    /// The name cannot be a key.
    #[error(transparent)]
    Name(#[from] KeyError),
    /// Another tx has it, and the time that was given is up.
    #[error("`{key}` is locked by another transaction")]
    Busy {
        /// The key.
        key: Key,
    },
    /// The database could not be asked, or said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<'a, Via, T: Tx<Via>> LockIn<'a, Via, T> {
    /// Does not wait: [`LockInError::Busy`] if another tx has it.
    pub fn no_wait(mut self) -> Self {
        self.patience = Patience::None;
        self
    }

    /// Waits no longer than this: [`LockInError::Busy`] then. Counted in milliseconds by PostgreSQL and
    /// SQLite, and in whole seconds by MySQL and MariaDB, rounded up.
    pub fn within(mut self, wait: Duration) -> Self {
        self.patience = Patience::Within(wait);
        self
    }

    /// Does not wait, and answers `false` if another tx has it: for workers that take whatever is
    /// free.
    pub fn skip_locked(self) -> TryLockIn<'a, Via, T> {
        TryLockIn(self.no_wait())
    }

    /// Asks for it.
    ///
    /// # Errors
    /// See [`LockInError`].
    pub fn take(self) -> T::Reply<'a, Result<(), LockInError>> {
        match self.key {
            Err(error) => self.tx.ready(Err(error.into())),
            Ok(key) => {
                let question = T::DIALECT.lock_in(&key, self.patience);
                self.tx.ask(question, move |answer| match is_taken(answer) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(LockInError::Busy { key }),
                    Err(error) => Err(error.into()),
                })
            }
        }
    }
}

impl<'a, Via, T: Tx<Via>> TryLockIn<'a, Via, T> {
    /// Asks for it: `true` if the key is now locked.
    ///
    /// # Errors
    /// See [`LockInError`]; never [`Busy`](LockInError::Busy).
    pub fn take(self) -> T::Reply<'a, Result<bool, LockInError>> {
        match self.0.key {
            Err(error) => self.0.tx.ready(Err(error.into())),
            Ok(key) => {
                let question = T::DIALECT.lock_in(&key, self.0.patience);
                self.0.tx.ask(question, |answer| Ok(is_taken(answer)?))
            }
        }
    }
}

impl<'a, Via, T: Tx<Via>> IntoFuture for LockIn<'a, Via, T>
where
    T::Reply<'a, Result<(), LockInError>>: Future<Output = Result<(), LockInError>>,
{
    type Output = Result<(), LockInError>;
    type IntoFuture = T::Reply<'a, Result<(), LockInError>>;

    fn into_future(self) -> Self::IntoFuture {
        self.take()
    }
}

impl<'a, Via, T: Tx<Via>> IntoFuture for TryLockIn<'a, Via, T>
where
    T::Reply<'a, Result<bool, LockInError>>: Future<Output = Result<bool, LockInError>>,
{
    type Output = Result<bool, LockInError>;
    type IntoFuture = T::Reply<'a, Result<bool, LockInError>>;

    fn into_future(self) -> Self::IntoFuture {
        self.take()
    }
}

fn is_taken(answer: Result<Option<String>, Failure>) -> Result<bool, StoreError> {
    match answer {
        Ok(answer) => Ok(answer.as_deref() != Some("busy")),
        Err(Failure::Locked(_)) => Ok(false),
        Err(Failure::Store(error)) => Err(error),
    }
}
