//! The candidates: the same loops on any store.

use std::time::Duration;

use anyhow::Result;
use lockstep::{Locks, Share};

use crate::measure::{self, Options, Rate, Work};
use crate::table::{Goal, Table};
use crate::turns::Client;

/// Free locks: `tasks` tasks on one handle, each with a lock of its own.
pub(crate) fn free(url: &str, tasks: usize, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let locks = lockstep::connect(url).await?;
        let workers = (0..tasks).map(|number| again(&locks, format!("free:{number}"))).collect();
        let rate = measure::tasks(time, workers).await?;
        locks.close().await;
        Ok(rate)
    })
}

/// One task with a lock that is free.
pub(crate) struct Free(Locks);

impl Free {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        Ok(Self(lockstep::connect(url).await?))
    }
}

impl Client for Free {
    async fn pair(&mut self) -> Result<()> {
        Ok(self.0.lock("free").await?.release().await?)
    }
}

/// `clients` handles, each with connections of its own, all on one lock.
pub(crate) fn contended(url: &str, clients: usize, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let handles = handles(url, clients).await?;
        let workers = handles.iter().map(|locks| again(locks, "contended".into())).collect();
        let rate = measure::tasks(time, workers).await?;
        for locks in handles {
            locks.close().await;
        }
        Ok(rate)
    })
}

pub(crate) async fn handles(url: &str, count: usize) -> Result<Vec<Locks>> {
    let mut handles = vec![];
    for _ in 0..count {
        handles.push(lockstep::connect(url).await?);
    }
    Ok(handles)
}

/// 64 tasks on 8 handles, all on one lock or each on its own, who take this share of it.
fn shared(url: &str, share: Share, one: bool, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let handles = handles(url, 8).await?;
        let name = |number| if one { "shared".to_owned() } else { format!("shared:{number}") };
        let workers = (0..64).map(|n| again_with(&handles[n % 8], name(n), share)).collect();
        let rate = measure::tasks(time, workers).await?;
        for locks in handles {
            locks.close().await;
        }
        Ok(rate)
    })
}

/// Readers against writers: of one lock, where writers hand it over, and of locks of their own.
pub(crate) fn readers(options: &Options, table: &mut Table, store: &str, url: &str) -> Result<()> {
    // "No slower", as far as two rates of one machine can be told apart.
    for (what, one, goal) in [("one lock", true, 0.5), ("64 locks", false, 0.95)] {
        table.row(
            options,
            &format!("{store}, 64 readers of {what} / 64 writers"),
            Goal::AtLeast(goal),
            || shared(url, Share::Exclusive, one, options.time),
            || shared(url, Share::Read, one, options.time),
        )?;
    }
    Ok(())
}

/// Takes a lock and gives it back, over and over.
pub(crate) fn again(locks: &Locks, name: String) -> Work {
    again_with(locks, name, Share::Exclusive)
}

fn again_with(locks: &Locks, name: String, share: Share) -> Work {
    let locks = locks.clone();
    Box::new(move |laps| {
        Box::pin(async move {
            while laps.go_on() {
                locks.share(&name, share).await?.release().await?;
                laps.lap();
            }
            Ok(())
        })
    })
}
