//! The test's side of another process: starts it, gives it orders, stops and kills it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockstep_core::Token;
use lockstep_core::time::Moment;
use lockstep_lock::Share;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::words::{MARK, Order, ROLE_ENV, URL_ENV, Word};
use crate::suite::Subject;
use crate::suite::env::{eventually, soon};

/// Another process with a handle of its own. It is killed when this is dropped.
pub(crate) struct Puppet {
    child: Child,
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
}

/// What a puppet holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theirs {
    pub(crate) token: Option<Token>,
    /// As known when it was granted.
    pub(crate) trusted_until: Moment,
}

impl Puppet {
    /// Starts this very test binary again, as the test that plays puppets.
    pub(crate) async fn start(subject: &Subject) -> Result<Self> {
        let processes = subject.processes.as_ref().context("the subject has no processes")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args([processes.test, "--exact", "--nocapture"])
            .env(ROLE_ENV, "puppet")
            .env(URL_ENV, &processes.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the test binary again")?;
        let orders = child.stdin.take().context("stdin is piped")?;
        let words = child.stdout.take().context("stdout is piped")?;
        let mut puppet = Self { child, orders, words: BufReader::new(words).lines() };
        let hint = || format!("is there a test `{}` that calls child::act?", processes.test);
        match puppet.hear().await.with_context(hint)? {
            Word::Ready => Ok(puppet),
            other => bail!("a puppet is ready first: {other:?}"),
        }
    }

    /// Asks once; `None` if somebody else has the lock.
    pub(crate) async fn tries(&mut self, name: &str) -> Result<Option<Theirs>> {
        self.tell(&Order::Try { name: name.to_owned(), ttl_ms: 3_000 }).await?;
        match self.hear().await? {
            Word::Busy => Ok(None),
            word => theirs(word).map(Some),
        }
    }

    /// Waits for the lock.
    pub(crate) async fn locks(&mut self, name: &str, ttl: Duration) -> Result<Theirs> {
        self.asks(name, ttl).await?;
        theirs(self.hear().await?)
    }

    /// Starts to wait for the lock; returns when the store has answered.
    pub(crate) async fn asks(&mut self, name: &str, ttl: Duration) -> Result<()> {
        self.asks_for(name, Share::Exclusive, ttl).await
    }

    /// Starts to wait for a share of the lock.
    async fn asks_for(&mut self, name: &str, share: Share, ttl: Duration) -> Result<()> {
        let (ttl_ms, share) = (ttl.as_millis() as u64, share.to_string());
        self.tell(&Order::Lock { name: name.to_owned(), share, ttl_ms }).await?;
        match self.hear().await? {
            Word::Asked => Ok(()),
            other => bail!("it should have asked: {other:?}"),
        }
    }

    /// Waits for a share of the lock.
    pub(crate) async fn shares(
        &mut self,
        name: &str,
        share: Share,
        ttl: Duration,
    ) -> Result<Theirs> {
        self.asks_for(name, share, ttl).await?;
        theirs(self.hear().await?)
    }

    /// Asks, and stands still when the store has granted and nobody has heard of it.
    pub(crate) async fn locks_unheard(&mut self, name: &str, ttl: Duration) -> Result<()> {
        let ttl_ms = ttl.as_millis() as u64;
        self.tell(&Order::LockUnheard { name: name.to_owned(), ttl_ms }).await?;
        match self.hear().await? {
            Word::AtPoint => Ok(()),
            other => bail!("it should stand still: {other:?}"),
        }
    }

    /// Tells it to look whether it trusts its lock; the answer waits in the pipe.
    pub(crate) async fn shall_look(&mut self) -> Result<()> {
        self.tell(&Order::Look).await
    }

    /// What it saw when it looked.
    pub(crate) async fn saw_trust(&mut self) -> Result<bool> {
        match self.hear().await? {
            Word::State { trusted } => Ok(trusted),
            other => bail!("it should have looked: {other:?}"),
        }
    }

    /// Releases; `false` if there was nothing to release any more.
    pub(crate) async fn releases(&mut self) -> Result<bool> {
        self.tell(&Order::Release).await?;
        match self.hear().await? {
            Word::Released => Ok(true),
            Word::NotHeld => Ok(false),
            other => bail!("it should have released: {other:?}"),
        }
    }

    /// Reads the counter, as the first half of an increment.
    pub(crate) async fn reads(&mut self, counter: &Path) -> Result<()> {
        self.tell(&Order::Read { counter: counter.to_owned() }).await?;
        match self.hear().await? {
            Word::Read => Ok(()),
            other => bail!("it should have read: {other:?}"),
        }
    }

    /// Tells it to do the other half; the answer waits in the pipe.
    pub(crate) async fn shall_write(&mut self, counter: &Path) -> Result<()> {
        self.tell(&Order::Write { counter: counter.to_owned() }).await
    }

    /// It has done the other half.
    pub(crate) async fn has_written(&mut self) -> Result<()> {
        match self.hear().await? {
            Word::Written => Ok(()),
            other => bail!("it should have written: {other:?}"),
        }
    }

    /// Starts to increment a counter under the lock.
    pub(crate) async fn shall_work(
        &mut self,
        name: &str,
        rounds: u64,
        counter: &Path,
        log: &Path,
        client: String,
    ) -> Result<()> {
        let (name, counter, log) = (name.to_owned(), counter.to_owned(), log.to_owned());
        self.tell(&Order::Work { name, rounds, counter, log, client }).await
    }

    /// How many increments were acknowledged.
    pub(crate) async fn has_worked(&mut self) -> Result<u64> {
        match self.hear().await? {
            Word::Worked { acknowledged } => Ok(acknowledged),
            other => bail!("it should have worked: {other:?}"),
        }
    }

    /// SIGSTOP; returns when it stands still.
    pub(crate) async fn stop(&self) -> Result<()> {
        let pid = self.pid()?;
        kill_process(pid, Signal::STOP)?;
        let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
        eventually("the process stands still", || async {
            let stat = std::fs::read_to_string(&stat)?;
            // The state is the first field after the name, which may have spaces and brackets.
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            Ok((state == Some('T')).then_some(()))
        })
        .await
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) -> Result<()> {
        Ok(kill_process(self.pid()?, Signal::CONT)?)
    }

    /// SIGKILL; returns when it is dead.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Ends in order.
    pub(crate) async fn ends(mut self) -> Result<()> {
        self.tell(&Order::End).await?;
        let status = soon("the process ends", self.child.wait()).await??;
        anyhow::ensure!(status.success(), "a puppet failed: {status}");
        Ok(())
    }

    fn pid(&self) -> Result<Pid> {
        let id = self.child.id().context("it has ended")?;
        Pid::from_raw(i32::try_from(id)?).context("a process has a pid")
    }

    async fn tell(&mut self, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)? + "\n";
        self.orders.write_all(line.as_bytes()).await?;
        Ok(self.orders.flush().await?)
    }

    async fn hear(&mut self) -> Result<Word> {
        loop {
            let line = soon("a puppet answers", self.words.next_line()).await??;
            let line = line.context("a puppet ended without an answer")?;
            match line.strip_prefix(MARK).map(serde_json::from_str) {
                Some(Ok(Word::Failed { error })) => bail!("a puppet failed: {error}"),
                Some(word) => return Ok(word?),
                None => {}
            }
        }
    }
}

fn theirs(word: Word) -> Result<Theirs> {
    match word {
        Word::Held { token, trusted_until_ns } => Ok(Theirs {
            token: token.map(Token::new),
            trusted_until: Moment::from_nanos(trusted_until_ns),
        }),
        other => bail!("it should hold the lock: {other:?}"),
    }
}
