//! PostgreSQL: everything is a function in the database, so that a refusal can leave the tx whole.

use lockstep_core::{ErrorKind, Key};

use super::ask::Question;
use super::dialect::{Pass, Patience, fill};
use crate::postgres::{judge_state, tx_schema};

pub(super) fn schema() -> String {
    tx_schema("public")
}

pub(super) fn verify(pass: &Pass<'_>, token: i64) -> Question {
    let store = match pass.id {
        Some(id) => format!("'{id:032x}'::uuid"),
        None => "NULL".to_owned(),
    };
    let values = [
        ("store", store),
        ("origin", literal(&pass.origin())),
        ("key", literal(pass.key.as_str())),
        ("row_key", literal(&pass.row_key())),
        ("token", token.to_string()),
    ];
    fill(include_str!("sql/postgres_verify.sql"), &values).into()
}

pub(super) fn lock_in(key: &Key, patience: Patience) -> Question {
    let wait_ms = match patience {
        Patience::Yours => "NULL".to_owned(),
        Patience::None => "0".to_owned(),
        // The setting is a number of 31 bits.
        Patience::Within(wait) => {
            wait.as_nanos().div_ceil(1_000_000).clamp(1, i32::MAX as u128).to_string()
        }
    };
    let values = [("key", literal(key.as_str())), ("wait_ms", wait_ms)];
    fill(include_str!("sql/postgres_lock_in.sql"), &values).into()
}

/// `code` is a SQLSTATE.
pub(super) fn judge(code: &str) -> (bool, ErrorKind, &'static str) {
    match code {
        "55P03" => (true, ErrorKind::Busy, "another transaction has the row"),
        "57014" => (false, ErrorKind::Busy, "the statement was cancelled, or took too long"),
        "25P02" => (false, ErrorKind::Config, "roll back first"),
        code => {
            let (kind, advice) = judge_state(code);
            (false, kind, advice)
        }
    }
}

/// A text as it stands in SQL, whatever the session has set backslashes to mean.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_leave_its_quotes() {
        assert_eq!(literal(r"it's \' {token}"), r"E'it''s \\'' {token}'");
        let key = Key::new("a'; DROP TABLE x; -- {wait_ms}").unwrap();
        let sql = lock_in(&key, Patience::None).text;
        assert!(sql.contains("E'a''; DROP TABLE x; -- {wait_ms}', 0)"), "{sql}");
    }
}
