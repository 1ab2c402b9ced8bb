//! Readers that come and go beside each other, and those who must wait until they have.

use lockstep_lock::Share;
use lockstep_lock::store::{Answer, Claim, Query, Released};
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;

use crate::support::{Lane, PATIENCE, Place, claim, queued};

fn reader() -> Claim {
    Claim { share: Share::Read, ..claim("book") }
}

/// Two readers who hold the lock together, so that others need the lock's row no more.
async fn crowd(lane: &Lane) -> [Claim; 2] {
    let readers = [reader(), reader()];
    for reader in &readers {
        lane.grant(reader).await;
    }
    readers
}

/// A reader whose grant is made and not yet committed.
async fn comes_in(tx: &Transaction<'_>, place: &Place, reader: &Claim) {
    let text = "SELECT lockstep_join_readers_v1($1, $2, $2, 'test', NULL, 60000000)";
    let (key, id) = (format!("{}/book", place.name), Uuid::from_u128(reader.id.as_u128()));
    let token: Option<i64> = tx.query_one(text, &[&key, &id]).await.unwrap().get(0);
    assert_eq!(token, Some(1), "it joins those who are there");
}

/// Waits until this many stand in line for the advisory lock of this test.
async fn line(admin: &Client, place: &Place, length: i64) {
    let text = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 1)";
    let key = format!("{}/book", place.name);
    let stands = async {
        loop {
            let waiting: i64 = admin.query_one(text, &[&key]).await.unwrap().get(0);
            if waiting == length {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, stands).await.expect("they wait for their turn");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_waits_for_the_reader_that_is_just_coming_in_and_nobody_passes_it() {
    let place = Place::new();
    let (lane, admin, mut other) = (place.lane().await, place.admin().await, place.admin().await);
    let readers = crowd(&lane).await;

    let coming = reader();
    let tx = other.transaction().await.unwrap();
    comes_in(&tx, &place, &coming).await;
    for reader in &readers {
        assert_eq!(lane.give_back(reader).await, Released::Done);
    }
    let (store, writer) = (lane.store.clone(), claim("book"));
    let writes = tokio::spawn({
        let (store, writer) = (store.clone(), writer.clone());
        async move { store.acquire(&writer).await.unwrap() }
    });
    line(&admin, &place, 1).await;
    let late = reader();
    let reads = tokio::spawn(async move { store.acquire(&late).await.unwrap() });
    line(&admin, &place, 2).await;
    assert!(!writes.is_finished(), "a reader may be there");
    tx.commit().await.unwrap();

    assert_eq!(queued(&writes.await.unwrap()), 0);
    assert_eq!(queued(&reads.await.unwrap()), 1);
    assert_eq!(lane.give_back(&coming).await, Released::Done);
    assert!(matches!(lane.ask(&writer).await, Answer::Granted { .. }));
}

#[tokio::test]
async fn when_the_last_two_leave_at_the_same_time_nobody_is_left() {
    let place = Place::new();
    let lane = place.lane().await;
    let readers = crowd(&lane).await;
    let key = format!("{}/book", place.name);
    let mut sessions = [place.admin().await, place.admin().await];
    let mut leaving = vec![];
    for (session, reader) in sessions.iter_mut().zip(&readers) {
        let tx = session.transaction().await.unwrap();
        let id = Uuid::from_u128(reader.id.as_u128());
        let text = "SELECT lockstep_leave_others_v1($1, $2)";
        let left: Option<bool> = tx.query_one(text, &[&key, &id]).await.unwrap().get(0);
        assert_eq!(left, Some(true), "neither waits for the other");
        leaving.push(tx);
    }
    for tx in leaving {
        tx.commit().await.unwrap();
    }
    let seen = lane.store.inspect(&Query::One(readers[0].key.clone())).await.unwrap();
    assert_eq!(seen.locks, vec![]);
    assert_eq!(lane.give_back(&readers[0]).await, Released::NotHeld);
    // Readers that come now are others, after nobody knows whom.
    assert_eq!(lane.grant(&reader()).await.get(), 2);
}
