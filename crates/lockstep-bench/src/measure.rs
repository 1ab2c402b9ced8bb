//! One measurement: something done over and over for a while, and how often it was done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;

/// What the command line says.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Only rows whose name contains this.
    pub(crate) only: Option<String>,
    /// How long each side is measured in each pass.
    pub(crate) time: Duration,
    /// How many passes make the median.
    pub(crate) passes: usize,
}

impl Options {
    /// What they say; nothing, if that cannot be understood.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { only: None, time: Duration::from_millis(1500), passes: 3 };
        while let Some(arg) = args.next() {
            let value = args.next()?;
            match arg.as_str() {
                "--only" => options.only = Some(value),
                "--seconds" => {
                    options.time = Duration::try_from_secs_f64(value.parse().ok()?).ok()?;
                }
                "--passes" => options.passes = value.parse().ok()?,
                _ => return None,
            }
        }
        Some(options)
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Done per second.
    pub(crate) per_second: f64,
    /// The least served worker against the most served one.
    pub(crate) evenness: f64,
    /// How many worked at it at once.
    pub(crate) workers: usize,
}

impl Rate {
    /// How long one of them took each time, on average.
    pub(crate) fn each_us(&self) -> f64 {
        self.workers as f64 * 1e6 / self.per_second
    }
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch is what a benchmark is")]
pub(crate) fn stopwatch() -> Instant {
    Instant::now()
}

/// The runtime that candidates run on: what `#[tokio::main]` gives.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// When workers shall stop, and how often each has been round.
#[derive(Clone)]
pub(crate) struct Laps {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Laps {
    pub(crate) fn go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn lap(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

struct Race {
    stop: Arc<AtomicBool>,
    counts: Vec<Arc<AtomicU64>>,
}

impl Race {
    fn new(workers: usize) -> (Self, Vec<Laps>) {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Vec<_> = (0..workers).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let laps = counts
            .iter()
            .map(|count| Laps { stop: Arc::clone(&stop), count: Arc::clone(count) })
            .collect();
        (Self { stop, counts }, laps)
    }

    fn read(&self) -> Vec<u64> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn rate(&self, from: &[u64], time: Duration) -> Rate {
        let done: Vec<u64> =
            self.read().iter().zip(from).map(|(after, before)| after - before).collect();
        let sum: u64 = done.iter().sum();
        let least = done.iter().min().copied().unwrap_or(0);
        let most = done.iter().max().copied().unwrap_or(0).max(1);
        Rate {
            per_second: sum as f64 / time.as_secs_f64(),
            evenness: least as f64 / most as f64,
            workers: done.len(),
        }
    }
}

/// Warm-up before the counting starts: connections, caches, prepared statements.
pub(crate) fn warm_up(time: Duration) -> Duration {
    (time / 5).max(Duration::from_millis(200))
}

/// Threads that do blocking work.
pub(crate) fn threads<W>(time: Duration, workers: Vec<W>) -> Result<Rate>
where
    W: FnOnce(Laps) -> Result<()> + Send + 'static,
{
    let (race, laps) = Race::new(workers.len());
    let running: Vec<_> = workers
        .into_iter()
        .zip(laps)
        .map(|(work, laps)| std::thread::spawn(move || work(laps)))
        .collect();
    pause(warm_up(time));
    let (from, watch) = (race.read(), stopwatch());
    pause(time);
    let rate = race.rate(&from, watch.elapsed());
    race.stop.store(true, Ordering::Relaxed);
    for thread in running {
        thread.join().expect("a worker does not panic")?;
    }
    Ok(rate)
}

#[expect(clippy::disallowed_methods, reason = "the measured time has to pass")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// What one task does until it is told to stop.
pub(crate) type Work = Box<dyn FnOnce(Laps) -> BoxFuture<'static, Result<()>>>;

/// Tasks that do asynchronous work.
pub(crate) async fn tasks(time: Duration, workers: Vec<Work>) -> Result<Rate> {
    tasks_after(async { Ok(()) }, time, workers).await
}

/// The same, with a warm-up that lasts until everything is in its place.
pub(crate) async fn tasks_after(
    ready: impl Future<Output = Result<()>>,
    time: Duration,
    workers: Vec<Work>,
) -> Result<Rate> {
    let (race, laps) = Race::new(workers.len());
    let running: Vec<_> =
        workers.into_iter().zip(laps).map(|(work, laps)| tokio::spawn(work(laps))).collect();
    ready.await?;
    tokio::time::sleep(warm_up(time)).await;
    let (from, watch) = (race.read(), stopwatch());
    tokio::time::sleep(time).await;
    let rate = race.rate(&from, watch.elapsed());
    race.stop.store(true, Ordering::Relaxed);
    for task in running {
        task.await??;
    }
    Ok(rate)
}
