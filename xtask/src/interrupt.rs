//! Ctrl-C, SIGTERM and a closed terminal end the command that runs now, and then us, through the
//! ordinary way out, so that every destructor runs.

use std::io::{Write, stderr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

/// How long a command may take to obey before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Listens for requests to stop. While it lives, they no longer end the process by themselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The number of the first signal that came.
    signal: AtomicU8,
    /// Kept under one lock with starting and reaping it, so that no signal ever goes to a group
    /// that is not there yet or not ours any more.
    running: Mutex<Option<Group>>,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    leader: Pid,
    may_be_killed: bool,
}

impl Interrupt {
    /// Returns when no signal can be missed any more.
    pub(crate) fn listen() -> Result<Interrupt> {
        let shared = Arc::new(Shared::default());
        let (ready, is_ready) = channel();
        thread::spawn({
            let shared = Arc::clone(&shared);
            move || listen(&shared, &ready)
        });
        is_ready.recv().context("cannot listen for signals")??;
        Ok(Interrupt(shared))
    }

    /// As after a signal of this number.
    #[cfg(test)]
    pub(crate) fn by(signal: u8) -> Interrupt {
        let interrupt = Interrupt::default();
        interrupt.0.signal.store(signal, Ordering::SeqCst);
        interrupt
    }

    /// Whether somebody wants us to stop.
    pub(crate) fn requested(&self) -> bool {
        self.exit_code().is_some()
    }

    /// What a shell expects of a process that a signal has ended.
    pub(crate) fn exit_code(&self) -> Option<ExitCode> {
        match self.0.signal.load(Ordering::SeqCst) {
            0 => None,
            number => Some(ExitCode::from(128 + number)),
        }
    }

    /// Runs `start`, unless we are to stop, and passes signals on to the process group that it
    /// returns, until [`forget`](Self::forget) is called.
    pub(crate) fn guard<T>(
        &self,
        may_be_killed: bool,
        start: impl FnOnce() -> Result<(Pid, T)>,
    ) -> Result<Option<T>> {
        let mut running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        if self.requested() {
            return Ok(None);
        }
        let (leader, started) = start()?;
        *running = Some(Group { leader, may_be_killed });
        Ok(Some(started))
    }

    /// Runs `reap`, after which no signal is passed on any more.
    pub(crate) fn forget<T>(&self, reap: impl FnOnce() -> T) -> T {
        let mut running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = None;
        reap()
    }
}

impl Shared {
    fn pass_on(&self, signal: Signal) {
        let running = *self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = running
            && (signal != Signal::KILL || group.may_be_killed)
        {
            // It may just have ended by itself.
            let _ = kill_process_group(group.leader, signal);
        }
    }
}

fn listen(shared: &Shared, ready: &Sender<Result<()>>) {
    let listening = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime")
        .and_then(|runtime| {
            let signals = runtime.block_on(async { Signals::register() })?;
            Ok((runtime, signals))
        });
    let (runtime, mut signals) = match listening {
        Ok(listening) => listening,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    runtime.block_on(async {
        shared.signal.store(signals.next().await, Ordering::SeqCst);
        shared.pass_on(Signal::INT);
        // Whoever would have read it may be gone, by the same Ctrl-C or with the terminal.
        let _ = writeln!(stderr(), "\nstopping what was started; once more to kill it");
        // Time is over, or somebody has lost patience.
        let _ = tokio::time::timeout(GRACE, signals.next()).await;
        loop {
            shared.pass_on(Signal::KILL);
            signals.next().await;
        }
    });
}

struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn register() -> Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        u8::try_from(kind.as_raw_value()).unwrap_or(u8::MAX - 128)
    }
}
