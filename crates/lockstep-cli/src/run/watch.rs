use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use lockstep::{Clock, Guard, Moment};
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::sync::{mpsc, oneshot};

use super::group::{Ended, Group};
use super::plan::{Plan, Seen, Step, Why};

/// Timers stop while the machine sleeps, and leases do not: so look at the clock this often.
const SLICE: Duration = Duration::from_millis(100);

/// A thread that stops the command in time. It has a runtime of its own and does nothing that
/// could block it: it does not even write messages, because stderr may be a pipe that nobody reads.
pub(crate) struct Watch {
    end: oneshot::Sender<()>,
    notices: mpsc::UnboundedReceiver<Notice>,
    thread: JoinHandle<()>,
}

/// What the watch has done.
#[derive(Debug)]
pub(crate) enum Notice {
    /// It asks the command to end, and kills it after this long.
    Terminated { why: Why, kill_in: Duration },
    /// It has killed the command, or was not allowed to.
    Killed { why: Why, result: Result<(), Errno> },
}

struct Watcher {
    guard: Arc<Guard>,
    clock: Arc<dyn Clock>,
    group: Arc<Group>,
    plan: Plan,
    notices: mpsc::UnboundedSender<Notice>,
}

impl Watch {
    pub(super) fn start(
        guard: Arc<Guard>,
        clock: Arc<dyn Clock>,
        group: Arc<Group>,
        plan: Plan,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (end, ended) = oneshot::channel();
        let (sender, notices) = mpsc::unbounded_channel();
        let watcher = Watcher { guard, clock, group, plan, notices: sender };
        let thread = std::thread::Builder::new()
            .name("lockstep-watch".to_owned())
            .spawn(move || runtime.block_on(watcher.run(ended)))?;
        Ok(Self { end, notices, thread })
    }

    /// `None` if the thread is gone. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Notice> {
        self.notices.recv().await
    }

    /// What it has done and nobody has heard of yet, if anything.
    pub(super) fn done(&mut self) -> Option<Notice> {
        self.notices.try_recv().ok()
    }

    /// Ends the watch, and returns what it has done since it was last asked.
    pub(super) fn end(self) -> Vec<Notice> {
        let Self { end, mut notices, thread } = self;
        // An error means that it has ended already.
        let _ = end.send(());
        let _ = thread.join();
        std::iter::from_fn(|| notices.try_recv().ok()).collect()
    }
}

impl Watcher {
    async fn run(mut self, mut ended: oneshot::Receiver<()>) {
        let mut stopping = false;
        loop {
            let now = self.clock.now();
            let seen = self.look();
            let lost = matches!(seen, Seen::Lost(_));
            let until = match self.plan.look(now, seen) {
                Step::Wait(until) => until,
                // There is nothing to stop, and nothing to report.
                Step::Terminate(..) | Step::Kill(_) if !stopping && self.is_over() => Moment::MAX,
                Step::Terminate(why, kill_at) => {
                    stopping = true;
                    let kill_in = kill_at.since(now);
                    // First, so that whoever sees the command end can know that it was told to.
                    let _ = self.notices.send(Notice::Terminated { why, kill_in });
                    let _ = self.group.signal(Signal::TERM);
                    // One that is stopped would otherwise sleep through its grace.
                    let _ = self.group.signal(Signal::CONT);
                    kill_at
                }
                Step::Kill(why) => {
                    let result = self.group.signal(Signal::KILL);
                    let _ = self.notices.send(Notice::Killed { why, result });
                    // Stay until told: that the channel closes means that this thread has died.
                    let _ = ended.await;
                    return;
                }
            };
            let left = until.since(self.clock.now()).min(SLICE);
            tokio::select! {
                biased;
                _ = &mut ended => return,
                _ = self.guard.lost(), if !lost => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// Whom a command leaves behind that ended by itself is its own business. If a signal has ended it, they may
    /// still be at work on what the lock protects.
    fn is_over(&self) -> bool {
        match self.group.ended() {
            None => false,
            Some(Ended::Exited(_)) => true,
            Some(Ended::Signalled(_)) => !self.group.is_alive(),
        }
    }

    fn look(&self) -> Seen {
        // In this order: a lock that is trusted after this was read had a lease when it was.
        let until = self.guard.trusted_until();
        match self.guard.check() {
            Ok(()) => Seen::Trusted(until),
            Err(lost) => Seen::Lost(lost.cause),
        }
    }
}
