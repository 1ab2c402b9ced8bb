//! rusqlite, where everything answers at once.

use std::path::Path;
use std::time::Duration;

use lockstep_core::ErrorKind;
use lockstep_lock::Locks;
use lockstep_lock::memory::Memory;
use lockstep_sql::tx::{self as sql, LockInError, NotOneRow, VerifyError};
use rusqlite::{Connection, TransactionBehavior};

use crate::guards::{Uncounted, late_and_next, stale};

fn open(folder: &Path) -> Connection {
    let db = Connection::open(folder.join("app.db")).unwrap();
    let wal: String = db.query_row("PRAGMA journal_mode = wal", [], |row| row.get(0)).unwrap();
    assert_eq!(wal, "wal");
    db.execute_batch(&sql::schema(sql::Dialect::Sqlite)).unwrap();
    db.execute_batch("CREATE TABLE IF NOT EXISTS ledger (balance INTEGER)").unwrap();
    db
}

fn busy_timeout(db: &Connection) -> i64 {
    db.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn the_write_of_a_holder_that_was_replaced_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut db = open(folder.path());
    let (late, next, _locks) = late_and_next("it's {token}").await;
    for guard in [&late, &next, &next] {
        let mut tx = db.transaction().unwrap();
        sql::verify(&mut tx, guard).unwrap();
        tx.commit().unwrap();
    }
    let mut tx = db.transaction().unwrap();
    assert_eq!(stale(sql::verify(&mut tx, &late)), (1, 2));
    tx.execute("INSERT INTO ledger VALUES (1)", []).unwrap();
    drop(tx);

    // What was rolled back has not been seen.
    let (late, next, _locks) = late_and_next("other").await;
    let mut tx = db.transaction().unwrap();
    let mut part = tx.savepoint().unwrap();
    sql::verify(&mut part, &next).unwrap();
    drop(part);
    sql::verify(&mut tx, &late).unwrap();
}

#[tokio::test]
async fn a_verified_tx_keeps_the_successor_from_being_seen() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (open(folder.path()), open(folder.path()));
    other.busy_timeout(Duration::ZERO).unwrap();
    let (late, next, _locks) = late_and_next("ledger").await;
    let mut tx = one.transaction().unwrap();
    sql::verify(&mut tx, &late).unwrap();
    let mut refused = other.transaction().unwrap();
    let error = sql::verify(&mut refused, &next).unwrap_err();
    assert!(sql::is_conflict(&error), "{error:?}");
    tx.commit().unwrap();
    sql::verify(&mut refused, &next).unwrap();
}

#[tokio::test]
async fn outside_a_tx_and_without_tables_nothing_is_verified() {
    let (guard, _next, _locks) = late_and_next("ledger").await;
    let mut db = Connection::open_in_memory().unwrap();
    let kind = |error: VerifyError| match error {
        VerifyError::Store(error) => error.kind(),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(sql::verify(&mut db, &guard).unwrap_err()), ErrorKind::Config);
    db.execute_batch("BEGIN").unwrap();
    assert_eq!(kind(sql::verify(&mut db, &guard).unwrap_err()), ErrorKind::NotMigrated);
    db.execute_batch(&sql::schema(sql::Dialect::Sqlite)).unwrap();
    sql::verify(&mut db, &guard).unwrap();
}

#[tokio::test]
async fn a_guard_without_token_proves_nothing() {
    let locks = Locks::open(Uncounted(Memory::new())).await.unwrap();
    let guard = locks.lock("ledger").await.unwrap();
    let mut db = Connection::open_in_memory().unwrap();
    let mut tx = db.transaction().unwrap();
    let refused = sql::verify(&mut tx, &guard);
    assert!(matches!(refused, Err(VerifyError::NoToken { .. })), "{refused:?}");
}

#[test]
fn a_row_lock_refuses_leaves_the_tx_whole_and_puts_the_setting_back() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (open(folder.path()), open(folder.path()));
    one.busy_timeout(Duration::from_millis(1234)).unwrap();
    other.busy_timeout(Duration::from_millis(1234)).unwrap();
    for _ in 0..2 {
        let mut holder = one.transaction().unwrap();
        sql::lock_in(&mut holder, "a").take().unwrap();
        sql::lock_in(&mut holder, "b").no_wait().take().unwrap();
        let mut tx = other.transaction().unwrap();
        let refused = sql::lock_in(&mut tx, "a").no_wait().take().unwrap_err();
        assert!(matches!(refused, LockInError::Busy { .. }) && sql::is_conflict(&refused));
        assert!(!sql::lock_in(&mut tx, "a").skip_locked().take().unwrap());
        let refused = sql::lock_in(&mut tx, "a").within(Duration::from_millis(5)).take();
        assert!(matches!(refused, Err(LockInError::Busy { .. })), "{refused:?}");
        assert_eq!(busy_timeout(&tx), 1234);
        holder.rollback().unwrap();
        assert!(sql::lock_in(&mut tx, "a").skip_locked().take().unwrap());
        assert_eq!(busy_timeout(&tx), 1234);
        tx.commit().unwrap();
    }
}

#[test]
fn a_tx_that_has_read_what_is_out_of_date_begins_again_and_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (open(folder.path()), open(folder.path()));
    let mut tx = one.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
    tx.query_row("SELECT count(*) FROM ledger", [], |row| row.get::<_, i64>(0)).unwrap();
    other.execute("INSERT INTO ledger VALUES (1)", []).unwrap();
    let error = sql::lock_in(&mut tx, "a").take().unwrap_err();
    assert!(matches!(error, LockInError::Store(_)) && sql::is_conflict(&error), "{error:?}");
    drop(tx);
    let mut tx = other.transaction().unwrap();
    sql::lock_in(&mut tx, "a").take().unwrap();
}

#[tokio::test(start_paused = true)]
async fn optimistic_updates_notice_each_other_and_lose_nothing() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch("CREATE TABLE n (value, version); INSERT INTO n VALUES (0, 0)").unwrap();
    let read = || {
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        db.query_row("SELECT value, version FROM n", [], row).unwrap()
    };
    let add = async |by: i64| {
        let attempt = async || {
            let (value, version) = read();
            // Whoever else is in the middle of it goes on now.
            tokio::task::yield_now().await;
            let sql = "UPDATE n SET value = ?1, version = version + 1 WHERE version = ?2";
            sql::expect_one(db.execute(sql, [value + by, version]).unwrap() as u64)
        };
        sql::retry(sql::Retry::times(50), |error| sql::is_conflict(error), attempt).await
    };
    let all = futures_util::future::join_all((1..=10).map(add)).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(read(), (55, 10));
    assert_eq!(sql::expect_one(3), Err(NotOneRow::Several { rows: 3 }));
}

#[test]
fn errors_of_the_driver_are_conflicts_if_they_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(folder.path()), open(folder.path()));
    other.busy_timeout(Duration::ZERO).unwrap();
    one.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(sql::is_conflict(&other.execute_batch("BEGIN IMMEDIATE").unwrap_err()));
    assert!(!sql::is_conflict(&other.execute_batch("nonsense").unwrap_err()));
}
