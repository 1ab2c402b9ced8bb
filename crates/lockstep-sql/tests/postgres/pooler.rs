//! Through a transaction pooler, where the next transaction may run in another session.

use futures_util::future::join_all;
use lockstep_lock::Need;
use lockstep_lock::store::{Answer, Connect, Released, Renewal};
use lockstep_sql::postgres::Postgres;

use crate::support::{Place, claim, open, queued};

/// Nobody sees through a pooler whose connection was lost.
#[tokio::test]
async fn locks_cannot_end_with_a_connection_that_is_the_poolers() {
    let url = format!("{}?on_disconnect=release", lockstep_testkit::servers::pgbouncer_url());
    let Err(error) = Postgres::from_url(&url).unwrap().open(None).await else { panic!("opened") };
    assert_eq!(error.kind(), lockstep_core::ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("direct connection"), "{error}");
}

#[tokio::test]
async fn a_pooler_is_noticed_and_said() {
    let place = Place::at("LOCKSTEP_TEST_PGBOUNCER");
    let (front, keeper) = (place.lane().await.store, place.store().open(None).await.unwrap());
    for facts in [front.facts(), keeper.facts()] {
        assert!(!facts.meets(Need::Push));
        assert!(facts.warnings.iter().any(|text| text.contains("pooler")), "{:?}", facts.warnings);
    }
    let direct = place.through("LOCKSTEP_TEST_POSTGRES").store().open(None).await.unwrap();
    assert!(direct.facts().meets(Need::Push));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_work_through_a_pooler_beside_direct_ones() {
    let direct = Place::new();
    let pooled = direct.through("LOCKSTEP_TEST_PGBOUNCER");
    let (mut near, far) = (direct.lane().await, pooled.lane().await);

    let (held, waiter) = (claim("job"), claim("job"));
    far.grant(&held).await;
    queued(&near.ask(&waiter).await);
    assert_eq!(far.give_back(&held).await, Released::Done);
    near.granted(&waiter).await;

    // The other way round nobody calls: the waiter asks and finds the grant.
    let next = claim("job");
    queued(&far.ask(&next).await);
    assert_eq!(near.give_back(&waiter).await, Released::Done);
    assert_eq!(far.grant(&next).await.get(), 3);
    assert_eq!(far.store.renew(&[next.hold()]).await.unwrap(), [Renewal::Renewed]);
    near.assert_silent(&direct, "job").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_through_few_sessions() {
    let place = Place::at("LOCKSTEP_TEST_PGBOUNCER");
    let store = place.store();
    let tasks = (0..6).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let lane = open(&store).await;
            for _ in 0..10 {
                let claim = claim("busy");
                while !matches!(lane.ask(&claim).await, Answer::Granted { .. }) {
                    tokio::task::yield_now().await;
                }
                assert_eq!(lane.give_back(&claim).await, Released::Done);
            }
        })
    });
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
}

/// The renewing lane has no inbox and so no test of its own: it must not rely on sessions.
#[tokio::test]
async fn a_lane_without_inbox_works_behind_a_pooler_too() {
    let place = Place::at("LOCKSTEP_TEST_PGBOUNCER");
    let store = Postgres::from_url(&place.url("")).unwrap();
    let keeper = store.open(None).await.unwrap();
    let lane = open(&store).await;
    let claim = claim("job");
    lane.grant(&claim).await;
    let holds = [claim.hold()];
    let renewals = join_all((0..20).map(|_| keeper.renew(&holds))).await;
    for renewal in renewals {
        assert_eq!(renewal.unwrap(), [Renewal::Renewed]);
    }
}
