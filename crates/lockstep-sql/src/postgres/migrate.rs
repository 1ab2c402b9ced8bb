//! The tables and functions: created, printed, and looked for.

use std::time::Duration;

use lockstep_core::{ErrorKind, StoreError};
use tokio::time::timeout;
use uuid::Uuid;

use super::config::Settings;
use super::pool::{Connections, Statement, fill};
use super::{error, rows};

/// What a user's own tx meets; everything else comes after them.
const TX_PARTS: [&str; 3] =
    [include_str!("sql/fence.sql"), include_str!("sql/verify.sql"), include_str!("sql/mutex.sql")];

const PARTS: [&str; 15] = [
    include_str!("sql/tables.sql"),
    TX_PARTS[0],
    TX_PARTS[1],
    TX_PARTS[2],
    include_str!("sql/gone.sql"),
    include_str!("sql/add.sql"),
    include_str!("sql/join.sql"),
    include_str!("sql/pass_on.sql"),
    include_str!("sql/heal.sql"),
    include_str!("sql/beside.sql"),
    include_str!("sql/queued.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/break.sql"),
    include_str!("sql/renew.sql"),
];

/// Longer than other operations: another migration may be under way, and the catalogs are locked
/// by whoever else changes them.
const MIGRATION: Duration = Duration::from_secs(30);

/// The whole layout as one script, one transaction.
pub(super) fn script(schema: &str) -> String {
    one_transaction(schema, &PARTS)
}

/// Only what a user's tx needs, in a schema that is there already.
pub(crate) fn tx_schema(schema: &str) -> String {
    one_transaction(schema, &TX_PARTS)
}

/// Two at once wait for each other: `CREATE … IF NOT EXISTS` and `CREATE OR REPLACE` alone fail when
/// they collide.
fn one_transaction(schema: &str, parts: &[&str]) -> String {
    let parts = fill(schema, &parts.join("\n"));
    let turn = i64::from_be_bytes(*b"lockstep");
    format!("BEGIN;\nSELECT pg_advisory_xact_lock({turn});\n\n{parts}\nCOMMIT;\n")
}

pub(super) async fn run(settings: &Settings) -> Result<(), StoreError> {
    // No session settings: a pooler might refuse them, and 1.8 s may be too short.
    let (client, connection) = settings.connect(false).await?;
    let work = async {
        client.batch_execute(&script(&settings.schema)).await.map_err(error::answered)?;
        Ok(())
    };
    // The connection is driven here and not by a task of its own: if this future is dropped, it
    // ends, and the server takes everything back.
    tokio::select! {
        biased;
        done = timeout(MIGRATION, work) => done.unwrap_or_else(|_| Err(error::no_answer())),
        broken = connection => match broken {
            Err(error) => Err(error::answered(error)),
            Ok(()) => Err(error::no_answer()),
        },
    }
}

/// Looks at the server before it is trusted with locks, creates what is missing if that is
/// allowed, and answers with what is worth a warning.
pub(super) async fn check(
    settings: &Settings,
    connections: &Connections,
) -> Result<Vec<String>, StoreError> {
    let look = Statement::new(settings, include_str!("sql/look.sql"), &[]);
    let rows = connections.ask(&look, &[]).await?;
    let [row] = &*rows else { return Err(error::foreign("not one row about the server")) };

    let text = |column: &str| -> Result<String, StoreError> {
        row.try_get(column).map_err(error::answered)
    };
    if text("encoding")? != "UTF8" {
        return Err(StoreError::config(
            error::STORE,
            format!(
                "the database has the encoding {}, which cannot hold every lock name; use one \
                 with ENCODING 'UTF8'",
                text("encoding")?
            ),
        ));
    }
    if text("isolation")? != "read committed" {
        return Err(StoreError::config(
            error::STORE,
            "behind a pooler the role needs: ALTER ROLE … SET default_transaction_isolation = \
             'read committed'",
        ));
    }
    if !row.try_get::<_, bool>("migrated").map_err(error::answered)? {
        create(settings).await?;
    }

    let mut warnings = vec![];
    if text("fsync")? == "off" {
        warnings.push(
            "fsync is off: a crash of the machine can lose grants, and two clients can hold one \
             lock"
                .to_owned(),
        );
    }
    if text("synchronous_commit")? == "off" {
        warnings.push(
            "synchronous_commit is off: a crash of the server can lose the last grants, and two \
             clients can hold one lock"
                .to_owned(),
        );
    }
    Ok(warnings)
}

/// Which database this is; `None` for a copy that has not been migrated since, or a server that
/// does not say.
pub(super) async fn identity(
    settings: &Settings,
    connections: &Connections,
) -> Result<Option<u128>, StoreError> {
    let who = Statement::new(settings, "SELECT {schema}.lockstep_store_v1() AS id", &[]);
    let id: Option<Uuid> = rows::get(&rows::only(connections.ask(&who, &[]).await?)?, "id")?;
    Ok(id.map(|id| id.as_u128()))
}

async fn create(settings: &Settings) -> Result<(), StoreError> {
    if !settings.migrate {
        return Err(error::not_migrated(" and ?migrate=never forbids to create them"));
    }
    run(settings).await.map_err(|error| match error.kind() {
        ErrorKind::Denied => {
            error::not_migrated(" and this role may not create them").with_source(error)
        }
        _ => error,
    })
}
