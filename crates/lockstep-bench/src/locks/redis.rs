//! Redis: the raw pair, the BLPOP baton, and `rslock` beside them.

use std::time::Duration;

use anyhow::Result;
use lockstep_testkit::servers::{RedisOptions, RedisServer};
use redis::aio::MultiplexedConnection;
use redis::{Commands, Connection, ConnectionLike, Script, SetOptions};

use super::{many, ours};
use crate::measure::{self, Options, Rate, Work};
use crate::table::{Goal, Table};
use crate::turns::{Client, in_turns};

pub(super) const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

pub(crate) fn rows(options: &Options, table: &mut Table) -> Result<()> {
    let server = RedisServer::start(RedisOptions::default())?;
    let url = server.url();
    let time = options.time;
    table.row_of_both(
        options,
        "redis, free, 1 client / raw pair, async",
        Goal::AtLeast(0.95),
        |_| in_turns(time, RawPair::open(&url), ours::Free::open(&url)),
    )?;
    // What waiting with epoll instead of in a read costs on this machine; the peer pays it too.
    table.row(
        options,
        "redis, free, 1 client / raw pair, blocking",
        Goal::Shown,
        || raw_pairs(&url, 1, time),
        || ours::free(&url, 1, time),
    )?;
    table.row(
        options,
        "rslock shared, 1 task / raw pair, blocking",
        Goal::Shown,
        || raw_pairs(&url, 1, time),
        || rslock(std::slice::from_ref(&url), 1, time),
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
        || rslock(std::slice::from_ref(&url), 64, time),
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
    plain_rows(options, table, &url)?;
    ours::readers(options, table, "redis", &url)?;
    // A release and an ask.
    many::waiters(options, table, "redis", &url, 2.0, async || requests(&url))?;
    many::guards(options, table, "redis", &url)
}

/// The plain layout does what the raw pair does; all who wait for it are woken by every release.
fn plain_rows(options: &Options, table: &mut Table, url: &str) -> Result<()> {
    let (plain, time) = (format!("{url}?layout=plain"), options.time);
    table.row_of_both(
        options,
        "redis-plain, free, 1 client / raw pair, async",
        Goal::Shown,
        |_| in_turns(time, RawPair::open(url), ours::Free::open(&plain)),
    )?;
    table.row(
        options,
        "redis-plain, free, 64 tasks / raw pairs, async",
        Goal::Shown,
        || raw_pairs_async(url, 64, time),
        || ours::free(&plain, 64, time),
    )?;
    table.row(
        options,
        "redis-plain, 64 on one lock / redis",
        Goal::Shown,
        || ours::contended(url, 64, time),
        || ours::contended(&plain, 64, time),
    )
}

fn connect(url: &str) -> Result<Connection> {
    let connection = redis::Client::open(url)?.get_connection()?;
    Ok(connection)
}

/// SET NX PX and a compare-and-delete script, as somebody would write it by hand on the runtime that we use: by the
/// `redis` crate's own connection, which ours has replaced (decision 18).
#[derive(Clone)]
struct RawPair {
    connection: MultiplexedConnection,
    script: Script,
    key: String,
}

impl RawPair {
    async fn open(url: &str) -> Result<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { connection, script: Script::new(COMPARE_AND_DELETE), key: "raw".into() })
    }
}

impl Client for RawPair {
    async fn pair(&mut self) -> Result<()> {
        let mut set = redis::cmd("SET");
        set.arg(&self.key).arg("me").arg("NX").arg("PX").arg(10_000);
        let _: Option<String> = set.query_async(&mut self.connection).await?;
        let mut release = self.script.key(&self.key);
        let _: i64 = release.arg("me").invoke_async(&mut self.connection).await?;
        Ok(())
    }
}

/// The same by several tasks on one connection.
fn raw_pairs_async(url: &str, tasks: usize, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let one = RawPair::open(url).await?;
        let work = |number: usize| -> Work {
            let mut own = RawPair { key: format!("raw:{number}"), ..one.clone() };
            Box::new(move |laps| {
                Box::pin(async move {
                    while laps.go_on() {
                        own.pair().await?;
                        laps.lap();
                    }
                    Ok(())
                })
            })
        };
        measure::tasks(time, (0..tasks).map(work).collect()).await
    })
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
pub(super) fn rslock(urls: &[String], tasks: usize, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let manager = rslock::LockManager::new(urls.to_vec());
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

/// How many requests of ours the server has served; what scripts do inside does not count.
fn requests(url: &str) -> Result<Option<u64>> {
    let info: String = connect(url)?
        .req_command(redis::cmd("INFO").arg("commandstats"))
        .map(|value| redis::from_redis_value(value).unwrap_or_default())?;
    let calls = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
        .and_then(|rest| rest.split(',').next());
    Ok(Some(calls.unwrap_or("0").parse()?))
}
