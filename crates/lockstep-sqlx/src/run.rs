//! How each database of sqlx runs a question.

#![cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]

use lockstep_sql::tx::Question;
use sqlx::{AssertSqlSafe, Row};

type Answer = Result<Option<String>, sqlx::Error>;

/// The text as it is, not as a prepared statement: to prepare it would be a round trip of its own.
/// To the last row: only then has a statement done all it does.
macro_rules! first {
    ($connection:expr, $text:expr) => {{
        let rows = sqlx::raw_sql(AssertSqlSafe($text)).fetch_all(&mut *$connection).await?;
        rows.first().map(|row| row.try_get(0)).transpose()
    }};
}

#[cfg(feature = "postgres")]
pub(crate) async fn postgres(connection: &mut sqlx::PgConnection, question: Question) -> Answer {
    first!(connection, question.text)
}

#[cfg(feature = "mysql")]
pub(crate) async fn mysql(connection: &mut sqlx::MySqlConnection, question: Question) -> Answer {
    first!(connection, question.text)
}

/// Dropped half-way it may leave the connection with another `busy_timeout` than it had.
#[cfg(feature = "sqlite")]
pub(crate) async fn sqlite(connection: &mut sqlx::SqliteConnection, question: Question) -> Answer {
    let Some(wait) = question.busy_timeout else { return first!(connection, question.text) };
    let set = |wait_ms: i64| AssertSqlSafe(format!("PRAGMA busy_timeout = {wait_ms}"));
    let before: i64 =
        sqlx::raw_sql("PRAGMA busy_timeout").fetch_one(&mut *connection).await?.try_get(0)?;
    sqlx::raw_sql(set(wait.as_millis() as i64)).execute(&mut *connection).await?;
    let answer = async { first!(connection, question.text) }.await;
    sqlx::raw_sql(set(before)).execute(&mut *connection).await?;
    answer
}
