//! A private MariaDB.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;

use super::account::Account;
use super::ports::on_a_free_port;
use super::process::{Folder, Home, Launch, Process, Running};
use super::{TlsFiles, procfs, programs};

/// The user, its password and the database that are there from the start.
const NAME: &str = "lockstep";
const ACCOUNT: Account = Account { user: "mysql", server: "MariaDB" };
/// The file that stops the disk while it is there.
const DISK_GATE: &str = "disk-gate";
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How to start a [`MariaDbServer`].
#[derive(Debug, Clone, Default)]
pub struct MariaDbOptions {
    /// Further settings, such as `("innodb-lock-wait-timeout", "1")`.
    pub settings: Vec<(String, String)>,
    /// Offers TLS with these files; clients may still do without.
    pub tls: Option<TlsFiles>,
    /// Its disk can be stopped; see [`MariaDbServer::stop_disk`].
    pub stoppable_disk: bool,
    /// Where its data are.
    pub home: Home,
}

/// A private MariaDB on a loopback port. Dropping it kills it.
///
/// Its user `lockstep` is an ordinary one: it may do everything in the database `lockstep` and
/// nothing else. Tests that need more have [`admin_url`](Self::admin_url).
#[derive(Debug)]
pub struct MariaDbServer {
    process: Process,
    launch: Launch,
    port: u16,
    folder: Folder,
}

impl MariaDbServer {
    /// Creates a data folder, starts a server on it and returns when it accepts connections.
    pub fn start() -> Result<MariaDbServer> {
        MariaDbServer::start_with(MariaDbOptions::default())
    }

    /// As [`start`](Self::start), with other settings than the usual.
    pub fn start_with(options: MariaDbOptions) -> Result<MariaDbServer> {
        let folder = options.home.open("mariadb")?;
        let home = &folder.path;
        create_data(home).context("cannot create the data of a MariaDB")?;
        let mut base = ACCOUNT
            .launch("mariadbd", home)?
            // First, or it is refused: the settings of this machine's own server are not ours.
            .args(["--no-defaults"])
            .args([format!("--datadir={}", home.join("data").display())])
            // The folder for temporary files of whoever started us may be closed to this user.
            .args([format!("--tmpdir={}", home.join("tmp").display())])
            .args([
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
                // Relative to the data folder: an absolute path may be too long for a socket.
                "--socket=server.sock",
                "--max-connections=300",
                "--innodb-buffer-pool-size=32M",
                "--performance-schema=OFF",
                "--innodb-flush-log-at-trx-commit=1",
                "--character-set-server=utf8mb4",
                // Makes SIGINT a polite end, as it is for all our servers; else it is ignored.
                "--debug-gdb",
            ]);
        base.detached = options.home.is_detached();
        if options.stoppable_disk {
            let shim = programs::compile(home, "disk_shim", include_str!("disk_shim.c"))?;
            base = base.env("LD_PRELOAD", shim).env("LOCKSTEP_DISK_GATE", home.join(DISK_GATE));
        }
        if let Some(files) = &options.tls {
            base = base.args(tls_settings(home, files)?);
        }
        base = base.args(options.settings.iter().map(|(name, value)| format!("--{name}={value}")));
        let (launch, process, port) = on_a_free_port(|port| {
            let launch = base.clone().args([format!("--port={port}")]);
            let process = launch.start(|pid| is_ready(pid, port))?;
            Ok((launch, process, port))
        })
        .context("cannot start MariaDB")?;
        Ok(MariaDbServer { process, launch, port, folder })
    }

    /// Where clients connect: `mysql://lockstep:lockstep@127.0.0.1:PORT/lockstep`.
    pub fn url(&self) -> String {
        format!("mysql://{NAME}:{NAME}@127.0.0.1:{}/{NAME}", self.port)
    }

    /// The same for the user `root`, who may do everything and has no password.
    pub fn admin_url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/{NAME}", self.port)
    }

    /// The port.
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
        self.process = self.launch.start(|pid| is_ready(pid, self.port))?;
        Ok(())
    }

    /// From now on nothing reaches the disk, and whoever forces something to it waits.
    pub fn stop_disk(&self) -> Result<()> {
        fs::write(self.folder.path.join(DISK_GATE), "").context("cannot stop the disk")
    }

    /// Lets a stopped disk go on.
    pub fn resume_disk(&self) -> Result<()> {
        fs::remove_file(self.folder.path.join(DISK_GATE)).context("cannot let the disk go on")
    }

    /// Gives up the handle and leaves the server running. Only of use with [`Home::at`] and
    /// [`Home::detached`].
    pub fn leave_running(mut self) -> Result<Running> {
        self.process.leave_running()
    }
}

fn create_data(home: &Path) -> Result<()> {
    let (data, unfinished) = (home.join("data"), home.join("data.unfinished"));
    let temporary = home.join("tmp");
    if data.exists() {
        return Ok(());
    }
    for folder in [&unfinished, &temporary] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        ACCOUNT.hand_over(folder)?;
    }
    // It runs without its grant tables until they are loaded, and knows no users before that.
    let first_words = format!(
        "CREATE DATABASE {NAME};\n\
         FLUSH PRIVILEGES;\n\
         CREATE USER {NAME}@'%' IDENTIFIED BY '{NAME}';\n\
         GRANT ALL ON {NAME}.* TO {NAME}@'%';\n"
    );
    let script = home.join("first-words.sql");
    fs::write(&script, first_words)?;
    ACCOUNT
        .launch("mariadb-install-db", home)?
        .args(["--no-defaults", "--skip-name-resolve", "--skip-test-db"])
        .args(["--auth-root-authentication-method=normal"])
        .args([format!("--datadir={}", unfinished.display())])
        .args([format!("--tmpdir={}", temporary.display())])
        .args([format!("--extra-file={}", script.display())])
        .run("")?;
    // So that half of it is never taken for the whole.
    fs::rename(&unfinished, &data)?;
    Ok(())
}

/// The server reads its key as its own user, who may not enter the folder of the files.
fn tls_settings(home: &Path, files: &TlsFiles) -> Result<Vec<String>> {
    let settings = [("ssl-cert", &files.cert), ("ssl-key", &files.key), ("ssl-ca", &files.ca)];
    let copied = settings.map(|(name, file)| {
        let copy = home.join(name);
        fs::copy(file, &copy).with_context(|| format!("cannot copy {}", file.display()))?;
        ACCOUNT.give(&copy)?;
        Ok(format!("--{name}={}", copy.display()))
    });
    copied.into_iter().collect()
}

fn is_ready(pid: Pid, port: u16) -> Result<()> {
    ensure!(procfs::listens(pid, port), "it does not listen on port {port}");
    answers(port)
}

/// Logs in as root, who has no password, so that no secret has to be hashed for it.
fn answers(port: u16) -> Result<()> {
    const PROTOCOL_41_WITH_SECURE_CONNECTION: u32 = 0x0000_8200;
    const OK: u8 = 0;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    read_packet(&mut stream)?;
    let mut login = PROTOCOL_41_WITH_SECURE_CONNECTION.to_le_bytes().to_vec();
    login.extend([0; 28]);
    login.extend(b"root\0\0");
    stream.write_all(&[u8::try_from(login.len())?, 0, 0, 1])?;
    stream.write_all(&login)?;
    let answer = read_packet(&mut stream)?;
    if answer.first() != Some(&OK) {
        bail!("refused: {}", String::from_utf8_lossy(&answer));
    }
    // A goodbye, or the log fills with complaints about lost clients.
    stream.write_all(&[1, 0, 0, 0, 1])?;
    Ok(())
}

fn read_packet(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    use mysql_async::prelude::Queryable;
    use mysql_async::{Conn, Error, Opts, Result};

    use super::*;

    async fn connect(url: &str) -> Result<Conn> {
        Conn::new(Opts::from_url(url)?).await
    }

    #[tokio::test]
    async fn what_was_committed_survives_a_kill() {
        let mut server = MariaDbServer::start().unwrap();
        let port = server.port();
        assert_eq!(server.url(), format!("mysql://lockstep:lockstep@127.0.0.1:{port}/lockstep"));
        assert_ne!(fs::metadata(format!("/proc/{}", server.pid())).unwrap().uid(), 0);
        let mut client = connect(&server.url()).await.unwrap();
        client.query_drop("CREATE TABLE t (v INT) ENGINE = InnoDB").await.unwrap();
        client.query_drop("INSERT INTO t VALUES (7)").await.unwrap();
        server.kill().unwrap();
        assert!(answers(port).is_err());
        assert!(client.ping().await.is_err());

        server.restart().unwrap();
        assert_eq!(server.port(), port);
        let mut client = connect(&server.url()).await.unwrap();
        assert_eq!(client.query_first("SELECT v FROM t").await.unwrap(), Some(7));
    }

    #[tokio::test]
    async fn its_user_owns_one_database_and_its_administrator_all() {
        let server = MariaDbServer::start().unwrap();
        let mut user = connect(&server.url()).await.unwrap();
        let refused = user.query_drop("CREATE DATABASE other").await;
        assert!(matches!(refused, Err(Error::Server(error)) if error.code == 1044));
        let refused = user.query_drop("SET GLOBAL innodb_lock_wait_timeout = 1").await;
        assert!(matches!(refused, Err(Error::Server(error)) if error.code == 1227));
        let mut admin = connect(&server.admin_url()).await.unwrap();
        admin.query_drop("CREATE DATABASE other").await.unwrap();
        let threads = "SELECT COUNT(*) FROM information_schema.processlist";
        let seen: Option<u64> = user.query_first(threads).await.unwrap();
        assert_eq!(seen, Some(1), "of others it sees nothing");
    }

    #[tokio::test]
    async fn settings_are_passed_and_a_pause_is_silence() {
        let settings = vec![("innodb-lock-wait-timeout".to_owned(), "3".to_owned())];
        let options = MariaDbOptions { settings, ..MariaDbOptions::default() };
        let mut server = MariaDbServer::start_with(options).unwrap();
        let mut client = connect(&server.url()).await.unwrap();
        let ask = "SELECT @@innodb_lock_wait_timeout, @@innodb_flush_log_at_trx_commit";
        assert_eq!(client.query_first(ask).await.unwrap(), Some((3, 1)));
        server.pause().unwrap();
        let ping = client.ping();
        tokio::pin!(ping);
        let silence = tokio::time::timeout(Duration::from_millis(50), &mut ping).await;
        assert!(silence.is_err());
        server.resume().unwrap();
        ping.await.unwrap();
    }

    #[test]
    fn it_ends_politely_when_it_was_left_running_and_comes_back_on_its_data() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let options = || MariaDbOptions {
            home: Home::at(folder.path().join("mariadb")).detached(),
            ..MariaDbOptions::default()
        };
        let running = MariaDbServer::start_with(options()).unwrap().leave_running().unwrap();
        running.end().unwrap();
        assert!(!running.is_alive());
        let log = fs::read_to_string(folder.path().join("mariadb/server.log")).unwrap();
        assert!(log.contains("Shutdown complete"), "{log}");
        let server = MariaDbServer::start_with(options()).unwrap();
        answers(server.port()).unwrap();
    }

    #[test]
    fn it_shows_a_certificate_its_authority_vouches_for() {
        let folder = tempfile::tempdir().unwrap();
        let tls = TlsFiles::generate(folder.path()).unwrap();
        let ca = tls.ca.clone();
        let options = MariaDbOptions { tls: Some(tls), ..MariaDbOptions::default() };
        let server = MariaDbServer::start_with(options).unwrap();
        let output = Command::new("openssl")
            .args(["s_client", "-starttls", "mysql", "-verify_return_error"])
            .args(["-verify_ip", "127.0.0.1", "-connect", &format!("127.0.0.1:{}", server.port())])
            .arg("-CAfile")
            .arg(ca)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
    }
}
