//! One client against one client, in turns.
//!
//! A shared machine changes from one second to the next by more than the two sides differ. So both stay
//! connected and take turns of a few milliseconds, in an order that follows no beat of the machine's:
//! what it does to one it does to the other.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;

use crate::measure::{Rate, runtime, stopwatch, warm_up};

const TURN: Duration = Duration::from_millis(20);

/// Somebody who takes a lock, or what stands for it, and gives it back.
pub(crate) trait Client: Send + 'static {
    fn pair(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// What one side has done in its turns.
#[derive(Default)]
struct Score {
    pairs: u64,
    spent: Duration,
}

impl Score {
    async fn turn(&mut self, client: &mut impl Client) -> Result<()> {
        let watch = stopwatch();
        while watch.elapsed() < TURN {
            client.pair().await?;
            self.pairs += 1;
        }
        self.spent += watch.elapsed();
        Ok(())
    }

    fn rate(&self) -> Rate {
        let per_second = self.pairs as f64 / self.spent.as_secs_f64();
        Rate { per_second, evenness: 1.0, workers: 1 }
    }
}

/// Measures the reference and the candidate for about `time` each.
pub(crate) fn in_turns<R: Client, C: Client>(
    time: Duration,
    reference: impl Future<Output = Result<R>>,
    candidate: impl Future<Output = Result<C>>,
) -> Result<(Rate, Rate)> {
    runtime()?.block_on(async {
        let (mut reference, mut candidate) = (reference.await?, candidate.await?);
        // On a worker of the runtime, where the tasks of a program are.
        let measured = tokio::spawn(async move {
            play(warm_up(time), &mut reference, &mut candidate).await?;
            play(time, &mut reference, &mut candidate).await
        });
        measured.await?
    })
}

async fn play(
    time: Duration,
    reference: &mut impl Client,
    candidate: &mut impl Client,
) -> Result<(Rate, Rate)> {
    let (mut raw, mut ours) = (Score::default(), Score::default());
    let mut coin = 0x2545_F491_4F6C_DD1D_u64;
    while raw.spent < time {
        coin ^= coin << 13;
        coin ^= coin >> 7;
        coin ^= coin << 17;
        if coin >> 63 == 0 {
            raw.turn(reference).await?;
            ours.turn(candidate).await?;
        } else {
            ours.turn(candidate).await?;
            raw.turn(reference).await?;
        }
    }
    Ok((raw.rate(), ours.rate()))
}
