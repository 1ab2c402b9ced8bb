//! Does it stay the same with a thousand waiters, and with a hundred thousand guards?

use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use lockstep::Guard;

use super::ours;
use crate::measure::{self, Options, Rate};
use crate::table::{Goal, Table};

const GUARDS: usize = 100_000;

/// Hand-overs with 1,000 waiters against those with 10, and the requests that each takes: about `usual`.
pub(crate) fn waiters(
    options: &Options,
    table: &mut Table,
    store: &str,
    url: &str,
    usual: f64,
    requests: impl AsyncFn() -> Result<Option<u64>>,
) -> Result<()> {
    let per_hand_over = std::cell::RefCell::new(vec![]);
    let measured = |waiting: usize| {
        let (rate, each) = waiting_on_one(url, waiting, options.time, &requests)?;
        per_hand_over.borrow_mut().extend(each.map(|each| (waiting, each)));
        Ok(rate)
    };
    table.row(
        options,
        &format!("{store}, 1,000 waiters / 10 waiters"),
        Goal::AtLeast(0.5),
        || measured(10),
        || measured(1_000),
    )?;
    for few in [10, 1_000] {
        let counts: Vec<f64> =
            per_hand_over.borrow().iter().filter(|(n, _)| *n == few).map(|(_, r)| *r).collect();
        if let Some(most) = counts.iter().copied().reduce(f64::max) {
            // Keeping the places of those who wait adds a little.
            let name = format!("{store}, requests per hand-over, {few} waiters");
            table.fact(&name, &format!("{most:.2}"), most < usual + 1.0);
        }
    }
    Ok(())
}

/// `waiting` tasks on ten handles, all on one lock: hand-overs per second, and requests for each.
/// It is counted from when all of them wait.
fn waiting_on_one(
    url: &str,
    waiting: usize,
    time: Duration,
    requests: &impl AsyncFn() -> Result<Option<u64>>,
) -> Result<(Rate, Option<f64>)> {
    measure::runtime()?.block_on(async {
        let handles = ours::handles(url, 10).await?;
        let workers =
            (0..waiting).map(|number| ours::again(&handles[number % 10], "many".into())).collect();
        let observer = lockstep::connect(url).await?;
        let mut before = None;
        let all_wait = async {
            loop {
                let seen = observer.inspect("many").await?.map_or(0, |lock| lock.waiting);
                // One has the lock, and a few are on their way back into the queue.
                if seen as usize + waiting.min(20) / 2 >= waiting {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            before = requests().await?.zip(Some(measure::stopwatch()));
            Ok(())
        };
        let rate = measure::tasks_after(all_wait, time, workers).await?;
        let each = match (before, requests().await?) {
            (Some((before, watch)), Some(after)) => {
                let laps = rate.per_second * watch.elapsed().as_secs_f64();
                Some((after - before) as f64 / laps.max(1.0))
            }
            _ => None,
        };
        for locks in handles {
            locks.close().await;
        }
        Ok((rate, each))
    })
}

/// 100,000 guards on one handle, held for two ttls: none may be lost.
pub(crate) fn guards(options: &Options, table: &mut Table, store: &str, url: &str) -> Result<()> {
    let name = format!("{store}, 100,000 guards renewed");
    if options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
        return Ok(());
    }
    let lost = measure::runtime()?.block_on(hold_many(url))?;
    table.fact(&name, &format!("{lost} lost"), lost == 0);
    Ok(())
}

async fn hold_many(url: &str) -> Result<usize> {
    let ttl = Duration::from_secs(30);
    let locks = lockstep::connect(url).await?.with_ttl(ttl);
    let guards: Vec<Guard> = stream::iter(0..GUARDS)
        .map(|number| {
            let locks = locks.clone();
            async move { locks.lock(format!("guard:{number}")).await }
        })
        .buffer_unordered(64)
        .try_collect()
        .await?;
    ensure!(guards.len() == GUARDS, "only {} guards", guards.len());
    tokio::time::sleep(ttl * 2).await;
    let lost = guards.iter().filter(|guard| !guard.is_trusted()).count();
    locks.close().await;
    Ok(lost)
}
