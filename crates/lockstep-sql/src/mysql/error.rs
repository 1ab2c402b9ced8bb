//! From the server's numbers and the driver's errors to what the caller may conclude.

use lockstep_core::{Effect, ErrorKind, StoreError};
use mysql_async::{DriverError, Error, IoError, ServerError};

pub(super) const STORE: &str = "mysql";

/// A sleep or another statement was interrupted by `KILL QUERY`.
const INTERRUPTED: u16 = 1317;

/// A transaction was rolled back to end a circle.
const DEADLOCK: u16 = 1213;

/// An error while connecting: nothing of ours was sent.
pub(super) fn connecting(error: Error) -> StoreError {
    let (kind, message) = match &error {
        Error::Server(answer) => {
            let (kind, _, advice) = judge(answer.code);
            (kind, worded(answer, advice))
        }
        Error::Io(IoError::Tls(_)) => (ErrorKind::Config, format!("cannot encrypt: {error}")),
        Error::Io(IoError::Io(cause)) if !is_network(cause) => {
            (ErrorKind::Config, format!("cannot connect: {error}"))
        }
        Error::Io(_) => (ErrorKind::Unavailable, format!("cannot reach the server: {error}")),
        Error::Driver(DriverError::ConnectionClosed) => {
            (ErrorKind::Unavailable, "the server closed the connection".to_owned())
        }
        _ => (ErrorKind::Config, format!("cannot connect: {error}")),
    };
    new(kind, Effect::None, message).with_source(error)
}

/// An error after a request may have left.
pub(super) fn answered(error: Error) -> StoreError {
    let Error::Server(answer) = &error else {
        return new(
            ErrorKind::Unavailable,
            Effect::Unknown,
            format!("the connection broke: {error}"),
        )
        .with_source(error);
    };
    let (kind, effect, advice) = judge(answer.code);
    new(kind, effect, worded(answer, advice)).with_source(error)
}

/// Whether InnoDB has chosen this transaction to end a circle: nothing of it has happened.
pub(super) fn is_undone(error: &Error) -> bool {
    matches!(error, Error::Server(answer) if answer.code == DEADLOCK)
}

/// The pool had no connection to give.
pub(super) fn all_in_use() -> StoreError {
    new(
        ErrorKind::Unavailable,
        Effect::None,
        "all connections were in use for 2 s; a larger ?pool= may help",
    )
}

/// No connection in time.
pub(super) fn no_connection() -> StoreError {
    new(ErrorKind::Unavailable, Effect::None, "no connection to the server within 2 s")
}

/// No answer in time.
pub(super) fn no_answer() -> StoreError {
    new(ErrorKind::Unavailable, Effect::Unknown, "the server did not answer within 2 s")
}

/// An answer that our own procedures do not give.
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

/// Whether this is what `KILL QUERY` makes of a sleep. MySQL 8 has no error for that: there the
/// sleep merely returns early.
pub(super) fn is_interruption(error: &Error) -> bool {
    matches!(error, Error::Server(answer) if answer.code == INTERRUPTED)
}

fn judge(code: u16) -> (ErrorKind, Effect, &'static str) {
    use Effect::{None, Unknown};
    use ErrorKind::{Busy, Config, Denied, Foreign, NotMigrated, Unavailable};
    match code {
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698 => {
            (Denied, None, "check user, password and rights; `lockstep migrate --print` lists them")
        }
        1146 | 1305 => {
            (NotMigrated, None, "tables are missing: run `lockstep migrate --store URL`")
        }
        1049 => (Config, None, "no such database"),
        1193 | 1231 => (Config, None, "not a MySQL or MariaDB that we know"),
        1665 => (Config, None, "binlog_format must be ROW or MIXED"),
        1040 | 1203 | 1226 => (Busy, None, "the server lacks connections"),
        1205 | 1213 => (Busy, None, "another transaction was in the way"),
        1290 | 1792 | 1836 => {
            (Busy, None, "the server takes no writes, like a replica; locks need the primary")
        }
        1021 | 1041 | 1114 => (Busy, None, "the server lacks memory or disk"),
        // It may have been in the middle of a commit, and what it did before is rolled back only
        // if it was not.
        INTERRUPTED | 1969 | 3024 => (Busy, Unknown, "it was interrupted or took too long"),
        1053 | 1077 | 1079 | 1152 | 1158..=1161 | 1184 | 1927 | 2006 | 2013 | 4031 => {
            (Unavailable, Unknown, "the server ended the connection")
        }
        _ => (Foreign, None, "unexpected"),
    }
}

fn worded(answer: &ServerError, advice: &str) -> String {
    format!("{advice}: {} (error {})", answer.message, answer.code)
}

/// Certificates and the like come as I/O errors too, but asking again does not help there.
fn is_network(error: &std::io::Error) -> bool {
    error.get_ref().is_none_or(|inner| inner.downcast_ref::<rustls::Error>().is_none())
}

fn new(kind: ErrorKind, effect: Effect, message: impl Into<String>) -> StoreError {
    StoreError::new(STORE, kind, effect, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_what_to_do() {
        for (code, kind) in [
            (1044, ErrorKind::Denied),
            (1045, ErrorKind::Denied),
            (1142, ErrorKind::Denied),
            (1370, ErrorKind::Denied),
            (1146, ErrorKind::NotMigrated),
            (1305, ErrorKind::NotMigrated),
            (1205, ErrorKind::Busy),
            (1213, ErrorKind::Busy),
            (1040, ErrorKind::Busy),
            (1203, ErrorKind::Busy),
            (1290, ErrorKind::Busy),
            (1836, ErrorKind::Busy),
            (1049, ErrorKind::Config),
            (1064, ErrorKind::Foreign),
        ] {
            let (judged, effect, _) = judge(code);
            assert_eq!((judged, effect), (kind, Effect::None), "{code}");
        }
        for code in [1053, 1927, 2006, 2013] {
            let (judged, effect, _) = judge(code);
            assert_eq!((judged, effect), (ErrorKind::Unavailable, Effect::Unknown), "{code}");
        }
    }
}
