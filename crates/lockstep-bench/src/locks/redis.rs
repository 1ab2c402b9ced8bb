//! Redis: the raw pair, the BLPOP baton, and `rslock` beside them.

use std::time::Duration;

use anyhow::Result;
use lockstep_testkit::servers::{RedisOptions, RedisServer};
use redis::{Commands, Connection, ConnectionLike, Script, SetOptions};

use super::{many, ours};
use crate::measure::{self, Options, Rate, Work};
use crate::table::{Goal, Table};

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

pub(crate) fn rows(options: &Options, table: &mut Table) -> Result<()> {
    let server = RedisServer::start(RedisOptions::default())?;
    let url = server.url();
    let time = options.time;
    table.row(
        options,
        "redis, free, 1 client / raw pair",
        Goal::AtLeast(0.95),
        || raw_pairs(&url, 1, time),
        || ours::free(&url, 1, time),
    )?;
    table.row(
        options,
        "redis, free, 64 tasks / raw 64 connections",
        Goal::AtLeast(1.0),
        || raw_pairs(&url, 64, time),
        || ours::free(&url, 64, time),
    )?;
    table.row(
        options,
        "rslock shared, 64 tasks / raw 64 connections",
        Goal::Shown,
        || raw_pairs(&url, 64, time),
        || rslock(&url, 64, time),
    )?;
    for clients in [8, 64] {
        table.row(
            options,
            &format!("redis, {clients} on one lock / BLPOP baton"),
            Goal::AtLeast(0.4),
            || baton(&url, clients, time),
            || ours::contended(&url, clients, time),
        )?;
    }
    many::waiters(options, table, "redis", &url, || {
        Ok(Some(total_commands(&mut connect(&url)?)?))
    })?;
    many::guards(options, table, "redis", &url)
}

fn connect(url: &str) -> Result<Connection> {
    let connection = redis::Client::open(url)?.get_connection()?;
    Ok(connection)
}

/// SET NX PX and a compare-and-delete script, a connection and a key per thread.
fn raw_pairs(url: &str, threads: usize, time: Duration) -> Result<Rate> {
    let workers = (0..threads)
        .map(|number| {
            let url = url.to_owned();
            move |laps: measure::Laps| {
                let mut connection = connect(&url)?;
                let script = Script::new(COMPARE_AND_DELETE);
                let key = format!("raw:{number}");
                let expiring = SetOptions::default()
                    .conditional_set(redis::ExistenceCheck::NX)
                    .with_expiration(redis::SetExpiry::PX(10_000));
                while laps.go_on() {
                    let _: Option<String> = connection.set_options(&key, "me", expiring.clone())?;
                    let _: i64 = script.key(&key).arg("me").invoke(&mut connection)?;
                    laps.lap();
                }
                Ok(())
            }
        })
        .collect();
    measure::threads(time, workers)
}

/// The floor of a hand-over: one element goes round, popped by whoever waits longest.
fn baton(url: &str, clients: usize, time: Duration) -> Result<Rate> {
    let mut connection = connect(url)?;
    let _: () = connection.del("baton")?;
    let _: () = connection.rpush("baton", "it")?;
    let workers = (0..clients)
        .map(|_| {
            let url = url.to_owned();
            move |laps: measure::Laps| {
                let mut connection = connect(&url)?;
                while laps.go_on() {
                    let it: Option<(String, String)> = connection.blpop("baton", 1.0)?;
                    if it.is_some() {
                        let _: () = connection.rpush("baton", "it")?;
                        laps.lap();
                    }
                }
                Ok(())
            }
        })
        .collect();
    measure::threads(time, workers)
}

/// The peer that a Rust program finds first, with one manager for all tasks.
fn rslock(url: &str, tasks: usize, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let manager = rslock::LockManager::new(vec![url.to_owned()]);
        let workers = (0..tasks)
            .map(|number| -> Work {
                let manager = manager.clone();
                Box::new(move |laps| {
                    Box::pin(async move {
                        let name = format!("rslock:{number}");
                        while laps.go_on() {
                            let ttl = Duration::from_secs(10);
                            let lock = manager
                                .lock(name.as_bytes(), ttl)
                                .await
                                .map_err(|error| anyhow::anyhow!("{error:?}"))?;
                            manager.unlock(&lock).await;
                            laps.lap();
                        }
                        Ok(())
                    })
                })
            })
            .collect();
        measure::tasks(time, workers).await
    })
}

fn total_commands(connection: &mut Connection) -> Result<u64> {
    let info: String = connection
        .req_command(redis::cmd("INFO").arg("stats"))
        .map(|value| redis::from_redis_value(value).unwrap_or_default())?;
    let field = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    Ok(field.unwrap_or("0").trim().parse()?)
}
