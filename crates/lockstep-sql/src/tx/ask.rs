//! What a driver has to do: send one text in a tx, and bring the one answer.

use std::error::Error;
use std::time::Duration;

use lockstep_core::{Effect, ErrorKind, StoreError};

use super::Dialect;

/// A tx of some driver, opened and ended by the user.
///
/// `Via` names who taught the driver this (one marker type per driver), so that another crate can
/// do it for a driver that neither it nor this crate owns. It is always inferred.
pub trait Tx<Via> {
    /// What an ask gives: a future, or the answer itself with a driver without async.
    type Reply<'a, R: Send + 'a>
    where
        Self: 'a;

    /// Which SQL its database understands.
    const DIALECT: Dialect;

    /// Runs the question's text in one round trip, and gives `read` the first column of the first
    /// row of its answer.
    fn ask<'a, R, F>(&'a mut self, question: Question, read: F) -> Self::Reply<'a, R>
    where
        R: Send + 'a,
        F: FnOnce(Result<Option<String>, Failure>) -> R + Send + 'a;

    /// An answer that needs no question.
    fn ready<'a, R: Send + 'a>(&'a mut self, answer: R) -> Self::Reply<'a, R>;
}

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// SQL, complete: nothing is to be bound, so that nothing has to be prepared first.
    pub text: String,
    /// SQLite only: how long to wait for the file, instead of as long as the connection is set to,
    /// which is to be put back afterwards.
    pub busy_timeout: Option<Duration>,
}

impl From<String> for Question {
    fn from(text: String) -> Self {
        Self { text, busy_timeout: None }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// Another tx had what was asked for until the time was up.
    Locked(StoreError),
    /// Anything else.
    Store(StoreError),
}

impl Failure {
    /// What an error of the driver means: `code` is the SQLSTATE (PostgreSQL), the number of the
    /// error (MySQL) or the extended result code (SQLite), `None` if the server did not say it.
    pub fn new(
        dialect: Dialect,
        code: Option<&str>,
        error: impl Error + Send + Sync + 'static,
    ) -> Self {
        let (locked, kind, advice) = match code {
            Some(code) => dialect.judge(code),
            None => (false, ErrorKind::Unavailable, "no answer"),
        };
        // Nothing takes effect before the user commits.
        let message = match error.source() {
            Some(source) => format!("{advice}: {error}: {source}"),
            None => format!("{advice}: {error}"),
        };
        let error = StoreError::new(dialect.name(), kind, Effect::None, message).with_source(error);
        if locked { Self::Locked(error) } else { Self::Store(error) }
    }

    /// The tx is none: what is locked would be unlocked at once.
    pub fn not_in_a_tx(dialect: Dialect) -> Self {
        Self::Store(StoreError::config(
            dialect.name(),
            "the connection is not in a transaction: begin one first",
        ))
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        let (Failure::Locked(error) | Failure::Store(error)) = failure;
        error
    }
}
