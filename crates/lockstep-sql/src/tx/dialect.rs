//! What differs between databases: texts, literals, and what their error codes mean.

use std::time::Duration;

use lockstep_core::{ErrorKind, Key, Token};

use super::ask::Question;
use super::{mysql, postgres, sqlite};

/// The SQL that a database understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL 13 and newer.
    Postgres,
    /// MariaDB 10.6 and newer, MySQL 8 and newer.
    Mysql,
    /// SQLite 3.35 and newer.
    Sqlite,
}

/// What a guard shows at the gate.
pub(super) struct Pass<'a> {
    pub(super) store: &'static str,
    pub(super) id: Option<u128>,
    pub(super) prefix: &'a str,
    pub(super) key: &'a Key,
    pub(super) token: Token,
}

impl Pass<'_> {
    /// Under what name tokens from there are remembered.
    pub(super) fn origin(&self) -> String {
        format!("{}/{}", self.store, self.prefix)
    }

    /// The key as the store itself writes it into its rows.
    pub(super) fn row_key(&self) -> String {
        format!("{}/{}", self.prefix, self.key)
    }
}

/// How long to wait for a row that another tx has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as the tx is set to.
    Yours,
    /// Not at all.
    None,
    /// So long.
    Within(Duration),
}

/// The tables that [`verify`](super::verify) and [`lock_in`](super::lock_in) use, as a script that
/// may run again. On PostgreSQL, MySQL and MariaDB it is part of the script of `lockstep migrate --print`;
/// there this is only needed in a database where Lockstep keeps no locks, and on PostgreSQL goes to the
/// schema `public`.
///
/// ```
/// use lockstep_sql::tx::{Dialect, schema};
///
/// let script = schema(Dialect::Sqlite);
/// assert!(script.contains("CREATE TABLE IF NOT EXISTS lockstep_fence"));
/// ```
pub fn schema(dialect: Dialect) -> String {
    match dialect {
        Dialect::Postgres => postgres::schema(),
        Dialect::Mysql => mysql::schema(),
        Dialect::Sqlite => sqlite::SCHEMA.to_owned(),
    }
}

/// Puts each value where its `{name}` stands, in one pass: a value that looks like a name stays as
/// it is.
pub(super) fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut parts = template.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        text.push_str(value.map_or("", |(_, value)| value));
        text.push_str(rest);
    }
    text
}

impl Dialect {
    /// The name of its database, in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Sqlite => "sqlite",
        }
    }

    /// Whether the code of an error (SQLSTATE, number, extended result code) says that another tx
    /// was in the way.
    pub fn is_conflict(self, code: &str) -> bool {
        self.judge(code).1 == ErrorKind::Busy
    }

    pub(super) fn verify(self, pass: &Pass<'_>, token: i64) -> Question {
        match self {
            Self::Postgres => postgres::verify(pass, token),
            Self::Mysql => mysql::verify(pass, token),
            Self::Sqlite => sqlite::verify(pass, token),
        }
    }

    pub(super) fn lock_in(self, key: &Key, patience: Patience) -> Question {
        match self {
            Self::Postgres => postgres::lock_in(key, patience),
            Self::Mysql => mysql::lock_in(key, patience),
            Self::Sqlite => sqlite::lock_in(key, patience),
        }
    }

    /// Whether a lock could not be had, and what kind of trouble it is.
    pub(super) fn judge(self, code: &str) -> (bool, ErrorKind, &'static str) {
        match self {
            Self::Postgres => postgres::judge(code),
            Self::Mysql => mysql::judge(code),
            Self::Sqlite => sqlite::judge(code),
        }
    }
}
