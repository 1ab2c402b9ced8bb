//! The puppet's side: what a test binary does when it is started as another process of a story.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_lock::store::Connect;
use lockstep_lock::{Guard, LockError, Locks, Options};
use tokio::sync::mpsc;

use super::words::{MARK, Order, ROLE_ENV, URL_ENV, Word};
use crate::oracle::{Counter, Recorder};
use crate::wrap::{Counting, Point, VerbName};

/// Plays the other process of a story, if this process was started as one; does nothing in a
/// test run by a person. An adapter has it as a test of its own:
///
/// ```no_run
/// # fn connect_to(url: &str) -> anyhow::Result<std::sync::Arc<dyn lockstep_lock::store::Connect>> {
/// #     unimplemented!()
/// # }
/// # #[allow(unused)]
/// #[test]
/// fn story_child() {
///     lockstep_testkit::stories::child::act(|url| connect_to(url));
/// }
/// ```
///
/// and names it in [`Subject::with_processes`](crate::suite::Subject::with_processes). `connect`
/// is called on a runtime.
///
/// # Panics
/// If the store cannot be reached, or the story ends without a word.
pub fn act(connect: impl Fn(&str) -> Result<Arc<dyn Connect>>) {
    if std::env::var_os(ROLE_ENV).is_none() {
        return;
    }
    // A stopped process cannot see that its story is over; the kernel can.
    let signal = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(signal)).expect("a parent to die with");
    let url = std::env::var(URL_ENV).expect("a puppet is told where its store is");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let played = runtime.block_on(async { play(connect(&url)?).await });
    if let Err(error) = played {
        say(&Word::Failed { error: format!("{error:#}") });
        panic!("{error:#}");
    }
}

async fn play(connect: Arc<dyn Connect>) -> Result<()> {
    let counting = Arc::new(Counting::new(connect));
    let locks = Locks::open_with(counting.clone(), Options::default()).await?;
    let mut puppet = Puppet { counting, locks, guard: None, read: 0 };
    let mut orders = orders();
    say(&Word::Ready);
    loop {
        let order = orders.recv().await.context("the story ended without a word")?;
        match puppet.obey(order).await? {
            Some(word) => say(&word),
            None => break,
        }
    }
    puppet.locks.close().await;
    Ok(())
}

/// Reads orders on a thread of their own. Whoever is busy waiting for a lock must end as well
/// when the test has ended, so the end of the orders ends the process.
fn orders() -> mpsc::UnboundedReceiver<Order> {
    let (sender, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { break };
            let order: Order = serde_json::from_str(&line).expect("orders are our own words");
            let last = matches!(order, Order::End);
            if sender.send(order).is_err() || last {
                return;
            }
        }
        std::process::exit(3);
    });
    orders
}

fn say(word: &Word) {
    let line = serde_json::to_string(word).expect("words are always JSON");
    let mut out = std::io::stdout().lock();
    // If nobody listens any more the orders have ended too.
    let _ = writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush());
}

struct Puppet {
    counting: Arc<Counting>,
    locks: Locks,
    guard: Option<Guard>,
    /// What the counter said when it was read.
    read: u64,
}

impl Puppet {
    async fn obey(&mut self, order: Order) -> Result<Option<Word>> {
        let ttl = Duration::from_millis;
        Ok(Some(match order {
            Order::Try { name, ttl_ms } => {
                match self.locks.try_lock(name).ttl(ttl(ttl_ms)).await? {
                    Some(guard) => self.holds(guard),
                    None => Word::Busy,
                }
            }
            Order::Lock { name, share, ttl_ms } => {
                let mut asked = self.counting.pause(Point::After(VerbName::Acquire), 1);
                let tells = async {
                    asked.reached().await;
                    say(&Word::Asked);
                    asked.resume();
                    Ok(())
                };
                let request = self.locks.share(name, share.parse()?).ttl(ttl(ttl_ms));
                let (guard, ()) = tokio::try_join!(request.into_future(), tells)?;
                self.holds(guard)
            }
            Order::LockUnheard { name, ttl_ms } => {
                let mut pause = self.counting.pause(Point::After(VerbName::Acquire), 1);
                tokio::spawn(self.locks.lock(name).ttl(ttl(ttl_ms)).into_future());
                pause.reached().await;
                // For as long as the process lives.
                std::mem::forget(pause);
                Word::AtPoint
            }
            Order::Look => {
                let guard = self.guard.as_ref().context("there is no guard to look at")?;
                Word::State { trusted: guard.is_trusted() }
            }
            Order::Release => {
                let guard = self.guard.take().context("there is no guard to release")?;
                match guard.release().await {
                    Ok(()) => Word::Released,
                    Err(LockError::NotHeld { .. }) => Word::NotHeld,
                    Err(error) => return Err(error.into()),
                }
            }
            Order::Read { counter } => {
                self.read = Counter::in_file(counter).value()?;
                Word::Read
            }
            Order::Write { counter } => {
                Counter::in_file(counter).write(self.read + 1)?;
                Word::Written
            }
            Order::Work { name, rounds, counter, log, client } => {
                let recorder = Recorder::to_file(client, &log)?;
                let counter = Counter::in_file(counter);
                Word::Worked { acknowledged: self.work(&name, rounds, &counter, &recorder).await? }
            }
            Order::End => return Ok(None),
        }))
    }

    fn holds(&mut self, guard: Guard) -> Word {
        let token = guard.token().map(|token| token.get());
        let trusted_until_ns = guard.trusted_until().as_nanos();
        self.guard = Some(guard);
        Word::Held { token, trusted_until_ns }
    }

    async fn work(
        &self,
        name: &str,
        rounds: u64,
        counter: &Counter,
        recorder: &Recorder,
    ) -> Result<u64> {
        for _ in 0..rounds {
            let mut attempt = recorder.asks(name);
            let guard = self.locks.lock(name).await?;
            attempt.granted(&guard);
            guard.run(counter.increment()).await??;
            attempt.releases(&guard);
            guard.release().await?;
        }
        Ok(rounds)
    }
}
