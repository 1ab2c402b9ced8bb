//! SQLite: one writer per file, so the write lock is the row lock.

use std::time::Duration;

use lockstep_core::{ErrorKind, Key};

use super::ask::Question;
use super::dialect::{Pass, Patience, fill};

pub(super) const SCHEMA: &str = include_str!("sql/sqlite_schema.sql");

pub(super) fn verify(pass: &Pass<'_>, token: i64) -> Question {
    let values = [
        ("origin", literal(&pass.origin())),
        ("key", literal(pass.key.as_str())),
        ("token", token.to_string()),
    ];
    fill(include_str!("sql/sqlite_verify.sql"), &values).into()
}

pub(super) fn lock_in(key: &Key, patience: Patience) -> Question {
    let text = fill(include_str!("sql/sqlite_lock_in.sql"), &[("key", literal(key.as_str()))]);
    let busy_timeout = match patience {
        Patience::Yours => None,
        Patience::None => Some(Duration::ZERO),
        Patience::Within(wait) => Some(whole_millis(wait)),
    };
    Question { text, busy_timeout }
}

/// As SQLite counts, which is in 31 bits; rounded up.
fn whole_millis(wait: Duration) -> Duration {
    let millis = wait.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX).min(i32::MAX as u64))
}

/// `code` is an extended result code; its lowest byte is the plain one.
pub(super) fn judge(code: &str) -> (bool, ErrorKind, &'static str) {
    let extended: i32 = code.parse().unwrap_or_default();
    match (extended, extended & 0xff) {
        // What this tx has read is out of date. No waiting helps, only beginning again.
        (BUSY_SNAPSHOT, _) => (false, ErrorKind::Busy, "the file has changed since the tx began"),
        (_, BUSY | LOCKED) => (true, ErrorKind::Busy, "another transaction writes"),
        (_, FULL) => (false, ErrorKind::Busy, "the disk is full"),
        (_, READONLY | PERM) => (false, ErrorKind::Denied, "the file must be writable"),
        (_, ERROR) => (false, ErrorKind::NotMigrated, "are the tables there? See `sql::schema`"),
        _ => (false, ErrorKind::Foreign, "unexpected"),
    }
}

const ERROR: i32 = 1;
const PERM: i32 = 3;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const FULL: i32 = 13;
const BUSY_SNAPSHOT: i32 = 517;

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_too_long_for_the_setting() {
        assert_eq!(whole_millis(Duration::MAX), Duration::from_millis(i32::MAX as u64));
        assert_eq!(whole_millis(Duration::from_nanos(1)), Duration::from_millis(1));
    }

    #[test]
    fn codes_say_whether_waiting_could_have_helped() {
        assert!(judge("5").0 && judge("261").0 && judge("6").0);
        assert_eq!(
            judge("517"),
            (false, ErrorKind::Busy, "the file has changed since the tx began")
        );
        assert_eq!(judge("1").1, ErrorKind::NotMigrated);
    }
}
