//! Looking at locks, and breaking them.

mod break_lock;
mod facts;
mod ls;
mod show;

use crate::command::Context;
use crate::exit::{Code, Failure};

/// Shows who holds what and who waits, breaks locks, and says what a store can promise.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lockstep locks ls
  lockstep locks show nightly-report
  lockstep locks break nightly-report --reason 'host is gone, ticket 4711'
  lockstep --store redis://cache.example locks facts")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Ls(ls::Args),
    Show(show::Args),
    Break(break_lock::Args),
    Facts(facts::Args),
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Code, Failure> {
    match args.command {
        Command::Ls(args) => ls::run(&args, context).await,
        Command::Show(args) => show::run(&args, context).await,
        Command::Break(args) => break_lock::run(&args, context).await,
        Command::Facts(args) => facts::run(&args, context).await,
    }
}
