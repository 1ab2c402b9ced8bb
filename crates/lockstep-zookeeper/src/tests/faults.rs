//! What can be wrong with a path, and what others can do to it.

use std::time::Duration;

use lockstep_core::ErrorKind;
use lockstep_lock::store::Connect;
use lockstep_lock::{LockError, Locks, LostCause};

use super::*;

fn kind(error: LockError) -> (ErrorKind, String) {
    match error {
        LockError::Store(error) => (error.kind(), error.to_string()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_chroot_is_named_at_once_and_nothing_is_made() {
    let wrong = format!("{}/no/such", SERVER.url());
    let error = Locks::open(ZooKeeper::from_url(&wrong).unwrap()).await.err().unwrap();
    let (kind_of, words) = kind(error);
    assert_eq!(kind_of, ErrorKind::Config);
    assert!(words.contains("/no/such"), "{words}");
    let raw = Raw::to(&SERVER.url());
    assert_eq!(raw.children("/no").await, [""; 0]);
    // It was there when we came, and has gone since.
    raw.create("/chroot-goes", Mode::Container, Acl::Open).await;
    let locks = locks(&format!("{}/chroot-goes", SERVER.url())).await;
    raw.delete("/chroot-goes").await;
    assert_eq!(kind(locks.lock("x").await.unwrap_err()).0, ErrorKind::Config);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_permission_it_says_so() {
    let with_login = |login: &str| SERVER.url().replace("://", &format!("://{login}@"));
    let raw = Raw::to(&with_login("ann:secret"));
    raw.create("/of-ann", Mode::Container, Acl::Creator).await;
    let stranger = locks(&format!("{}/of-ann", SERVER.url())).await;
    let (kind_of, words) = kind(stranger.lock("x").await.unwrap_err());
    assert_eq!(kind_of, ErrorKind::Denied);
    assert!(words.contains("/of-ann"), "{words}");
    let ben = locks(&format!("{}/of-ann", with_login("ben:other"))).await;
    assert_eq!(kind(ben.lock("x").await.unwrap_err()).0, ErrorKind::Denied);
    // Ann may, and what she makes is hers alone.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret\n").unwrap();
    let url = format!("{}/of-ann?password_file={}", with_login("ann"), file.path().display());
    let ann = locks(&url).await;
    let guard = ann.lock("x").await.unwrap();
    let open = Raw::to(&SERVER.url());
    let path = "/of-ann/lockstep/x".to_owned();
    let seen = open.0.call(Op::Children { path }).await;
    assert_eq!(seen, Err(Failure::Refused(Code::NO_AUTH)));
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_form_is_named_and_nobody_is_granted_past_it() {
    let raw = Raw::to(&SERVER.url());
    let locks = locks(&url("foreign")).await;
    locks.lock("x").await.unwrap().release().await.unwrap();
    // As kazoo makes them.
    let name = "0123456789abcdef0123456789abcdef__lock__0000000000";
    let path = format!("/foreign/x/{name}");
    raw.create(&path, Mode::Ephemeral, Acl::Open).await;
    for _ in 0..2 {
        let (kind_of, words) = kind(locks.lock("x").await.unwrap_err());
        assert_eq!(kind_of, ErrorKind::Foreign);
        assert!(words.contains(name), "{words}");
    }
    assert!(locks.try_lock("x").await.is_err());
    assert_eq!(raw.children("/foreign/x").await, [name], "ours are gone, and only ours");
    raw.delete(&path).await;
    locks.lock("x").await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_somebody_deletes_is_lost_and_nothing_else_is_deleted() {
    let raw = Raw::to(&SERVER.url());
    let (one, other) = (locks(&url("deleted")).await, locks(&url("deleted")).await);
    let guard = one.lock("x").ttl(Duration::from_millis(900)).await.unwrap();
    let mine = raw.children("/deleted/x").await.remove(0);
    raw.delete(&format!("/deleted/x/{mine}")).await;
    let next = other.lock("x").ttl(LONG).await.unwrap();
    let lost = soon("the loss", guard.lost()).await;
    assert_eq!(lost.cause, LostCause::Taken);
    drop(guard);
    one.close().await;
    assert!(next.is_trusted());
    assert_eq!(raw.children("/deleted/x").await.len(), 1, "the next one's is still there");
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_writes_into_our_node_is_no_loss() {
    let raw = Raw::to(&SERVER.url());
    let locks = locks(&url("written")).await;
    let guard = locks.lock("x").ttl(Duration::from_millis(900)).await.unwrap();
    let mine = raw.children("/written/x").await.remove(0);
    let (path, data) = (format!("/written/x/{mine}"), b"hello".to_vec());
    raw.0.call(Op::SetData { path: path.clone(), data, version: -1 }).await.unwrap();
    let before = guard.trusted_until();
    until("two renewals", async || guard.trusted_until() > before + Duration::from_millis(400))
        .await;
    // Curator's own way to ask for a lock back is understood.
    let data = b"__REVOKE__".to_vec();
    raw.0.call(Op::SetData { path, data, version: -1 }).await.unwrap();
    let lost = soon("the loss", guard.lost()).await;
    assert!(matches!(lost.cause, LostCause::Broken(_)), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ttl_that_no_session_can_carry_is_refused() {
    let settings = vec![("maxSessionTimeout".to_owned(), "8000".to_owned())];
    let options = ZooKeeperOptions { settings, ..ZooKeeperOptions::default() };
    let server = ZooKeeperServer::start(options).unwrap();
    let store = ZooKeeper::from_url(&server.url()).unwrap();
    let facts = store.open(None).await.unwrap().facts();
    assert_eq!(facts.ttl_max, Duration::from_secs(4));
    let locks = Locks::open(store).await.unwrap();
    let refused = locks.lock("x").ttl(Duration::from_secs(5)).await;
    assert!(matches!(refused, Err(LockError::Ttl { .. })), "{refused:?}");
    locks.lock("x").ttl(Duration::from_secs(4)).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_an_authority_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let tls = lockstep_testkit::servers::TlsFiles::generate(folder.path()).unwrap();
    let ca = tls.ca.display().to_string();
    let options = ZooKeeperOptions { tls: Some(tls), ..ZooKeeperOptions::default() };
    let server = ZooKeeperServer::start(options).unwrap();
    let url = format!("{}?ca_file={ca}", server.url());
    // The first handshakes of a virtual machine can take longer than anybody waits.
    let open = async || Locks::open(ZooKeeper::from_url(&url).unwrap()).await.is_ok();
    until("a handshake", open).await;
    let locks = locks(&url).await;
    locks.lock("x").await.unwrap().release().await.unwrap();
    let public = ZooKeeper::from_url(&server.url()).unwrap();
    assert_eq!(kind(Locks::open(public).await.err().unwrap()).0, ErrorKind::Unavailable);
}

/// The servers remove empty directories, and the number at the end of a name starts again.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_also_when_the_directory_was_removed() {
    let (raw, locks) = (Raw::to(&SERVER.url()), locks(&url("removed")).await);
    let mut last = None;
    for _ in 0..3 {
        let guard = locks.lock("x").await.unwrap();
        let names = raw.children("/removed/x").await;
        assert!(names[0].ends_with("0000000000"), "{names:?}");
        assert!(guard.token() > last, "{:?} after {last:?}", guard.token());
        last = guard.token();
        guard.release().await.unwrap();
        raw.delete("/removed/x").await;
    }
}
