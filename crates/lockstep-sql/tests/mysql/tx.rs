//! The fence of a lock that is kept in the same database as the user's own tx.

use std::time::Duration;

use lockstep_lock::{Guard, Locks, Share};
use lockstep_sql::tx::{self as sql, VerifyError};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use tokio::time::timeout;

use crate::support::{PATIENCE, Place, end_lease, let_time_pass};

/// Longer than any test: leases end when a test says so.
const TTL: Duration = Duration::from_secs(600);

async fn handle(place: &Place) -> Locks {
    Locks::open(place.store()).await.unwrap()
}

async fn hold(locks: &Locks, name: &str) -> Guard {
    locks.lock(name).ttl(TTL).within(PATIENCE).await.unwrap()
}

async fn verified(db: &mut Conn, guard: &Guard) -> Result<(), VerifyError> {
    let mut tx = db.start_transaction(TxOpts::default()).await.unwrap();
    let verified = sql::verify(&mut tx, guard).await;
    tx.commit().await.unwrap();
    verified
}

fn stale(result: Result<(), VerifyError>) -> (u64, u64) {
    match result {
        Err(VerifyError::Stale { token, seen, .. }) => (token.get(), seen.get()),
        other => panic!("expected a stale guard, got {other:?}"),
    }
}

#[tokio::test]
async fn a_replaced_holder_is_refused_before_its_successor_has_written_anything() {
    let place = Place::new();
    let (mut db, mut admin) = (place.admin().await, place.admin().await);
    let late = hold(&handle(&place).await, "ledger").await;
    verified(&mut db, &late).await.unwrap();
    end_lease(&mut admin, &place, "ledger").await;
    let next = hold(&handle(&place).await, "ledger").await;
    assert_eq!(stale(verified(&mut db, &late).await), (1, 2));
    verified(&mut db, &next).await.unwrap();
}

#[tokio::test]
async fn a_holder_that_was_broken_at_once_is_refused() {
    let place = Place::new();
    let (mut db, other) = (place.admin().await, handle(&place).await);
    let late = hold(&handle(&place).await, "ledger").await;
    assert!(other.break_lock_now("ledger", "moved").await.unwrap());
    assert_eq!(stale(verified(&mut db, &late).await), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taking_over_waits_for_a_tx_that_was_verified_and_renewals_do_not() {
    let place = Place::new();
    let (mut db, mut admin) = (place.admin().await, place.admin().await);
    let (here, there) = (handle(&place).await, handle(&place).await);
    let slow = hold(&here, "ledger").await;
    verified(&mut db, &slow).await.unwrap();
    let brief = here.lock("brief").ttl(Duration::from_secs(3)).await.unwrap();

    let mut tx = db.start_transaction(TxOpts::default()).await.unwrap();
    sql::verify(&mut tx, &slow).await.unwrap();
    sql::verify(&mut tx, &brief).await.unwrap();
    let before = brief.trusted_until();
    let renewed = async {
        while brief.trusted_until() <= before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, renewed).await.expect("it is renewed while its tx is open");
    assert!(brief.is_trusted(), "and was not lost instead");

    end_lease(&mut admin, &place, "ledger").await;
    let next = tokio::spawn(async move {
        loop {
            // It gives up after a second, because the server would let it wait for no longer.
            if let Ok(guard) = there.lock("ledger").ttl(TTL).within(PATIENCE).await {
                return guard;
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!next.is_finished(), "granted while the verified tx was open");
    tx.query_drop("SELECT 1").await.unwrap();
    tx.commit().await.unwrap();
    let next = timeout(PATIENCE, next).await.expect("a grant").unwrap();
    assert_eq!(next.token().unwrap().get(), 2);
    assert_eq!(stale(verified(&mut db, &slow).await), (1, 2));
    verified(&mut db, &next).await.unwrap();
}

#[tokio::test]
async fn readers_are_not_shut_out_by_one_of_them_that_died() {
    let place = Place::new();
    let (mut db, mut admin) = (place.admin().await, place.admin().await);
    let (here, there) = (handle(&place).await, handle(&place).await);
    let stays = here.share("ledger", Share::Read).ttl(TTL * 3).await.unwrap();
    let dies = there.share("ledger", Share::Read).ttl(TTL).await.unwrap();
    let_time_pass(&mut admin, &place, TTL + TTL).await;
    let joins = there.share("ledger", Share::Read).ttl(TTL * 3).await.unwrap();
    for reader in [&stays, &joins] {
        verified(&mut db, reader).await.unwrap();
    }
    stays.release().await.unwrap();
    joins.release().await.unwrap();
    let writer = hold(&here, "ledger").await;
    assert_eq!(stale(verified(&mut db, &dies).await), (1, 2));
    verified(&mut db, &writer).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_was_given_back_never_touches_its_fence() {
    let place = Place::new();
    let (mut admin, locks) = (place.admin().await, handle(&place).await);
    for _ in 0..3 {
        hold(&locks, "ledger").await.release().await.unwrap();
    }
    let rows = "SELECT COUNT(*) FROM lockstep_fence WHERE origin = '' AND `key` = ?";
    let count: Option<u64> =
        admin.exec_first(rows, (format!("{}/ledger", place.name),)).await.unwrap();
    assert_eq!(count, Some(0));
}
