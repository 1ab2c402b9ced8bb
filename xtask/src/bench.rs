//! `cargo xtask bench`: ratios against raw limits and peers, on private servers.

use std::process::ExitCode;

use anyhow::Result;

use crate::child::{self, Stubborn};
use crate::install;
use crate::interrupt::Interrupt;
use crate::workspace::cargo;

/// Measure Lockstep against raw limits and peers, as ratios within one run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to measure
    #[arg(value_parser = ["locks"])]
    area: String,
    /// Only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// How long each side is measured in each pass
    #[arg(long, default_value = "1.5")]
    seconds: f64,
    /// How many passes make the median
    #[arg(long, default_value = "3")]
    passes: usize,
}

const EXAMPLES: &str = "\
Leave the machine alone meanwhile: a neighbour changes everything, in both directions. A pass that
was disturbed is repeated. Exits non-zero if a goal was missed.

Examples:
  cargo xtask bench locks
  cargo xtask bench locks --only redis";

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    install::ensure_programs(&interrupt, true)?;
    let mut command = cargo(["run", "--release", "--quiet", "--package", "lockstep-bench", "--"]);
    command.arg(args.area).args(["--seconds", &args.seconds.to_string()]);
    command.args(["--passes", &args.passes.to_string()]);
    if let Some(only) = args.only {
        command.args(["--only", &only]);
    }
    child::run(&interrupt, command, Stubborn::Kill)?;
    Ok(ExitCode::SUCCESS)
}
