//! `etcdctl lock` and etcd's own lock service exclude us, and we them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_core::ErrorKind;
use lockstep_lock::{LockError, Share};
use lockstep_testkit::servers::EtcdServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{eventually, keys, locks, server, soon};

/// `etcdctl lock`, which prints its key when it has the lock.
struct Other {
    child: Child,
    has_it: Arc<AtomicBool>,
}

impl Other {
    fn asks(server: &EtcdServer, name: &str) -> Result<Self> {
        let mut child =
            server.etcdctl(&["lock", "--ttl", "2", name])?.stdout(Stdio::piped()).spawn()?;
        let has_it = Arc::new(AtomicBool::new(false));
        let (stdout, told) = (child.stdout.take().context("piped")?, Arc::clone(&has_it));
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            told.store(read.is_ok_and(|bytes| bytes > 0), Ordering::SeqCst);
        });
        Ok(Self { child, has_it })
    }

    fn has_it(&self) -> bool {
        self.has_it.load(Ordering::SeqCst)
    }

    /// Ctrl-C, which makes it give the lock back.
    fn gives_back(mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id())?;
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid).context("a pid")?,
            rustix::process::Signal::INT,
        )?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_keeps_us_out_and_we_get_in_after_it() -> Result<()> {
    let server = server();
    let locks = locks(&server.url()).await?;
    let other = Other::asks(&server, "theirs")?;
    eventually("etcdctl has it", async || other.has_it()).await;
    assert!(locks.try_lock("theirs").await?.is_none());
    assert!(locks.try_read("theirs").await?.is_none(), "it does not share");
    let differs = locks.permits("theirs", 3).try_acquire(1).await;
    assert!(matches!(differs, Err(LockError::Differs { .. })), "{differs:?}");
    let view = locks.inspect("theirs").await?.context("it is held")?;
    let holder = view.holder().context("by somebody")?;
    assert_eq!(holder.share, Share::Exclusive);
    assert!(holder.label.as_str().contains("not Lockstep"), "{holder:?}");
    let listed = locks.list("th", 10).await?.locks;
    assert_eq!(listed.iter().map(|view| view.key.as_str()).collect::<Vec<_>>(), ["theirs"]);

    let waits = tokio::spawn(locks.lock("theirs").into_future());
    eventually("we wait", async || keys(&server, "theirs").len() == 2).await;
    assert!(!waits.is_finished());
    let refused = locks.break_lock("theirs", "nobody listens").await;
    assert!(
        matches!(&refused, Err(LockError::Store(e)) if e.kind() == ErrorKind::Foreign),
        "{refused:?}"
    );
    other.gives_back()?;
    let guard = soon("it is ours", waits).await??;
    assert!(guard.token() > holder.token);
    guard.release().await?;
    assert_eq!(keys(&server, "theirs"), []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn we_keep_etcdctl_out_and_it_gets_in_after_us() -> Result<()> {
    let server = server();
    let (locks, second) = (locks(&server.url()).await?, locks(&server.url()).await?);
    let guard = locks.lock("ours").await?;
    let waits = tokio::spawn(second.lock("ours").into_future());
    eventually("the second waits", async || keys(&server, "ours").len() == 2).await;
    let other = Other::asks(&server, "ours")?;
    eventually("etcdctl waits", async || keys(&server, "ours").len() == 3).await;
    // Longer than its lease, and than ours.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!other.has_it() && guard.is_trusted() && !waits.is_finished());
    guard.release().await?;
    let guard = soon("in the order they came", waits).await??;
    assert!(!other.has_it());
    guard.release().await?;
    eventually("etcdctl has it", async || other.has_it()).await;
    assert!(locks.try_lock("ours").await?.is_none());
    other.gives_back()?;
    soon("and we again", locks.lock("ours")).await?.release().await?;
    Ok(())
}

/// Etcd's lock service, asked as programs without a library ask it. Answers with the key that it was
/// given, as it wants to have it back.
async fn service(server: &EtcdServer, verb: &str, ask: String) -> Result<Option<String>> {
    let mut stream = TcpStream::connect(server.address(0)).await?;
    let (head, length) = (format!("POST /v3/lock/{verb} HTTP/1.1\r\nHost: etcd"), ask.len());
    let head = format!("{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{ask}").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    anyhow::ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let key = answer.split_once("\"key\":\"").and_then(|(_, rest)| rest.split_once('"'));
    Ok(key.map(|(key, _)| key.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_service_and_we_take_turns() -> Result<()> {
    let server = Arc::new(server());
    let locks = locks(&server.url()).await?;
    // The name is `service`.
    let take = || r#"{"name":"c2VydmljZQ=="}"#.to_owned();
    let give = |key: &str| format!(r#"{{"key":"{key}"}}"#);
    let theirs = service(&server, "lock", take()).await?.context("a key")?;
    assert!(locks.try_lock("service").await?.is_none());
    let waits = tokio::spawn(locks.lock("service").into_future());
    eventually("we wait", async || keys(&server, "service").len() == 2).await;
    let asking = Arc::clone(&server);
    let again = tokio::spawn(async move { service(&asking, "lock", take()).await });
    eventually("it waits again", async || keys(&server, "service").len() == 3).await;
    assert!(!waits.is_finished());

    service(&server, "unlock", give(&theirs)).await?;
    let guard = soon("it is ours", waits).await??;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!again.is_finished(), "it waits for us");
    guard.release().await?;
    let theirs = soon("and theirs again", again).await??.context("a key")?;
    assert!(locks.try_lock("service").await?.is_none());
    service(&server, "unlock", give(&theirs)).await?;
    soon("and ours", locks.lock("service")).await?.release().await?;
    Ok(())
}

/// Two readers hold it; `etcdctl` waits for both, and who comes after it waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_stands_in_line_with_readers() -> Result<()> {
    let server = server();
    let locks = locks(&server.url()).await?;
    let (one, two) = (locks.read("shared").await?, locks.read("shared").await?);
    let other = Other::asks(&server, "shared")?;
    eventually("etcdctl waits", async || keys(&server, "shared").len() == 3).await;
    let late = tokio::spawn(locks.read("shared").into_future());
    eventually("so does a late reader", async || keys(&server, "shared").len() == 4).await;
    one.release().await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!other.has_it() && !late.is_finished(), "one still reads");
    two.release().await?;
    eventually("etcdctl has it", async || other.has_it()).await;
    assert!(!late.is_finished());
    other.gives_back()?;
    soon("the late reader", late).await??.release().await?;
    Ok(())
}
