//! The tables and procedures: created, printed, and looked for.

use std::time::Duration;

use lockstep_core::{ErrorKind, StoreError};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Row};
use tokio::time::timeout;

use super::config::{Purpose, Settings};
use super::pool::{Connections, discard};
use super::{error, rows};
use crate::tx::mysql as tx;

/// One statement each, but for the first, whose statements end with semicolons.
const TABLES: &str = include_str!("sql/tables.sql");
const PROCEDURES: [&str; 13] = [
    include_str!("sql/fence.sql"),
    include_str!("sql/wake.sql"),
    include_str!("sql/add.sql"),
    include_str!("sql/join.sql"),
    include_str!("sql/pass_on.sql"),
    include_str!("sql/heal.sql"),
    include_str!("sql/queued.sql"),
    include_str!("sql/decide.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/leave.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/break.sql"),
    include_str!("sql/renew.sql"),
];

/// Longer than other operations: another migration may be under way.
const MIGRATION: Duration = Duration::from_secs(30);

/// The server's clock as it is now. `NOW()` stands still during a statement, also while that waits
/// for a row; `SYSDATE()` does not. It is the session's local time, which a summer makes ambiguous:
/// our sessions live in UTC, and where somebody else's do not, the difference is taken off.
const NOW_US: &str = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) \
    - TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) * 1000000)";

/// When the statement began: one moment for all its rows, for those who only look and for those to whom
/// it makes no difference that they may have waited for a row since.
const STATEMENT_US: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// The claim in the row of a lock that several hold.
const SEVERAL: &str = "x'00000000000000000000000000000000'";

/// The claim in the row of a lock that nobody holds.
const NOBODY: &str = "x'ffffffffffffffffffffffffffffffff'";

pub(super) fn fill(sql: &str) -> String {
    sql.replace("{first}", include_str!("sql/first.sql").trim())
        .replace("{grant}", include_str!("sql/grant.sql").trim())
        .replace("{tell}", include_str!("sql/tell.sql").trim())
        .replace("{now_us}", NOW_US)
        .replace("{statement_us}", STATEMENT_US)
        .replace("{several}", SEVERAL)
        .replace("{nobody}", NOBODY)
}

/// The whole layout, for the `mysql` or `mariadb` command: the one reader that knows `DELIMITER`.
pub(super) fn script() -> String {
    let procedures = PROCEDURES.map(|part| format!("{}//\n\n", fill(part).trim_end())).concat();
    let tables = [TABLES, &tx::schema()].join("\n");
    format!("{tables}\nDELIMITER //\n\n{procedures}DELIMITER ;\n")
}

pub(super) async fn run(settings: &Settings) -> Result<(), StoreError> {
    let mut conn = settings.connect(Purpose::Long).await?;
    let done = timeout(MIGRATION, create_all(&mut conn)).await;
    // Whoever waits for the end of this one goes on when the connection is gone.
    discard(conn);
    done.map_err(|_| error::no_answer())?.map_err(error::answered)
}

/// One after another: two at once could collide in the server's own tables.
async fn create_all(conn: &mut Conn) -> Result<(), Error> {
    conn.query_drop("DO GET_LOCK(CONCAT('lockstep-migrate-', LEFT(DATABASE(), 40)), 30)").await?;
    for part in [TABLES, &tx::schema()] {
        let is_statement =
            |text: &&str| text.contains("CREATE TABLE") || text.contains("INSERT INTO");
        for statement in part.split(";\n").filter(is_statement) {
            conn.query_drop(statement).await?;
        }
    }
    for procedure in PROCEDURES {
        conn.query_drop(fill(procedure)).await?;
    }
    Ok(())
}

/// Looks at the server before it is trusted with locks, creates what is missing if that is
/// allowed, and answers with what is worth a warning.
pub(super) async fn check(
    settings: &Settings,
    connections: &Connections,
) -> Result<Vec<String>, StoreError> {
    let row = rows::only(connections.ask(include_str!("sql/look.sql"), ()).await?)?;
    let is = |row: &Row, column: &str| Ok::<_, StoreError>(rows::get::<i64>(row, column)? != 0);
    if is(&row, "sysdate_is_now")? {
        return Err(StoreError::config(
            error::STORE,
            "the server runs with --sysdate-is-now, so that a statement which waits has no clock",
        ));
    }
    let (log_bin, format) = (is(&row, "log_bin")?, rows::get::<String>(&row, "binlog_format")?);
    if log_bin && format == "STATEMENT" {
        return Err(StoreError::config(
            error::STORE,
            "binlog_format is STATEMENT, which cannot repeat what depends on the clock; set it to \
             ROW or MIXED",
        ));
    }
    if !is(&row, "migrated")? {
        create(settings).await?;
    }

    let mut warnings = vec![];
    if rows::get::<i64>(&row, "flush_log")? != 1 {
        warnings.push(
            "innodb_flush_log_at_trx_commit is not 1: a crash of the server can lose the last \
             grants, and two clients can hold one lock"
                .to_owned(),
        );
    }
    if log_bin && rows::get::<i64>(&row, "sync_binlog")? != 1 {
        warnings.push(
            "sync_binlog is not 1: a crash of the machine can lose the last grants for its \
             replicas, and after a failover two clients can hold one lock"
                .to_owned(),
        );
    }
    Ok(warnings)
}

/// Which database this is; `None` for a copy that has not been migrated since.
pub(super) async fn identity(connections: &Connections) -> Result<Option<u128>, StoreError> {
    let who = format!("SELECT id FROM lockstep_store WHERE home = {}", tx::HOME);
    let reply = connections.ask(&who, ()).await?;
    match reply.rows.first() {
        Some(row) => Ok(Some(u128::from_be_bytes(rows::get(row, "id")?))),
        None => Ok(None),
    }
}

async fn create(settings: &Settings) -> Result<(), StoreError> {
    if !settings.migrate {
        return Err(error::not_migrated(" and ?migrate=never forbids to create them"));
    }
    run(settings).await.map_err(|error| match error.kind() {
        ErrorKind::Denied => error::not_migrated(
            ", or this user lacks the right to execute its procedures, and it may not create them",
        )
        .with_source(error),
        _ => error,
    })
}
