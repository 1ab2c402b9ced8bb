//! Five servers, and clients that reach each of them by a way of their own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lockstep_lock::{Guard, LockError, Locks};
use lockstep_redis::Redlock;
use lockstep_redis::redlock::standing::Guards;
use lockstep_testkit::oracle::{Attempt, Oracle, Recorder, Violation};
use lockstep_testkit::proxy::{Protocol, Proxy};
use lockstep_testkit::servers::{Persistence, RedisOptions, RedisServer};

/// What every story is about.
pub(crate) const KEY: &str = "ledger";

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<RedisServer>,
}

impl Cluster {
    /// Servers that sync every write: their votes count from the start.
    pub(crate) fn durable() -> Self {
        let persistence = Persistence::AppendOnly;
        Self::of(&RedisOptions { persistence, ..RedisOptions::default() })
    }

    /// Servers that keep nothing over a restart.
    pub(crate) fn forgetful() -> Self {
        Self::of(&RedisOptions::default())
    }

    fn of(options: &RedisOptions) -> Self {
        let start = |_| RedisServer::start(options.clone()).unwrap();
        Self { nodes: (0..5).map(start).collect() }
    }

    /// The nodes' own addresses.
    pub(crate) fn url(&self, parameters: &str) -> String {
        url(self.nodes.iter().map(RedisServer::port), parameters)
    }

    /// A way to each node for one client alone.
    pub(crate) fn ways(&self) -> Ways {
        let way = |node: &RedisServer| {
            let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, node.port()));
            Proxy::start(upstream, Protocol::Resp)
        };
        Ways(self.nodes.iter().map(way).collect())
    }

    /// Who has the key, node by node.
    pub(crate) fn holders(&self) -> Vec<Option<String>> {
        let holder = |node: &RedisServer| {
            let answer = node.ask(&["GET", KEY]).ok()?;
            answer.lines().nth(1).map(str::to_owned)
        };
        self.nodes.iter().map(holder).collect()
    }

    /// Waits until every node has the key: a grant needs three of them, and the last requests may be under way.
    pub(crate) async fn all_have_it(&self) {
        eventually("all have it", || self.holders().iter().all(Option::is_some)).await;
    }

    /// Waits until no node has the key, which no ttl of these stories does in time.
    pub(crate) async fn nothing_is_left(&self) {
        eventually("no node has the key", || self.holders().iter().all(Option::is_none)).await;
    }
}

/// One client's ways to the nodes.
pub(crate) struct Ways(pub(crate) Vec<Proxy>);

impl Ways {
    pub(crate) fn url(&self, parameters: &str) -> String {
        url(self.0.iter().map(Proxy::port), parameters)
    }
}

fn url(ports: impl Iterator<Item = u16>, parameters: &str) -> String {
    let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redlock://{}?{parameters}", hosts.join(","))
}

/// A client, and what it saw.
pub(crate) struct Client {
    pub(crate) locks: Locks,
    recorder: Recorder,
}

impl Client {
    pub(crate) async fn open(name: &str, url: &str, guards: Guards, ttl: Duration) -> Self {
        let store = Redlock::from_url(url).unwrap().with_guards(guards);
        let locks = Locks::open(store).await.unwrap().with_ttl(ttl);
        Self { locks, recorder: Recorder::in_memory(name) }
    }

    /// Takes the lock without waiting. `None`: somebody else has it.
    pub(crate) async fn takes(&self) -> Result<Option<(Attempt, Guard)>, LockError> {
        let mut attempt = self.recorder.asks(KEY);
        Ok(self.locks.try_lock(KEY).await?.map(|guard| {
            attempt.granted(&guard);
            (attempt, guard)
        }))
    }

    /// Waits for the lock.
    pub(crate) async fn waits(&self) -> (Attempt, Guard) {
        let mut attempt = self.recorder.asks(KEY);
        let guard = self.locks.lock(KEY).within(Duration::from_secs(60)).await.unwrap();
        attempt.granted(&guard);
        (attempt, guard)
    }
}

/// What the oracle has to say about the clients.
pub(crate) fn overlaps(clients: &[&Client]) -> usize {
    let mut oracle = Oracle::default();
    for client in clients {
        oracle = oracle.with(client.recorder.events());
    }
    let verdict = oracle.check_unfair();
    assert!(verdict.grants > 0, "nothing was granted, so nothing is proved");
    let is_overlap = |violation: &&Violation| matches!(violation, Violation::Overlap { .. });
    verdict.violations.iter().filter(is_overlap).count()
}

pub(crate) async fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("did not come true: {what}");
}

/// What a client says why it cannot.
pub(crate) fn told(refused: Result<Option<(Attempt, Guard)>, LockError>) -> String {
    match refused {
        Err(error) => error.to_string(),
        Ok(got) => panic!("no error: {}", if got.is_some() { "granted" } else { "busy" }),
    }
}
