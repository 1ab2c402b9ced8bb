//! Steps, one after the other, and a summary at the end.

use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::interrupt::Interrupt;

/// What has been done so far.
#[derive(Debug)]
pub(crate) struct Steps {
    interrupt: Interrupt,
    steps: Vec<Step>,
    stopped: bool,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    Skipped,
}

impl Steps {
    pub(crate) fn new(interrupt: &Interrupt) -> Steps {
        Steps { interrupt: interrupt.clone(), steps: Vec::new(), stopped: false }
    }

    /// Runs a step, even if an earlier one has failed: two findings are better than one.
    pub(crate) fn run(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        let (outcome, took) = if self.stopped || self.interrupt.requested() {
            (Outcome::Skipped, Duration::ZERO)
        } else {
            println!("\n── {name}");
            let (result, took) = timed(work);
            match result {
                Ok(()) => (Outcome::Passed, took),
                Err(error) => {
                    eprintln!("{name}: {error:#}");
                    (Outcome::Failed(first_line(&format!("{error:#}"))), took)
                }
            }
        };
        self.steps.push(Step { name, outcome, took });
    }

    /// Runs a step without which the later ones make no sense.
    pub(crate) fn require(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        self.run(name, work);
        self.stopped |= !self.all_passed();
    }

    /// Prints the summary.
    pub(crate) fn finish(self) -> ExitCode {
        println!("\n{self}");
        match self.interrupt.exit_code() {
            Some(code) => code,
            None if self.all_passed() => ExitCode::SUCCESS,
            None => ExitCode::FAILURE,
        }
    }

    fn all_passed(&self) -> bool {
        self.steps.iter().all(|step| step.outcome == Outcome::Passed)
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Step { name, outcome, took } in &self.steps {
            let seconds = took.as_secs_f64();
            match outcome {
                Outcome::Passed => writeln!(f, "  ok      {seconds:7.1} s  {name}")?,
                Outcome::Failed(why) => writeln!(f, "  FAILED  {seconds:7.1} s  {name}: {why}")?,
                Outcome::Skipped => writeln!(f, "  skipped {:>9}  {name}", "")?,
            }
        }
        let verdict = match (self.interrupt.requested(), self.all_passed()) {
            (true, _) => "interrupted",
            (false, true) => "all passed",
            (false, false) => "FAILED",
        };
        write!(f, "  {verdict}")
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[expect(clippy::disallowed_methods, reason = "a summary for people; nothing is decided by it")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn one_failure_fails_the_whole_and_the_rest_still_runs() {
        let mut steps = Steps::new(&Interrupt::default());
        steps.require("first", || Ok(()));
        steps.run("second", || bail!("broken\nin two lines"));
        steps.run("third", || Ok(()));
        let summary = steps.to_string();
        assert!(summary.contains("second: broken\n"), "{summary}");
        assert!(!summary.contains("skipped"), "{summary}");
        assert!(summary.ends_with("  FAILED"), "{summary}");
        assert_eq!(steps.finish(), ExitCode::FAILURE);
    }

    #[test]
    fn nothing_runs_without_what_it_requires() {
        let mut steps = Steps::new(&Interrupt::default());
        steps.require("first", || bail!("broken"));
        steps.run("second", || panic!("must not run"));
        assert!(steps.to_string().contains("skipped"));
        assert_eq!(steps.finish(), ExitCode::FAILURE);
    }
}
