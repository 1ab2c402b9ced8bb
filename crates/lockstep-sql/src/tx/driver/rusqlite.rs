//! rusqlite: answers at once.

use std::error::Error as StdError;

use rusqlite::{Connection, Error, Savepoint, Transaction};

use super::super::ask::{Failure, Question, Tx};
use super::super::dialect::Dialect;

/// The driver rusqlite.
#[derive(Debug)]
pub enum Rusqlite {}

/// For who writes `BEGIN` by hand; outside a tx it is refused.
impl Tx<Rusqlite> for Connection {
    type Reply<'a, R: Send + 'a>
        = R
    where
        Self: 'a;

    const DIALECT: Dialect = Dialect::Sqlite;

    fn ask<'a, R, F>(&'a mut self, question: Question, read: F) -> R
    where
        R: Send + 'a,
        F: FnOnce(Result<Option<String>, Failure>) -> R + Send + 'a,
    {
        read(run(self, &question))
    }

    fn ready<'a, R: Send + 'a>(&'a mut self, answer: R) -> R {
        answer
    }
}

macro_rules! as_its_connection {
    ($($tx:ident)+) => {$(
        impl Tx<Rusqlite> for $tx<'_> {
            type Reply<'a, R: Send + 'a>
                = R
            where
                Self: 'a;

            const DIALECT: Dialect = Dialect::Sqlite;

            fn ask<'a, R, F>(&'a mut self, question: Question, read: F) -> R
            where
                R: Send + 'a,
                F: FnOnce(Result<Option<String>, Failure>) -> R + Send + 'a,
            {
                read(run(self, &question))
            }

            fn ready<'a, R: Send + 'a>(&'a mut self, answer: R) -> R {
                answer
            }
        }
    )+};
}

as_its_connection!(Transaction Savepoint);

fn run(connection: &Connection, question: &Question) -> Result<Option<String>, Failure> {
    if connection.is_autocommit() {
        return Err(Failure::not_in_a_tx(Dialect::Sqlite));
    }
    let Some(wait) = question.busy_timeout else {
        return first(connection, &question.text).map_err(failure);
    };
    let before: i64 =
        connection.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).map_err(failure)?;
    connection.busy_timeout(wait).map_err(failure)?;
    let answer = first(connection, &question.text).map_err(failure);
    connection.pragma_update(None, "busy_timeout", before).map_err(failure)?;
    answer
}

fn first(connection: &Connection, text: &str) -> Result<Option<String>, Error> {
    let mut statement = connection.prepare(text)?;
    let mut rows = statement.query([])?;
    let mut answer = None;
    // To the last row: only then has the statement done all it does.
    while let Some(row) = rows.next()? {
        answer = answer.or(Some(row.get(0)?));
    }
    Ok(answer)
}

fn failure(error: Error) -> Failure {
    Failure::new(Dialect::Sqlite, code(&error).as_deref(), error)
}

fn code(error: &Error) -> Option<String> {
    error.sqlite_error().map(|error| error.extended_code.to_string())
}

pub(super) fn says_conflict(error: &(dyn StdError + 'static)) -> bool {
    let code = error.downcast_ref::<Error>().and_then(code);
    code.is_some_and(|code| Dialect::Sqlite.is_conflict(&code))
}
