//! The same words with sqlx, on its three databases. Needs `LOCKSTEP_TEST_POSTGRES` and
//! `LOCKSTEP_TEST_MARIADB`.

#![expect(clippy::unwrap_used, reason = "what is unexpected here fails the test")]

use std::net::SocketAddr;
use std::time::Duration;

use lockstep_core::{ClaimId, ErrorKind};
use lockstep_lock::memory::Memory;
use lockstep_lock::{Guard, Locks};
use lockstep_sql::tx::{self as sql, Dialect, LockInError, VerifyError};
use lockstep_sqlx::is_conflict;
use lockstep_testkit::proxy::{Protocol, Proxy};
use lockstep_testkit::servers;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection};

/// A holder that was replaced, and who replaced it. Their store must live as long as they do.
async fn late_and_next() -> (Guard, Guard, Locks) {
    let locks = Locks::open(Memory::new()).await.unwrap();
    let late = locks.lock("it's {key} \\").await.unwrap();
    assert!(locks.break_lock_now("it's {key} \\", "test").await.unwrap());
    let next = locks.lock("it's {key} \\").await.unwrap();
    (late, next, locks)
}

fn stale(result: Result<(), VerifyError>) -> (u64, u64) {
    match result {
        Err(VerifyError::Stale { token, seen, .. }) => (token.get(), seen.get()),
        other => panic!("expected a stale guard, got {other:?}"),
    }
}

/// `short` makes a wait for somebody else's lock short, as a setting of the session.
macro_rules! same_words {
    ($name:ident: $connection:ident, $dialect:ident, $url:expr, setup $setup:literal,
     short $short:literal, is $is:literal) => {
        mod $name {
            use super::*;

            async fn connect() -> $connection {
                let mut db = $connection::connect(&$url).await.unwrap();
                sqlx::raw_sql($setup).execute(&mut db).await.unwrap();
                let schema = AssertSqlSafe(sql::schema(Dialect::$dialect));
                sqlx::raw_sql(schema).execute(&mut db).await.unwrap();
                db
            }

            #[tokio::test]
            async fn the_write_of_a_holder_that_was_replaced_is_refused() {
                let mut db = connect().await;
                let (late, next, _locks) = late_and_next().await;
                for guard in [&late, &next, &next] {
                    let mut tx = db.begin().await.unwrap();
                    sql::verify(&mut tx, guard).await.unwrap();
                    tx.commit().await.unwrap();
                }
                let mut tx = db.begin().await.unwrap();
                assert_eq!(stale(sql::verify(&mut tx, &late).await), (1, 2));
                // The tx is whole, and so is the connection below it.
                assert_eq!(stale(sql::verify(&mut *tx, &late).await), (1, 2));
                sqlx::raw_sql("SELECT 1").execute(&mut *tx).await.unwrap();
                // Dropped, it would be rolled back a little later.
                tx.rollback().await.unwrap();

                match sql::verify(&mut db, &next).await {
                    Err(VerifyError::Store(error)) => assert_eq!(error.kind(), ErrorKind::Config),
                    other => panic!("outside a tx: {other:?}"),
                }
            }

            #[tokio::test]
            async fn a_successor_waits_for_a_tx_that_was_verified() {
                let (mut one, mut other) = (connect().await, connect().await);
                sqlx::raw_sql($short).execute(&mut other).await.unwrap();
                let (late, next, _locks) = late_and_next().await;
                for _ in 0..2 {
                    let mut tx = one.begin().await.unwrap();
                    sql::verify(&mut tx, &late).await.unwrap();
                    let mut waiting = other.begin().await.unwrap();
                    let error = sql::verify(&mut waiting, &next).await.unwrap_err();
                    assert!(matches!(error, VerifyError::Store(_)), "{error:?}");
                    assert!(is_conflict(&error) && sql::is_conflict(&error), "{error:?}");
                    drop(waiting);
                    tx.commit().await.unwrap();
                }
                let mut tx = other.begin().await.unwrap();
                sql::verify(&mut tx, &next).await.unwrap();
                tx.commit().await.unwrap();
                let mut tx = one.begin().await.unwrap();
                assert_eq!(stale(sql::verify(&mut tx, &late).await), (1, 2));
            }

            #[tokio::test]
            async fn a_row_lock_refuses_leaves_the_tx_whole_and_ends_with_it() {
                let (mut one, mut other) = (connect().await, connect().await);
                sqlx::raw_sql($short).execute(&mut other).await.unwrap();
                let key = format!("row {}", ClaimId::new());
                for _ in 0..2 {
                    let mut holder = one.begin().await.unwrap();
                    sql::lock_in(&mut holder, &key).await.unwrap();
                    let mut tx = other.begin().await.unwrap();
                    let refused = sql::lock_in(&mut tx, &key).no_wait().await;
                    assert!(matches!(refused, Err(LockInError::Busy { .. })), "{refused:?}");
                    assert!(!sql::lock_in(&mut tx, &key).skip_locked().await.unwrap());
                    let limit = Duration::from_millis(5);
                    let refused = sql::lock_in(&mut tx, &key).within(limit).await.unwrap_err();
                    assert!(matches!(refused, LockInError::Busy { .. }), "{refused:?}");
                    assert!(is_conflict(&refused));
                    let setting: String =
                        sqlx::query_scalar($is).fetch_one(&mut *tx).await.unwrap();
                    assert_eq!(setting, "1", "put back");
                    // A commit would make what SQLite has shown this tx out of date.
                    holder.rollback().await.unwrap();
                    assert!(sql::lock_in(&mut tx, &key).skip_locked().await.unwrap());
                    tx.commit().await.unwrap();
                }
            }

            #[tokio::test]
            async fn errors_of_the_driver_are_conflicts_if_they_say_so() {
                let mut db = connect().await;
                let error = sqlx::raw_sql("nonsense").execute(&mut db).await.unwrap_err();
                assert!(!is_conflict(&error), "{error:?}");
            }
        }
    };
}

same_words!(postgres: PgConnection, Postgres, servers::postgres_url(),
    setup "SELECT 1", short "SET lock_timeout = '1ms'", is "SELECT setting FROM pg_settings WHERE name = 'lock_timeout'");
same_words!(mysql: MySqlConnection, Mysql, servers::mariadb_url(),
    setup "SELECT 1", short "SET innodb_lock_wait_timeout = 1", is "SELECT CAST(@@innodb_lock_wait_timeout AS CHAR)");
same_words!(sqlite: SqliteConnection, Sqlite, file(),
    setup "PRAGMA journal_mode = wal", short "PRAGMA busy_timeout = 1", is "SELECT CAST(timeout AS TEXT) FROM pragma_busy_timeout");

/// One file for each test, which cannot share a database that has one writer.
fn file() -> String {
    use std::cell::OnceCell;
    thread_local!(static FOLDER: OnceCell<tempfile::TempDir> = const { OnceCell::new() });
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| tempfile::tempdir().unwrap());
        format!("sqlite://{}?mode=rwc", folder.path().join("app.db").display())
    })
}

fn through(proxy: &Proxy, url: &str, server: SocketAddr) -> String {
    url.replace(&server.to_string(), &proxy.addr().to_string())
}

fn address(url: &str) -> SocketAddr {
    url.split_once('@').unwrap().1.split('/').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn verify_and_lock_in_are_one_round_trip_each_on_postgres() {
    let url = servers::postgres_url();
    let proxy = Proxy::start(address(&url), Protocol::Postgres);
    let url = through(&proxy, &url, address(&url)) + "?sslmode=disable";
    let mut db = PgConnection::connect(&url).await.unwrap();
    let (guard, _next, _locks) = late_and_next().await;
    let mut tx = db.begin().await.unwrap();
    for _ in 0..2 {
        proxy.clear_log();
        sql::verify(&mut tx, &guard).await.unwrap();
        assert_eq!(proxy.log().len(), 1, "{:?}", proxy.log());
        proxy.clear_log();
        sql::lock_in(&mut tx, "sqlx").within(Duration::from_secs(1)).await.unwrap();
        assert_eq!(proxy.log().len(), 1, "{:?}", proxy.log());
    }
}

#[tokio::test]
async fn verify_and_lock_in_are_one_round_trip_each_on_mysql() {
    let url = servers::mariadb_url();
    let proxy = Proxy::start(address(&url), Protocol::MySql);
    let url = through(&proxy, &url, address(&url)) + "?ssl-mode=disabled";
    let mut db = MySqlConnection::connect(&url).await.unwrap();
    let (guard, _next, _locks) = late_and_next().await;
    let mut tx = db.begin().await.unwrap();
    for _ in 0..2 {
        proxy.clear_log();
        sql::verify(&mut tx, &guard).await.unwrap();
        assert_eq!(proxy.log().len(), 1, "{:?}", proxy.log());
        proxy.clear_log();
        sql::lock_in(&mut tx, "sqlx").within(Duration::from_secs(1)).await.unwrap();
        assert_eq!(proxy.log().len(), 1, "{:?}", proxy.log());
    }
}
