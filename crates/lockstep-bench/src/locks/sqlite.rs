//! SQLite: against an insert and a delete, each committed by itself, at the same level.

use std::time::Duration;

use anyhow::Result;
use rusqlite::Connection;

use super::{many, ours};
use crate::measure::{self, Options, Rate};
use crate::table::{Goal, Table};

pub(crate) fn rows(options: &Options, table: &mut Table) -> Result<()> {
    for level in ["normal", "full"] {
        let folder = tempfile::tempdir()?;
        let raw_path = folder.path().join("raw.db");
        let url = format!("sqlite:{}?synchronous={level}", folder.path().join("ours.db").display());
        let time = options.time;
        table.row(
            options,
            &format!("sqlite {level}, free, 1 client / raw pair"),
            Goal::AtLeast(0.7),
            || raw_pairs(&raw_path, level, time),
            || ours::free(&url, 1, time),
        )?;
        let store = format!("sqlite {level}");
        ours::readers(options, table, &store, &url)?;
        // There are no requests: the file is the store.
        many::waiters(options, table, &store, &url, 0.0, async || Ok(None))?;
    }
    Ok(())
}

fn raw_pairs(path: &std::path::Path, level: &str, time: Duration) -> Result<Rate> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", level)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS held (name TEXT PRIMARY KEY, owner TEXT, until INTEGER) \
         WITHOUT ROWID",
    )?;
    let work = move |laps: measure::Laps| {
        let mut insert = connection.prepare("INSERT INTO held VALUES (?1, ?2, ?3)")?;
        let mut delete = connection.prepare("DELETE FROM held WHERE name = ?1 AND owner = ?2")?;
        while laps.go_on() {
            insert.execute(("order:42", "me", 10_000))?;
            delete.execute(("order:42", "me"))?;
            laps.lap();
        }
        Ok(())
    };
    measure::threads(time, vec![work])
}
