//! The candidates: the same loops on any store.

use std::time::Duration;

use anyhow::Result;
use lockstep::Locks;

use crate::measure::{self, Rate, Work};

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

/// Takes a lock and gives it back, over and over.
pub(crate) fn again(locks: &Locks, name: String) -> Work {
    let locks = locks.clone();
    Box::new(|laps| {
        Box::pin(async move {
            while laps.go_on() {
                locks.lock(&name).await?.release().await?;
                laps.lap();
            }
            Ok(())
        })
    })
}
