//! Exclusive locks: free, contended, with many waiters, with many guards.

mod etcd;
mod many;
mod mysql;
mod ours;
mod postgres;
mod redis;
mod redlock;
mod sqlite;
mod zookeeper;

use anyhow::Result;

use crate::measure::Options;
use crate::table::Table;

pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut table = Table::new();
    sqlite::rows(options, &mut table)?;
    redis::rows(options, &mut table)?;
    redlock::rows(options, &mut table)?;
    postgres::rows(options, &mut table)?;
    mysql::rows(options, &mut table)?;
    etcd::rows(options, &mut table)?;
    zookeeper::rows(options, &mut table)?;
    Ok(table.end())
}
