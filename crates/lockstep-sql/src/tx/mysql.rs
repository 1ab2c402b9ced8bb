//! MySQL and MariaDB: two statements in one text where the answer needs a second look.

use std::fmt::Write;

use lockstep_core::{ErrorKind, Key};

use super::ask::Question;
use super::dialect::{Pass, Patience, fill};

/// Where a database lives.
pub(crate) const HOME: &str = "CONCAT_WS('/', @@hostname, @@port, @@datadir, DATABASE())";

pub(crate) fn schema() -> String {
    fill(include_str!("sql/mysql_schema.sql"), &[("home", HOME.to_owned())])
}

/// A guard whose store has a name may be of this very database, which knows.
pub(super) fn verify(pass: &Pass<'_>, token: i64) -> Question {
    let mut values = vec![
        ("origin", literal(&pass.origin())),
        ("key", literal(pass.key.as_str())),
        ("token", token.to_string()),
    ];
    let Some(id) = pass.id else {
        return fill(include_str!("sql/mysql_verify.sql"), &values).into();
    };
    values.extend([
        ("id", format!("x'{id:032x}'")),
        ("home", HOME.to_owned()),
        ("row_key", literal(&pass.row_key())),
    ]);
    fill(include_str!("sql/mysql_verify_own.sql"), &values).into()
}

pub(super) fn lock_in(key: &Key, patience: Patience) -> Question {
    let wait_s = match patience {
        Patience::Yours => None,
        Patience::None => Some(0),
        Patience::Within(wait) => Some(wait.as_nanos().div_ceil(1_000_000_000).clamp(1, 1 << 26)),
    };
    // MariaDB puts the setting back by itself, also after a refusal. MySQL does not know the word, and
    // its error is better than to wait for longer than was asked.
    let limit = wait_s
        .map(|wait_s| format!("SET STATEMENT innodb_lock_wait_timeout = {wait_s} FOR\n"))
        .unwrap_or_default();
    let values = [("limit", limit), ("key", literal(key.as_str()))];
    fill(include_str!("sql/mysql_lock_in.sql"), &values).into()
}

/// `code` is the number of an error.
pub(super) fn judge(code: &str) -> (bool, ErrorKind, &'static str) {
    match code {
        "1205" | "3572" => (true, ErrorKind::Busy, "another transaction has the row"),
        "1213" | "1020" => (false, ErrorKind::Busy, "another transaction was in the way"),
        "1040" | "1203" => (false, ErrorKind::Busy, "the server lacks connections"),
        "1290" | "1792" | "1836" => (false, ErrorKind::Busy, "the server takes no writes"),
        "1146" => (false, ErrorKind::NotMigrated, "tables are missing: see `sql::schema`"),
        "1044" | "1045" | "1142" => (false, ErrorKind::Denied, "the user lacks a right"),
        _ => (false, ErrorKind::Foreign, "unexpected"),
    }
}

/// Bytes as they stand in SQL, whatever the session has set quotes, backslashes and character sets to
/// mean.
fn literal(text: &str) -> String {
    let mut hex = "x'".to_owned();
    for byte in text.bytes() {
        let _ = write!(hex, "{byte:02x}");
    }
    hex + "'"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn waiting_is_counted_in_whole_seconds_and_never_shortened() {
        let key = Key::new("a'b").unwrap();
        let text = |patience| lock_in(&key, patience).text;
        assert!(
            text(Patience::Yours).starts_with("INSERT") && !text(Patience::Yours).contains("SET")
        );
        assert!(text(Patience::None).contains("= 0 FOR"));
        assert!(text(Patience::Within(Duration::from_millis(1001))).contains("= 2 FOR"));
        assert!(text(Patience::Within(Duration::ZERO)).contains("= 1 FOR"));
        assert!(text(Patience::None).contains("x'612762'"));
    }
}
