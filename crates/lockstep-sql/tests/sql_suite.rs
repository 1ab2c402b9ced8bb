//! The conformance suite and the stories on SQLite, on PostgreSQL, on PostgreSQL behind a
//! transaction pooler, and on MariaDB.

use std::sync::Arc;

use lockstep_lock::store::Connect;
use lockstep_sql::mysql::MySql;
use lockstep_sql::postgres::Postgres;
use lockstep_sql::sqlite::Sqlite;
use lockstep_testkit::suite::{self, Fact, Subject};
use lockstep_testkit::{servers, stories};

fn connect(url: &str) -> anyhow::Result<Arc<dyn Connect>> {
    Ok(match url.split(':').next() {
        Some("sqlite") => Arc::new(Sqlite::from_url(url)?),
        Some("mysql") => Arc::new(MySql::from_url(url)?),
        _ => Arc::new(Postgres::from_url(url)?),
    })
}

fn subject(name: &str, url: String) -> Subject {
    let store = connect(&url).expect("a good URL");
    Subject::new(name, move || store.clone()).with_processes(url, "story_child")
}

fn sqlite(folder: &tempfile::TempDir) -> Subject {
    subject("sqlite", format!("sqlite:{}", folder.path().join("locks.db").display()))
}

/// Its verbs take another way: commits wait for the disk, on threads of their own.
fn full_sqlite(folder: &tempfile::TempDir) -> Subject {
    let path = folder.path().join("locks.db");
    subject("sqlite-full", format!("sqlite:{}?synchronous=full", path.display()))
}

/// How many cases at a time: every case has handles of its own, and every handle its connections.
const A_FEW: usize = 4;

fn server(name: &str, url: String, tenant: &str) -> Subject {
    let url = format!("{url}?prefix={tenant}-{}&pool=4", std::process::id());
    subject(name, url).with_parallel(A_FEW)
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_conforms() {
    let folder = tempfile::tempdir().unwrap();
    suite::run(&sqlite(&folder)).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_lives_through_the_stories() {
    let folder = tempfile::tempdir().unwrap();
    stories::run(&sqlite(&folder)).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn full_sqlite_conforms() {
    let folder = tempfile::tempdir().unwrap();
    suite::run(&full_sqlite(&folder)).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn full_sqlite_lives_through_the_stories() {
    let folder = tempfile::tempdir().unwrap();
    stories::run(&full_sqlite(&folder)).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms() {
    suite::run(&server("postgres", servers::postgres_url(), "suite")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_lives_through_the_stories() {
    stories::run(&server("postgres", servers::postgres_url(), "story")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_locks_that_end_with_their_connection_conform() {
    let tenant = format!("bound-{}", std::process::id());
    let server = servers::postgres_url();
    let url = format!("{server}?prefix={tenant}&pool=4&on_disconnect=release");
    let subject = subject("postgres-bound", url).with_parallel(A_FEW);
    stories::holder_killed_and_replaced_at_once(&subject).await.unwrap();
    suite::run(&subject).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn pooled_postgres_conforms() {
    let subject = server("pgbouncer", servers::pgbouncer_url(), "pooled").without(&[Fact::Push]);
    suite::run(&subject).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn pooled_postgres_lives_through_the_stories() {
    let subject = server("pgbouncer", servers::pgbouncer_url(), "pooled-story");
    stories::run(&subject).await.assert_passed();
}

/// It hears of a break at its next renewal.
fn mariadb(tenant: &str) -> Subject {
    server("mariadb", servers::mariadb_url(), tenant).with_breaks_heard_late()
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_conforms() {
    suite::run(&mariadb("suite")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_lives_through_the_stories() {
    stories::run(&mariadb("story")).await.assert_passed();
}

#[test]
fn story_child() {
    stories::child::act(connect);
}
