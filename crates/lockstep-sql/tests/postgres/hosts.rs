//! Several hosts in a URL, some of which do not serve. Those that are silent accept connections and
//! say nothing, as a frozen server or one behind a lost network does.

use std::net::TcpListener;

use lockstep_core::ErrorKind;
use lockstep_lock::store::{Answer, Released};
use lockstep_sql::postgres::Postgres;
use lockstep_testkit::proxy::{Protocol, Proxy};
use lockstep_testkit::servers::{PostgresOptions, PostgresServer};
use tokio_postgres::NoTls;

use crate::connections::insist;
use crate::support::{Lane, Place, claim, open};

/// Nobody ever takes a connection out of its backlog.
fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

async fn assert_locks(lane: &Lane) {
    let claim = claim("job");
    lane.grant(&claim).await;
    assert_eq!(lane.give_back(&claim).await, Released::Done);
}

#[tokio::test]
async fn a_silent_host_is_passed_over() {
    let (place, first, second) = (Place::new(), silent(), silent());
    let url = place.url_after(&[port(&first), port(&second)], "");
    let store = Postgres::from_url(&url).unwrap();
    store.migrate().await.unwrap();
    assert_locks(&open(&store).await).await;
}

#[tokio::test]
async fn the_host_that_served_last_is_dialled_first() {
    let (place, first) = (Place::new(), silent());
    let store = Postgres::from_url(&place.url_after(&[port(&first)], "")).unwrap();
    let connections = 6;
    for _ in 0..connections {
        store.migrate().await.unwrap();
    }
    first.set_nonblocking(true).unwrap();
    let dialled = std::iter::from_fn(|| first.accept().ok()).count();
    // More than once only where the other took long to serve, on a busy machine.
    assert!((1..connections).contains(&dialled), "dialled {dialled} times");
}

/// A pooler refuses our settings first. Whoever says nothing must not hide that.
#[tokio::test]
async fn a_silent_host_beside_a_pooler_is_passed_over() {
    let (place, first) = (Place::at("LOCKSTEP_TEST_PGBOUNCER"), silent());
    let url = place.url_after(&[port(&first)], "");
    assert_locks(&open(&Postgres::from_url(&url).unwrap()).await).await;
}

#[tokio::test]
async fn a_host_that_takes_no_writes_is_passed_over() {
    let standby = PostgresServer::start_with(PostgresOptions {
        settings: vec![("default_transaction_read_only".to_owned(), "on".to_owned())],
        ..PostgresOptions::default()
    })
    .unwrap();
    let place = Place::new();
    let url = place.url_after(&[standby.port()], "");
    assert_locks(&open(&Postgres::from_url(&url).unwrap()).await).await;
}

#[tokio::test]
async fn a_silent_host_does_not_hide_what_another_refuses() {
    let (place, first) = (Place::new(), silent());
    let url = place.url_after(&[port(&first)], "").replacen("lockstep@", "nobody@", 1);
    let refused = Postgres::from_url(&url).unwrap().migrate().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
}

#[tokio::test]
async fn a_host_that_falls_silent_is_left() {
    let place = Place::new();
    let proxy = Proxy::start(place.address(), Protocol::Postgres);
    let store = Postgres::from_url(&place.url_after(&[proxy.port()], "")).unwrap();
    let lane = open(&store).await;
    assert_locks(&lane).await;
    assert!(proxy.connections() > 0, "the first host was not used");

    proxy.partition();
    let claim = claim("job");
    assert!(matches!(insist(&*lane.store, &claim).await, Answer::Granted { .. }));
    assert_eq!(lane.give_back(&claim).await, Released::Done);
}

/// Whoever waits keeps its place: the one that has served may be back in a moment.
#[tokio::test]
async fn a_host_that_will_never_serve_does_not_end_what_another_has_served() {
    let (place, never) = (Place::new(), PostgresServer::start().unwrap());
    let its_own = format!("postgres://lockstep@127.0.0.1:{}/postgres", never.port());
    let (admin, connection) = tokio_postgres::connect(&its_own, NoTls).await.unwrap();
    tokio::spawn(connection);
    admin.batch_execute("ALTER DATABASE lockstep RENAME TO elsewhere").await.unwrap();

    let proxy = Proxy::start(place.address(), Protocol::Postgres);
    let both = format!("127.0.0.1:{},127.0.0.1:{}", proxy.port(), never.port());
    let url = place.url("").replacen(&place.address().to_string(), &both, 1);
    let lane = open(&Postgres::from_url(&url).unwrap()).await;
    assert_locks(&lane).await;

    proxy.partition();
    let claim = claim("job");
    // The first finds the connection dead, the second has to dial.
    for _ in 0..2 {
        let error = lane.store.acquire(&claim).await.unwrap_err();
        assert!(error.may_retry(), "{error}");
    }
    proxy.heal();
    assert!(matches!(insist(&*lane.store, &claim).await, Answer::Granted { .. }));
    assert_eq!(lane.give_back(&claim).await, Released::Done);
}
