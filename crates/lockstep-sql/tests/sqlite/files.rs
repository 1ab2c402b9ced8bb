//! Files that are not there, not ours, or not the same any more.

use std::os::unix::fs::PermissionsExt;

use lockstep_core::{ErrorKind, StoreError};
use lockstep_lock::Share;

use super::*;

fn mode(path: impl AsRef<Path>) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

fn pipes(path: &Path) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(beside(path, ".wake")).unwrap();
    folder.map(|entry| entry.unwrap().path()).collect()
}

async fn refused(store: &Sqlite) -> StoreError {
    store.open(None).await.err().expect("opened")
}

#[tokio::test]
async fn everything_is_for_the_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/locks.db");
    let store = Sqlite::open_or_create_dirs(&path).unwrap();
    let lane = lane(&store).await;
    granted(&*lane, &claim("job")).await;
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(beside(&path, suffix)), 0o600, "{suffix}");
    }
    for made in [folder.path().join("a"), folder.path().join("a/b"), beside(&path, ".wake")] {
        assert_eq!(mode(&made), 0o700, "{}", made.display());
    }
}

#[tokio::test]
async fn a_missing_folder_is_named_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::at(folder.path().join("slip/locks.db")).unwrap();
    let error = refused(&store).await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("slip"), "{error}");
    assert!(!folder.path().join("slip").exists());
}

#[tokio::test]
async fn a_file_of_somebody_else_is_refused_unchanged() {
    let (_folder, path) = database();
    let database = |sql: &str| {
        raw(&path).execute_batch(sql).unwrap();
        std::fs::read(&path).unwrap()
    };
    let make_text = || {
        std::fs::write(&path, "a text that is no database\n".repeat(99)).unwrap();
        std::fs::read(&path).unwrap()
    };
    let newer = "PRAGMA application_id = 0x4C737470; PRAGMA user_version = 3; CREATE TABLE t (a)";
    let cases: [(&dyn Fn() -> Vec<u8>, ErrorKind); 4] = [
        (&make_text, ErrorKind::Foreign),
        (&|| database("CREATE TABLE theirs (a)"), ErrorKind::Foreign),
        (&|| database("PRAGMA journal_mode = WAL; CREATE TABLE theirs (a)"), ErrorKind::Foreign),
        (&|| database(newer), ErrorKind::Config),
    ];
    for (make, kind) in cases {
        let bytes = make();
        let error = refused(&Sqlite::at(&path).unwrap()).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert!(!beside(&path, ".wake").exists());
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(beside(&path, suffix));
        }
    }
}

#[tokio::test]
async fn the_printed_schema_makes_a_file_of_ours() {
    let (_folder, path) = database();
    raw(&path).execute_batch(Sqlite::schema_sql()).unwrap();
    let lane = lane(&Sqlite::at(&path).unwrap()).await;
    granted(&*lane, &claim("job")).await;
}

/// The tables as the layout before this one made them; tokens go on where they were.
#[tokio::test]
async fn an_earlier_layout_is_brought_up_to_date() {
    let (_folder, path) = database();
    raw(&path).execute_batch(include_str!("layout_1.sql")).unwrap();
    let used = "INSERT INTO lockstep_lock (key, token) VALUES (char(31) || 'job', (1 << 32) + 41)";
    raw(&path).execute_batch(used).unwrap();
    let settled = "UPDATE lockstep_meta SET epoch = 1, state = 2, boot = 'another'";
    raw(&path).execute_batch(settled).unwrap();
    let store = Sqlite::at(&path).unwrap();
    let (one, other) = (lane(&store).await, lane(&store).await);
    let held = claim("job");
    assert!(granted(&*one, &held).await > (1 << 32) + 41);
    let reader = || Claim { share: Share::Read, ..claim("read") };
    granted(&*one, &reader()).await;
    granted(&*other, &reader()).await;
}

#[tokio::test]
async fn many_lanes_may_make_the_file_at_once() {
    let (_folder, path) = database();
    let opens = (0..8).map(|_| {
        let store = Sqlite::at(&path).unwrap();
        tokio::spawn(async move { store.open(None).await.map(drop) })
    });
    for open in opens.collect::<Vec<_>>() {
        open.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_deleted_or_replaced_file_proves_nothing() {
    for replaced in [false, true] {
        let (_folder, path) = database();
        let lane = lane(&Sqlite::at(&path).unwrap()).await;
        let held = claim("job");
        granted(&*lane, &held).await;
        std::fs::rename(&path, beside(&path, ".old")).unwrap();
        if replaced {
            std::fs::copy(beside(&path, ".old"), &path).unwrap();
        }
        let error = lane.renew(&[held.hold()]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        let error = lane.acquire(&claim("job")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    }
}

#[tokio::test]
async fn a_pipe_goes_with_its_lane() {
    let (_folder, path) = database();
    let store = Sqlite::at(&path).unwrap();
    let (one, other) = (lane(&store).await, lane(&store).await);
    assert_eq!(pipes(&path).len(), 2);
    drop(one);
    assert_eq!(pipes(&path).len(), 1);
    let third = lane(&store).await;
    assert_eq!(pipes(&path).len(), 2, "a pipe with a reader is not stale");
    drop((other, third));
    assert_eq!(pipes(&path), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn without_pipes_waiters_ask_at_intervals() {
    let (_folder, path) = database();
    std::fs::write(beside(&path, ".wake"), "not a folder").unwrap();
    let one = Locks::open(Sqlite::at(&path).unwrap()).await.unwrap();
    let other = Locks::open(Sqlite::at(&path).unwrap()).await.unwrap();
    assert!(!one.facts().push);
    assert!(one.facts().warnings[0].contains(".wake"), "{:?}", one.facts().warnings);

    let guard = one.lock("job").ttl(LONG).await.unwrap();
    let waiter = tokio::spawn(async move { other.lock("job").ttl(LONG).await.map(drop) });
    waiting(&one, "job", 1).await;
    guard.release().await.unwrap();
    tokio::time::timeout(SOON, waiter).await.expect("did not ask again").unwrap().unwrap();
}
