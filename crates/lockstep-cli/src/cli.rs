//! The command line as a whole; each command is a file in `command/`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command::{Context, completions, lock, locks, migrate};
use crate::console::Console;
use crate::exit::{Code, Failure, TABLE};
use crate::log;
use crate::store::Chosen;

const STORES: &str = "\
Stores:
  sqlite:PATH                  a file, for the processes of this machine
  postgres://USER@HOST/DB      a PostgreSQL server
  mysql://USER@HOST/DB         a MariaDB or MySQL server
  redis://HOST  rediss://HOST  a Redis server
  redlock://HOST,HOST,HOST     several that know nothing of each other
  etcd://HOST,HOST             an etcd server or cluster
  zookeeper://HOST,HOST        a ZooKeeper server or ensemble
  memory:                      this process only, for trying things out
  The default is a SQLite file: $XDG_DATA_HOME/lockstep/locks.db, usually
  ~/.local/share/lockstep/locks.db.
  URL?prefix=NAME separates the tenants of one store.
  Lockstep waits at most 2 s per store operation.";

/// Distributed locks for shell scripts and operators, on the infrastructure you already run.
#[derive(Parser)]
#[command(name = "lockstep", version, max_term_width = 100)]
#[command(after_help = after_help())]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The store that keeps the locks [env: LOCKSTEP_STORE=] [default: a SQLite file].
    ///
    /// One of sqlite:PATH, postgres://USER@HOST/DB, mysql://USER@HOST/DB, redis://HOST,
    /// rediss://HOST, redlock://HOST,HOST,HOST, etcd://HOST,HOST, zookeeper://HOST,HOST and memory:. The
    /// default is a SQLite file in the user's data folder. A password is best given in
    /// LOCKSTEP_STORE or in a file (?password_file=PATH): others can see arguments.
    #[arg(long, global = true, value_name = "URL", help_heading = "Common options")]
    store: Option<String>,

    /// Says on stderr what happens; twice or three times: more of it [env: LOCKSTEP_LOG=FILTER].
    #[arg(short, long, global = true, help_heading = "Common options")]
    #[arg(action = clap::ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Lock(lock::Args),
    Locks(locks::Args),
    Migrate(migrate::Args),
    Completions(completions::Args),
}

fn after_help() -> String {
    format!(
        "\
Examples:
  lockstep lock nightly-report -- ./report.sh
  lockstep lock --try backup -- tar czf /backup/home.tgz /home
  lockstep --store redis://cache.example lock deploy -- make deploy
  lockstep locks ls

{STORES}

{TABLE}"
    )
}

impl Cli {
    pub(crate) fn run(self) -> ExitCode {
        // Completions need neither store nor home.
        if let Command::Completions(args) = &self.command {
            return finish(&Console::default(), completions::run(args));
        }
        let (context, started) = match Chosen::new(self.store.as_deref()) {
            Err(failure) => return finish(&Console::default(), Err(failure)),
            Ok(store) => {
                let console = Console::new(store.secrets());
                store.warn_if_seen(&console);
                let started = log::start(self.verbose, &console);
                (Context { store, console }, started)
            }
        };
        let result = started.and_then(|()| block_on(self.command, &context));
        finish(&context.console, result)
    }
}

/// Everything runs on this, the first thread: the command's parent-death signal is sent when the
/// *thread* that started it ends.
fn block_on(command: Command, context: &Context) -> Result<Code, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::new(Code::STORE, format!("cannot start the event loop: {error}"))
        })?;
    let result = runtime.block_on(async {
        match command {
            Command::Lock(args) => lock::run(args, context).await,
            Command::Locks(args) => locks::run(args, context).await,
            Command::Migrate(args) => migrate::run(&args, context).await,
            Command::Completions(args) => completions::run(&args),
        }
    });
    // A name server that does not answer must not hold up the end.
    runtime.shutdown_background();
    result
}

fn finish(console: &Console, result: Result<Code, Failure>) -> ExitCode {
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            console.failed(&failure);
            failure.code.into()
        }
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
