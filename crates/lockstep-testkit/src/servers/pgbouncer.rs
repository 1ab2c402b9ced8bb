//! A private PgBouncer: what many people have between a service and its PostgreSQL.

use std::fs;

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;

use super::ports::on_a_free_port;
use super::postgres::{self, NAME, PostgresServer};
use super::process::{Folder, Home, Launch, Process, Running};
use super::procfs;

/// How to start a [`PgBouncer`].
#[derive(Debug, Clone, Default)]
pub struct PgBouncerOptions {
    /// Further lines of the `[pgbouncer]` section, such as `("default_pool_size", "1")`.
    pub settings: Vec<(String, String)>,
    /// Where its configuration is.
    pub home: Home,
}

/// A private PgBouncer that pools *transactions*: two statements of one client may run on two
/// connections, so everything that hangs on a connection breaks here. Dropping it kills it.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    launch: Launch,
    port: u16,
    _folder: Folder,
}

impl PgBouncer {
    /// Starts a pooler in front of a server and returns when a client gets through.
    pub fn start(server: &PostgresServer) -> Result<PgBouncer> {
        PgBouncer::start_with(server, PgBouncerOptions::default())
    }

    /// As [`start`](Self::start), with other settings than the usual.
    pub fn start_with(server: &PostgresServer, options: PgBouncerOptions) -> Result<PgBouncer> {
        let folder = options.home.open("pgbouncer")?;
        let ini = folder.path.join("pgbouncer.ini");
        postgres::ACCOUNT.hand_over(&folder.path)?;
        let mut launch = postgres::ACCOUNT.launch("pgbouncer", &folder.path)?.args([&ini]);
        launch.detached = options.home.is_detached();
        let (process, port) = on_a_free_port(|port| {
            fs::write(&ini, configuration(server.port(), port, &options.settings))?;
            let process = launch.start(|pid| is_ready(pid, port))?;
            Ok((process, port))
        })
        .context("cannot start PgBouncer")?;
        Ok(PgBouncer { process, launch, port, _folder: folder })
    }

    /// Where clients connect: `postgres://lockstep@127.0.0.1:PORT/lockstep`.
    pub fn url(&self) -> String {
        format!("postgres://{NAME}@127.0.0.1:{}/{NAME}", self.port)
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

    /// Lets a paused pooler go on.
    pub fn resume(&mut self) -> Result<()> {
        self.process.resume()
    }

    /// Kills it if it runs and starts it again on the same port.
    pub fn restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process = self.launch.start(|pid| is_ready(pid, self.port))?;
        Ok(())
    }

    /// Gives up the handle and leaves the pooler running. Only of use with [`Home::at`] and
    /// [`Home::detached`].
    pub fn leave_running(mut self) -> Result<Running> {
        self.process.leave_running()
    }
}

fn is_ready(pid: Pid, port: u16) -> Result<()> {
    ensure!(procfs::listens(pid, port), "it does not listen on port {port}");
    postgres::answers(port)
}

fn configuration(server_port: u16, port: u16, settings: &[(String, String)]) -> String {
    let further: String =
        settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    format!(
        "[databases]
{NAME} = host=127.0.0.1 port={server_port} dbname={NAME} user={NAME}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
{further}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lets_clients_through_and_survives_a_restart_of_both() {
        let mut server = PostgresServer::start().unwrap();
        let mut pooler = PgBouncer::start(&server).unwrap();
        let port = pooler.port();
        assert_ne!(port, server.port());
        assert_eq!(pooler.url(), format!("postgres://lockstep@127.0.0.1:{port}/lockstep"));
        postgres::answers(port).unwrap();
        pooler.restart().unwrap();
        server.restart().unwrap();
        postgres::answers(port).unwrap();
        pooler.pause().unwrap();
        pooler.resume().unwrap();
        postgres::answers(port).unwrap();
        pooler.kill().unwrap();
        assert!(postgres::answers(port).is_err());
    }
}
