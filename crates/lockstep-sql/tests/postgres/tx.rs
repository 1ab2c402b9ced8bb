//! Fences and row locks in a user's own tx, with tokio-postgres.

use std::time::Duration;

use lockstep_core::ErrorKind;
use lockstep_lock::memory::Memory;
use lockstep_lock::{Guard, Locks};
use lockstep_sql::postgres::Postgres;
use lockstep_sql::tx::{self as sql, LockInError, VerifyError};
use lockstep_testkit::proxy::{Protocol, Proxy};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls, Transaction};

use crate::support::{PATIENCE, Place, claim, let_time_pass};

/// Longer than any test: leases end when a test says so.
const TTL: Duration = Duration::from_secs(600);

/// Between two looks at what others do.
const GLANCE: Duration = Duration::from_millis(10);

async fn handle(place: &Place) -> Locks {
    Locks::open(place.store()).await.unwrap()
}

async fn hold(locks: &Locks, name: &str) -> Guard {
    let request = locks.lock(name).ttl(TTL).within(PATIENCE);
    request.await.unwrap()
}

/// As if the holder had been paused for longer than its lease.
async fn lease_runs_out(place: &Place) {
    let_time_pass(&place.admin().await, place, TTL + TTL).await;
}

/// A table of one row, in a schema that only this test knows.
async fn ledger(place: &Place) -> Client {
    let db = place.admin().await;
    let sql =
        format!("CREATE TABLE {0} (balance bigint); INSERT INTO {0} VALUES (100)", place.name);
    db.batch_execute(&sql).await.unwrap();
    db
}

async fn write(tx: &Transaction<'_>, place: &Place, balance: i64) {
    let sql = format!("UPDATE {} SET balance = $1", place.name);
    tx.execute(&sql, &[&balance]).await.unwrap();
}

async fn balance(db: &Client, place: &Place) -> i64 {
    db.query_one(&format!("SELECT balance FROM {}", place.name), &[]).await.unwrap().get(0)
}

async fn pid(db: &Client) -> i32 {
    db.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Returns when some other session waits for this one.
async fn somebody_waits_for(admin: &Client, pid: i32) {
    let sql = "SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
    let seen = async {
        while admin.query(sql, &[&pid]).await.unwrap().is_empty() {
            // Who looks takes the locks of the whole lock table: nobody else would get anywhere.
            sleep(GLANCE).await;
        }
    };
    timeout(PATIENCE, seen).await.expect("nobody waits");
}

/// The first of all makes the row of the fence, and others wait for that; this one goes before, so
/// that a test sees what comes of a row that is there.
async fn verified_before(db: &mut Client, guard: &Guard) {
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, guard).await.unwrap();
    tx.commit().await.unwrap();
}

fn stale(result: Result<(), VerifyError>) -> (u64, u64) {
    match result {
        Err(VerifyError::Stale { token, seen, .. }) => (token.get(), seen.get()),
        other => panic!("expected a stale guard, got {other:?}"),
    }
}

#[tokio::test]
async fn the_write_of_a_holder_that_was_replaced_is_refused() {
    let place = Place::new();
    let mut db = ledger(&place).await;
    let late = hold(&handle(&place).await, "ledger").await;
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, &late).await.unwrap();
    write(&tx, &place, 90).await;
    tx.commit().await.unwrap();

    lease_runs_out(&place).await;
    let successor = hold(&handle(&place).await, "ledger").await;
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, &successor).await.unwrap();
    write(&tx, &place, 80).await;
    tx.commit().await.unwrap();

    let mut tx = db.transaction().await.unwrap();
    assert_eq!(stale(sql::verify(&mut tx, &late).await), (1, 2));
    // The tx itself is whole; it is the caller who gives up.
    tx.execute("SELECT 1", &[]).await.unwrap();
    drop(tx);
    assert_eq!(balance(&db, &place).await, 80);
}

#[tokio::test]
async fn a_replaced_holder_is_refused_before_its_successor_has_written_anything() {
    let place = Place::new();
    let mut db = place.admin().await;
    let late = hold(&handle(&place).await, "ledger").await;
    lease_runs_out(&place).await;
    let _successor = hold(&handle(&place).await, "ledger").await;
    let mut tx = db.transaction().await.unwrap();
    assert_eq!(stale(sql::verify(&mut tx, &late).await), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taking_over_waits_for_a_tx_that_was_verified() {
    let place = Place::new();
    let (mut db, admin) = (ledger(&place).await, place.admin().await);
    let slow = hold(&handle(&place).await, "ledger").await;
    verified_before(&mut db, &slow).await;
    let pid = pid(&db).await;
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, &slow).await.unwrap();
    lease_runs_out(&place).await;

    let next = handle(&place).await;
    let next = tokio::spawn(async move { hold(&next, "ledger").await });
    somebody_waits_for(&admin, pid).await;
    write(&tx, &place, 90).await;
    assert!(!next.is_finished(), "granted while the verified tx was open");
    tx.commit().await.unwrap();

    let next = timeout(PATIENCE, next).await.expect("a grant").unwrap();
    assert_eq!(next.token().unwrap().get(), 2);
    assert_eq!(balance(&db, &place).await, 90, "the write is whole, and the next holder sees it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn breaking_a_lock_at_once_waits_for_a_tx_that_was_verified() {
    let place = Place::new();
    let (mut db, admin) = (place.admin().await, place.admin().await);
    let broken = hold(&handle(&place).await, "ledger").await;
    verified_before(&mut db, &broken).await;
    let pid = pid(&db).await;
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, &broken).await.unwrap();

    let operator = handle(&place).await;
    let done = tokio::spawn(async move { operator.break_lock_now("ledger", "test").await });
    somebody_waits_for(&admin, pid).await;
    tx.commit().await.unwrap();
    assert!(timeout(PATIENCE, done).await.unwrap().unwrap().unwrap());
    let mut tx = db.transaction().await.unwrap();
    assert_eq!(stale(sql::verify(&mut tx, &broken).await), (1, 2));
}

#[tokio::test]
async fn a_lost_lock_that_was_free_in_between_is_still_lost() {
    let place = Place::new();
    let mut db = place.admin().await;
    let late = hold(&handle(&place).await, "ledger").await;
    lease_runs_out(&place).await;
    // Somebody who has nothing to give back finds that the lease has ended, and frees the lock.
    let lane = place.lane().await;
    lane.give_back(&claim("ledger")).await;
    assert_eq!(lane.grant(&claim("ledger")).await.get(), 2);
    let mut tx = db.transaction().await.unwrap();
    assert_eq!(stale(sql::verify(&mut tx, &late).await), (1, 2));
}

#[tokio::test]
async fn a_lock_that_was_given_back_never_touches_its_fence() {
    let place = Place::new();
    let mut db = place.admin().await;
    let locks = handle(&place).await;
    let guard = hold(&locks, "ledger").await;
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, &guard).await.unwrap();
    // A release and the grants after it do not wait, whatever is still open.
    guard.release().await.unwrap();
    let again = hold(&locks, "ledger").await;
    assert_eq!(again.token().unwrap().get(), 2);
    sql::verify(&mut tx, &again).await.unwrap();
    let fence = format!("SELECT token FROM lockstep_fence WHERE key = '{}/ledger'", place.name);
    let token: i64 = tx.query_one(&fence, &[]).await.unwrap().get(0);
    assert_eq!(token, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_go_on_while_a_verified_tx_is_open() {
    let place = Place::new();
    let (mut db, admin) = (place.admin().await, place.admin().await);
    let locks = handle(&place).await;
    let guard = locks.lock("ledger").ttl(Duration::from_secs(2)).await.unwrap();
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, &guard).await.unwrap();
    let until = format!("SELECT until_us FROM lockstep_lock WHERE key = '{}/ledger'", place.name);
    let mut renewed = 0;
    let mut last = 0;
    let renewals = async {
        while renewed < 5 {
            let now: i64 = admin.query_one(&until, &[]).await.unwrap().get(0);
            renewed += usize::from(now > last);
            last = now;
            sleep(GLANCE).await;
        }
    };
    timeout(PATIENCE * 2, renewals).await.expect("renewals stopped");
    assert!(guard.is_trusted());
    sql::verify(&mut tx, &guard).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn several_tx_of_one_holder_go_side_by_side() {
    let place = Place::new();
    let (mut one, mut other) = (place.admin().await, place.admin().await);
    for locks in [handle(&place).await, Locks::open(Memory::new()).await.unwrap()] {
        let guard = hold(&locks, "ledger").await;
        verified_before(&mut one, &guard).await;
        let (mut one, mut other) =
            (one.transaction().await.unwrap(), other.transaction().await.unwrap());
        sql::verify(&mut one, &guard).await.unwrap();
        timeout(PATIENCE, sql::verify(&mut other, &guard)).await.expect("it waits").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_of_another_store_meets_the_highest_token_seen() {
    let place = Place::new();
    let (mut db, mut other, admin) =
        (place.admin().await, place.admin().await, place.admin().await);
    place.store().migrate().await.unwrap();
    let locks = Locks::open(Memory::new()).await.unwrap();
    let late = hold(&locks, "it's {key} \\ 1").await;
    locks.break_lock_now("it's {key} \\ 1", "test").await.unwrap();
    let next = hold(&locks, "it's {key} \\ 1").await;

    // Nobody here has heard of the successor yet.
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, &late).await.unwrap();
    tx.commit().await.unwrap();

    let pid = pid(&db).await;
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, &next).await.unwrap();
    let refused = tokio::spawn(async move {
        let mut tx = other.transaction().await.unwrap();
        sql::verify(&mut tx, &late).await
    });
    somebody_waits_for(&admin, pid).await;
    tx.commit().await.unwrap();
    assert_eq!(stale(refused.await.unwrap()), (1, 2));
}

#[tokio::test]
async fn verify_and_lock_in_are_one_round_trip_each() {
    let place = Place::new();
    let address = place.url("").split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    let proxy = Proxy::start(address.parse().unwrap(), Protocol::Postgres);
    let url = place.url("").replace(&address, &proxy.addr().to_string());
    let (mut db, connection) =
        tokio_postgres::connect(url.split('?').next().unwrap(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let guard = hold(&handle(&place).await, "ledger").await;
    let elsewhere = hold(&Locks::open(Memory::new()).await.unwrap(), "ledger").await;

    let mut tx = db.transaction().await.unwrap();
    for _ in 0..2 {
        for guard in [&guard, &elsewhere] {
            proxy.clear_log();
            sql::verify(&mut tx, guard).await.unwrap();
            assert_eq!(proxy.log().len(), 1, "{:?}", proxy.log());
        }
        proxy.clear_log();
        sql::lock_in(&mut tx, "row").within(Duration::from_secs(1)).await.unwrap();
        assert_eq!(proxy.log().len(), 1, "{:?}", proxy.log());
    }
}

#[tokio::test]
async fn a_transaction_pooler_in_between_does_not_matter() {
    let place = Place::new();
    let mut db = place.through("LOCKSTEP_TEST_PGBOUNCER").admin().await;
    let late = hold(&handle(&place).await, "ledger").await;
    let mut tx = db.transaction().await.unwrap();
    sql::verify(&mut tx, &late).await.unwrap();
    sql::lock_in(&mut tx, &place.name).within(PATIENCE).await.unwrap();
    tx.commit().await.unwrap();
    lease_runs_out(&place).await;
    let _next = hold(&handle(&place).await, "ledger").await;
    let mut tx = db.transaction().await.unwrap();
    assert_eq!(stale(sql::verify(&mut tx, &late).await), (1, 2));
}

#[tokio::test]
async fn a_snapshot_from_before_the_take_over_is_refused_one_way_or_the_other() {
    let place = Place::new();
    let mut db = place.admin().await;
    let late = hold(&handle(&place).await, "ledger").await;
    verified_before(&mut db, &late).await;

    let tx = db.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let mut tx = tx.start().await.unwrap();
    tx.execute("SELECT FROM lockstep_fence", &[]).await.unwrap();
    lease_runs_out(&place).await;
    let _next = hold(&handle(&place).await, "ledger").await;
    let error = sql::verify(&mut tx, &late).await.unwrap_err();
    assert!(sql::is_conflict(&error), "{error:?}");
    drop(tx);
    let mut tx = db.transaction().await.unwrap();
    assert_eq!(stale(sql::verify(&mut tx, &late).await), (1, 2));
}

#[tokio::test]
async fn a_copy_of_the_database_is_another_one_until_it_is_migrated() {
    let place = Place::new();
    let schema = format!("&schema={}", place.name);
    let store = Postgres::from_url(&place.url(&schema)).unwrap();
    let id = async || Locks::open(store.clone()).await.unwrap().facts().origin.id;
    let original = id().await;
    assert!(original.is_some() && original == id().await);

    let admin = place.admin().await;
    let copied = format!("UPDATE {}.lockstep_store SET home = '1/1'", place.name);
    admin.batch_execute(&copied).await.unwrap();
    assert_eq!(id().await, None);
    store.migrate().await.unwrap();
    let new = id().await;
    assert!(new.is_some() && new != original);
    admin.batch_execute(&format!("DROP SCHEMA {} CASCADE", place.name)).await.unwrap();
}

#[tokio::test]
async fn without_the_tables_the_error_says_what_to_do() {
    let mut db = Place::new().admin().await;
    db.batch_execute("SET search_path = pg_catalog").await.unwrap();
    let guard = hold(&Locks::open(Memory::new()).await.unwrap(), "ledger").await;
    let mut tx = db.transaction().await.unwrap();
    let error = sql::verify(&mut tx, &guard).await.unwrap_err();
    assert!(
        matches!(&error, VerifyError::Store(e) if e.kind() == ErrorKind::NotMigrated),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_row_lock_refuses_and_leaves_the_tx_whole() {
    let place = Place::new();
    place.store().migrate().await.unwrap();
    let (mut one, mut other) = (place.admin().await, place.admin().await);
    let known = format!("{} known", place.name);
    let mut tx = one.transaction().await.unwrap();
    sql::lock_in(&mut tx, &known).await.unwrap();
    tx.commit().await.unwrap();

    // A row that is committed, and one that only the other tx can see.
    for key in [known, format!("{} new", place.name)] {
        let mut holder = one.transaction().await.unwrap();
        sql::lock_in(&mut holder, &key).no_wait().await.unwrap();
        sql::lock_in(&mut holder, &key).no_wait().await.unwrap();
        let mut tx = other.transaction().await.unwrap();
        tx.batch_execute("SET LOCAL lock_timeout = '77s'").await.unwrap();
        let refused = sql::lock_in(&mut tx, &key).no_wait().await.unwrap_err();
        assert!(matches!(refused, LockInError::Busy { .. }) && sql::is_conflict(&refused));
        assert!(!sql::lock_in(&mut tx, &key).skip_locked().await.unwrap());
        let refused = sql::lock_in(&mut tx, &key).within(Duration::from_millis(5)).await;
        assert!(matches!(refused, Err(LockInError::Busy { .. })), "{refused:?}");
        let free = format!("{key} free");
        assert!(sql::lock_in(&mut tx, &free).skip_locked().await.unwrap());
        sql::lock_in(&mut tx, format!("{key} x")).within(Duration::from_secs(1)).await.unwrap();
        let setting: String = tx.query_one("SHOW lock_timeout", &[]).await.unwrap().get(0);
        assert_eq!(setting, "77s", "put back");

        holder.rollback().await.unwrap();
        sql::lock_in(&mut tx, &key).no_wait().await.unwrap();
        assert!(
            !sql::lock_in(&mut one.transaction().await.unwrap(), &key).skip_locked().await.unwrap()
        );
    }
    let mut tx = one.transaction().await.unwrap();
    assert!(matches!(sql::lock_in(&mut tx, "").await, Err(LockInError::Name(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_lock_is_waited_for_and_ends_with_its_tx() {
    let place = Place::new();
    place.store().migrate().await.unwrap();
    let (mut one, mut other, admin) =
        (place.admin().await, place.admin().await, place.admin().await);
    let key = place.name.clone();
    let pid = pid(&one).await;
    let mut tx = one.transaction().await.unwrap();
    sql::lock_in(&mut tx, &key).await.unwrap();
    let waiting = tokio::spawn(async move {
        let mut tx = other.transaction().await.unwrap();
        sql::lock_in(&mut tx, &key).await
    });
    somebody_waits_for(&admin, pid).await;
    // Not even said goodbye.
    drop(tx);
    drop(one);
    timeout(PATIENCE, waiting).await.expect("still locked").unwrap().unwrap();
}

#[tokio::test]
async fn a_deadlock_is_a_conflict_and_the_other_one_goes_on() {
    let place = Place::new();
    place.store().migrate().await.unwrap();
    let (mut one, mut other) = (place.admin().await, place.admin().await);
    let (a, b) = (format!("{} a", place.name), format!("{} b", place.name));
    let (mut one, mut other) =
        (one.transaction().await.unwrap(), other.transaction().await.unwrap());
    sql::lock_in(&mut one, &a).await.unwrap();
    sql::lock_in(&mut other, &b).await.unwrap();
    let crossed = async {
        tokio::join!(
            sql::lock_in(&mut one, &b).into_future(),
            sql::lock_in(&mut other, &a).into_future()
        )
    };
    let both = timeout(PATIENCE, crossed).await.expect("nobody gave up");
    let victim = match both {
        (Ok(()), Err(victim)) | (Err(victim), Ok(())) => victim,
        other => panic!("one of them goes on: {other:?}"),
    };
    assert!(sql::is_conflict(&victim), "{victim:?}");
}
