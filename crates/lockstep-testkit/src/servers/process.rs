//! One server process: launched so that it cannot outlive its owner, stopped and killed with all
//! its children, started again on the same port and data.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::ports::PortTaken;
use super::procfs::{self, Stat};
use super::programs;

/// Generous, because a laptop that compiles on every core starts servers slowly.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a process may take to obey a signal it cannot refuse; disks can make it slow.
const SIGNAL_LIMIT: Duration = Duration::from_secs(20);
/// How long a server that was left running may take to end politely.
const END_LIMIT: Duration = Duration::from_secs(5);
const LOG_TAIL_LINES: usize = 30;

/// Where a server keeps its data, and whether it lives on when its owner ends.
#[derive(Debug, Clone, Default)]
pub struct Home {
    folder: Option<PathBuf>,
    detached: bool,
}

impl Home {
    /// In this folder, which is created and left in place. Without it: in a temporary folder,
    /// removed with the server.
    pub fn at(folder: impl Into<PathBuf>) -> Home {
        Home { folder: Some(folder.into()), detached: false }
    }

    /// Bound neither to the life of this process nor to its terminal. It is still killed when its
    /// handle is dropped, unless `leave_running` is called.
    pub fn detached(mut self) -> Home {
        self.detached = true;
        self
    }

    pub(super) fn is_detached(&self) -> bool {
        self.detached
    }

    pub(super) fn open(&self, server: &str) -> Result<Folder> {
        let folder = match &self.folder {
            Some(path) => {
                fs::create_dir_all(path)
                    .with_context(|| format!("cannot create {}", path.display()))?;
                Folder { path: path.canonicalize()?, _temporary: None }
            }
            None => {
                let temporary =
                    tempfile::Builder::new().prefix(&format!("lockstep-{server}-")).tempdir()?;
                let path = temporary.path().canonicalize()?;
                Folder { path, _temporary: Some(temporary) }
            }
        };
        // Servers that refuse to run as root run as another user, who must be able to walk in.
        fs::set_permissions(&folder.path, fs::Permissions::from_mode(0o755))?;
        Ok(folder)
    }
}

/// The folder of one server; a temporary one goes away with it.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    _temporary: Option<TempDir>,
}

/// A server that was left running: enough to find it again and to be sure that it is still the
/// same process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its process id.
    pub pid: u32,
    /// Its command line, as `/proc` shows it.
    pub command_line: String,
    /// When it started, in clock ticks since boot: with the pid it names one process for ever.
    pub started: u64,
}

impl Running {
    /// Describes a live process.
    pub fn of(pid: u32) -> Option<Running> {
        let id = as_pid(pid).ok()?;
        let stat = Stat::of(id).filter(|stat| !stat.is_dead())?;
        Some(Running { pid, command_line: procfs::command_line(id)?, started: stat.started })
    }

    /// Whether this very process still runs, and not another one that was given its pid.
    pub fn is_alive(&self) -> bool {
        Running::of(self.pid).as_ref() == Some(self)
    }

    /// Asks it to end (SIGINT, which all our servers take for a quick and clean end), and kills it
    /// with its children if it does not. Does nothing to a process that only has the same pid.
    pub fn end(&self) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        let pid = as_pid(self.pid)?;
        signal(pid, Signal::INT)?;
        match wait_for(END_LIMIT, || Ok((!self.is_alive()).then_some(())))? {
            Some(()) => Ok(()),
            None => kill_tree(pid),
        }
    }
}

/// How to start a server; kept, so that it can be started again in the same way.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) folder: PathBuf,
    pub(super) log: PathBuf,
    pub(super) user: Option<&'static str>,
    pub(super) detached: bool,
}

impl Launch {
    pub(super) fn new(program: &str, folder: &Path) -> Result<Launch> {
        Ok(Launch {
            program: programs::find(program)?,
            args: Vec::new(),
            env: Vec::new(),
            folder: folder.to_owned(),
            log: folder.join("server.log"),
            user: None,
            detached: false,
        })
    }

    pub(super) fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Launch {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(super) fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Launch {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts the server and waits until `ready` no longer fails.
    ///
    /// Fails with [`PortTaken`] when somebody else was faster on the port, else with the end of
    /// the server's log.
    pub(super) fn start(&self, ready: impl Fn(Pid) -> Result<()>) -> Result<Process> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("cannot write {}", self.log.display()))?;
        let log_before = log.metadata()?.len() as usize;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = spawn_from_lasting_thread(command)
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let mut process = Process { pid: as_pid(child.id())?, child, left_running: false };

        let mut not_ready = anyhow!("it was never asked");
        let answered = wait_for(START_LIMIT, || {
            if let Some(status) = process.child.try_wait()? {
                let log = self.log_since(log_before);
                if log.contains("ddress already in use") {
                    return Err(PortTaken.into());
                }
                bail!("{} ended with {status}:\n{}", self.program.display(), tail(&log));
            }
            match ready(process.pid) {
                Ok(()) => Ok(Some(())),
                Err(error) => {
                    not_ready = error;
                    Ok(None)
                }
            }
        })?;
        if answered.is_none() {
            process.kill()?;
            let log = self.log_since(log_before);
            bail!(
                "{} did not become ready within {START_LIMIT:?} ({not_ready:#}):\n{}",
                self.program.display(),
                tail(&log)
            );
        }
        Ok(process)
    }

    /// Runs to its end a helper program that prepares the server.
    pub(super) fn run(&self, input: &str) -> Result<()> {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A helper that ends without reading says more with its status than with a broken pipe.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!(
                "{} failed with {}:\n{}{}",
                self.program.display(),
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    /// `setpriv` and `setsid` replace themselves by the server, so the child's pid is the server's.
    fn command(&self) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if self.detached {
            words.push("setsid".into());
        }
        if !self.detached || self.user.is_some() {
            words.push("setpriv".into());
        }
        if !self.detached {
            words.extend(["--pdeathsig".into(), "KILL".into()]);
        }
        if let Some(user) = self.user {
            words.push(format!("--reuid={user}").into());
            words.push(format!("--regid={user}").into());
            words.push("--init-groups".into());
        }
        words.push(self.program.clone().into());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder);
        command
    }

    /// The end of its log.
    pub(super) fn last_words(&self) -> String {
        tail(&self.log_since(0))
    }

    fn log_since(&self, start: usize) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(start..).unwrap_or_default()).into_owned()
    }
}

/// A server process that we started. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pid: Pid,
    left_running: bool,
}

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// At once and without a goodbye, as when the power fails; children included.
    pub(super) fn kill(&mut self) -> Result<()> {
        // Once it has been waited for, its pid may be somebody else's.
        if self.child.try_wait()?.is_none() {
            kill_tree(self.pid)?;
            self.child.wait()?;
        }
        Ok(())
    }

    /// Returns when the server and all its children stand still.
    pub(super) fn pause(&mut self) -> Result<()> {
        self.must_run()?;
        freeze(self.pid).map(drop)
    }

    pub(super) fn resume(&mut self) -> Result<()> {
        self.must_run()?;
        for pid in family(self.pid).into_iter().rev() {
            signal(pid, Signal::CONT)?;
        }
        Ok(())
    }

    pub(super) fn leave_running(&mut self) -> Result<Running> {
        self.must_run()?;
        let running = Running::of(self.id()).context("the server has just ended")?;
        self.left_running = true;
        Ok(running)
    }

    /// Gives it the time to end in good order, unless it is to be left running.
    pub(super) fn ask_to_end(&mut self, how: Signal) {
        if self.left_running || self.must_run().is_err() || signal(self.pid, how).is_err() {
            return;
        }
        // A paused one hears nothing.
        let _ = self.resume();
        let _ = wait_for(END_LIMIT, || Ok(self.child.try_wait()?));
    }

    /// What dropping it does; tells whether the server is gone now.
    pub(super) fn end(&mut self) -> bool {
        !self.left_running && self.kill().is_ok()
    }

    fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the server does not run: it ended with {status}"),
            None => Ok(()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing to be done about a failure here; the parent-death signal is the second net.
        self.end();
    }
}

/// Asks again and again until there is an answer; `None` when the time is over.
#[expect(
    clippy::disallowed_methods,
    reason = "another program's progress can only be asked for; this is the one place that waits"
)]
pub(super) fn wait_for<T>(
    limit: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let asked_first = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        if asked_first.elapsed() > limit {
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The parent-death signal is sent when the *thread* that started the child ends, and the threads
/// of tests and of thread pools end long before their process. So all servers are started from one
/// thread that stays.
fn spawn_from_lasting_thread(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static LAUNCHER: LazyLock<Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let (reply, answer) = channel();
    let gone = || io::Error::other("the thread that starts servers has ended");
    LAUNCHER.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

pub(super) fn kill_tree(root: Pid) -> Result<()> {
    // Frozen first: what does not run cannot start another child behind our back.
    let family = freeze(root)?;
    for pid in &family {
        signal(*pid, Signal::KILL)?;
    }
    // A port or a data folder is only free again when every one of them is gone.
    let all_gone = || family.iter().all(|pid| Stat::of(*pid).is_none_or(Stat::is_dead));
    wait_for(SIGNAL_LIMIT, || Ok(all_gone().then_some(())))?
        .with_context(|| format!("process {root} or a child of it survived SIGKILL"))
}

fn freeze(root: Pid) -> Result<Vec<Pid>> {
    let mut frozen = Vec::new();
    // A child may be born between the look and the stop, so look until there is no new one.
    while let Some(running) = family(root).into_iter().find(|pid| !frozen.contains(pid)) {
        signal(running, Signal::STOP)?;
        let still = || Stat::of(running).is_none_or(|stat| stat.is_stopped() || stat.is_dead());
        wait_for(SIGNAL_LIMIT, || Ok(still().then_some(())))?
            .with_context(|| format!("process {running} did not stop"))?;
        frozen.push(running);
    }
    Ok(frozen)
}

fn family(root: Pid) -> Vec<Pid> {
    let mut family = vec![root];
    family.extend(procfs::descendants(root));
    family
}

fn signal(pid: Pid, signal: Signal) -> Result<()> {
    match kill_process(pid, signal) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        other => other.with_context(|| format!("cannot signal process {pid}")),
    }
}

pub(super) fn as_pid(id: u32) -> Result<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw).context("not a process id")
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> Launch {
        Launch::new("sh", folder).unwrap().args(["-c", script])
    }

    #[test]
    fn a_server_that_dies_at_birth_fails_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let launch = shell("echo no disk left; exit 3", folder.path());
        let error = launch.start(|_| bail!("not yet")).unwrap_err().to_string();
        assert!(error.contains("no disk left") && error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        let folder = tempfile::tempdir().unwrap();
        let launch = shell("echo 'bind: Address already in use'; exit 1", folder.path());
        assert!(launch.start(|_| bail!("not yet")).unwrap_err().is::<PortTaken>());
    }

    #[test]
    fn children_are_paused_and_killed_too() {
        let folder = tempfile::tempdir().unwrap();
        let launch = shell("sleep 1000 & sleep 1000 & wait", folder.path());
        let mut process = launch
            .start(|pid| match procfs::descendants(pid).len() {
                2 => Ok(()),
                n => bail!("{n} children"),
            })
            .unwrap();
        let everyone = family(process.pid);

        process.pause().unwrap();
        assert!(everyone.iter().all(|pid| Stat::of(*pid).unwrap().is_stopped()));
        process.resume().unwrap();
        let awake = || everyone.iter().all(|pid| !Stat::of(*pid).unwrap().is_stopped());
        wait_for(SIGNAL_LIMIT, || Ok(awake().then_some(()))).unwrap().unwrap();

        process.pause().unwrap();
        process.kill().unwrap();
        assert!(everyone.iter().all(|pid| Stat::of(*pid).is_none_or(Stat::is_dead)));
    }

    #[test]
    fn a_server_survives_the_thread_that_asked_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let launch = shell("exec sleep 1000", folder.path());
        let (mut process, thread) =
            thread::spawn(move || (launch.start(|_| Ok(())).unwrap(), rustix::thread::gettid()))
                .join()
                .unwrap();
        // `join` may return before the kernel has signalled the children of the thread; it has when
        // the thread is off its list.
        let ended = || !Path::new(&format!("/proc/self/task/{thread}")).exists();
        wait_for(SIGNAL_LIMIT, || Ok(ended().then_some(()))).unwrap().unwrap();
        process.pause().unwrap();
        process.kill().unwrap();
    }

    #[test]
    fn a_pid_alone_does_not_make_a_process_ours() {
        let me = Running::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(!Running { started: me.started + 1, ..me.clone() }.is_alive());
        let stranger = Running { command_line: "redis-server".into(), ..me };
        stranger.end().unwrap(); // and we are still here to say so
    }
}
