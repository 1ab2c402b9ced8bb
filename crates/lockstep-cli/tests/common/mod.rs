//! What the end-to-end tests share. Each test has a store of its own, and waits for events: lines
//! that commands print, and ends of processes.

#![allow(dead_code, reason = "every test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Long enough for a busy machine; a test that needs it has failed.
const LIMIT: Duration = Duration::from_secs(30);

/// What the keys send, on a terminal.
pub(crate) const CTRL_D: &str = "\x04";
pub(crate) const CTRL_Z: &str = "\x1a";

/// A folder with a store in it.
pub(crate) struct World {
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The path for a shell.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.file("locks.db"))
    }

    /// `lockstep ARGS…` on this world's store.
    pub(crate) fn lockstep(&self, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("LOCKSTEP_STORE", self.store());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Done {
        Running::start(self.lockstep(args)).finish()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(self.lockstep(args))
    }

    /// In a session of its own, as cron does, and so without a terminal: at one, lockstep stops when
    /// its command is stopped, and the tests would stop with it.
    pub(crate) fn start_apart(&self, args: &[&str]) -> Running {
        let mut command = Command::new("setsid");
        command.arg(env!("CARGO_BIN_EXE_lockstep")).args(args);
        command.env("LOCKSTEP_STORE", self.store());
        Running::start(command)
    }

    /// A shell at a terminal, to which one types; `$lock TASK` runs the file of this name while
    /// holding `job`.
    pub(crate) fn shell(&self, ttl: &str) -> Running {
        let lock =
            format!("{} lock --ttl {ttl} --grace 500ms job -- sh", env!("CARGO_BIN_EXE_lockstep"));
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", "sh -i", "/dev/null"]);
        command.env("LOCKSTEP_STORE", self.store()).env("LC_ALL", "C").env("lock", lock);
        command.current_dir(self.folder.path());
        Running::start(command)
    }

    /// `locks show NAME --json`.
    pub(crate) fn show(&self, name: &str) -> Value {
        let done = self.run(&["locks", "show", name, "--json"]);
        assert_eq!(done.code, Some(0), "{}", done.err);
        serde_json::from_str(&done.out).unwrap()
    }

    pub(crate) fn is_free(&self, name: &str) -> bool {
        let lock = self.show(name);
        lock["holders"][0].is_null() && lock["waiting"] == 0
    }

    /// Returns when so many wait.
    pub(crate) fn until_waiting(&self, name: &str, waiting: u64) {
        let seen = (0..2_000).any(|_| self.show(name)["waiting"] == waiting);
        assert!(seen, "nobody came to wait: {}", self.show(name));
    }
}

/// `lockstep ARGS…` without any store.
pub(crate) fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.args(args);
    for name in ["LOCKSTEP_STORE", "LOCKSTEP_LOG", "LOCKSTEP_TOKEN"] {
        command.env_remove(name);
    }
    command
}

/// Returns when the process is stopped, as by Ctrl-Z.
pub(crate) fn until_stopped(pid: Pid) {
    let options = ["-o", "stat=", "--pid", &pid.as_raw_pid().to_string()].map(str::to_owned);
    let is_stopped = || {
        let state = Command::new("ps").args(&options).output().unwrap().stdout;
        String::from_utf8_lossy(&state).starts_with('T')
    };
    assert!((0..2_000).any(|_| is_stopped()), "it goes on");
}

/// How a process ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Done {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// What was not read before.
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A process whose output is read all the time. It is killed when the test ends.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    err: Receiver<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (send, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).all(|line| send.send(line).is_ok());
        });
        let (send, err) = channel();
        let mut stderr = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            let _ = send.send(String::from_utf8_lossy(&text).into_owned());
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, err }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The next line of its stdout.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("a line in time")
    }

    /// Returns when it has written a line with this in it.
    #[track_caller]
    pub(crate) fn until(&self, words: &str) {
        while !self.line().contains(words) {}
    }

    /// Returns when everybody who could write to its stdout is gone.
    pub(crate) fn until_silent(&self) {
        while self.lines.recv_timeout(LIMIT).is_ok() {}
        let still = self.lines.recv_timeout(Duration::ZERO);
        assert_eq!(still, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }

    /// Writes a line to its stdin.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Types keys into its stdin that make no line.
    pub(crate) fn press(&mut self, keys: &str) {
        write!(self.stdin.as_mut().unwrap(), "{keys}").unwrap();
    }

    /// Closes its stdin and waits for its end.
    pub(crate) fn finish(mut self) -> Done {
        drop(self.stdin.take());
        let err = self.err.recv_timeout(LIMIT).expect("an end in time");
        let out = self.lines.iter().map(|line| line + "\n").collect();
        Done { code: self.child.wait().unwrap().code(), out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
