//! mysql_async on MariaDB.

use std::time::Duration;

use lockstep_core::ClaimId;
use lockstep_sql::tx::{self as sql, LockInError, VerifyError};
use lockstep_testkit::proxy::{Protocol, Proxy};
use lockstep_testkit::servers;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Transaction, TxOpts};
use tokio::time::timeout;

use crate::guards::{late_and_next, stale};

const PATIENCE: Duration = Duration::from_secs(10);

async fn connect() -> Conn {
    let mut conn = Conn::from_url(servers::mariadb_url()).await.unwrap();
    conn.query_drop(sql::schema(sql::Dialect::Mysql)).await.unwrap();
    conn
}

async fn begin(conn: &mut Conn) -> Transaction<'_> {
    conn.start_transaction(TxOpts::default()).await.unwrap()
}

/// A name that no other test and no other run has used.
fn fresh(name: &str) -> String {
    format!("{name} {}", ClaimId::new())
}

#[tokio::test]
async fn the_write_of_a_holder_that_was_replaced_is_refused() {
    let mut db = connect().await;
    let (late, next, _locks) = late_and_next("it's {token} \\").await;
    for guard in [&late, &next, &next] {
        let mut tx = begin(&mut db).await;
        sql::verify(&mut tx, guard).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut tx = begin(&mut db).await;
    assert_eq!(stale(sql::verify(&mut tx, &late).await), (1, 2));
    assert_eq!(tx.query_first::<u8, _>("SELECT 1").await.unwrap(), Some(1));
}

#[tokio::test]
async fn keys_that_a_collation_would_fold_are_apart() {
    let mut db = connect().await;
    let key = fresh("Key");
    for key in [key.clone(), key.to_lowercase(), format!("{key} "), key.replace('K', "Ķ")] {
        let mut tx = begin(&mut db).await;
        assert!(sql::lock_in(&mut tx, &key).skip_locked().await.unwrap(), "{key}");
        tx.commit().await.unwrap();
    }
    let count =
        "SELECT count(*) FROM lockstep_mutex WHERE LOWER(CONVERT(`key` USING utf8mb4)) LIKE ?";
    let pattern = format!("%{}%", &key[4..]);
    assert_eq!(db.exec_first::<u8, _, _>(count, (pattern,)).await.unwrap(), Some(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_waits_for_a_tx_that_was_verified() {
    let (mut one, mut other) = (connect().await, connect().await);
    let (late, next, _locks) = late_and_next("ledger").await;
    let mut tx = begin(&mut one).await;
    sql::verify(&mut tx, &late).await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = begin(&mut one).await;
    sql::verify(&mut tx, &late).await.unwrap();
    other.query_drop("SET innodb_lock_wait_timeout = 0").await.unwrap();
    let mut waiting = begin(&mut other).await;
    let error = sql::verify(&mut waiting, &next).await.unwrap_err();
    assert!(matches!(error, VerifyError::Store(_)) && sql::is_conflict(&error), "{error:?}");
    tx.commit().await.unwrap();
    sql::verify(&mut waiting, &next).await.unwrap();
    waiting.commit().await.unwrap();
    let mut tx = begin(&mut one).await;
    assert_eq!(stale(sql::verify(&mut tx, &late).await), (1, 2));
}

#[tokio::test]
async fn a_row_lock_refuses_and_leaves_the_tx_whole() {
    let (mut one, mut other) = (connect().await, connect().await);
    let known = fresh("known");
    let mut tx = begin(&mut one).await;
    sql::lock_in(&mut tx, &known).await.unwrap();
    tx.commit().await.unwrap();
    other.query_drop("SET innodb_lock_wait_timeout = 77").await.unwrap();
    for key in [known, fresh("new")] {
        let mut holder = begin(&mut one).await;
        sql::lock_in(&mut holder, &key).no_wait().await.unwrap();
        sql::lock_in(&mut holder, &key).no_wait().await.unwrap();
        let mut tx = begin(&mut other).await;
        let mine = fresh("mine");
        sql::lock_in(&mut tx, &mine).await.unwrap();
        let refused = sql::lock_in(&mut tx, &key).no_wait().await.unwrap_err();
        assert!(matches!(refused, LockInError::Busy { .. }) && sql::is_conflict(&refused));
        assert!(!sql::lock_in(&mut tx, &key).skip_locked().await.unwrap());
        let refused = sql::lock_in(&mut tx, &key).within(Duration::from_millis(5)).await;
        assert!(matches!(refused, Err(LockInError::Busy { .. })), "{refused:?}");
        let setting = tx.query_first("SELECT @@innodb_lock_wait_timeout").await.unwrap();
        assert_eq!(setting, Some(77), "put back");
        // What the tx had locked before the refusals it still has.
        assert!(!sql::lock_in(&mut holder, &mine).skip_locked().await.unwrap());
        holder.rollback().await.unwrap();
        sql::lock_in(&mut tx, &key).no_wait().await.unwrap();
        tx.rollback().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_lock_is_waited_for_and_ends_with_its_tx() {
    let (mut one, mut other, mut admin) = (connect().await, connect().await, connect().await);
    let key = fresh("row");
    let mut tx = begin(&mut one).await;
    sql::lock_in(&mut tx, &key).await.unwrap();
    let waiter = other.id();
    let waiting = tokio::spawn(async move {
        let mut tx = begin(&mut other).await;
        sql::lock_in(&mut tx, &key).await
    });
    let seen = "SELECT 1 FROM information_schema.processlist \
                WHERE id = ? AND info LIKE 'INSERT INTO lockstep_mutex%'";
    let blocked =
        async { while admin.exec_first::<u8, _, _>(seen, (waiter,)).await.unwrap().is_none() {} };
    timeout(PATIENCE, blocked).await.expect("nobody waits");
    assert!(!waiting.is_finished());
    tx.rollback().await.unwrap();
    timeout(PATIENCE, waiting).await.expect("still locked").unwrap().unwrap();
}

#[tokio::test]
async fn verify_and_lock_in_are_one_round_trip_each() {
    let opts = Opts::from_url(&servers::mariadb_url()).unwrap();
    connect().await;
    let server = format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port());
    let proxy = Proxy::start(server.parse().unwrap(), Protocol::MySql);
    let url = servers::mariadb_url().replace(&server, &proxy.addr().to_string());
    // The local socket, which the driver would move to, is not the proxy.
    let opts = mysql_async::OptsBuilder::from_opts(Opts::from_url(&url).unwrap());
    let mut db = Conn::new(opts.prefer_socket(false)).await.unwrap();
    let (guard, _next, _locks) = late_and_next("ledger").await;
    let mut tx = begin(&mut db).await;
    for _ in 0..2 {
        proxy.clear_log();
        sql::verify(&mut tx, &guard).await.unwrap();
        assert_eq!(proxy.log().len(), 1, "{:?}", proxy.log());
        proxy.clear_log();
        sql::lock_in(&mut tx, "row").within(Duration::from_secs(1)).await.unwrap();
        assert_eq!(proxy.log().len(), 1, "{:?}", proxy.log());
    }
}
