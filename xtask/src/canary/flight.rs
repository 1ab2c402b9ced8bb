//! Tests in the copy of the tree, with servers of their own, and how they end.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::child::{self, Stubborn};
use crate::interrupt::Interrupt;
use crate::test_run::TestRun;
use crate::workspace::{cargo, root};

/// How long the tests of one canary may take.
pub(super) const LIMIT_S: &str = "300";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Green,
    Red,
    /// Not done in time, for which a slow machine is reason enough.
    Hung,
}

/// Builds and runs these tests.
pub(super) fn try_tests(interrupt: &Interrupt, tree: &Path, tests: &[&str]) -> Result<Outcome> {
    // Servers of its own: functions that an earlier bug has left in a database would be found there,
    // and taken for this one's.
    let run = TestRun::start()?;
    let outcome = build_and_run(interrupt, tree, &run, tests);
    // Where tests hung or died, what they started would slow down the next ones.
    run.end()?;
    outcome
}

fn build_and_run(
    interrupt: &Interrupt,
    tree: &Path,
    run: &TestRun,
    tests: &[&str],
) -> Result<Outcome> {
    let prepare = |mut command: Command| {
        command.current_dir(tree);
        run.tell(&mut command);
        // One failure is enough; the others would wait for what the bug keeps from happening.
        command.env("LOCKSTEP_FAIL_FAST", "1");
        // A target folder of its own: cargo names what it builds by the path within the workspace,
        // so a planted bug in the common one would be taken for the real thing afterwards.
        command.env("CARGO_TARGET_DIR", root().join("target/canary-target"));
        // What a dying canary prints would only be mistaken for a failure.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // The whole workspace is named so that dependencies keep the same features from one canary
    // to the next, and are built once.
    let words = |extra| ["test", "--quiet", "--workspace"].into_iter().chain(extra);
    let mut build = cargo(words(Some("--no-run")));
    build.args(tests);
    child::run(interrupt, prepare(build), Stubborn::Kill).context("it does not even build")?;

    let mut timeout = Command::new("timeout");
    timeout.args(["--kill-after=10", LIMIT_S]);
    timeout.arg(cargo([]).get_program()).args(words(None)).args(tests);
    outcome_of(child::status(interrupt, prepare(timeout), Stubborn::Kill)?)
}

/// What `timeout` says by its end: 124 that the time was over, 137 or its own death that SIGTERM was not
/// enough, 125 to 127 that it could not run anything.
fn outcome_of(status: ExitStatus) -> Result<Outcome> {
    Ok(match (status.code(), status.signal()) {
        (Some(0), _) => Outcome::Green,
        (Some(124 | 137), _) | (_, Some(9)) => Outcome::Hung,
        (Some(125..=127), _) => bail!("the tests could not be run: {status}"),
        _ => Outcome::Red,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_does_not_end_has_not_failed() {
        let of = |limit: &str, script: &str| {
            let mut timeout = Command::new("timeout");
            timeout.args(["--kill-after=0.1", limit, "sh", "-c", script]);
            let status = child::status(&Interrupt::default(), timeout, Stubborn::Kill);
            outcome_of(status.unwrap()).ok()
        };
        assert_eq!(of("100", "exit 0"), Some(Outcome::Green));
        assert_eq!(of("100", "exit 101"), Some(Outcome::Red));
        assert_eq!(of("0.1", "sleep 1000"), Some(Outcome::Hung));
        assert_eq!(of("0.1", "trap '' TERM; while :; do sleep 1000; done"), Some(Outcome::Hung));
        assert_eq!(of("not a limit", "exit 0"), None);
    }
}
