//! A private ZooKeeper, and an ensemble of three.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::TlsFiles;
use super::ports::{free_port, on_a_free_port};
use super::process::{Folder, Home, Launch, Process, wait_for};
use super::programs;
use crate::proxy::{Protocol, Proxy};

const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const ELECTION_LIMIT: Duration = Duration::from_secs(30);
const START_ATTEMPTS: usize = 3;

/// How to start a [`ZooKeeperServer`] or a [`ZooKeeperEnsemble`].
#[derive(Debug, Clone, Default)]
pub struct ZooKeeperOptions {
    /// Further lines of its configuration, such as `("maxSessionTimeout", "4000")`; they win over ours.
    pub settings: Vec<(String, String)>,
    /// Serves TLS with these, on a port of its own; `url` then names that one.
    pub tls: Option<TlsFiles>,
    /// As one would run it: every write is on the disk before it is answered, and the virtual
    /// machine takes its time to become fast. For measurements.
    pub as_in_production: bool,
    /// Where its data are.
    pub home: Home,
}

/// A private ZooKeeper on a loopback port. Dropping it kills it.
#[derive(Debug)]
pub struct ZooKeeperServer {
    process: Process,
    launch: Launch,
    port: u16,
    tls_port: Option<u16>,
    alone: bool,
    _folder: Folder,
}

impl ZooKeeperServer {
    /// Starts a server alone and returns when it serves.
    pub fn start(options: ZooKeeperOptions) -> Result<ZooKeeperServer> {
        on_a_free_port(|port| Self::start_at(&options, port, None))
            .context("cannot start ZooKeeper")
    }

    fn start_at(
        options: &ZooKeeperOptions,
        port: u16,
        ensemble: Option<(usize, &[(String, String)])>,
    ) -> Result<ZooKeeperServer> {
        let folder = options.home.open("zookeeper")?;
        let tls_port = options.tls.as_ref().map(|_| free_port()).transpose()?;
        let mut settings = settings(options, &folder.path, port, tls_port)?;
        let mut main = "org.apache.zookeeper.server.ZooKeeperServerMain";
        if let Some((id, members)) = ensemble {
            settings.extend(members.iter().cloned());
            fs::create_dir_all(folder.path.join("data"))?;
            fs::write(folder.path.join("data/myid"), id.to_string())?;
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
        }
        settings.extend(options.settings.iter().cloned());
        let lines: String =
            settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        fs::write(folder.path.join("zoo.cfg"), lines)?;
        let mut launch =
            Launch::new("java", &folder.path)?.args(java(options)?).args([main, "zoo.cfg"]);
        launch.detached = options.home.is_detached();
        let alone = ensemble.is_none();
        let process = launch.start(|_| is_up(port, tls_port, alone))?;
        Ok(ZooKeeperServer { process, launch, port, tls_port, alone, _folder: folder })
    }

    /// Where clients connect: `zookeeper://127.0.0.1:PORT`, or `zookeepers://` if it serves TLS.
    pub fn url(&self) -> String {
        match self.tls_port {
            Some(port) => format!("zookeepers://127.0.0.1:{port}"),
            None => format!("zookeeper://127.0.0.1:{}", self.port),
        }
    }

    /// Where clients connect without TLS.
    pub fn addr(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
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

    /// Kills it if it runs and starts it again on the same port and data; returns when it serves,
    /// or, as a member of an ensemble, when it listens.
    pub fn restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process = self.launch.start(|_| is_up(self.port, self.tls_port, self.alone))?;
        Ok(())
    }

    /// What it is: `standalone`, `leader` or `follower`.
    pub fn mode(&self) -> Result<String> {
        mode(self.port)
    }
}

/// Three private ZooKeepers that elect a leader among them. Dropping it kills them.
pub struct ZooKeeperEnsemble {
    /// The servers; the one with index `n` has the id `n + 1`.
    pub servers: Vec<ZooKeeperServer>,
    /// `links[a][b]`: how server `a` reaches server `b` when that one leads.
    links: Vec<Vec<Proxy>>,
}

impl ZooKeeperEnsemble {
    /// Starts three and returns when one of them leads and the others follow.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(options: &ZooKeeperOptions) -> Result<ZooKeeperEnsemble> {
        // Their ports are chosen before they are taken, and a follower that calls its leader too early
        // may take very long to call again.
        for _ in 1..START_ATTEMPTS {
            if let Ok(ensemble) = Self::start_once(options) {
                return Ok(ensemble);
            }
        }
        Self::start_once(options)
    }

    fn start_once(options: &ZooKeeperOptions) -> Result<ZooKeeperEnsemble> {
        const COUNT: usize = 3;
        let ports = || -> Result<Vec<u16>> { (0..COUNT).map(|_| free_port()).collect() };
        let (quorum, election) = (ports()?, ports()?);
        let link = |to: usize| Proxy::start(([127, 0, 0, 1], quorum[to]).into(), Protocol::Bytes);
        let links: Vec<Vec<Proxy>> = (0..COUNT).map(|_| (0..COUNT).map(link).collect()).collect();
        let servers = (0..COUNT).map(|me| {
            // Who leads is reached through a link of the follower's own, which can be cut.
            let members: Vec<(String, String)> = (0..COUNT)
                .map(|it| {
                    let port = if it == me { quorum[it] } else { links[me][it].port() };
                    let address = format!("127.0.0.1:{port}:{}", election[it]);
                    (format!("server.{}", it + 1), address)
                })
                .collect();
            let start = |port| ZooKeeperServer::start_at(options, port, Some((me + 1, &members)));
            on_a_free_port(start)
        });
        let servers = servers.collect::<Result<Vec<_>>>().context("cannot start an ensemble")?;
        let ensemble = ZooKeeperEnsemble { servers, links };
        ensemble.wait_until_all_serve()?;
        Ok(ensemble)
    }

    /// Waits until one leads and all others follow.
    pub fn wait_until_all_serve(&self) -> Result<()> {
        wait_for(ELECTION_LIMIT, || {
            Ok(self.servers.iter().all(|server| server.mode().is_ok()).then_some(()))
        })?
        .context("not all of them serve")
    }

    /// Where clients connect: all three.
    pub fn url(&self) -> String {
        let all: Vec<String> =
            self.servers.iter().map(|server| server.addr().to_string()).collect();
        format!("zookeeper://{}", all.join(","))
    }

    /// The index of the server that leads.
    pub fn leader(&self) -> Result<usize> {
        let leads = |server: &ZooKeeperServer| server.mode().is_ok_and(|mode| mode == "leader");
        self.servers.iter().position(leads).context("nobody leads")
    }

    /// Waits until one leads and another follows.
    pub fn wait_for_leader(&self) -> Result<usize> {
        wait_for(ELECTION_LIMIT, || {
            let modes: Vec<_> =
                self.servers.iter().filter_map(|server| server.mode().ok()).collect();
            let settled = modes.len() >= 2 && modes.iter().any(|mode| mode == "leader");
            Ok(settled.then(|| self.leader().ok()).flatten())
        })?
        .context("no leader was elected in time")
    }

    /// Cuts a follower off from its leader: neither hears the other, and nobody is told. For as long
    /// as `syncLimit` allows the follower goes on serving what needs no leader.
    pub fn cut(&self, follower: usize, leader: usize) {
        self.links[follower][leader].partition();
    }

    /// Ends [`cut`](Self::cut).
    pub fn heal(&self, follower: usize, leader: usize) {
        self.links[follower][leader].heal();
    }
}

fn settings(
    options: &ZooKeeperOptions,
    home: &Path,
    port: u16,
    tls_port: Option<u16>,
) -> Result<Vec<(String, String)>> {
    let mut settings: Vec<(String, String)> = [
        // Fast: a session may be as short as two ticks, and expiry is rounded up to one.
        ("tickTime", "100".to_owned()),
        ("minSessionTimeout", "200".to_owned()),
        ("maxSessionTimeout", (48 * 60 * 60 * 1000).to_string()),
        ("initLimit", "100".to_owned()),
        ("syncLimit", "50".to_owned()),
        ("dataDir", home.join("data").display().to_string()),
        ("clientPort", port.to_string()),
        ("clientPortAddress", "127.0.0.1".to_owned()),
        ("maxClientCnxns", "0".to_owned()),
        ("admin.enableServer", "false".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if let (Some(files), Some(tls_port)) = (&options.tls, tls_port) {
        // One file with the key and the certificate is what it takes for a key store.
        let store = home.join("server-with-key.pem");
        fs::write(&store, [fs::read(&files.key)?, fs::read(&files.cert)?].concat())?;
        settings.extend(
            [
                ("secureClientPort", tls_port.to_string()),
                ("secureClientPortAddress", "127.0.0.1".to_owned()),
                (
                    "serverCnxnFactory",
                    "org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
                ),
                ("ssl.keyStore.location", store.display().to_string()),
                ("ssl.keyStore.type", "PEM".to_owned()),
                ("ssl.trustStore.location", files.ca.display().to_string()),
                ("ssl.trustStore.type", "PEM".to_owned()),
                ("ssl.clientAuth", "none".to_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    Ok(settings)
}

/// A class path of jars that Debian's packages bring.
pub fn class_path(jars: &[&str]) -> Result<String> {
    let paths = jars.iter().map(|jar| Ok(programs::find(jar)?.display().to_string()));
    Ok(paths.collect::<Result<Vec<String>>>()?.join(":"))
}

fn java(options: &ZooKeeperOptions) -> Result<Vec<String>> {
    // The first names the others it needs, but for one that TLS takes.
    let jars = class_path(&["zookeeper.jar", "slf4j-simple.jar", "netty-codec.jar"])?;
    let mut args = vec!["-XX:+UseSerialGC".to_owned()];
    if options.as_in_production {
        args.push("-Xmx512m".to_owned());
    } else {
        args.extend(
            ["-Xmx96m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"].map(Into::into),
        );
    }
    args.extend(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"].map(Into::into));
    args.push(jars);
    Ok(args)
}

/// It listens before it serves. Who is alone is up when it serves; a member of an ensemble serves
/// only with others, and is up when it listens.
fn is_up(port: u16, tls_port: Option<u16>, alone: bool) -> Result<()> {
    if !alone {
        return TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(Into::into);
    }
    if let Some(port) = tls_port {
        TcpStream::connect(("127.0.0.1", port))?;
    }
    mode(port).map(drop)
}

fn mode(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(b"srvr")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
    ensure!(mode.is_some(), "it answers {answer:?}");
    Ok(mode.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_alone_comes_back_on_its_port() {
        let mut server = ZooKeeperServer::start(ZooKeeperOptions::default()).unwrap();
        assert_eq!(server.mode().unwrap(), "standalone");
        let url = server.url();
        server.kill().unwrap();
        assert!(server.mode().is_err());
        server.restart().unwrap();
        assert_eq!((server.url(), server.mode().unwrap()), (url, "standalone".to_owned()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn three_elect_another_leader_when_theirs_is_killed() {
        let mut ensemble = ZooKeeperEnsemble::start(&ZooKeeperOptions::default()).unwrap();
        let first = ensemble.leader().unwrap();
        ensemble.servers[first].kill().unwrap();
        let second = ensemble.wait_for_leader().unwrap();
        assert_ne!(second, first);
    }
}
