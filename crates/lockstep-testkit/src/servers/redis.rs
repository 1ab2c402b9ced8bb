//! A private Redis.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;

use super::ports::{free_port, on_a_free_port};
use super::process::{Folder, Home, Launch, Process, Running, wait_for};
use super::tls::TlsFiles;

const ASK_LIMIT: Duration = Duration::from_secs(5);
const SYNC_LIMIT: Duration = Duration::from_secs(60);

/// What a Redis keeps over a restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing: every restart loses every lock, which is a story worth testing.
    #[default]
    None,
    /// Everything it has acknowledged: an append-only file, synced before each answer.
    AppendOnly,
}

/// How to start a [`RedisServer`].
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// What is kept over a restart.
    pub persistence: Persistence,
    /// The port of the server on this machine to replicate; it must have the same password.
    pub replica_of: Option<u16>,
    /// A Sentinel: it watches over other servers, and keeps nothing itself. It cannot be
    /// [asked](RedisServer::ask) or restarted.
    pub sentinel: bool,
    /// Asked from every client.
    pub password: Option<String>,
    /// Serves TLS with these, on a port of its own; [`RedisServer::url`] then names that one.
    pub tls: Option<TlsFiles>,
    /// Further arguments of `redis-server`, such as `["--maxmemory", "1mb"]`.
    pub args: Vec<String>,
    /// A shared object for `LD_PRELOAD`, such as [`ClockShim`](super::ClockShim).
    pub preload: Option<PathBuf>,
    /// Further environment variables.
    pub env: Vec<(OsString, OsString)>,
    /// Where its data are.
    pub home: Home,
}

/// A private Redis on a loopback port. Dropping it kills it.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    launch: Launch,
    port: u16,
    tls_port: Option<u16>,
    password: Option<String>,
    _folder: Folder,
}

impl RedisServer {
    /// Starts a server and returns when it answers.
    pub fn start(options: RedisOptions) -> Result<RedisServer> {
        let folder = options.home.open("redis")?;
        let base = launch(&options, &folder)?;
        let password = options.password.clone();
        let (launch, process, port, tls_port) = on_a_free_port(|port| {
            let tls_port = options.tls.as_ref().map(|_| free_port()).transpose()?;
            let mut launch = base.clone().args(["--port".to_owned(), port.to_string()]);
            if let Some(tls_port) = tls_port {
                launch = launch.args(["--tls-port".to_owned(), tls_port.to_string()]);
            }
            let process = launch.start(|pid| match options.sentinel {
                true => watches(pid, port),
                false => answers(pid, port, password.as_deref()),
            })?;
            Ok((launch, process, port, tls_port))
        })
        .context("cannot start Redis")?;
        Ok(RedisServer { process, launch, port, tls_port, password, _folder: folder })
    }

    /// Where clients connect: `redis://127.0.0.1:PORT`, with the password if there is one, and
    /// `rediss://` if it serves TLS.
    pub fn url(&self) -> String {
        let login = match &self.password {
            Some(password) => format!(":{}@", percent_encoded(password)),
            None => String::new(),
        };
        match self.tls_port {
            Some(port) => format!("rediss://{login}127.0.0.1:{port}"),
            None => format!("redis://{login}127.0.0.1:{}", self.port),
        }
    }

    /// The port without TLS.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it with SIGKILL and returns when it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Stops it in its tracks (SIGSTOP): connections stay open, and nobody answers.
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
        self.process =
            self.launch.start(|pid| answers(pid, self.port, self.password.as_deref()))?;
        Ok(())
    }

    /// Gives up the handle and leaves the server running. Only of use with [`Home::at`] and
    /// [`Home::detached`].
    pub fn leave_running(mut self) -> Result<Running> {
        self.process.leave_running()
    }

    /// Sends one command and returns the answer as it came (RESP): a look at the server that does
    /// not depend on any client library.
    pub fn ask(&self, command: &[&str]) -> Result<String> {
        ask(self.port, self.password.as_deref(), command)
    }

    /// Of a replica: returns when it has loaded its master's data and follows it from there.
    pub fn wait_in_sync(&self) -> Result<()> {
        let linked = || -> Result<Option<()>> {
            let status = self.ask(&["INFO", "replication"])?;
            Ok(status.contains("master_link_status:up").then_some(()))
        };
        wait_for(SYNC_LIMIT, linked)?.context("the replica did not reach its master in time")
    }
}

fn launch(options: &RedisOptions, folder: &Folder) -> Result<Launch> {
    let mut launch = Launch::new("redis-server", &folder.path)?;
    if options.sentinel {
        // It keeps what it learns in there.
        let notes = folder.path.join("sentinel.conf");
        std::fs::write(&notes, "")?;
        launch = launch.args([notes.into(), OsString::from("--sentinel")]);
    }
    launch = launch
        .args(["--bind", "127.0.0.1", "--daemonize", "no", "--save", "", "--dir"])
        .args([&folder.path])
        // By default a master waits for further replicas before it serves the first.
        .args(["--repl-diskless-sync-delay", "0"]);
    launch.detached = options.home.is_detached();
    launch.env = options.env.clone();
    launch = match options.persistence {
        Persistence::None => launch.args(["--appendonly", "no"]),
        Persistence::AppendOnly => launch.args(["--appendonly", "yes", "--appendfsync", "always"]),
    };
    if let Some(master) = options.replica_of {
        launch = launch.args(["--replicaof".to_owned(), "127.0.0.1".into(), master.to_string()]);
    }
    if let Some(password) = &options.password {
        launch = launch.args(["--requirepass", password, "--masterauth", password]);
    }
    if let Some(tls) = &options.tls {
        launch = launch
            .args(["--tls-auth-clients", "no", "--tls-cert-file"])
            .args([&tls.cert])
            .args(["--tls-key-file"])
            .args([&tls.key])
            .args(["--tls-ca-cert-file"])
            .args([&tls.ca]);
    }
    if let Some(preload) = &options.preload {
        // The allocator's thread sleeps until a wall-clock time. With the clock shifted back that
        // time is always over, and the thread would burn a core for nothing.
        launch = launch.args(["--jemalloc-bg-thread", "no"]).env("LD_PRELOAD", preload);
    }
    Ok(launch.args(options.args.iter()))
}

fn answers(pid: Pid, port: u16, password: Option<&str>) -> Result<()> {
    let pong = ask(port, password, &["PING"])?;
    ensure!(pong == "+PONG\r\n", "it answers {pong:?}");
    // Another Redis may have won the race for the port, and answers just as well.
    let info = ask(port, password, &["INFO", "server"])?;
    ensure!(info.contains(&format!("process_id:{pid}\r\n")), "another server has the port");
    Ok(())
}

/// The same of a Sentinel, which does not know how to say goodbye.
fn watches(pid: Pid, port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ASK_LIMIT))?;
    stream.write_all(encoded(&["INFO", "server"]).as_bytes())?;
    let (mut told, mut more) = (Vec::new(), [0; 1024]);
    while !String::from_utf8_lossy(&told).contains(&format!("process_id:{pid}\r\n")) {
        let length = stream.read(&mut more)?;
        ensure!(length > 0, "it hangs up");
        told.extend_from_slice(&more[..length]);
    }
    Ok(())
}

fn ask(port: u16, password: Option<&str>, command: &[&str]) -> Result<String> {
    const OK: &str = "+OK\r\n";
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ASK_LIMIT))?;
    stream.set_write_timeout(Some(ASK_LIMIT))?;
    let mut request = String::new();
    if let Some(password) = password {
        request += &encoded(&["AUTH", password]);
    }
    request += &encoded(command);
    // QUIT makes the end of the connection the end of the answer, so there is nothing to parse.
    request += &encoded(&["QUIT"]);
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut answer = text.strip_suffix(OK).with_context(|| format!("cut short: {text:?}"))?;
    if password.is_some() {
        let Some(rest) = answer.strip_prefix(OK) else { bail!("password refused: {answer}") };
        answer = rest;
    }
    Ok(answer.to_owned())
}

fn encoded(command: &[&str]) -> String {
    let words = command.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", command.len(), words.collect::<String>())
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(server: &RedisServer, key: &str) -> String {
        server.ask(&["GET", key]).unwrap()
    }

    #[test]
    fn without_persistence_a_restart_loses_everything() {
        let mut server = RedisServer::start(RedisOptions::default()).unwrap();
        let (port, pid) = (server.port(), server.pid());
        assert_eq!(server.url(), format!("redis://127.0.0.1:{port}"));
        server.ask(&["SET", "key", "value"]).unwrap();
        server.restart().unwrap();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        assert_eq!(get(&server, "key"), "$-1\r\n");
    }

    #[test]
    fn with_an_append_only_file_a_kill_loses_nothing() {
        let persistence = Persistence::AppendOnly;
        let options = RedisOptions { persistence, ..RedisOptions::default() };
        let mut server = RedisServer::start(options).unwrap();
        server.ask(&["SET", "key", "value"]).unwrap();
        server.kill().unwrap();
        assert!(server.ask(&["PING"]).is_err());
        assert!(server.pause().is_err(), "there is nothing left to pause");
        server.restart().unwrap();
        assert_eq!(get(&server, "key"), "$5\r\nvalue\r\n");
    }

    #[test]
    fn a_paused_server_accepts_and_says_nothing() {
        let mut server = RedisServer::start(RedisOptions::default()).unwrap();
        server.pause().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(stream.read(&mut [0; 7]).is_err());
        server.resume().unwrap();
        stream.set_read_timeout(Some(ASK_LIMIT)).unwrap();
        let mut pong = [0; 7];
        stream.read_exact(&mut pong).unwrap();
        assert_eq!(&pong, b"+PONG\r\n");
    }

    #[test]
    fn a_replica_follows_a_master_with_a_password() {
        let password = Some("p@ss word/1".to_owned());
        let options = RedisOptions { password, ..RedisOptions::default() };
        let master = RedisServer::start(options.clone()).unwrap();
        assert!(master.url().starts_with("redis://:p%40ss%20word%2F1@127.0.0.1:"));
        master.ask(&["SET", "key", "value"]).unwrap();
        let replica_of = Some(master.port());
        let replica = RedisServer::start(RedisOptions { replica_of, ..options }).unwrap();
        replica.wait_in_sync().unwrap();
        assert_eq!(get(&replica, "key"), "$5\r\nvalue\r\n");
        assert!(ask(master.port(), None, &["PING"]).unwrap().starts_with("-NOAUTH"));
        assert!(ask(master.port(), Some("wrong"), &["PING"]).is_err());
    }

    #[test]
    fn a_dropped_server_is_gone() {
        let server = RedisServer::start(RedisOptions::default()).unwrap();
        let running = Running::of(server.pid()).unwrap();
        assert!(running.is_alive());
        drop(server);
        assert!(!running.is_alive());
    }

    #[test]
    fn a_server_that_cannot_start_shows_its_log() {
        let args = vec!["--no-such-option".to_owned(), "1".to_owned()];
        let error = RedisServer::start(RedisOptions { args, ..RedisOptions::default() });
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains("no-such-option"), "{error}");
    }
}
