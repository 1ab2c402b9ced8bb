//! The project's own commands, for people and for CI alike: `cargo xtask --help`.
//!
//! One module per command, with its `Args` and its `run`; the rest is shared by them.

mod bench;
mod canary;
mod checks;
mod child;
mod fleet;
mod install;
mod interop;
mod interrupt;
mod pictures;
mod servers;
mod steps;
mod test;
mod test_run;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what is missing, then format check, lints, all tests on private servers, tidy
    Test(test::Args),
    /// Keep private servers up while you work
    Servers(servers::Args),
    /// Plant known bugs in a copy of the tree; every one must turn the tests red
    Canary(canary::Args),
    /// Measure Lockstep against raw limits and peers, as ratios
    Bench(bench::Args),
    /// Draw the pictures of the guide from what real servers do
    Pictures,
    /// Check what the compiler does not: file sizes, arrows between crates, licences, banned crates
    Tidy,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask test                                 what CI runs; nothing to prepare
  cargo xtask test -- -p lockstep-redis            the tests of one crate
  cargo xtask test -- -- --nocapture story_name    arguments of the test programs
  cargo xtask servers up                           servers for `cargo test`, an IDE or psql
  cargo xtask servers down
  cargo xtask canary                               can the tests still fail?
  cargo xtask bench locks                          ratios; leave the machine alone meanwhile
  cargo xtask pictures                             the sequences in docs/guide/pictures";

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Test(args) => test::run(args),
        Command::Servers(args) => servers::run(args),
        Command::Canary(args) => canary::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Pictures => pictures::run(),
        Command::Tidy => tidy::run(&workspace::root()).map(|()| ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
