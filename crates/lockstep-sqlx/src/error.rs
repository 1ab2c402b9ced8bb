//! What sqlx's errors mean.

use std::error::Error;

use lockstep_sql::tx::{self, Dialect};

/// [`lockstep_sql::tx::is_conflict`] for those who use sqlx: it knows the same errors, and sqlx's
/// own.
pub fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    let mut below =
        std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    tx::is_conflict(error) || below.any(says_conflict)
}

fn says_conflict(error: &(dyn Error + 'static)) -> bool {
    let known = error.downcast_ref().and_then(code);
    known.is_some_and(|(dialect, code)| dialect.is_conflict(&code))
}

/// The code by which a database names its error: SQLSTATE, number or extended result code.
pub(crate) fn code(error: &sqlx::Error) -> Option<(Dialect, String)> {
    let error = error.as_database_error()?;
    #[cfg(feature = "postgres")]
    if let Some(error) = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        return Some((Dialect::Postgres, error.code().to_owned()));
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return Some((Dialect::Mysql, error.number().to_string()));
    }
    #[cfg(feature = "sqlite")]
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        return Some((Dialect::Sqlite, error.code()?.into_owned()));
    }
    let _ = error;
    None
}
