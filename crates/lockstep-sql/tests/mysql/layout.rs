//! Tables and procedures: created, missing, forbidden.

use std::process::{Command, Stdio};

use futures_util::future::join_all;
use lockstep_core::ErrorKind;
use lockstep_lock::Share;
use lockstep_lock::store::{Claim, Connect, Query, Released};
use lockstep_sql::mysql::MySql;
use lockstep_testkit::servers::MariaDbServer;
use mysql_async::prelude::Queryable;

use crate::support::{Place, claim, connect, open, refused};

#[tokio::test]
async fn missing_tables_are_created_unless_that_is_forbidden() {
    let server = MariaDbServer::start().unwrap();
    let place = Place::at(&server.url());
    let error = refused(&place.url("&migrate=never")).await;
    assert_eq!(error.kind(), ErrorKind::NotMigrated);
    assert!(error.to_string().contains("lockstep migrate --store URL"), "{error}");

    let lane = place.lane().await;
    assert_eq!(lane.grant(&claim("job")).await.get(), 1);

    // They disappear under a lane that is open.
    let mut admin = connect(&server.admin_url()).await;
    let drop_all = "DROP TABLE lockstep_lock, lockstep_holder, lockstep_waiter";
    admin.query_drop(drop_all).await.unwrap();
    let error = lane.store.acquire(&claim("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");
    let error = lane.store.inspect(&Query::One(claim("job").key)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_may_run_twice_and_at_once() {
    let server = MariaDbServer::start().unwrap();
    let store = MySql::from_url(&server.url()).unwrap();
    for done in join_all((0..8).map(|_| store.migrate())).await {
        done.unwrap();
    }
    let lane = open(&store).await;
    assert_eq!(lane.grant(&claim("job")).await.get(), 1);
    store.migrate().await.unwrap();
    assert_eq!(lane.grant(&claim("other")).await.get(), 1);
    let page = lane.store.inspect(&Query::All { prefix: String::new(), limit: 9 }).await.unwrap();
    assert_eq!(page.locks.len(), 2, "a migration keeps what is there");
}

#[tokio::test]
async fn the_printed_script_is_the_migration() {
    let server = MariaDbServer::start().unwrap();
    let url = format!("{}?migrate=never", server.url());
    let store = MySql::from_url(&url).unwrap();
    let mut client = Command::new("mariadb")
        .args(["--protocol=tcp", "-h127.0.0.1", "-ulockstep", "-plockstep", "lockstep"])
        .arg(format!("-P{}", server.port()))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, store.schema_sql().as_bytes()).unwrap();
    drop(stdin);
    assert!(client.wait().unwrap().success());
    open(&store).await.grant(&claim("job")).await;
}

#[tokio::test]
async fn a_user_needs_exactly_the_rights_that_the_script_names() {
    let server = MariaDbServer::start().unwrap();
    let mut admin = connect(&server.admin_url()).await;
    admin.query_drop("CREATE USER role@'%' IDENTIFIED BY 'c4nary'").await.unwrap();
    admin.query_drop("GRANT USAGE ON lockstep.* TO role@'%'").await.unwrap();
    let url = server.url().replace("lockstep:lockstep@", "role:c4nary@");
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "it may not even enter: {error}");

    let owner = MySql::from_url(&server.url()).unwrap();
    owner.migrate().await.unwrap();
    let script = owner.schema_sql();
    let grants: Vec<String> = script
        .lines()
        .filter_map(|line| line.strip_prefix("--   GRANT "))
        .map(|grant| format!("GRANT {}", grant.replace(" TO user;", " TO role@'%'")))
        .map(|grant| grant.replace("database.*", "lockstep.*"))
        .collect();
    assert_eq!(grants.len(), 6);
    admin.query_drop(&grants[0]).await.unwrap();
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");
    assert!(error.to_string().contains("may not create"), "{error}");
    let error = MySql::from_url(&url).unwrap().migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");

    for grant in &grants[3..5] {
        admin.query_drop(grant).await.unwrap();
    }
    let store = MySql::from_url(&url).unwrap();
    let denied = store.open(None).await.unwrap();
    let error = denied.inspect(&Query::One(claim("job").key)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");

    for grant in grants[1..3].iter().chain(&grants[5..]) {
        admin.query_drop(grant).await.unwrap();
    }
    let mut lane = open(&store).await;
    let (held, waiter) = (claim("job"), claim("job"));
    lane.grant(&held).await;
    lane.ask(&waiter).await;
    lane.store.renew(&[held.hold()]).await.unwrap();
    assert_eq!(lane.give_back(&held).await, Released::Done);
    lane.granted(&waiter).await;
    let reader = || Claim { share: Share::Read, ..claim("read") };
    let (one, other) = (reader(), reader());
    lane.grant(&one).await;
    lane.grant(&other).await;
    lane.store.renew(&[one.hold(), other.hold()]).await.unwrap();
    assert_eq!(lane.give_back(&one).await, Released::Done);
    lane.store.inspect(&Query::All { prefix: String::new(), limit: 9 }).await.unwrap();
}
