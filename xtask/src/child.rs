//! Runs another program to its end, with its output as it comes, and leaves nothing of it behind.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::interrupt::Interrupt;

/// What may happen to a program that does not stop when it is asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stubborn {
    /// It is killed.
    Kill,
    /// It is waited for: half an installation is worse than a late end.
    Wait,
}

/// Fails if the program fails or if we are interrupted.
pub(crate) fn run(interrupt: &Interrupt, command: Command, stubborn: Stubborn) -> Result<()> {
    let name = name(&command);
    let status = status(interrupt, command, stubborn)?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}

/// How the program ends. Fails only if it cannot be run or if we are interrupted.
pub(crate) fn status(
    interrupt: &Interrupt,
    mut command: Command,
    stubborn: Stubborn,
) -> Result<ExitStatus> {
    let name = name(&command);
    // A group of its own, so that the whole family can be signalled. It is then not the terminal's
    // foreground group, and would be stopped if it read from there.
    command.process_group(0).stdin(Stdio::null());
    let started = interrupt.guard(stubborn == Stubborn::Kill, || {
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let leader = Pid::from_child(&child);
        Ok((leader, (leader, child)))
    })?;
    let Some((leader, mut child)) = started else { bail!("interrupted") };

    let status = wait_without_reaping(leader).and_then(|()| {
        // While the leader is not reaped, the group's number cannot pass to anyone else. Whatever
        // is left in it now has lost its purpose.
        if stubborn == Stubborn::Kill {
            let _ = kill_process_group(leader, Signal::KILL);
        }
        interrupt.forget(|| child.wait()).with_context(|| format!("cannot wait for {name}"))
    })?;
    ensure!(!interrupt.requested(), "interrupted");
    Ok(status)
}

fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

fn wait_without_reaping(leader: Pid) -> Result<()> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(leader), options) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(drop).context("cannot wait"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failure_is_told_with_its_status() {
        let error = run(&Interrupt::default(), shell("exit 3"), Stubborn::Kill).unwrap_err();
        assert_eq!(error.to_string(), "sh ended with exit status: 3");
    }

    #[test]
    fn nothing_is_started_after_an_interrupt() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        let command = shell(&format!("touch {}", trace.display()));
        let error = run(&Interrupt::by(2), command, Stubborn::Kill).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
        assert!(!trace.exists());
    }

    const SCRIPT: &str = "LOCKSTEP_XTASK_TEST_SCRIPT";

    #[test]
    #[ignore = "the next test runs it, in a process that takes the signal"]
    fn a_program_that_is_interrupted() {
        let Ok(script) = std::env::var(SCRIPT) else { return };
        let interrupt = Interrupt::listen().unwrap();
        let command = shell(&script);
        let error = run(&interrupt, command, Stubborn::Kill).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
    }

    /// Ctrl-C, a polite end and a closed terminal. What a shell has put into the background hears nothing of
    /// the first.
    #[test]
    fn a_signal_ends_the_program_and_what_it_has_started() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let folder = tempfile::tempdir().unwrap();
            let pipe = folder.path().join("pipe");
            assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let script = format!("exec >{}; sleep 60 & echo started; wait", pipe.display());
            let us = "--exact --ignored --nocapture child::tests::a_program_that_is_interrupted";
            let mut runner = Command::new(std::env::current_exe().unwrap())
                .args(us.split(' '))
                .env(SCRIPT, script)
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // Nobody reads it any more, as after Ctrl-C in `… 2>&1 | tee log` and without a terminal.
            drop(runner.stderr.take());
            let (heard, hears) = std::sync::mpsc::channel();
            // A thread of its own, which may wait for ever for a writer that does not come.
            std::thread::spawn(move || {
                let lines = BufReader::new(fs::File::open(&pipe).unwrap()).lines();
                lines.for_each(|line| heard.send(line.unwrap()).unwrap());
            });
            let soon = std::time::Duration::from_secs(30);
            assert_eq!(hears.recv_timeout(soon).as_deref(), Ok("started"));
            rustix::process::kill_process(Pid::from_child(&runner), signal).unwrap();
            let nobody_holds_the_pipe = Err(std::sync::mpsc::RecvTimeoutError::Disconnected);
            assert_eq!(hears.recv_timeout(soon), nobody_holds_the_pipe);
            assert!(runner.wait().unwrap().success(), "after {signal:?}");
        }
    }

    #[test]
    fn what_a_program_leaves_behind_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Shell and stray hold the only writing end, so the reader sees the end of both.
        let script = format!("exec >{}; sleep 1000 & echo started", pipe.display());
        let reader = std::thread::spawn(move || fs::read_to_string(pipe).unwrap());
        run(&Interrupt::default(), shell(&script), Stubborn::Kill).unwrap();
        assert_eq!(reader.join().unwrap(), "started\n");
    }
}
