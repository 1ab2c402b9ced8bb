use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::console;
use crate::exit::{Code, Failure};

/// Prints a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lockstep completions bash > ~/.local/share/bash-completion/completions/lockstep
  lockstep completions zsh > ~/.zfunc/_lockstep
  lockstep completions fish > ~/.config/fish/completions/lockstep.fish")]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<Code, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lockstep", &mut script);
    console::print(&String::from_utf8_lossy(&script))?;
    Ok(Code::SUCCESS)
}
