//! One lock, shared with programs in Java that use Apache Curator.
#![expect(clippy::unwrap_used, reason = "a test's panic is its failure")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use lockstep_lock::Locks;
use lockstep_testkit::servers::{JavaProgram, ZooKeeperOptions, ZooKeeperServer};
use lockstep_zookeeper::ZooKeeper;

/// Ends with the process.
static SERVER: LazyLock<ZooKeeperServer> = LazyLock::new(|| {
    ZooKeeperServer::start(ZooKeeperOptions::default()).expect("a private ZooKeeper")
});
static PEER: LazyLock<JavaProgram> =
    LazyLock::new(|| JavaProgram::curator_peer().expect("Curator's jars"));

const PATIENCE: Duration = Duration::from_secs(30);

/// A Java program that does what it is told.
struct Peer {
    child: Child,
    tells: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Peer {
    fn start() -> Self {
        let mut command = PEER.command(&[&SERVER.addr().to_string()]).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (tells, says) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut peer = Self { child, tells, says: BufReader::new(says) };
        assert_eq!(peer.hear(), "ready");
        peer
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.tells, "{order}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.hear()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn locks(layout: &str) -> Locks {
    let url = format!("{}?prefix=shared&layout={layout}", SERVER.url());
    Locks::open(ZooKeeper::from_url(&url).unwrap()).await.unwrap()
}

async fn sees(locks: &Locks, name: &str, waiting: u64) {
    let looking = async {
        while locks.inspect(name).await.unwrap().is_none_or(|lock| lock.waiting != waiting) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("who waits can be seen");
}

/// In both directions, with the hand-over: Curator holds and we wait, we hold and Curator waits.
async fn takes_turns(layout: &str, kind: &str, name: &str) {
    let (mut peer, locks) = (Peer::start(), locks(layout).await);
    let path = format!("/shared/{name}");
    let acquire = |millis: u32| format!("{kind} acquire {path} {millis}");
    let release = format!("{kind} release {path} 0");

    assert_eq!(peer.ask(&acquire(5000)), "held");
    assert!(locks.try_lock(name).await.unwrap().is_none(), "Curator holds it");
    let view = locks.inspect(name).await.unwrap().expect("who holds it is shown");
    assert_eq!(view.holders.len(), 1, "{view:?}");
    let waiting = tokio::spawn(locks.lock(name).into_future());
    sees(&locks, name, 1).await;
    assert_eq!(peer.ask(&release), "free");
    let guard = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();

    assert_eq!(peer.ask(&acquire(200)), "busy", "we hold it");
    if kind == "latch" {
        // A latch goes on waiting.
        sees(&locks, name, 1).await;
    }
    peer.tell(&acquire(30_000));
    sees(&locks, name, 1).await;
    assert!(guard.is_trusted());
    guard.release().await.unwrap();
    assert_eq!(peer.hear(), "held");
    assert!(locks.try_lock(name).await.unwrap().is_none(), "Curator holds it again");
    assert_eq!(peer.ask(&release), "free");
    locks.lock(name).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_is_shared_with_curator() {
    takes_turns("mutex", "mutex", "mutex").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_is_shared_with_curator() {
    takes_turns("readwrite", "write", "writer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_is_shared_with_curator() {
    takes_turns("latch", "latch", "latch").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_shared_with_curator() {
    let (mut peer, locks) = (Peer::start(), locks("readwrite").await);
    let (name, path) = ("readers", "/shared/readers");
    assert_eq!(peer.ask(&format!("read acquire {path} 5000")), "held");
    let mine = locks.read(name).await.unwrap();
    assert!(locks.try_lock(name).await.unwrap().is_none(), "two read");
    assert_eq!(peer.ask(&format!("read release {path} 0")), "free");
    assert_eq!(peer.ask(&format!("write acquire {path} 200")), "busy", "we read");
    mine.release().await.unwrap();
    assert_eq!(peer.ask(&format!("write acquire {path} 5000")), "held");
    let waiting = tokio::spawn(locks.read(name).into_future());
    sees(&locks, name, 1).await;
    // Its downgrade puts a reader where the writer was, with the same number; we may read then.
    assert_eq!(peer.ask(&format!("read acquire {path} 5000")), "held");
    assert_eq!(peer.ask(&format!("write release {path} 0")), "free");
    let mine = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert!(locks.try_lock(name).await.unwrap().is_none());
    mine.release().await.unwrap();
    assert!(locks.try_lock(name).await.unwrap().is_none(), "Curator still reads");
    assert_eq!(peer.ask(&format!("read release {path} 0")), "free");
    locks.lock(name).await.unwrap().release().await.unwrap();
}

/// Our readers end in `lock-NUMBER` in the mutex layout, so a mutex of Curator waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_of_curator_waits_for_our_readers() {
    let (mut peer, locks) = (Peer::start(), locks("mutex").await);
    let (name, path) = ("mixed", "/shared/mixed");
    let (a, b) = (locks.read(name).await.unwrap(), locks.read(name).await.unwrap());
    assert_eq!(peer.ask(&format!("mutex acquire {path} 200")), "busy");
    a.release().await.unwrap();
    assert_eq!(peer.ask(&format!("mutex acquire {path} 200")), "busy");
    b.release().await.unwrap();
    assert_eq!(peer.ask(&format!("mutex acquire {path} 5000")), "held");
    assert!(locks.read(name).within(Duration::from_millis(200)).await.is_err());
}

/// Curator sorts what it does not know behind everything else, so both would hold.
#[tokio::test(flavor = "multi_thread")]
async fn two_forms_on_one_path_are_refused() {
    let (mut peer, locks) = (Peer::start(), locks("mutex").await);
    assert_eq!(peer.ask("write acquire /shared/two-forms 5000"), "held");
    let error = locks.lock("two-forms").await.unwrap_err().to_string();
    assert!(error.contains("__WRIT__") && error.contains("layout"), "{error}");
}
