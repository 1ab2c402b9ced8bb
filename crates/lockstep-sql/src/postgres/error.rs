//! From SQLSTATE and driver errors to what the caller may conclude.

use std::error::Error as _;

use deadpool_postgres::{PoolError, TimeoutType};
use lockstep_core::{Effect, ErrorKind, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

pub(super) const STORE: &str = "postgres";

/// An error while connecting: nothing of ours was sent.
pub(super) fn connecting(error: Error) -> StoreError {
    let (kind, advice) = trouble(&error);
    let message = match error.as_db_error() {
        Some(answer) => worded(answer, advice),
        None => format!("{advice}: {}", chain(&error)),
    };
    new(kind, Effect::None, message).with_source(error)
}

/// Whether a host that gives this error while connecting will not serve before a person has done something.
pub(super) fn is_lasting(error: &Error) -> bool {
    !trouble(error).0.may_retry()
}

fn trouble(error: &Error) -> (ErrorKind, &'static str) {
    if let Some(answer) = error.as_db_error() {
        let (kind, _, advice) = judge(answer.code());
        return (kind, advice);
    }
    match error.source() {
        Some(source) if source.downcast_ref::<std::io::Error>().is_some_and(is_network) => {
            (ErrorKind::Unavailable, "cannot reach the server")
        }
        None => (ErrorKind::Unavailable, "cannot reach the server"),
        Some(_) => (ErrorKind::Config, "cannot connect"),
    }
}

/// An error after a request may have left.
pub(super) fn answered(error: Error) -> StoreError {
    let Some(answer) = error.as_db_error() else {
        return new(
            ErrorKind::Unavailable,
            Effect::Unknown,
            format!("the connection broke: {}", chain(&error)),
        )
        .with_source(error);
    };
    let (kind, effect, advice) = judge(answer.code());
    new(kind, effect, worded(answer, advice)).with_source(error)
}

/// The pool had no connection to give.
pub(super) fn from_pool(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => connecting(error),
        PoolError::Timeout(TimeoutType::Wait) => new(
            ErrorKind::Unavailable,
            Effect::None,
            "all connections were in use for 2 s; a larger ?pool= may help",
        ),
        error => {
            new(ErrorKind::Unavailable, Effect::None, format!("cannot reach the server: {error}"))
        }
    }
}

/// No connection in time.
pub(super) fn no_connection() -> StoreError {
    new(ErrorKind::Unavailable, Effect::None, "no connection to the server within 2 s")
}

/// No answer in time.
pub(super) fn no_answer() -> StoreError {
    new(ErrorKind::Unavailable, Effect::Unknown, "the server did not answer within 2 s")
}

/// An answer that our own functions do not give.
pub(super) fn foreign(what: impl Into<String>) -> StoreError {
    new(ErrorKind::Foreign, Effect::Unknown, what)
}

/// The tables are missing; `why` says why they were not created.
pub(super) fn not_migrated(why: &str) -> StoreError {
    new(
        ErrorKind::NotMigrated,
        Effect::None,
        format!("the tables of Lockstep are missing{why}: run `lockstep migrate --store URL`"),
    )
}

/// Whether a connection that gave this error had better not be used again: its prepared
/// statements are gone or stale.
pub(super) fn spoils(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::INVALID_SQL_STATEMENT_NAME | &SqlState::FEATURE_NOT_SUPPORTED)
    )
}

/// A pooler that refuses start-up settings it does not know.
pub(super) fn refuses_settings(error: &StoreError) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<Error>());
    source.is_some_and(is_about_settings)
}

/// The same, as the driver says it. A pooler gives almost all its errors the same code, also "too many
/// connections" and "the server is down".
pub(super) fn is_about_settings(error: &Error) -> bool {
    let said = error.as_db_error();
    said.is_some_and(|error| {
        *error.code() == SqlState::PROTOCOL_VIOLATION
            && error.message().contains("startup parameter")
    })
}

/// What a SQLSTATE means in a tx that is not ours.
pub(crate) fn judge_state(state: &str) -> (ErrorKind, &'static str) {
    let (kind, _, advice) = judge(&SqlState::from_code(state));
    (kind, advice)
}

fn judge(code: &SqlState) -> (ErrorKind, Effect, &'static str) {
    use Effect::{None, Unknown};
    use ErrorKind::{Busy, Config, Denied, Foreign, NotMigrated, Unavailable};
    match code.code() {
        "42501" => (Denied, None, "the role lacks a right; `lockstep migrate --print` lists them"),
        "42P01" | "42883" | "3F000" => {
            (NotMigrated, None, "tables are missing: run `lockstep migrate --store URL`")
        }
        "25006" => {
            (Busy, None, "the server takes no writes, like a standby; locks need the primary")
        }
        "40001" | "40P01" | "55P03" => (Busy, None, "another transaction was in the way"),
        "57014" => (Busy, None, "it took longer than 1.8 s"),
        // A connection that is being shut down may have committed before.
        "57P01" | "57P02" | "57P05" => (Unavailable, Unknown, "the server ended the connection"),
        "57P03" => (Busy, None, "the server is starting up or shutting down"),
        "3D000" => (Config, None, "no such database"),
        "40003" => (Unavailable, Unknown, "the outcome is unknown"),
        // A statement that the session does not know (any more): a fresh connection does.
        "26000" | "0A000" => (Unavailable, None, "the connection was renewed"),
        state => match &state[..2] {
            "28" => (Denied, None, "check user, password and pg_hba.conf"),
            "53" => (Busy, None, "the server lacks connections, memory or disk"),
            "08" | "58" | "XX" => (Unavailable, Unknown, "the server or a pooler failed"),
            _ => (Foreign, None, "unexpected"),
        },
    }
}

fn worded(answer: &DbError, advice: &str) -> String {
    format!("{advice}: {} (SQLSTATE {})", answer.message(), answer.code().code())
}

/// Certificates and the like come as I/O errors too, but asking again does not help there.
fn is_network(error: &std::io::Error) -> bool {
    error.get_ref().is_none_or(|inner| inner.downcast_ref::<rustls::Error>().is_none())
}

fn chain(error: &Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn new(kind: ErrorKind, effect: Effect, message: impl Into<String>) -> StoreError {
    StoreError::new(STORE, kind, effect, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(code: &str) -> (ErrorKind, Effect) {
        let (kind, effect, _) = judge(&SqlState::from_code(code));
        (kind, effect)
    }

    #[test]
    fn states_say_what_to_do() {
        for (code, kind) in [
            ("28P01", ErrorKind::Denied),
            ("28000", ErrorKind::Denied),
            ("42501", ErrorKind::Denied),
            ("42P01", ErrorKind::NotMigrated),
            ("42883", ErrorKind::NotMigrated),
            ("40001", ErrorKind::Busy),
            ("40P01", ErrorKind::Busy),
            ("55P03", ErrorKind::Busy),
            ("57014", ErrorKind::Busy),
            ("53300", ErrorKind::Busy),
            ("25006", ErrorKind::Busy),
            ("57P03", ErrorKind::Busy),
            ("22P02", ErrorKind::Foreign),
        ] {
            assert_eq!(judged(code), (kind, Effect::None), "{code}");
        }
    }

    #[test]
    fn a_connection_that_is_shut_down_leaves_the_outcome_open() {
        for code in ["57P01", "57P02", "08006", "XX000"] {
            assert_eq!(judged(code), (ErrorKind::Unavailable, Effect::Unknown), "{code}");
        }
    }
}
