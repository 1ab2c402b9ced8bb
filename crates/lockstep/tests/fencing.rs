//! A guard of one store before the tx of another: what the facade's users put together. Needs
//! `LOCKSTEP_TEST_REDIS` and `LOCKSTEP_TEST_POSTGRES`.

#![cfg(all(feature = "sql", feature = "redis"))]
#![expect(clippy::unwrap_used, reason = "what is unexpected here fails the test")]

use std::process::Command;

use lockstep::{ClaimId, Guard, Locks, sql};
use lockstep_testkit::servers;
use tokio_postgres::NoTls;

/// A holder that was replaced, and who replaced it. Their store must live as long as they do.
async fn late_and_next(url: &str) -> (Guard, Guard, Locks) {
    let locks = lockstep::connect(&format!("{url}?prefix=t{}", ClaimId::new())).await.unwrap();
    let late = locks.lock("ledger").await.unwrap();
    assert!(locks.break_lock_now("ledger", "test").await.unwrap());
    let next = locks.lock("ledger").await.unwrap();
    (late, next, locks)
}

fn is_stale(result: Result<(), sql::VerifyError>, late: &Guard, next: &Guard) -> bool {
    let (Some(mine), Some(other)) = (late.token(), next.token()) else { return false };
    matches!(result, Err(sql::VerifyError::Stale { token, seen, .. }) if token == mine && seen == other)
}

#[tokio::test]
async fn a_guard_of_redis_before_a_tx_of_postgres() {
    let (late, next, _locks) = late_and_next(&servers::redis_url()).await;
    let (mut db, connection) =
        tokio_postgres::connect(&servers::postgres_url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    db.batch_execute(&sql::schema(sql::Dialect::Postgres)).await.unwrap();
    for guard in [&late, &next] {
        let mut tx = db.transaction().await.unwrap();
        sql::verify(&mut tx, guard).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut tx = db.transaction().await.unwrap();
    assert!(is_stale(sql::verify(&mut tx, &late).await, &late, &next));
}

#[tokio::test]
async fn a_guard_of_postgres_before_a_tx_of_sqlite() {
    let (late, next, _locks) = late_and_next(&servers::postgres_url()).await;
    let mut db = rusqlite::Connection::open_in_memory().unwrap();
    db.execute_batch(&sql::schema(sql::Dialect::Sqlite)).unwrap();
    let mut tx = db.transaction().unwrap();
    sql::verify(&mut tx, &next).unwrap();
    assert!(is_stale(sql::verify(&mut tx, &late), &late, &next));
}

#[test]
fn a_guard_without_async_before_a_tx_without_async() {
    let locks = lockstep::blocking::connect("memory:").unwrap();
    let guard = locks.lock("ledger").acquire().unwrap();
    let mut db = rusqlite::Connection::open_in_memory().unwrap();
    db.execute_batch(&sql::schema(sql::Dialect::Sqlite)).unwrap();
    let mut tx = db.transaction().unwrap();
    sql::verify(&mut tx, &guard).unwrap();
    tx.commit().unwrap();
    guard.release().unwrap();
}

#[test]
fn the_example_of_the_guide_runs_and_refuses() {
    for more in [None, Some(servers::postgres_url())] {
        let mut example = Command::new(env!("CARGO"));
        example.args(["run", "--quiet", "-p", "lockstep-kit", "--example", "fencing", "--"]);
        let output = example.args(&more).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{told} {}", String::from_utf8_lossy(&output.stderr));
        assert!(
            told.contains("books 10:    REFUSED: lock `fencing-example` has passed on"),
            "{told}"
        );
        assert!(told.contains("books 30:                 done"), "{told}");
    }
}
