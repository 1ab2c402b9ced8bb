//! A private PostgreSQL.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};

use super::account::Account;
use super::ports::on_a_free_port;
use super::process::{Folder, Home, Launch, Process, Running};

/// The role and the database that are there from the start.
pub(super) const NAME: &str = "lockstep";
/// PgBouncer too refuses to run as root.
pub(super) const ACCOUNT: Account = Account { user: "postgres", server: "PostgreSQL" };
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How to start a [`PostgresServer`].
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Further settings, such as `("deadlock_timeout", "10ms")`.
    pub settings: Vec<(String, String)>,
    /// A shared object for `LD_PRELOAD`, such as [`ClockShim`](super::ClockShim). The file must be
    /// readable by everyone: the server never runs as root.
    pub preload: Option<PathBuf>,
    /// Further environment variables.
    pub env: Vec<(OsString, OsString)>,
    /// Where its data are.
    pub home: Home,
}

/// A private PostgreSQL on a loopback port that trusts everyone there. Dropping it kills it.
///
/// Its role `lockstep` is a superuser, so a test can make lesser ones.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    launch: Launch,
    data: PathBuf,
    port: u16,
    _folder: Folder,
}

impl PostgresServer {
    /// Creates a database cluster, starts it and returns when it accepts connections.
    pub fn start() -> Result<PostgresServer> {
        PostgresServer::start_with(PostgresOptions::default())
    }

    /// As [`start`](Self::start), with other settings than the usual.
    pub fn start_with(options: PostgresOptions) -> Result<PostgresServer> {
        let folder = options.home.open("postgres")?;
        let data = folder.path.join("data");
        create_cluster(&folder.path, &data).context("cannot create a PostgreSQL cluster")?;
        let mut base = ACCOUNT.launch("postgres", &folder.path)?.args(["-D".into(), data.clone()]);
        base.detached = options.home.is_detached();
        base.env.extend(options.env);
        if let Some(preload) = options.preload {
            base = base.env("LD_PRELOAD", preload);
        }
        for setting in [
            "listen_addresses=127.0.0.1",
            // Relative to the data folder: an absolute path may be too long for a socket.
            "unix_socket_directories=.",
            "max_connections=400",
            "fsync=on",
            // Else a killed server leaves its shared memory behind in /dev/shm.
            "dynamic_shared_memory_type=mmap",
        ] {
            base = base.args(["-c", setting]);
        }
        for (name, value) in &options.settings {
            base = base.args(["-c".to_owned(), format!("{name}={value}")]);
        }
        let (launch, process, port) = on_a_free_port(|port| {
            let launch = base.clone().args(["-p".to_owned(), port.to_string()]);
            let process = launch.start(|pid| is_ready(&data, pid, port))?;
            Ok((launch, process, port))
        })
        .context("cannot start PostgreSQL")?;
        Ok(PostgresServer { process, launch, data, port, _folder: folder })
    }

    /// Where clients connect: `postgres://lockstep@127.0.0.1:PORT/lockstep`.
    pub fn url(&self) -> String {
        format!("postgres://{NAME}@127.0.0.1:{}/{NAME}", self.port)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the postmaster.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills the postmaster and every backend with SIGKILL and returns when they are gone.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Stops the postmaster and every backend in their tracks: connections stay open, and nobody
    /// answers.
    ///
    /// Should this process be killed meanwhile, stopped backends stay behind: the kernel ends only
    /// the postmaster with us, and what is stopped does not notice. [`sweep`](super::sweep) does.
    pub fn pause(&mut self) -> Result<()> {
        self.process.pause()
    }

    /// Lets a paused server go on.
    pub fn resume(&mut self) -> Result<()> {
        self.process.resume()
    }

    /// Kills it if it runs and starts it again on the same port and data.
    pub fn restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process = self.launch.start(|pid| is_ready(&self.data, pid, self.port))?;
        Ok(())
    }

    /// Gives up the handle and leaves the server running. Only of use with [`Home::at`] and
    /// [`Home::detached`].
    pub fn leave_running(mut self) -> Result<Running> {
        self.process.leave_running()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Asked first: a postmaster that ends by itself takes its shared memory and its children
        // with it. Orphans would stay zombies wherever process 1 does not care for them.
        self.process.ask_to_end(Signal::QUIT);
        if self.process.end() {
            release_shared_memory(&self.data);
        }
    }
}

/// Takes back the System V segment that a killed postmaster could not remove itself. There are only
/// a few thousand of them per machine.
pub(super) fn release_shared_memory(data: &Path) {
    let Some(segment) = fs::read_to_string(data.join("postmaster.pid"))
        .ok()
        .and_then(|file| file.lines().nth(6)?.split_whitespace().nth(1).map(str::to_owned))
    else {
        return;
    };
    // Without it the only harm is a leak of a few bytes.
    let _ = Command::new("ipcrm").args(["-m", &segment]).output();
}

fn create_cluster(folder: &Path, data: &Path) -> Result<()> {
    if data.join("PG_VERSION").exists() {
        return Ok(());
    }
    fs::create_dir(data)?;
    fs::set_permissions(data, fs::Permissions::from_mode(0o700))?;
    ACCOUNT.hand_over(data)?;
    ACCOUNT
        .launch("initdb", folder)?
        .args(["-D".into(), data.to_owned()])
        .args(["-U", NAME, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
        .run("")?;
    // Single-user mode needs neither a port nor a client. What it writes need not be durable yet:
    // there is nothing in it that could be lost.
    ACCOUNT
        .launch("postgres", folder)?
        .args(["--single", "-c", "fsync=off", "-D"])
        .args([data])
        .args(["postgres"])
        .run(&format!("CREATE DATABASE {NAME}\n"))
}

fn is_ready(data: &Path, pid: Pid, port: u16) -> Result<()> {
    // A file of its own folder: no other server that has won the race for the port is in there.
    let file = fs::read_to_string(data.join("postmaster.pid"))?;
    let line = |number: usize| file.lines().nth(number).unwrap_or_default().trim();
    ensure!(line(0) == pid.to_string() && line(7) == "ready", "not ready: {file}");
    answers(port)
}

/// Logs in and waits for the first `ReadyForQuery`, as any client would.
pub(super) fn answers(port: u16) -> Result<()> {
    const PROTOCOL_3: i32 = 196_608;
    let parameters = format!("user\0{NAME}\0database\0{NAME}\0\0");
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    let mut hello = i32::try_from(parameters.len() + 8)?.to_be_bytes().to_vec();
    hello.extend(PROTOCOL_3.to_be_bytes());
    hello.extend(parameters.as_bytes());
    stream.write_all(&hello)?;
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(length) - 4)?];
        stream.read_exact(&mut body)?;
        match kind {
            b'Z' => break,
            b'E' => bail!("refused: {}", String::from_utf8_lossy(&body).replace('\0', " ")),
            _ => {}
        }
    }
    // A goodbye, or the log fills with complaints about lost clients.
    stream.write_all(&[b'X', 0, 0, 0, 4])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::procfs::Stat;

    fn owner(pid: u32) -> u32 {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(format!("/proc/{pid}")).unwrap().uid()
    }

    #[test]
    fn it_runs_as_an_ordinary_user_and_comes_back_after_a_kill() {
        let mut server = PostgresServer::start().unwrap();
        let (port, pid) = (server.port(), server.pid());
        assert_eq!(server.url(), format!("postgres://lockstep@127.0.0.1:{port}/lockstep"));
        assert_ne!(owner(pid), 0);
        server.kill().unwrap();
        assert!(answers(port).is_err());
        server.restart().unwrap();
        assert_eq!(server.port(), port);
        answers(port).unwrap();
        server.restart().unwrap();
        answers(port).unwrap();
    }

    #[test]
    fn a_pause_stops_the_backends_too() {
        let mut server = PostgresServer::start().unwrap();
        server.pause().unwrap();
        let postmaster = super::super::process::as_pid(server.pid()).unwrap();
        let backends = super::super::procfs::descendants(postmaster);
        assert!(!backends.is_empty());
        // One that was just ending waits, dead, for a postmaster that cannot bury it now.
        let still = |stat: Stat| stat.is_stopped() || stat.is_dead();
        assert!(backends.iter().all(|pid| Stat::of(*pid).is_none_or(still)));
        server.resume().unwrap();
        answers(server.port()).unwrap();
    }

    #[test]
    fn a_killed_server_leaves_no_shared_memory() {
        let segments = || fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let mut server = PostgresServer::start().unwrap();
        let pid = format!(" {} ", server.pid());
        assert!(segments().contains(&pid));
        server.kill().unwrap();
        assert!(segments().contains(&pid), "the test shows nothing if a kill leaves nothing");
        drop(server);
        assert!(!segments().contains(&pid));
    }
}
