//! Redlock on five local nodes: the raw calls to all five at once, and `rslock` beside them.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use lockstep_testkit::servers::{RedisOptions, RedisServer};
use redis::Script;

use super::ours;
use super::redis::{COMPARE_AND_DELETE, rslock};
use crate::measure::{self, Options, Rate, Work};
use crate::table::{Goal, Table};

const NODES: usize = 5;
/// The ttl that the candidate uses.
const MAX_TTL: Duration = Duration::from_secs(10);

pub(crate) fn rows(options: &Options, table: &mut Table) -> Result<()> {
    if options.only.as_ref().is_some_and(|only| !"redlock".contains(only.as_str())) {
        return Ok(());
    }
    let start = |_| RedisServer::start(RedisOptions::default());
    let nodes: Vec<RedisServer> = (0..NODES).map(start).collect::<Result<_>>()?;
    // What is measured is not the disk, so that they keep nothing; then they vote when they have run for the
    // longest ttl, and the second that cannot be told.
    measure::pause(MAX_TTL + Duration::from_secs(2));
    let urls: Vec<String> = nodes.iter().map(RedisServer::url).collect();
    let hosts: Vec<String> =
        nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redlock://{}?max_ttl={}s", hosts.join(","), MAX_TTL.as_secs());
    let time = options.time;
    for tasks in [1, 8, 64] {
        table.row(
            options,
            &format!("redlock, free, {tasks} tasks / raw calls of {tasks} to 5"),
            Goal::AtLeast(0.9),
            || raw(&urls, tasks, false, time),
            || ours::free(&url, tasks, time),
        )?;
        table.row(
            options,
            &format!("redlock, free, {tasks} tasks / raw calls, shared"),
            Goal::Shown,
            || raw(&urls, tasks, true, time),
            || ours::free(&url, tasks, time),
        )?;
        table.row(
            options,
            &format!("rslock on redlock nodes, {tasks} / raw calls of {tasks}"),
            Goal::Shown,
            || raw(&urls, tasks, false, time),
            || rslock(&urls, tasks, time),
        )?;
    }
    Ok(())
}

/// SET NX PX to all nodes at once, and when all have answered a compare-and-delete script to all: by the driver
/// and on the runtime that we use. Each task is a client with connections of its own, or they share one per
/// node as our tasks do.
fn raw(urls: &[String], tasks: usize, shared: bool, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let dial = |url: &String| {
            let client = redis::Client::open(url.as_str());
            async move { client?.get_multiplexed_async_connection().await }
        };
        let mut clients = vec![try_join_all(urls.iter().map(dial)).await?];
        while clients.len() < tasks && !shared {
            clients.push(try_join_all(urls.iter().map(dial)).await?);
        }
        let workers = (0..tasks).map(|number| -> Work {
            let connections = clients[number % clients.len()].clone();
            Box::new(move |laps| {
                Box::pin(async move {
                    let script = Script::new(COMPARE_AND_DELETE);
                    let key = format!("raw:{number}");
                    let mut set = redis::cmd("SET");
                    set.arg(&key).arg("me").arg("NX").arg("PX").arg(10_000);
                    while laps.go_on() {
                        try_join_all(connections.iter().map(|connection| {
                            let (set, mut connection) = (&set, connection.clone());
                            async move { set.query_async::<Option<String>>(&mut connection).await }
                        }))
                        .await?;
                        try_join_all(connections.iter().map(|connection| {
                            let (script, key, mut connection) = (&script, &key, connection.clone());
                            async move {
                                let mut call = script.key(key);
                                call.arg("me").invoke_async::<i64>(&mut connection).await
                            }
                        }))
                        .await?;
                        laps.lap();
                    }
                    Ok(())
                })
            })
        });
        measure::tasks(time, workers.collect()).await
    })
}
