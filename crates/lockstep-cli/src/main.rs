//! The command `lockstep`: locks for shell scripts and operators.

mod cli;
mod command;
mod console;
mod duration;
mod exit;
mod log;
mod output;
mod run;
mod secrets;
mod store;
mod wait;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::exit::Code;
use crate::run::trampoline;

fn main() -> ExitCode {
    // Before anything else: between lockstep and the user's command there shall be no detour.
    if let Some(call) = trampoline::Call::from_args(std::env::args_os()) {
        return call.jump();
    }
    match Cli::try_parse() {
        Ok(cli) => cli.run(),
        Err(error) => {
            // Nobody is left to tell if stdout or stderr is gone.
            let _ = error.print();
            let asked_for = error.exit_code() == 0;
            if asked_for { ExitCode::SUCCESS } else { Code::USAGE.into() }
        }
    }
}
