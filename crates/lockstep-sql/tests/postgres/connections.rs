//! Connections that die, and who may connect at all.

use lockstep_core::{Effect, ErrorKind, StoreError};
use lockstep_lock::Signal;
use lockstep_lock::store::{Answer, Claim, Connect, LockStore, Released};
use lockstep_sql::postgres::Postgres;
use tokio_postgres::Client;

use crate::support::{PATIENCE, Place, claim, open, queued};

/// Ends connections of that name and returns when they are gone.
async fn cut(admin: &Client, application: &str, listening: bool) -> i64 {
    let sql = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000)) \
               FROM pg_stat_activity \
               WHERE application_name = $1 AND (query LIKE 'LISTEN %') = $2";
    admin.query_one(sql, &[&application, &listening]).await.unwrap().get(0)
}

/// What the layer above does: asks again as long as the error allows it.
pub async fn insist(store: &dyn LockStore, claim: &Claim) -> Answer {
    for _ in 0..20 {
        match store.acquire(claim).await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.may_retry(), "{error}"),
        }
    }
    panic!("no answer after twenty tries");
}

#[tokio::test]
async fn a_pool_whose_connections_were_cut_connects_again() {
    let place = Place::new();
    let mut lane = place.lane().await;
    let admin = place.admin().await;
    for round in 1..=5 {
        let claim = claim("job");
        assert!(matches!(insist(&*lane.store, &claim).await, Answer::Granted { .. }));
        assert!(cut(&admin, &place.name, false).await > 0, "round {round}");
        let granted = insist(&*lane.store, &claim).await;
        let Answer::Granted { token } = granted else { panic!("{granted:?}") };
        assert_eq!(token.unwrap().get(), round, "the same grant");
        assert_eq!(lane.give_back(&claim).await, Released::Done);
    }
    lane.assert_silent(&place, "job").await;
}

#[tokio::test]
async fn a_lane_that_was_deaf_for_a_while_says_so() {
    let place = Place::new();
    let holder = place.lane().await;
    let name = format!("{}-waiting", place.name);
    let mut lane = open(&Postgres::from_url(&place.url_named(&name, "")).unwrap()).await;

    let (held, waiter) = (claim("job"), claim("job"));
    holder.grant(&held).await;
    queued(&lane.ask(&waiter).await);
    let admin = place.admin().await;
    assert_eq!(cut(&admin, &name, true).await, 1);
    // Said to a lane that may not listen yet: this one may be lost.
    assert_eq!(holder.give_back(&held).await, Released::Done);
    loop {
        match lane.signal().await {
            Signal::AskAllAgain => break,
            Signal::Granted { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let token = lane.grant(&waiter).await;
    assert_eq!(token.get(), 2);
    // And from now on it hears again, perhaps after a late word about the first grant.
    let third = claim("job");
    queued(&holder.ask(&third).await);
    assert_eq!(lane.give_back(&waiter).await, Released::Done);
    queued(&lane.ask(&waiter).await);
    assert_eq!(holder.give_back(&third).await, Released::Done);
    loop {
        match lane.signal().await {
            Signal::Granted { token, .. } if token.unwrap().get() == 4 => break,
            Signal::Granted { token, .. } => assert_eq!(token.unwrap().get(), 2),
            other => panic!("{other:?}"),
        }
    }
}

async fn refused(url: &str) -> StoreError {
    match Postgres::from_url(url).unwrap().open(None).await {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn what_a_person_must_settle_is_not_worth_another_try() {
    let place = Place::new();
    let error = refused(&place.url_as("nobody-of-that-name:c4nary", "")).await;
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Denied, Effect::None), "{error}");
    assert!(!format!("{error} {error:?}").contains("c4nary"));

    let url = place.url("").replace("/lockstep?", "/no-such-database?");
    let error = refused(&url).await;
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Config, Effect::None), "{error}");
}

#[tokio::test]
async fn nobody_at_the_address_is_worth_another_try() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refused(&format!("postgres://u:c4nary@127.0.0.1:{port}/d")).await;
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    assert!(error.may_retry());
    assert!(!format!("{error} {error:?}").contains("c4nary"));
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("postgres://u@127.0.0.1:{port}/d?sslmode=disable");
    let error = tokio::time::timeout(PATIENCE, refused(&url)).await.unwrap();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
}

/// Directly the server gives up first and says that nothing happened; behind a pooler, whose
/// sessions are not ours to set, we give up without knowing.
#[tokio::test]
async fn a_row_that_somebody_sits_on_is_given_up_in_time() {
    let place = Place::new();
    let (direct, pooled) =
        (place.lane().await, place.through("LOCKSTEP_TEST_PGBOUNCER").lane().await);
    let held = claim("job");
    direct.grant(&held).await;
    let mut admin = place.admin().await;
    let sitting = admin.transaction().await.unwrap();
    let sit = "SELECT FROM lockstep_lock WHERE key = $1 FOR UPDATE";
    sitting.query(sit, &[&format!("{}/job", place.name)]).await.unwrap();

    let waiter = claim("job");
    let (by_server, by_client) =
        tokio::join!(direct.store.acquire(&waiter), pooled.store.acquire(&waiter));
    let (by_server, by_client) = (by_server.unwrap_err(), by_client.unwrap_err());
    assert_eq!((by_server.kind(), by_server.effect()), (ErrorKind::Busy, Effect::None));
    assert_eq!((by_client.kind(), by_client.effect()), (ErrorKind::Unavailable, Effect::Unknown));

    sitting.rollback().await.unwrap();
    queued(&direct.ask(&waiter).await);
    assert_eq!(pooled.give_back(&held).await, Released::Done);
}

#[tokio::test]
async fn settings_of_the_role_are_overruled_or_warned_about() {
    let place = Place::new();
    let admin = place.admin().await;
    let role = format!("{}_role", place.name);
    let create = format!(
        "CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 'c4nary'; \
         ALTER ROLE {role} SET synchronous_commit = off; \
         ALTER ROLE {role} SET default_transaction_isolation = 'serializable'"
    );
    admin.batch_execute(&create).await.unwrap();
    let store = Postgres::from_url(&place.url_as(&format!("{role}:c4nary"), "")).unwrap();
    let lane = open(&store).await;
    let warnings = lane.store.facts().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("synchronous_commit"), "{warnings:?}");
    lane.grant(&claim("job")).await;
    drop(lane);
    admin.batch_execute(&format!("DROP ROLE {role}")).await.unwrap();
}

#[tokio::test]
async fn a_dropped_request_does_not_disturb_the_next() {
    let place = Place::new();
    let lane = place.lane().await;
    for _ in 0..50 {
        let claim = claim("job");
        let asked = lane.store.acquire(&claim);
        // Polled once, so that it has left, and forgotten.
        let _ = futures_util::FutureExt::now_or_never(asked);
        lane.grant(&claim).await;
        assert_eq!(lane.give_back(&claim).await, Released::Done);
    }
}
