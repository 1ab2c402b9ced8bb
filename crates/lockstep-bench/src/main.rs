//! `cargo xtask bench locks`: Lockstep against the raw limit of each store and against peers.
//!
//! Absolute times prove nothing on a shared machine, so every figure is a ratio: reference and
//! candidate are measured in the same pass, one after the other or in turns, three passes make a
//! median, and a pass that a neighbour disturbed is repeated.

mod locks;
mod measure;
mod noise;
mod table;
mod turns;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let area = args.next();
    let result = match (area.as_deref(), measure::Options::parse(args)) {
        (Some("locks"), Some(options)) => locks::run(&options),
        _ => {
            eprintln!("usage: lockstep-bench locks [--only TEXT] [--seconds N] [--passes N]");
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
