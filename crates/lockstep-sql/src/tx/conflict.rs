//! Optimistic updates: nobody is kept out, and who comes second is told.

use std::error::Error;

use lockstep_core::{ErrorKind, StoreError};

use super::driver;
use super::lock_in::LockInError;
use super::verify::VerifyError;

/// Judges an update by a version column: one row is success, none is a [`Conflict`].
///
/// ```
/// use lockstep_sql::tx as sql;
///
/// # let db = rusqlite::Connection::open_in_memory()?;
/// # db.execute_batch("CREATE TABLE cart (id, items, version); INSERT INTO cart VALUES (7, 'tea', 3)")?;
/// let changed = db.execute(
///     "UPDATE cart SET items = 'coffee', version = version + 1 WHERE id = 7 AND version = 3", [],
/// )?;
/// sql::expect_one(changed as u64)?;
///
/// let late = db.execute("UPDATE cart SET items = 'milk', version = version + 1 WHERE id = 7 AND version = 3", [])?;
/// assert!(matches!(sql::expect_one(late as u64), Err(sql::NotOneRow::Conflict(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`NotOneRow::Conflict`] if no row had the expected version; [`NotOneRow::Several`] if the
/// condition is wrong.
pub fn expect_one(rows_affected: u64) -> Result<(), NotOneRow> {
    match rows_affected {
        1 => Ok(()),
        0 => Err(NotOneRow::Conflict(Conflict)),
        rows => Err(NotOneRow::Several { rows }),
    }
}

/// Somebody else has changed the row since it was read: read it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the row has been changed, or deleted, since it was read")]
pub struct Conflict;

/// What an update that was to change one row did instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotOneRow {
    /// Nothing: somebody else was first.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Too much: a mistake in the statement, which must be rolled back and not tried again.
    #[error(
        "the update changed {rows} rows instead of one: its condition does not name one row \
         (is the key missing from the WHERE?); roll back"
    )]
    Several {
        /// How many.
        rows: u64,
    },
}

/// Whether an error, or one of those below it, says that another tx was in the way and that the
/// whole of this one, from its beginning, is worth another try: a [`Conflict`], a serialization
/// failure, a deadlock's victim, a busy SQLite file, a row that was locked for too long.
///
/// It knows the errors of this module and of the drivers that this crate knows; for sqlx use the
/// function of the same name in `lockstep-sqlx`. A stale guard is no conflict: trying again
/// does not bring the lock back.
pub fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source())
        .any(says_conflict)
}

fn says_conflict(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<NotOneRow>() {
        return matches!(error, NotOneRow::Conflict(_));
    }
    if let Some(VerifyError::Store(error)) = error.downcast_ref() {
        return is_busy(error);
    }
    if let Some(error) = error.downcast_ref::<LockInError>() {
        return match error {
            LockInError::Busy { .. } => true,
            LockInError::Store(error) => is_busy(error),
            LockInError::Name(_) => false,
        };
    }
    error.is::<Conflict>()
        || error.downcast_ref::<StoreError>().is_some_and(is_busy)
        || driver::says_conflict(error)
}

fn is_busy(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Busy
}
