//! `cargo xtask servers`: private servers that stay up while a person works.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use lockstep_testkit::servers::{Home, Running, missing};
use serde::{Deserialize, Serialize};

use crate::fleet::{FOLDERS, Fleet};
use crate::interop;
use crate::interrupt::Interrupt;
use crate::workspace::root;

/// Keep private servers up while you work.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start Redis, PostgreSQL, PgBouncer, MariaDB and etcd, unless they are up, and print their URLs
    Up {
        /// Where their data are [default: target/servers]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// End the servers that `up` started, and remove their data
    Down,
    /// Say what runs; fails unless everything does
    Status,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask servers up                       prints `export` lines to paste
  eval \"$(cargo xtask servers up)\"             or run them at once
  cargo test -p lockstep-redis
  cargo xtask servers down";

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let place = Place::lock(root().join("target").join("servers"))?;
    match args.command {
        Command::Up { data } => up(&place, data),
        Command::Down => down(&place),
        Command::Status => status(&place),
    }
}

fn up(place: &Place, data: Option<PathBuf>) -> Result<ExitCode> {
    if let Some(state) = place.load()? {
        if state.servers.iter().all(|server| server.running().is_alive()) {
            eprintln!("the servers are up already");
            state.print_exports();
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("not all of the servers are up any more; starting afresh");
        state.end()?;
        place.forget()?;
    }
    if let Some(program) = missing().first() {
        bail!(
            "{} is not installed ({}): `cargo xtask test` installs it",
            program.name,
            program.why
        );
    }
    let interrupt = Interrupt::listen()?;
    interop::ensure_clients(&interrupt)?;
    // The servers do not die with us, so we must not die before we have written down which they are.
    let data = data.unwrap_or_else(|| place.folder.clone());
    remove_data(&data)?;
    let fleet = Fleet::start(&data, Home::detached).with_context(|| {
        format!("with data in {} (`--data DIR` chooses another place)", data.display())
    })?;
    if let Some(code) = interrupt.exit_code() {
        return Ok(code);
    }
    let env = fleet.env();
    let servers = fleet.leave_running()?.into_iter().zip(env).zip(FOLDERS);
    let state = State {
        data: data.canonicalize()?,
        servers: servers.map(|((running, env), name)| Server::new(name, env, running)).collect(),
    };
    place.save(&state).inspect_err(|_| {
        let _ = state.end();
    })?;
    eprintln!("the servers are up, with their data in {}", state.data.display());
    state.print_exports();
    Ok(ExitCode::SUCCESS)
}

fn down(place: &Place) -> Result<ExitCode> {
    let Some(state) = place.load()? else {
        println!("no servers are up");
        return Ok(ExitCode::SUCCESS);
    };
    state.end()?;
    place.forget()?;
    println!("the servers are down");
    Ok(ExitCode::SUCCESS)
}

fn status(place: &Place) -> Result<ExitCode> {
    let Some(state) = place.load()? else {
        println!("no servers are up");
        return Ok(ExitCode::FAILURE);
    };
    let mut all = true;
    for server in &state.servers {
        let alive = server.running().is_alive();
        all &= alive;
        let word = if alive { "up" } else { "DOWN" };
        println!("{word:4}  {:9}  pid {:<8}  {}", server.name, server.pid, server.url);
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `up` has started.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    data: PathBuf,
    servers: Vec<Server>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Server {
    name: String,
    variable: String,
    url: String,
    pid: u32,
    command_line: String,
    started: u64,
}

impl State {
    /// Ends what is still ours, and removes the data.
    fn end(&self) -> Result<()> {
        // The pooler before what it pools.
        for server in self.servers.iter().rev() {
            let running = server.running();
            if running.is_alive() {
                running.end().with_context(|| format!("cannot end {}", server.name))?;
            } else if Running::of(server.pid).is_some() {
                eprintln!(
                    "{}: process {} is another one by now: left alone",
                    server.name, server.pid
                );
            }
        }
        remove_data(&self.data)
    }

    fn print_exports(&self) {
        for server in &self.servers {
            println!("export {}={}", server.variable, server.url);
        }
    }
}

impl Server {
    fn new(name: &str, (variable, url): (&str, String), running: Running) -> Server {
        let Running { pid, command_line, started } = running;
        let (name, variable) = (name.to_owned(), variable.to_owned());
        Server { name, variable, url, pid, command_line, started }
    }

    fn running(&self) -> Running {
        let command_line = self.command_line.clone();
        Running { pid: self.pid, command_line, started: self.started }
    }
}

/// The folder of the state file, ours alone as long as this lives.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
    _lock: File,
}

impl Place {
    fn lock(folder: PathBuf) -> Result<Place> {
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock()?;
        Ok(Place { folder, _lock: lock })
    }

    fn state_file(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    fn load(&self) -> Result<Option<State>> {
        let file = self.state_file();
        if !file.exists() {
            return Ok(None);
        }
        let state = serde_json::from_str(&fs::read_to_string(&file)?);
        state.with_context(|| format!("cannot understand {}", file.display())).map(Some)
    }

    fn save(&self, state: &State) -> Result<()> {
        let file = self.state_file();
        fs::write(&file, serde_json::to_string_pretty(state)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }

    fn forget(&self) -> Result<()> {
        fs::remove_file(self.state_file()).context("cannot remove the state file")
    }
}

/// Only the folders that we make: the rest of the place may be somebody's.
fn remove_data(data: &Path) -> Result<()> {
    for folder in FOLDERS.map(|name| data.join(name)).iter().filter(|folder| folder.exists()) {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(data: &Path, pid: u32, started: u64) -> State {
        let running = Running { pid, command_line: "redis-server".into(), started };
        let env = ("LOCKSTEP_TEST_REDIS", "redis://127.0.0.1:1".to_owned());
        State { data: data.to_owned(), servers: vec![Server::new("redis", env, running)] }
    }

    #[test]
    fn the_state_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::lock(folder.path().join("servers")).unwrap();
        assert_eq!(place.load().unwrap(), None);
        let state = state(folder.path(), 1, 2);
        place.save(&state).unwrap();
        assert_eq!(place.load().unwrap(), Some(state));
        place.forget().unwrap();
        assert_eq!(place.load().unwrap(), None);
    }

    #[test]
    fn a_stranger_with_the_pid_of_a_server_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("redis")).unwrap();
        fs::write(folder.path().join("of_somebody"), "").unwrap();
        // Our own pid: if it were signalled, this test would not end.
        state(folder.path(), std::process::id(), 0).end().unwrap();
        assert!(!folder.path().join("redis").exists());
        assert!(folder.path().join("of_somebody").exists());
    }
}
