//! `cargo xtask test`: everything that has to hold before a change is shared.

use std::fs;
use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use lockstep_testkit::servers::can_sleep;
use lockstep_testkit::suite::{Matrix, REPORTS_ENV};

use crate::checks;
use crate::child::{self, Stubborn};
use crate::install;
use crate::interop;
use crate::interrupt::Interrupt;
use crate::steps::Steps;
use crate::test_run::TestRun;
use crate::workspace::{cargo, root};

/// Install what is missing, then format check, lints, all tests on private servers, tidy.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Fail if a program is missing instead of installing it
    #[arg(long)]
    no_install: bool,
    /// Arguments for `cargo test`, after `--`; with `-p` only that package is tested
    #[arg(last = true, value_name = "ARGS")]
    cargo_test: Vec<String>,
}

const EXAMPLES: &str = "\
Steps: programs, clients (other people's lock libraries), format, lints, tests, checks. A failure does
not keep the later ones from running, except a missing program. On Debian and Ubuntu, as root or with sudo that asks for no password,
missing programs are installed; their daemons are not started.

Examples:
  cargo xtask test
  cargo xtask test --no-install
  cargo xtask test -- -p lockstep-redis
  cargo xtask test -- -- --nocapture story_name";

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let run_cargo =
        |words: &[&str]| child::run(&interrupt, cargo(words.iter().copied()), Stubborn::Kill);
    let mut steps = Steps::new(&interrupt);
    steps.require("programs", || {
        install::ensure_programs(&interrupt, !args.no_install)?;
        can_sleep()
    });
    steps.run("clients", || interop::ensure_clients(&interrupt));
    steps.run("format", || run_cargo(&["fmt", "--all", "--check"]));
    steps.run("lints", || {
        let clippy = |what: &[&str]| {
            let (all, deny) = (["clippy", "--all-targets"], ["--", "-D", "warnings"]);
            run_cargo(&[&all[..], what, &deny].concat())
        };
        // Nothing else builds `sqlx` of lockstep-kit, or that crate without its features.
        clippy(&["--workspace", "--all-features"])?;
        clippy(&["--package", "lockstep-kit", "--no-default-features"])
    });
    steps.run("tests", || tests(&interrupt, &args.cargo_test));
    steps.run("checks", || checks::run(&root()));
    Ok(steps.finish())
}

fn tests(interrupt: &Interrupt, further: &[String]) -> Result<()> {
    let run = TestRun::start()?;
    for (variable, url) in run.fleet.env() {
        println!("{variable}={url}");
    }
    let mut command = cargo(["test", "--no-fail-fast"]);
    if !names_packages(further) {
        command.arg("--workspace");
    }
    command.args(further);
    run.tell(&mut command);
    let reports = run.folder().join("reports");
    fs::create_dir(&reports)?;
    command.env(REPORTS_ENV, &reports);
    let result = child::run(interrupt, command, Stubborn::Kill);
    let whole = show_matrices(&reports, result.is_ok() && further.is_empty());

    let left = run.end()?;
    if left > 0 {
        println!("ended {left} processes that tests had left behind");
    }
    result.and(whole)
}

/// The stores that every case and story must have run on.
const STORES: [&str; 14] = [
    "etcd",
    "etcd-three",
    "mariadb",
    "memory",
    "pgbouncer",
    "postgres",
    "redis",
    "redis-plain",
    "redlock",
    "sqlite",
    "sqlite-full",
    "zookeeper",
    "zookeeper-basic",
    "zookeeper-three",
];

/// Prints facts × stores and stories × stores. A store that is missing where all should have run
/// is a failure: a test that was not run proves nothing.
fn show_matrices(reports: &Path, all: bool) -> Result<()> {
    for (what, title) in [("case", "Facts and cases"), ("story", "Stories")] {
        let mut matrix = Matrix::read(reports, what)?;
        // The testkit tries its own suite on stores with planted bugs; those are not ours to show.
        matrix.0.retain(|report| STORES.contains(&report.store()));
        if !matrix.0.is_empty() {
            writeln!(stdout(), "\n{title} on every store\n\n{matrix}")?;
        }
        let stores: Vec<&str> = matrix.0.iter().map(|report| report.store()).collect();
        ensure!(!all || stores == STORES, "{title}: only {stores:?} have run, not {STORES:?}");
    }
    Ok(())
}

/// Cargo takes `--workspace` for stronger than `-p`; whoever names a package means the opposite.
fn names_packages(args: &[String]) -> bool {
    args.iter()
        .take_while(|arg| *arg != "--")
        .any(|arg| arg == "--package" || arg.starts_with("--package=") || arg.starts_with("-p"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_package_replaces_the_workspace() {
        let named = |args: &[&str]| {
            names_packages(&args.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert!(named(&["-p", "lockstep-redis"]));
        assert!(named(&["--package=lockstep-redis"]));
        assert!(!named(&["story", "--", "-p"]));
    }
}
