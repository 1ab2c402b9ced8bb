use std::io;
use std::sync::Arc;
use std::time::Duration;

use lockstep::{Clock, Guard};
use rustix::process::{Signal, getpid, kill_current_process_group};

use super::group::{Ended, Group};
use super::plan::Plan;
use super::procfs::Processes;
use super::signals::{Signals, stop_myself};
use super::start::Start;
use super::terminal::Terminal;
use super::watch::{Notice, Watch};

/// How often one looks whether the rest of a group has ended, which no signal tells.
const GLANCE: Duration = Duration::from_millis(10);
/// How long the dying may take to be dead.
const LAST_BREATH: Duration = Duration::from_secs(1);
/// How long a signal that we send ourselves may take to be heard.
const ECHO: Duration = Duration::from_secs(1);

/// A command and the lock that it runs under.
pub(crate) struct Job<'a> {
    pub(crate) start: Start,
    pub(crate) guard: Arc<Guard>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) plan: Plan,
    pub(crate) grace: Duration,
    pub(crate) signals: &'a mut Signals,
    /// Is told what is done about the command, and why.
    pub(crate) tell: &'a dyn Fn(&Notice),
}

/// What came of it.
pub(crate) enum Finished {
    /// The command ended by itself.
    Ended(Ended),
    /// It was stopped, because the lock was lost.
    Stopped,
    /// It could not be executed.
    NotStarted(io::Error),
}

/// Runs the command to its end. On return it is gone, and with it the rest of its process group
/// if it was stopped or a signal ended it.
pub(crate) async fn supervise(job: Job<'_>) -> io::Result<Finished> {
    let Job { start, guard, clock, plan, grace, signals, tell } = job;
    let group = Arc::clone(&start.group);
    let watch = Watch::start(Arc::clone(&guard), clock, Arc::clone(&group), plan)?;
    let terminal = Terminal::open();
    // Before it runs, lest it reads from the terminal too early and is stopped for it.
    if let Some(terminal) = terminal.as_ref().filter(|terminal| terminal.is_for_the_command()) {
        terminal.give_to(group.id());
    }
    let started = start.started()?;
    start.go()?;
    drop(start);

    let mut shift = Shift { group, guard, terminal, watch, stopped: false, tell };
    let ended = shift.until_the_command_ends(signals).await;
    // It is dead, so this is known by now.
    let started = started.await;
    shift.until_its_group_is_gone(ended, grace).await;
    if let Some(terminal) = &shift.terminal {
        terminal.take_back_from(shift.group.id());
    }
    let Shift { group, watch, mut stopped, tell, .. } = shift;
    // Before the group is nobody's any more: it would take that for one that lives.
    for notice in watch.end() {
        tell(&notice);
        stopped = true;
    }
    group.reap();
    Ok(match (started, stopped) {
        (Err(error), _) => Finished::NotStarted(error),
        (Ok(()), true) => Finished::Stopped,
        (Ok(()), false) => Finished::Ended(ended),
    })
}

/// What is known while the command runs.
struct Shift<'a> {
    group: Arc<Group>,
    guard: Arc<Guard>,
    terminal: Option<Terminal>,
    watch: Watch,
    /// The watch has stopped the command.
    stopped: bool,
    tell: &'a dyn Fn(&Notice),
}

impl Shift<'_> {
    async fn until_the_command_ends(&mut self, signals: &mut Signals) -> Ended {
        loop {
            if let Some(ended) = self.group.ended() {
                return ended;
            }
            if let Some(signal) = self.group.newly_stopped() {
                self.on_stop(signal, signals).await;
            }
            tokio::select! {
                signal = signals.next() => self.on_signal(signal),
                notice = self.watch.next() => self.on_notice(notice),
            }
        }
    }

    fn on_notice(&mut self, notice: Option<Notice>) {
        let Some(notice) = notice else {
            // The watch has died, and nobody would stop the command in time any more.
            let _ = self.group.signal(Signal::KILL);
            self.stopped = true;
            return;
        };
        (self.tell)(&notice);
        self.stopped = true;
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => {}
            Signal::CONT => self.on_continue(),
            signal => {
                let _ = self.group.signal(signal);
            }
        }
    }

    /// The command was stopped. At a terminal that is a matter between it and the shell, which
    /// knows only us: so we stop as well. Elsewhere the lock stays held until it is continued.
    async fn on_stop(&mut self, signal: i32, signals: &mut Signals) {
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        if wants_terminal && terminal.is_ours() {
            terminal.give_to(self.group.id());
            let _ = self.group.signal(Signal::CONT);
            return;
        }
        if Processes::now().is_orphaned(getpid()) {
            // Nobody could continue us, so Ctrl-Z has no effect, as everywhere without a shell.
            if signal == Signal::TSTP.as_raw() {
                let _ = self.group.signal(Signal::CONT);
            }
            return;
        }
        terminal.take_back_from(self.group.id());
        // The script that has started us is stopped as well, as it would be by Ctrl-Z.
        let _ = kill_current_process_group(Signal::TSTP);
        // We hear that as well. If we stopped before, we could hear it after what continues us, and
        // would stop the command again.
        let _ = tokio::time::timeout(ECHO, signals.hear(Signal::TSTP)).await;
        stop_myself();
    }

    /// We were continued. While we were stopped nobody renewed the lease, so the command goes on
    /// only if the lock is still ours; if not, the watch kills it where it stands.
    fn on_continue(&mut self) {
        if !self.guard.is_trusted() {
            return;
        }
        if let Some(terminal) = self.terminal.as_ref().filter(|t| t.is_for_the_command()) {
            terminal.give_to(self.group.id());
        }
        let _ = self.group.signal(Signal::CONT);
    }

    /// A command that ends by itself may leave others behind, and that is its own business. If it
    /// was stopped, or ended by a signal that they have got as well, they may still be at work on
    /// what the lock protects.
    async fn until_its_group_is_gone(&mut self, ended: Ended, grace: Duration) {
        // The command may have ended before one has read that it was told to.
        while let Some(notice) = self.watch.done() {
            self.on_notice(Some(notice));
        }
        let by_signal = matches!(ended, Ended::Signalled(_));
        if !self.stopped && !by_signal {
            return;
        }
        if !self.stopped && self.group.is_alive() {
            let _ = self.group.signal(Signal::TERM);
        }
        // The watch is still awake, and is quicker if the lease demands it.
        self.gone_within(grace).await;
        // Also if nobody is seen: not every system lets us look.
        let _ = self.group.signal(Signal::KILL);
        self.gone_within(LAST_BREATH).await;
        // Who hangs in a call of the kernel may yet write, and as long as the lock is ours nobody else does.
        while self.group.is_alive() && self.guard.is_trusted() {
            tokio::time::sleep(GLANCE).await;
        }
    }

    async fn gone_within(&self, limit: Duration) {
        let looking = async {
            while self.group.is_alive() {
                tokio::time::sleep(GLANCE).await;
            }
        };
        let _ = tokio::time::timeout(limit, looking).await;
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use lockstep::Locks;
    use rustix::process::Pid;

    use super::*;

    const STUBBORN: &str = "sh -c \"trap '' TERM; echo ready; exec sleep 60\" & wait";

    /// Runs this, with [`STUBBORN`] at its end, in a group of its own, and returns when that one is ready.
    fn start(leader: &str) -> (Child, Arc<Group>) {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{leader} {STUBBORN}")]);
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let group = Arc::new(Group::new(Pid::from_child(&child)));
        (child, group)
    }

    async fn ended(group: &Group) -> Ended {
        loop {
            if let Some(ended) = group.ended() {
                return ended;
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Waits for the end of its leader, does this to the lock, and waits until the rest, which has so much
    /// grace, is gone. Returns whether the watch has stopped it.
    async fn gone(
        group: &Arc<Group>,
        plan: Plan,
        grace: Duration,
        then: impl AsyncFnOnce(&Locks),
    ) -> bool {
        let locks = lockstep::connect("memory:").await.unwrap();
        let guard = Arc::new(locks.lock("job").await.unwrap());
        let clock = Arc::clone(locks.clock());
        let watch = Watch::start(Arc::clone(&guard), clock, Arc::clone(group), plan).unwrap();
        let ended = ended(group).await;
        then(&locks).await;
        let (terminal, tell) = (None, &|_: &Notice| {});
        let mut shift =
            Shift { group: Arc::clone(group), guard, terminal, watch, stopped: false, tell };
        shift.until_its_group_is_gone(ended, grace).await;
        let Shift { watch, stopped, .. } = shift;
        stopped || !watch.end().is_empty()
    }

    fn in_time<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let test = async { tokio::time::timeout(Duration::from_secs(30), test).await };
        runtime.block_on(test).expect("it is gone in time")
    }

    #[test]
    fn a_leader_that_ends_as_soon_as_it_is_told_does_not_leave_the_others_at_work() {
        let (mut child, group) = start("trap 'exit 0' TERM;");
        // It wants longer leases than there are, so the watch tells the command to end at once.
        let plan = Plan::new(Duration::from_secs(60), Duration::from_secs(30)).unwrap();
        assert!(in_time(gone(&group, plan, Duration::ZERO, async |_| {})));
        assert!(!group.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn what_a_killed_leader_leaves_behind_does_not_outlive_the_lease() {
        let (mut child, group) = start("");
        let plan = Plan::new(Duration::from_secs(10), Duration::ZERO).unwrap();
        rustix::process::kill_process(group.id(), Signal::KILL).unwrap();
        let lose = async |locks: &Locks| {
            assert!(locks.break_lock_now("job", "moving house").await.unwrap());
        };
        assert!(in_time(gone(&group, plan, Duration::from_secs(3600), lose)));
        assert!(!group.is_alive());
        child.wait().unwrap();
    }
}
