//! A fault proxy between a client and a real Redis, PostgreSQL, MySQL (MariaDB) or ZooKeeper server.
//!
//! It understands enough of the protocol to know one request from the next and which reply
//! answers it, so that a test can lose *the reply to the script that released the lock* rather
//! than some bytes. It knows nothing of locks.
//!
//! Every request is shown to the [rules](Proxy::rule) in the order they were installed and meets
//! the fault of the first that fires. [Switches](Proxy::partition) act on all connections. The
//! [wire log](Proxy::log) says what crossed. A stream the proxy cannot follow (encryption,
//! replication, a copy, another protocol) is passed through unframed from there on, which the log
//! notes as [`Kind::Raw`]; rules no longer apply to it, switches do.
//!
//! ```
//! use lockstep_testkit::proxy::{Fault, Match, Protocol, Proxy};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = TcpListener::bind("127.0.0.1:0").await?;
//! let proxy = Proxy::start(server.local_addr()?, Protocol::Resp);
//! proxy.rule(Match::command("GET").with_arg("lock:a"), Fault::ErrorReply("LOADING wait".into()));
//!
//! let mut client = TcpStream::connect(proxy.addr()).await?;
//! client.write_all(b"get lock:a\r\n").await?;
//! let mut reply = [0; 15];
//! client.read_exact(&mut reply).await?;
//! assert_eq!(&reply, b"-LOADING wait\r\n");
//!
//! let log = proxy.log();
//! assert_eq!((log[0].request.name.as_str(), log[0].forwarded), ("GET", false));
//! # Ok(()) }
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::AbortHandle;

mod connection;
mod gate;
mod link;
mod log;
pub mod mysql;
mod mysql_session;
mod mysql_values;
pub mod postgres;
mod postgres_session;
mod reply_pump;
mod request;
mod request_pump;
pub mod resp;
mod resp_session;
mod rules;
mod session;
mod zookeeper_session;

pub use gate::Gate;
pub use link::Direction;
pub use log::{Reply, Seen};
pub use request::{Kind, Request};
pub use rules::{Fault, Match, Rule};
pub use session::Unparsable;

/// What the two sides speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Redis, versions 2 and 3 of its protocol.
    Resp,
    /// PostgreSQL, version 3 of its protocol, unencrypted.
    Postgres,
    /// MySQL and MariaDB. Encryption and compression are taken out of the server's offer, so a
    /// client that insists on them does not connect.
    MySql,
    /// ZooKeeper's clients, unencrypted. Pings and logins are answered out of turn, so rules about
    /// replies pass them over.
    ZooKeeper,
    /// Anything: only switches apply.
    Bytes,
}

/// Listens on a free port of 127.0.0.1. Panics as [`Proxy::start`] does.
pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .expect("a free port on the loopback interface");
    let addr = listener.local_addr().expect("a bound listener has an address");
    listener.set_nonblocking(true).expect("a listener that does not block");
    (TcpListener::from_std(listener).expect("a runtime with networking"), addr)
}

/// A running proxy. It ends, with all its connections, when dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    addr: SocketAddr,
    acceptor: AbortHandle,
}

/// What all connections of a proxy share.
struct Shared {
    upstream: SocketAddr,
    protocol: Protocol,
    rules: rules::Rules,
    log: log::Log,
    link: link::Link,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and passes on to `upstream`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or if there is no port to listen on.
    pub fn start(upstream: SocketAddr, protocol: Protocol) -> Self {
        let (listener, addr) = listen();
        let shared = Arc::new(Shared {
            upstream,
            protocol,
            rules: rules::Rules::default(),
            log: log::Log::default(),
            link: link::Link::default(),
        });
        let acceptor = tokio::spawn(accept(listener, shared.clone())).abort_handle();
        Self { shared, addr, acceptor }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port of [`addr`](Self::addr).
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        self.shared.link.connections()
    }

    /// From now on the next request `chooses` accepts meets `fault`; see [`Rule::times`] for more
    /// than one.
    pub fn rule(&self, chooses: Match, fault: Fault) -> Rule {
        self.shared.rules.install(chooses, fault)
    }

    /// Removes all rules. What they hold or delay already stays held.
    pub fn clear_rules(&self) {
        self.shared.rules.clear();
    }

    /// Makes the server unreachable: bytes go nowhere, connections stay open, new connections are
    /// accepted but silent. Not even the end of a connection reaches the other side.
    pub fn partition(&self) {
        self.shared.link.block(true, true);
    }

    /// Lets only one direction pass: with [`Direction::Requests`] the server hears and acts, but
    /// its replies are lost.
    pub fn one_way(&self, passes: Direction) {
        self.shared.link.block(passes != Direction::Requests, passes != Direction::Replies);
    }

    /// Ends [`partition`](Self::partition) and [`one_way`](Self::one_way).
    ///
    /// Connections that lost nothing go on. Those that lost bytes are closed now: a stream cannot
    /// go on without its middle, and a peer that comes back after a long silence is answered with
    /// a reset. For traffic that arrives late instead of never, use [`Fault::Hold`].
    pub fn heal(&self) {
        self.shared.link.heal();
    }

    /// Closes all connections on both sides. A client that has connected but not yet been accepted
    /// is not among them.
    pub fn cut_all(&self) {
        self.shared.link.cut_all();
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        self.shared.link.refuse(refuses);
    }

    /// Whether push messages and notifications are swallowed on all connections.
    pub fn drop_pushes(&self, drops: bool) {
        self.shared.link.drop_pushes(drops);
    }

    /// What has crossed the proxy so far, in the order it came.
    pub fn log(&self) -> Vec<Seen> {
        self.shared.log.read(<[Seen]>::to_vec)
    }

    /// Empties the log.
    pub fn clear_log(&self) {
        self.shared.log.clear();
    }

    /// How many requests in the log match, whether or not they were sent on.
    pub fn count(&self, chooses: Match) -> usize {
        self.shared.log.read(|log| chooses.count(log.iter().map(|seen| &seen.request)))
    }

    /// Waits until `n` matching requests are in the log. Cancel safe.
    pub async fn wait_for(&self, chooses: Match, n: usize) {
        self.wait_until(|log| chooses.count(log.iter().map(|seen| &seen.request)) >= n).await;
    }

    /// Waits until the log is as wanted; for what [`wait_for`](Self::wait_for) cannot say, such as
    /// that a reply was swallowed or a push passed. Cancel safe.
    pub async fn wait_until(&self, reached: impl Fn(&[Seen]) -> bool) {
        self.shared.log.wait_until(reached).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
        // A connection that is being accepted right now must not outlive us.
        self.shared.link.refuse(true);
        self.shared.link.cut_all();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => shared.link.admit(|id| {
                let wire = connection::Wire::new(shared.clone(), id);
                tokio::spawn(wire.serve(client)).abort_handle()
            }),
            // Out of descriptors, or the client left already: others may still come.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
