//! Against real servers, with a client beside the store's own that looks and meddles.

mod downgrades;
mod ensemble;
mod faults;
mod replies;
mod sessions;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use lockstep_lock::Locks;
use lockstep_testkit::proxy::{Protocol, Proxy};
use lockstep_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};

use crate::ZooKeeper;
use crate::client::wire::{self, Acl, Code, Mode, Op, Reply};
use crate::client::{Ears, Failure, News, Session};

pub(crate) const LONG: Duration = Duration::from_secs(60);
/// An election takes a while when all share the machine of the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends with the process. Every test has a prefix of its own in it.
static SERVER: LazyLock<ZooKeeperServer> = LazyLock::new(|| {
    ZooKeeperServer::start(ZooKeeperOptions::default()).expect("a private ZooKeeper")
});

struct Deaf;

impl Ears for Deaf {
    fn hear(&self, _: u64, _: News) {}
}

/// A client that does what it likes.
pub(crate) struct Raw(pub(crate) Session);

impl Raw {
    pub(crate) fn to(url: &str) -> Self {
        let config = ZooKeeper::from_url(url).unwrap().config;
        let setup = config.setup(Duration::from_secs(30));
        let (session, work) = Session::new(setup, 0, 0, Arc::new(Deaf));
        tokio::spawn(work);
        Self(session)
    }

    pub(crate) async fn create(&self, path: &str, mode: Mode, acl: Acl) {
        let (path, data) = (path.to_owned(), b"somebody else's".to_vec());
        self.0.call(Op::Create { path, data, acl, mode }).await.unwrap();
    }

    pub(crate) async fn children(&self, path: &str) -> Vec<String> {
        match self.0.call(Op::Children { path: path.to_owned() }).await {
            Ok(Reply::Children(children)) => children,
            Err(Failure::Refused(Code::NO_NODE)) => vec![],
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.0.call(Op::Delete { path: path.to_owned() }).await.unwrap();
    }

    /// Who made the only node of a lock.
    pub(crate) async fn session_of(&self, directory: &str) -> i64 {
        let children = self.children(directory).await;
        assert_eq!(children.len(), 1, "{children:?}");
        let path = format!("{directory}/{}", children[0]);
        match self.0.call(Op::Exists { path, watch: false }).await.unwrap() {
            Reply::Stat(stat) => stat.owner,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn url(prefix: &str) -> String {
    format!("{}?prefix={prefix}", SERVER.url())
}

pub(crate) async fn locks(url: &str) -> Locks {
    Locks::open(ZooKeeper::from_url(url).unwrap()).await.unwrap()
}

pub(crate) async fn soon<F: IntoFuture>(what: &str, future: F) -> F::Output {
    let patient = tokio::time::timeout(PATIENCE, future.into_future());
    patient.await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(what, looking).await;
}

/// Connects with somebody else's session, as anybody who has seen its number can, says something
/// and listens until the server hangs up: `None` if there is no such session.
pub(crate) fn steal(server: SocketAddr, session: i64, words: &[u8]) -> Option<()> {
    loop {
        let mut stream = TcpStream::connect(server).unwrap();
        let hello = wire::connect(0, 30_000, session, &password(session));
        stream.write_all(&[&hello, words].concat()).unwrap();
        let mut heard = vec![];
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The owner may be back, and we be thrown out, before we have heard a word.
        let _ = stream.read_to_end(&mut heard);
        if let Some(greeting) = heard.get(4..41) {
            let greeting = wire::greeting(greeting).unwrap();
            return (greeting.session == session).then_some(());
        }
    }
}

/// Ends somebody else's session at the servers.
pub(crate) fn end_session(server: SocketAddr, session: i64) {
    while steal(server, session, &Op::Close.frame(1)).is_some() {}
}

/// A session's password is made from its number, with Java's random numbers.
fn password(session: i64) -> Vec<u8> {
    const FACTOR: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = ((session ^ 0xB341_5C00) as u64 ^ FACTOR) & MASK;
    let mut bytes = vec![];
    for _ in 0..4 {
        state = (state.wrapping_mul(FACTOR) + 0xB) & MASK;
        bytes.extend(((state >> 16) as u32).to_le_bytes());
    }
    bytes
}

#[test]
fn the_password_of_a_session_is_no_secret() {
    let expected =
        [5, 0x4c, 0xc7, 0x4a, 0x37, 0x32, 0x7d, 0xb2, 0x15, 0xe7, 2, 0xe2, 0xc, 0x73, 0xf0, 5];
    assert_eq!(password(1), expected);
}
