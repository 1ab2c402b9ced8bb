//! What only SQLite can get wrong. The verbs themselves are compared with the reference in the
//! crate, and with every other store in the conformance suite.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

#[path = "sqlite/boot.rs"]
mod boot;
#[path = "sqlite/files.rs"]
mod files;
#[path = "sqlite/processes.rs"]
mod processes;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner};
use lockstep_lock::store::{Answer, Claim, Connect, LockStore, Query, Release, Released, Renewal};
use lockstep_lock::{Fencing, Inbox, Locks, Scope};
use lockstep_sql::sqlite::Sqlite;
use tempfile::TempDir;

/// Longer than any test: what happens sooner did not wait for a lease.
const LONG: Duration = Duration::from_secs(120);
/// What a pushed wake-up takes at most, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

fn database() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    (folder, path)
}

async fn lane(store: &Sqlite) -> Arc<dyn LockStore> {
    store.open(Some(Inbox::new())).await.unwrap()
}

fn claim(name: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        key: Key::new(name).unwrap(),
        owner: Owner::new(),
        label: Label::new("a test"),
        ttl: LONG,
        share: lockstep_lock::Share::Exclusive,
        wait: true,
    }
}

/// The token of a claim that must be granted at once.
async fn granted(lane: &dyn LockStore, claim: &Claim) -> u64 {
    match lane.acquire(claim).await.unwrap() {
        Answer::Granted { token: Some(token) } => token.get(),
        other => panic!("not granted: {other:?}"),
    }
}

async fn release(lane: &dyn LockStore, claim: &Claim) -> Released {
    lane.release(&Release::Mine(claim.hold())).await.unwrap()
}

/// Returns when this many wait for the lock.
async fn waiting(locks: &Locks, name: &str, count: u64) {
    let waits = async {
        while locks.inspect(name).await.unwrap().is_none_or(|lock| lock.waiting < count) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, waits).await.expect("nobody waits");
}

fn raw(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

#[tokio::test]
async fn the_verbs_work_at_both_levels() {
    for level in ["normal", "full"] {
        let (_folder, path) = database();
        let url = format!("sqlite:{}?synchronous={level}", path.display());
        let store = Sqlite::from_url(&url).unwrap();
        let (one, other) = (lane(&store).await, lane(&store).await);
        let (first, second) = (claim("job"), claim("job"));

        let token = granted(&*one, &first).await;
        assert_eq!(granted(&*one, &first).await, token, "asking again is the same grant");
        let queued = other.acquire(&second).await.unwrap();
        assert!(matches!(queued, Answer::Queued { ahead: 0, .. }), "{queued:?}");
        let impatient = Claim { wait: false, ..claim("job") };
        assert_eq!(other.acquire(&impatient).await.unwrap(), Answer::Busy);
        let renewals = one.renew(&[first.hold(), second.hold()]).await.unwrap();
        assert_eq!(renewals, [Renewal::Renewed, Renewal::Lost]);

        assert_eq!(release(&*one, &first).await, Released::Done);
        assert_eq!(release(&*one, &first).await, Released::NotHeld);
        let page = one.inspect(&Query::One(first.key.clone())).await.unwrap();
        let holder = page.locks[0].holder().expect("passed on in the release");
        assert_eq!(holder.claim, second.id);
        assert!(granted(&*other, &second).await > token);
        assert_eq!(release(&*other, &second).await, Released::Done);
    }
}

#[tokio::test]
async fn facts_are_shown() {
    let (_folder, path) = database();
    let locks = Locks::open(Sqlite::at(&path).unwrap()).await.unwrap();
    let facts = locks.facts();
    assert_eq!((facts.store, facts.fencing), ("sqlite", Fencing::Strong));
    assert_eq!((facts.scope, facts.fair, facts.push), (Scope::Machine, true, true));
}

#[tokio::test]
async fn a_release_wakes_the_waiter_of_another_lane() {
    let (_folder, path) = database();
    // One value: without a pipe. Two values: as two processes would.
    let store = Sqlite::at(&path).unwrap();
    for other in [store.clone(), Sqlite::at(&path).unwrap()] {
        let one = Locks::open(store.clone()).await.unwrap();
        let other = Locks::open(other).await.unwrap();
        let guard = one.lock("job").ttl(LONG).await.unwrap();
        let token = guard.token().unwrap();
        let waiter = tokio::spawn(async move {
            let guard = other.lock("job").ttl(LONG).await.unwrap();
            let token = guard.token().unwrap();
            guard.release().await.unwrap();
            token
        });
        waiting(&one, "job", 1).await;
        guard.release().await.unwrap();
        let next = tokio::time::timeout(SOON, waiter).await.expect("not woken").unwrap();
        assert!(next > token);
    }
}

#[tokio::test]
async fn a_broken_holder_is_told_through_its_pipe() {
    let (_folder, path) = database();
    let one = Locks::open(Sqlite::at(&path).unwrap()).await.unwrap();
    let operator = Locks::open(Sqlite::at(&path).unwrap()).await.unwrap();
    let guard = one.lock("job").ttl(LONG).await.unwrap();
    assert!(operator.break_lock_now("job", "by hand\nand in haste").await.unwrap());
    let lost = tokio::time::timeout(SOON, guard.lost()).await.expect("not told");
    assert!(lost.to_string().contains("by hand and in haste"), "{lost}");
}

#[tokio::test]
async fn different_names_are_different_rows() {
    let (_folder, path) = database();
    let lane = lane(&Sqlite::at(&path).unwrap()).await;
    let names = ["Job", "job", "job ", "jöb", "a/b"];
    for name in names {
        granted(&*lane, &claim(name)).await;
    }
    let rows: i64 =
        raw(&path).query_row("SELECT count(*) FROM lockstep_lock", [], |r| r.get(0)).unwrap();
    assert_eq!(rows, 5);

    let all = |prefix: &str, limit| Query::All { prefix: prefix.into(), limit };
    let page = lane.inspect(&all("", 10)).await.unwrap();
    let seen: Vec<&str> = page.locks.iter().map(|lock| lock.key.as_str()).collect();
    assert_eq!(seen, ["Job", "a/b", "job", "job ", "jöb"]);
    let page = lane.inspect(&all("job", 1)).await.unwrap();
    assert_eq!((page.locks.len(), page.more), (1, true));
    let page = lane.inspect(&all("job", 2)).await.unwrap();
    assert_eq!((page.locks.len(), page.more), (2, false));
}

#[tokio::test]
async fn prefixes_keep_programs_apart_in_one_file() {
    let (_folder, path) = database();
    let store =
        |query: &str| Sqlite::from_url(&format!("sqlite:{}{query}", path.display())).unwrap();
    for query in ["", "?prefix=a", "?prefix=b"] {
        let lane = lane(&store(query)).await;
        granted(&*lane, &claim("job")).await;
        let page = lane.inspect(&Query::All { prefix: String::new(), limit: 9 }).await.unwrap();
        assert_eq!(page.locks.len(), 1, "{query}");
        assert_eq!(page.locks[0].key.as_str(), "job");
    }
}

#[tokio::test]
async fn a_token_never_goes_back_across_reopening() {
    let (_folder, path) = database();
    let mut last = 0;
    for _ in 0..3 {
        let lane = lane(&Sqlite::at(&path).unwrap()).await;
        let claim = claim("job");
        let token = granted(&*lane, &claim).await;
        assert!(token > last, "{token} after {last}");
        last = token;
        release(&*lane, &claim).await;
    }
}
