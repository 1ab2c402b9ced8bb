//! A private etcd: one server, or a cluster of several.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;

use super::peers::Peers;
use super::ports::{PortTaken, free_port};
use super::process::{Folder, Home, Launch, Process, Running, wait_for};
use super::procfs;
use super::programs;
use super::tls::TlsFiles;

const ASK_LIMIT: Duration = Duration::from_secs(5);
const HEALTH_LIMIT: Duration = Duration::from_secs(60);
const START_ATTEMPTS: usize = 8;

/// How to start an [`EtcdServer`].
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// How many members the cluster has.
    pub members: usize,
    /// Serves TLS with these.
    pub tls: Option<TlsFiles>,
    /// Whether a member can be [cut off](EtcdServer::cut_off) from the others; takes a tokio runtime.
    pub can_be_cut: bool,
    /// Further arguments of `etcd`, such as `["--quota-backend-bytes", "100000"]`.
    pub args: Vec<String>,
    /// Where its data are.
    pub home: Home,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { members: 1, tls: None, can_be_cut: false, args: Vec::new(), home: Home::default() }
    }
}

/// A private etcd on loopback ports. Its elections are quick, so that leases of one second are taken. Dropping it
/// kills it.
#[derive(Debug)]
pub struct EtcdServer {
    members: Vec<Member>,
    /// How they reach each other, if that can be cut.
    peers: Option<Peers>,
    tls: Option<TlsFiles>,
    _folder: Folder,
}

#[derive(Debug)]
struct Member {
    process: Process,
    launch: Launch,
    ports: Ports,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    client: u16,
    peer: u16,
    metrics: u16,
}

impl EtcdServer {
    /// Starts it and returns when every member is healthy.
    pub fn start(options: EtcdOptions) -> Result<EtcdServer> {
        let folder = options.home.open("etcd")?;
        for _ in 1..START_ATTEMPTS {
            match Self::on_free_ports(&options, &folder) {
                Err(error) if error.is::<PortTaken>() => {}
                other => return Self::finished(other?, options.tls, folder),
            }
        }
        let members = Self::on_free_ports(&options, &folder)?;
        Self::finished(members, options.tls, folder)
    }

    fn finished(
        (members, peers): (Vec<Member>, Option<Peers>),
        tls: Option<TlsFiles>,
        folder: Folder,
    ) -> Result<EtcdServer> {
        let server = EtcdServer { members, peers, tls, _folder: folder };
        (0..server.members.len()).try_for_each(|member| server.wait_healthy(member))?;
        Ok(server)
    }

    fn on_free_ports(
        options: &EtcdOptions,
        folder: &Folder,
    ) -> Result<(Vec<Member>, Option<Peers>)> {
        let ports = (0..options.members.max(1))
            .map(|_| Ok(Ports { client: free_port()?, peer: free_port()?, metrics: free_port()? }))
            .collect::<Result<Vec<Ports>>>()?;
        let listening: Vec<u16> = ports.iter().map(|ports| ports.peer).collect();
        let peers = options.can_be_cut.then(|| Peers::new(&listening));
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let advertised = |n: usize| url(peers.as_ref().map_or(listening[n], |peers| peers.port(n)));
        let cluster: Vec<String> =
            (0..ports.len()).map(|n| format!("m{n}={}", advertised(n))).collect();
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let start_one = |(n, ports): (usize, &Ports)| {
            let client = format!("{scheme}://127.0.0.1:{}", ports.client);
            let data = folder.path.join(format!("m{n}"));
            // What an attempt on other ports has left knows those ports.
            let _ = std::fs::remove_dir_all(&data);
            let mut launch = Launch::new("etcd", &folder.path)?
                .args(["--name".to_owned(), format!("m{n}")])
                .args(["--data-dir".into(), data])
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &url(ports.peer)])
                .args(["--initial-advertise-peer-urls", &advertised(n)])
                .args(["--listen-metrics-urls", &url(ports.metrics)])
                .args(["--initial-cluster", &cluster.join(",")])
                .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
                .args(["--logger", "zap", "--log-level", "warn"]);
            launch.log = folder.path.join(format!("m{n}.log"));
            launch.detached = options.home.is_detached();
            if let Some(tls) = &options.tls {
                launch = launch
                    .args(["--cert-file".into(), tls.cert.clone()])
                    .args(["--key-file".into(), tls.key.clone()]);
            }
            let launch = launch.args(options.args.iter());
            let process = start(&launch, *ports)?;
            let member = Member { process, launch, ports: *ports };
            member.is_known_to(peers.as_ref(), n);
            Ok(member)
        };
        let members = ports.iter().enumerate().map(start_one).collect::<Result<_>>()?;
        Ok((members, peers))
    }

    /// Where clients connect: `etcd://127.0.0.1:PORT`, with all members.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = (0..self.members.len()).map(|n| self.address(n)).collect();
        match &self.tls {
            Some(tls) => format!("etcd://{}/?ca_file={}", hosts.join(","), tls.ca.display()),
            None => format!("etcd://{}", hosts.join(",")),
        }
    }

    /// Where clients of one member connect: `127.0.0.1:PORT`.
    pub fn address(&self, member: usize) -> String {
        format!("127.0.0.1:{}", self.members[member].ports.client)
    }

    /// Kills a member with SIGKILL and returns when it is gone.
    pub fn kill(&mut self, member: usize) -> Result<()> {
        self.members[member].process.kill()
    }

    /// Stops a member in its tracks (SIGSTOP): connections stay open, and nobody answers.
    pub fn pause(&mut self, member: usize) -> Result<()> {
        self.members[member].process.pause()
    }

    /// Lets a paused member go on.
    pub fn resume(&mut self, member: usize) -> Result<()> {
        self.members[member].process.resume()
    }

    /// Kills a member if it runs and starts it again on the same ports and data.
    pub fn restart(&mut self, member: usize) -> Result<()> {
        let it = &mut self.members[member];
        it.process.kill()?;
        it.process = start(&it.launch, it.ports)?;
        it.is_known_to(self.peers.as_ref(), member);
        Ok(())
    }

    /// Cuts a member off from the others: it runs and serves its clients, nothing passes between it and
    /// them, and nobody is told. Needs [`can_be_cut`](EtcdOptions::can_be_cut).
    pub fn cut_off(&self, member: usize) -> Result<()> {
        self.peers.as_ref().context("it cannot be cut")?.cut_off(member);
        Ok(())
    }

    /// Ends [`cut_off`](Self::cut_off).
    pub fn heal(&self, member: usize) -> Result<()> {
        self.peers.as_ref().context("it cannot be cut")?.heal(member);
        Ok(())
    }

    /// Returns when the member serves, which takes a majority.
    pub fn wait_healthy(&self, member: usize) -> Result<()> {
        let healthy = || {
            Ok(self.get(member, "/health").is_ok_and(|it| it.contains("\"true\"")).then_some(()))
        };
        wait_for(HEALTH_LIMIT, healthy)?.with_context(|| {
            let said = self.members.iter().map(|member| member.launch.last_words());
            format!(
                "member {member} is not healthy yet:\n{}",
                said.collect::<Vec<_>>().join("\n--\n")
            )
        })
    }

    /// Which member leads; asks those that answer.
    pub fn leader(&self) -> Result<usize> {
        let leads = |member: &usize| {
            let metrics = self.get(*member, "/metrics");
            metrics.is_ok_and(|text| text.contains("\netcd_server_is_leader 1\n"))
        };
        let found = wait_for(HEALTH_LIMIT, || Ok((0..self.members.len()).find(leads)))?;
        found.context("no member leads")
    }

    /// How many calls of an API method, such as `Txn`, a member has begun.
    pub fn calls(&self, member: usize, method: &str) -> Result<u64> {
        let metrics = self.get(member, "/metrics")?;
        let of_method = format!("grpc_method=\"{method}\"");
        let line = metrics.lines().find(|line| {
            line.starts_with("grpc_server_started_total{") && line.contains(&of_method)
        });
        let count = line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0");
        Ok(count.parse::<f64>()? as u64)
    }

    /// `etcdctl` with these words, for all members.
    pub fn etcdctl(&self, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(programs::find("etcdctl")?);
        let hosts: Vec<String> = (0..self.members.len()).map(|n| self.address(n)).collect();
        command.env("ETCDCTL_API", "3").args(["--endpoints", &hosts.join(",")]);
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca).arg("--insecure-transport=false");
        }
        command.args(words);
        Ok(command)
    }

    /// The same, run to its end; its output.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let output = self.etcdctl(words)?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "etcdctl {words:?}: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Gives up the handle and leaves the server running. Only of use with [`Home::at`],
    /// [`Home::detached`] and one member.
    pub fn leave_running(mut self) -> Result<Running> {
        ensure!(self.members.len() == 1, "only one member can be left running");
        self.members[0].process.leave_running()
    }

    fn get(&self, member: usize, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.members[member].ports.metrics))?;
        stream.set_read_timeout(Some(ASK_LIMIT))?;
        stream.set_write_timeout(Some(ASK_LIMIT))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Member {
    fn is_known_to(&self, peers: Option<&Peers>, number: usize) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        if let (Some(peers), Some(pid)) = (peers, pid) {
            peers.is(number, pid);
        }
    }
}

/// All three ports, one after the other: a member that finds the last one taken ends only then.
fn start(launch: &Launch, ports: Ports) -> Result<Process> {
    let listens = |pid| {
        for port in [ports.peer, ports.client, ports.metrics] {
            ensure!(procfs::listens(pid, port), "it does not listen on port {port}");
        }
        Ok(())
    };
    launch.start(listens).map_err(|error| match error.is::<PortTaken>() {
        true => error,
        false => error.context("cannot start etcd"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_loses_nothing() {
        let mut server = EtcdServer::start(EtcdOptions::default()).unwrap();
        server.ask(&["put", "key", "value"]).unwrap();
        server.kill(0).unwrap();
        assert!(server.get(0, "/health").is_err());
        server.restart(0).unwrap();
        server.wait_healthy(0).unwrap();
        assert_eq!(server.ask(&["get", "key"]).unwrap(), "key\nvalue\n");
        assert!(server.calls(0, "Range").unwrap() >= 1);
    }

    #[test]
    fn two_of_three_go_on_without_their_leader() {
        let options = EtcdOptions { members: 3, ..EtcdOptions::default() };
        let mut server = EtcdServer::start(options).unwrap();
        assert_eq!(server.url().matches("127.0.0.1").count(), 3);
        server.ask(&["put", "key", "value"]).unwrap();
        let leader = server.leader().unwrap();
        server.pause(leader).unwrap();
        let next = wait_for(HEALTH_LIMIT, || {
            let others = (0..3).filter(|member| *member != leader);
            let text = |member| server.get(member, "/metrics").unwrap_or_default();
            Ok(others.into_iter().find(|it| text(*it).contains("\netcd_server_is_leader 1\n")))
        });
        assert!(next.unwrap().is_some());
        server.resume(leader).unwrap();
        server.wait_healthy(leader).unwrap();
    }
}
