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

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::exit::Code;
use crate::run::trampoline;
use crate::secrets::Secrets;

fn main() -> ExitCode {
    // Before anything else: between lockstep and the user's command there shall be no detour.
    if let Some(call) = trampoline::Call::from_args(std::env::args_os()) {
        return call.jump();
    }
    match Cli::try_parse() {
        Ok(cli) => cli.run(),
        Err(error) => {
            tell(&error);
            let asked_for = error.exit_code() == 0;
            if asked_for { ExitCode::SUCCESS } else { Code::USAGE.into() }
        }
    }
}

/// Help, or what is wrong with the arguments. That repeats them, and a URL in the wrong place is
/// still a URL.
fn tell(error: &clap::Error) {
    let args: Vec<_> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let secrets = Secrets::of(args.iter().map(String::as_str));
    // Nobody is left to tell if stdout or stderr is gone.
    let _ = if error.use_stderr() && !secrets.is_empty() {
        write!(io::stderr(), "{}", secrets.mask(&error.render().to_string()))
    } else {
        error.print()
    };
}
