//! Tables and functions: created, missing, forbidden.

use futures_util::future::join_all;
use lockstep_core::{ErrorKind, StoreError};
use lockstep_lock::Share;
use lockstep_lock::store::{Claim, Connect, Query, Released};
use lockstep_sql::postgres::Postgres;

use crate::support::{Place, claim, open};

async fn refused(url: &str) -> StoreError {
    match Postgres::from_url(url).unwrap().open(None).await {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn missing_tables_are_created_unless_that_is_forbidden() {
    let place = Place::new();
    let schema = format!("&schema={}", place.name);
    let error = refused(&place.url(&format!("{schema}&migrate=never"))).await;
    assert_eq!(error.kind(), ErrorKind::NotMigrated);
    assert!(error.to_string().contains("lockstep migrate --store URL"), "{error}");

    let lane = open(&Postgres::from_url(&place.url(&schema)).unwrap()).await;
    assert_eq!(lane.grant(&claim("job")).await.get(), 1);

    // They disappear under a lane that is open.
    let admin = place.admin().await;
    admin.batch_execute(&format!("DROP SCHEMA {} CASCADE", place.name)).await.unwrap();
    let error = lane.store.acquire(&claim("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");
    let error = lane.store.inspect(&Query::One(claim("job").key)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_may_run_twice_and_at_once() {
    let place = Place::new();
    let store = Postgres::from_url(&place.url(&format!("&schema={}", place.name))).unwrap();
    for done in join_all((0..8).map(|_| store.migrate())).await {
        done.unwrap();
    }
    let lane = open(&store).await;
    assert_eq!(lane.grant(&claim("job")).await.get(), 1);
    store.migrate().await.unwrap();
    assert_eq!(lane.grant(&claim("other")).await.get(), 1);
    let page = lane.store.inspect(&Query::All { prefix: String::new(), limit: 9 }).await.unwrap();
    assert_eq!(page.locks.len(), 2, "a migration keeps what is there");
    let admin = place.admin().await;
    admin.batch_execute(&format!("DROP SCHEMA {} CASCADE", place.name)).await.unwrap();
}

#[tokio::test]
async fn the_printed_script_is_the_migration() {
    let place = Place::new();
    let url = place.url(&format!("&schema={}&migrate=never", place.name));
    let store = Postgres::from_url(&url).unwrap();
    let admin = place.admin().await;
    admin.batch_execute(&store.schema_sql()).await.unwrap();
    open(&store).await.grant(&claim("job")).await;
    admin.batch_execute(&format!("DROP SCHEMA {} CASCADE", place.name)).await.unwrap();
}

#[tokio::test]
async fn a_role_needs_exactly_the_rights_that_the_script_names() {
    let place = Place::new();
    let admin = place.admin().await;
    let (role, schema) = (format!("{}_role", place.name), place.name.clone());
    admin.batch_execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'c4nary'")).await.unwrap();
    let url = place.url_as(&format!("{role}:c4nary"), &format!("&schema={schema}"));

    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");
    assert!(error.to_string().contains("may not create"), "{error}");
    let error = Postgres::from_url(&url).unwrap().migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");

    let owner = Postgres::from_url(&place.url(&format!("&schema={schema}"))).unwrap();
    owner.migrate().await.unwrap();
    let script = owner.schema_sql();
    let grants: Vec<String> = script
        .lines()
        .filter_map(|line| line.strip_prefix("--   GRANT "))
        .map(|grant| format!("GRANT {}", grant.replace(" TO role;", &format!(" TO {role};"))))
        .collect();
    assert_eq!(grants.len(), 7);
    let (store_right, rights): (Vec<String>, Vec<String>) =
        grants[1..].iter().cloned().partition(|grant| grant.contains("lockstep_store "));
    admin.batch_execute(&grants[0]).await.unwrap();
    assert_eq!(refused(&url).await.kind(), ErrorKind::Denied);
    admin.batch_execute(&store_right.join("\n")).await.unwrap();
    let store = Postgres::from_url(&url).unwrap();
    let denied = store.open(None).await.unwrap();
    let error = denied.acquire(&claim("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");

    admin.batch_execute(&rights.join("\n")).await.unwrap();
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

    drop((lane, denied));
    let tidy = format!("DROP SCHEMA {schema} CASCADE; DROP ROLE {role}");
    admin.batch_execute(&tidy).await.unwrap();
}
