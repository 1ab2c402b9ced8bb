//! Connections that die, and who may connect at all.

use lockstep_core::{Effect, ErrorKind};
use lockstep_lock::store::{Answer, Claim, LockStore, Released};
use lockstep_testkit::proxy::{Fault, Match, Protocol, Proxy};
use lockstep_testkit::servers::{MariaDbOptions, MariaDbServer, TlsFiles};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};

use crate::support::{PATIENCE, Place, claim, connect, open, queued, refused};

/// What the layer above does: asks again as long as the error allows it.
async fn insist(store: &dyn LockStore, claim: &Claim) -> Answer {
    for _ in 0..2 {
        match store.acquire(claim).await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.may_retry(), "{error}"),
        }
    }
    panic!("no answer after two tries");
}

/// Ends every connection but one's own.
async fn cut_all(admin: &mut Conn) -> usize {
    let others = "SELECT id FROM information_schema.processlist WHERE user = 'lockstep'";
    let threads: Vec<u64> = admin.query(others).await.unwrap();
    for thread in &threads {
        // It may have left by itself.
        let _ = admin.query_drop(format!("KILL CONNECTION {thread}")).await;
    }
    threads.len()
}

#[tokio::test]
async fn a_pool_whose_connections_were_cut_connects_again() {
    let server = MariaDbServer::start().unwrap();
    let place = Place::at(&server.url());
    let lane = place.lane().await;
    let mut admin = connect(&server.admin_url()).await;
    for round in 1..=5 {
        // Several connections, all of which are dead afterwards.
        let others: Vec<_> = (0..6).map(|n| claim(&format!("other-{n}"))).collect();
        futures_util::future::join_all(others.iter().map(|claim| lane.grant(claim))).await;
        let claim = claim("job");
        assert!(matches!(insist(&*lane.store, &claim).await, Answer::Granted { .. }));
        assert!(cut_all(&mut admin).await > 1, "round {round}");
        let granted = insist(&*lane.store, &claim).await;
        let Answer::Granted { token } = granted else { panic!("{granted:?}") };
        assert_eq!(token.unwrap().get(), round, "the same grant");
        assert_eq!(lane.give_back(&claim).await, Released::Done);
        for other in &others {
            assert_eq!(lane.give_back(other).await, Released::Done);
        }
    }
}

#[tokio::test]
async fn what_a_person_must_settle_is_not_worth_another_try() {
    let place = Place::new();
    let url = place.url("").replace("lockstep:lockstep@", "lockstep:c4nary@");
    let error = refused(&url).await;
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Denied, Effect::None), "{error}");
    assert!(!format!("{error} {error:?}").contains("c4nary"));

    let url = place.url("").replace("/lockstep?", "/information_schema?");
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");
}

#[tokio::test]
async fn nobody_at_the_address_is_worth_another_try() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refused(&format!("mysql://u:c4nary@127.0.0.1:{port}/d")).await;
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    assert!(error.may_retry());
    assert!(!format!("{error} {error:?}").contains("c4nary"));
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("mysql://u@127.0.0.1:{port}/d?sslmode=disable");
    let error = tokio::time::timeout(PATIENCE, refused(&url)).await.unwrap();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
}

/// The connections that the silence made useless are not passed round afterwards.
#[tokio::test]
async fn a_server_that_goes_silent_is_given_up_in_time_and_found_again() {
    let mut server = MariaDbServer::start().unwrap();
    let lane = Place::at(&server.url()).lane().await;
    let held = claim("job");
    lane.grant(&held).await;
    server.pause().unwrap();
    let asked = claim("job");
    let answer = tokio::time::timeout(PATIENCE, lane.store.acquire(&asked)).await.unwrap();
    let error = answer.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown),
        "{error}"
    );
    server.resume().unwrap();
    queued(&lane.ask(&asked).await);
    assert_eq!(lane.give_back(&held).await, Released::Done);
}

#[tokio::test]
async fn a_row_that_somebody_sits_on_is_given_up_in_time() {
    let place = Place::new();
    let lane = place.lane().await;
    let held = claim("job");
    lane.grant(&held).await;
    let mut admin = place.admin().await;
    let mut sitting = admin.start_transaction(TxOpts::default()).await.unwrap();
    let sit = "SELECT 1 FROM lockstep_lock WHERE lock_key = ? FOR UPDATE";
    sitting.exec_drop(sit, (format!("{}/job", place.name),)).await.unwrap();

    let waiter = claim("job");
    let error = lane.store.acquire(&waiter).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Busy, Effect::None), "{error}");
    sitting.rollback().await.unwrap();
    queued(&lane.ask(&waiter).await);
    assert_eq!(lane.give_back(&held).await, Released::Done);
}

#[tokio::test]
async fn settings_that_lose_commits_are_warned_about() {
    let settings = vec![("innodb-flush-log-at-trx-commit".to_owned(), "2".to_owned())];
    let options = MariaDbOptions { settings, ..MariaDbOptions::default() };
    let server = MariaDbServer::start_with(options).unwrap();
    let lane = Place::at(&server.url()).lane().await;
    let warnings = lane.store.facts().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("flush_log"), "{warnings:?}");
}

#[tokio::test]
async fn a_clock_that_stands_still_is_refused() {
    let settings = vec![("sysdate-is-now".to_owned(), "1".to_owned())];
    let options = MariaDbOptions { settings, ..MariaDbOptions::default() };
    let server = MariaDbServer::start_with(options).unwrap();
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("sysdate-is-now"), "{error}");
}

/// Our sessions live in UTC; the procedures must not depend on it.
#[tokio::test]
async fn the_clock_does_not_depend_on_the_time_zone() {
    let place = Place::new();
    let lane = place.lane().await;
    let held = claim("job");
    lane.grant(&held).await;
    let mut admin = place.admin().await;
    for zone in ["+05:30", "-11:00"] {
        admin.query_drop(format!("SET time_zone = '{zone}'")).await.unwrap();
        let key = format!("{}/job", place.name);
        let renew = format!("{:032x}{:016}{:04}{key}", held.id.as_u128(), 60_000_000, key.len());
        let answer: Option<String> =
            admin.exec_first("CALL lockstep_renew_v1(?)", (renew,)).await.unwrap();
        assert_eq!(answer.as_deref(), Some("renewed,"), "{zone}");
        let query = lockstep_lock::store::Query::One(held.key.clone());
        let left = lane.store.inspect(&query).await.unwrap().locks[0].holder().unwrap().left;
        assert!((50..=60).contains(&left.as_secs()), "{zone}: {left:?}");
    }
}

#[tokio::test]
async fn tls_is_used_as_far_as_the_url_says() {
    let folder = tempfile::tempdir().unwrap();
    let tls = TlsFiles::generate(folder.path()).unwrap();
    let ca = tls.ca.clone();
    let options = MariaDbOptions { tls: Some(tls), ..MariaDbOptions::default() };
    let server = MariaDbServer::start_with(options).unwrap();
    let place = Place::at(&server.url());
    let mut admin = connect(&server.admin_url()).await;
    admin.query_drop("ALTER USER lockstep@'%' REQUIRE SSL").await.unwrap();
    let error = refused(&place.url("&sslmode=disable")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let verified = format!("&sslmode=verify-full&sslrootcert={}", ca.display());
    for mode in ["", "&sslmode=require", &verified] {
        let store = lockstep_sql::mysql::MySql::from_url(&place.url(mode)).unwrap();
        open(&store).await.grant(&claim(&format!("job{}", mode.len()))).await;
    }
    let error = refused(&place.url("&sslmode=verify-full")).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    // A server without TLS.
    let plain = Place::new();
    let error = refused(&plain.url("&sslmode=require")).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

/// The plain statement that takes a free lock was carried out and its answer lost.
#[tokio::test]
async fn the_grant_of_a_free_lock_survives_a_lost_answer() {
    let url = lockstep_testkit::servers::mariadb_url();
    let address = url.split(['@', '/']).nth(3).unwrap();
    let proxy = Proxy::start(address.parse().unwrap(), Protocol::MySql);
    let lane = Place::at(&url.replace(address, &proxy.addr().to_string())).lane().await;
    let first = claim("job");
    lane.grant(&first).await;
    assert_eq!(lane.give_back(&first).await, Released::Done);

    let rule = proxy.rule(Match::sql("LAST_INSERT_ID"), Fault::DropReplyAndCut);
    let claim = claim("job");
    let error = lane.store.acquire(&claim).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown),
        "{error}"
    );
    assert_eq!(rule.fired(), 1);
    assert_eq!(lane.grant(&claim).await.get(), 2, "the same grant");
    assert_eq!(lane.give_back(&claim).await, Released::Done);
}

#[tokio::test]
async fn a_dropped_request_does_not_disturb_the_next() {
    let place = Place::new();
    let lane = place.lane().await;
    for round in 0..50 {
        // A lock of its own: a request that was forgotten may be carried out after everything else.
        let claim = claim(&format!("job-{round}"));
        let asked = lane.store.acquire(&claim);
        // Polled once, so that it has left, and forgotten.
        let _ = futures_util::FutureExt::now_or_never(asked);
        lane.grant(&claim).await;
        assert_eq!(lane.give_back(&claim).await, Released::Done);
    }
}
