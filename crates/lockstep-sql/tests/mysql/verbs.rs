//! Hand-over, races, names, tokens, batches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockstep_core::Key;
use lockstep_lock::store::{Answer, Claim, Hold, Query, RENEW_BATCH, Release, Released, Renewal};
use lockstep_lock::{Fencing, Scope};
use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use tokio::time::timeout;

use crate::support::{PATIENCE, Place, claim, end_lease, let_time_pass, queued};

#[tokio::test]
async fn facts_are_those_of_a_direct_connection() {
    let facts = Place::new().lane().await.store.facts();
    assert_eq!(
        (facts.store, facts.fencing, facts.scope),
        ("mysql", Fencing::Strong, Scope::Network)
    );
    assert!(facts.fair && facts.push);
    assert_eq!(facts.warnings, Vec::<String>::new());
}

#[tokio::test]
async fn a_release_hands_over_in_the_order_of_asking_and_tells_only_the_next() {
    let place = Place::new();
    let (holder, mut waiters) = (place.lane().await, place.lane().await);
    let first = claim("job");
    let token = holder.grant(&first).await;
    let queue = [claim("job"), claim("job"), claim("job")];
    for (ahead, waiter) in queue.iter().enumerate() {
        assert_eq!(queued(&waiters.ask(waiter).await), ahead as u64);
    }
    assert_eq!(holder.give_back(&first).await, Released::Done);
    for (nth, waiter) in (1..).zip(&queue) {
        assert_eq!(waiters.granted(waiter).await.get(), token.get() + nth);
        assert_eq!(waiters.give_back(waiter).await, Released::Done);
    }
    waiters.assert_silent(&place, "job").await;
    assert_eq!(holder.grant(&claim("job")).await.get(), token.get() + 4);
}

/// Who joins others takes a place before it looks at the lock. If the lock has become free meanwhile
/// and the request gets no further, whoever gives back must find that place.
#[tokio::test]
async fn a_place_before_a_lock_that_nobody_has_can_be_given_back() {
    let place = Place::new();
    let (holder, waiter) = (place.lane().await, place.lane().await);
    let (first, second) = (claim("job"), claim("job"));
    holder.grant(&first).await;
    assert_eq!(queued(&waiter.ask(&second).await), 0);
    let mut admin = place.admin().await;
    let key = format!("{}/job", place.name);
    admin
        .exec_drop(
            "UPDATE lockstep_lock SET claim = REPEAT(0xFF, 16), turn = tail WHERE lock_key = ?",
            (&key,),
        )
        .await
        .unwrap();
    assert_eq!(waiter.give_back(&second).await, Released::Done);
    let left: Option<u64> = admin
        .exec_first("SELECT COUNT(*) FROM lockstep_waiter WHERE lock_key = ?", (&key,))
        .await
        .unwrap();
    assert_eq!(left, Some(0));
    assert_eq!(waiter.give_back(&second).await, Released::NotHeld);
}

/// Who asks again may be granted the lock at that moment, and sees neither its old place any more nor
/// the grant yet.
#[tokio::test]
async fn who_is_granted_the_lock_while_it_takes_a_place_keeps_no_place() {
    let place = Place::new();
    let (holder, asker) = (place.lane().await, place.lane().await);
    let (first, second, third) = (claim("job"), claim("job"), claim("job"));
    holder.grant(&first).await;
    assert_eq!(queued(&holder.ask(&third).await), 0);
    let (mut admin, key) = (place.admin().await, format!("{}/job", place.name));
    let id = second.id.as_u128().to_be_bytes().to_vec();
    // Another place of the same claim keeps its request waiting right there.
    let mut tx = admin.start_transaction(TxOpts::default()).await.unwrap();
    let copy = "INSERT INTO lockstep_waiter \
        (lock_key, claim, owner, label, weight, inbox, ttl_us, since_ms, until_us) \
        SELECT lock_key, ?, owner, label, weight, inbox, ttl_us, since_ms, until_us \
          FROM lockstep_waiter WHERE lock_key = ?";
    tx.exec_drop(copy, (&id, &key)).await.unwrap();
    let granted_meanwhile = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tx.exec_drop("DELETE FROM lockstep_waiter WHERE claim = ?", (&id,)).await.unwrap();
        tx.exec_drop("UPDATE lockstep_lock SET claim = ? WHERE lock_key = ?", (&id, &key))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(asker.ask(&second), granted_meanwhile);
    assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
    let left = "SELECT COUNT(*) FROM lockstep_waiter WHERE claim = ?";
    assert_eq!(admin.exec_first::<u64, _, _>(left, (&id,)).await.unwrap(), Some(0));
}

/// A release that reads the queue and then waits for the row would free the lock past a waiter
/// that joined meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_cannot_miss_a_waiter_that_arrives_meanwhile() {
    let place = Place::new();
    let store = place.store();
    let rounds = (0..8).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            let (one, mut other) =
                (crate::support::open(&store).await, crate::support::open(&store).await);
            let mut handed_over = 0;
            for round in 0..60 {
                // A new lock every time: also the first row is raced for.
                let (a, b) = (claim(&format!("{task}-{round}")), claim(&format!("{task}-{round}")));
                one.grant(&a).await;
                let (released, asked) = tokio::join!(one.give_back(&a), other.ask(&b));
                assert_eq!(released, Released::Done);
                match asked {
                    Answer::Granted { .. } => {}
                    Answer::Queued { .. } => {
                        other.granted(&b).await;
                        handed_over += 1;
                    }
                    unexpected => panic!("{unexpected:?}"),
                }
                assert_eq!(other.give_back(&b).await, Released::Done);
            }
            handed_over
        })
    });
    let handed_over: u32 = join_all(rounds).await.into_iter().map(Result::unwrap).sum();
    assert!(handed_over > 0, "no round raced");
}

/// Who joins others stands at the end of the queue without the lock's row. When the others are gone
/// before that is done, nobody would look there any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_joins_a_queue_that_empties_meanwhile_is_not_forgotten() {
    let place = Place::new();
    let (one, two, mut other) = (place.lane().await, place.lane().await, place.lane().await);
    let [holder, first, second] = ["job"; 3].map(claim);
    one.grant(&holder).await;
    queued(&two.ask(&first).await);
    let hasty = Claim { wait: false, ..claim("job") };
    assert_eq!(other.ask(&hasty).await, Answer::Busy, "now it does not try the short way first");

    let (mut admin, mut looks, key) =
        (place.admin().await, place.admin().await, format!("{}/job", place.name));
    let mut emptied = admin.start_transaction(TxOpts::default()).await.unwrap();
    let row = "SELECT claim FROM lockstep_lock WHERE lock_key = ? FOR UPDATE";
    emptied.exec_drop(row, (&key,)).await.unwrap();
    let (store, asks) = (other.store.clone(), second.clone());
    let asked = tokio::spawn(async move { store.acquire(&asks).await.unwrap() });
    let places = "SELECT COUNT(*) FROM lockstep_waiter WHERE lock_key = ?";
    let stands =
        async { while looks.exec_first::<u64, _, _>(places, (&key,)).await.unwrap() != Some(2) {} };
    timeout(PATIENCE, stands).await.expect("it stands at the end without the lock's row");
    let gone = "DELETE FROM lockstep_waiter WHERE lock_key = ? AND claim = ?";
    let id = first.id.as_u128().to_be_bytes().to_vec();
    emptied.exec_drop(gone, (&key, id)).await.unwrap();
    let served = "UPDATE lockstep_lock SET turn = tail WHERE lock_key = ?";
    emptied.exec_drop(served, (&key,)).await.unwrap();
    emptied.commit().await.unwrap();

    assert_eq!(queued(&asked.await.unwrap()), 0);
    assert_eq!(one.give_back(&holder).await, Released::Done);
    other.granted(&second).await;
}

/// Places are numbered before they are taken: a later one can be there, and served, before an earlier one.
/// Whoever then comes with the earlier one stands where no release looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_overtaken_takes_a_new_place() {
    for asks_again in [false, true] {
        let place = Place::new();
        let (one, two, mut other) = (place.lane().await, place.lane().await, place.lane().await);
        let [holder, first, second, third] = ["job"; 4].map(claim);
        one.grant(&holder).await;
        queued(&two.ask(&first).await);
        if asks_again {
            queued(&other.ask(&second).await);
        } else {
            let hasty = Claim { wait: false, ..claim("job") };
            assert_eq!(other.ask(&hasty).await, Answer::Busy, "no short way next time");
        }

        let (mut admin, mut looks, key) =
            (place.admin().await, place.admin().await, format!("{}/job", place.name));
        let id = |claim: &Claim| claim.id.as_u128().to_be_bytes().to_vec();
        let mut served = admin.start_transaction(TxOpts::default()).await.unwrap();
        let row = "SELECT claim FROM lockstep_lock WHERE lock_key = ? FOR UPDATE";
        served.exec_drop(row, (&key,)).await.unwrap();
        let (store, asks) = (other.store.clone(), second.clone());
        let asking = tokio::spawn(async move {
            if asks_again { None } else { Some(store.acquire(&asks).await.unwrap()) }
        });
        let places = "SELECT COUNT(*) FROM lockstep_waiter WHERE lock_key = ?";
        let stands = async {
            while looks.exec_first::<u64, _, _>(places, (&key,)).await.unwrap() != Some(2) {}
        };
        timeout(PATIENCE, stands).await.expect("it stands without the lock's row");
        // The first becomes the third, behind the second; and whoever was between has been served.
        let behind = "UPDATE lockstep_waiter SET seq = seq + 1000000, claim = ? WHERE claim = ?";
        served.exec_drop(behind, (id(&third), id(&first))).await.unwrap();
        let overtaken = "UPDATE lockstep_lock AS l JOIN lockstep_waiter AS w ON w.claim = ? \
            JOIN lockstep_waiter AS t ON t.claim = ? SET l.turn = w.seq, l.tail = t.seq \
            WHERE l.lock_key = ?";
        served.exec_drop(overtaken, (id(&second), id(&third), &key)).await.unwrap();
        served.commit().await.unwrap();

        let answer = asking.await.unwrap();
        let answer = if asks_again { other.ask(&second).await } else { answer.unwrap() };
        assert_eq!(queued(&answer), 1, "the third is ahead of it; again: {asks_again}");
        assert_eq!(one.give_back(&holder).await, Released::Done);
        assert_eq!(two.give_back(&third).await, Released::Done);
        other.granted(&second).await;
        assert_eq!(other.give_back(&second).await, Released::Done);
        assert_eq!(looks.exec_first::<u64, _, _>(places, (&key,)).await.unwrap(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_contention_nobody_is_forgotten_and_every_token_is_used_once() {
    const LANES: usize = 8;
    const ROUNDS: usize = 25;
    let place = Place::new();
    let store = place.store();
    let tasks = (0..LANES).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut lane = crate::support::open(&store).await;
            let mut tokens = vec![];
            for _ in 0..ROUNDS {
                let claim = claim("busy");
                tokens.push(match lane.ask(&claim).await {
                    Answer::Granted { token } => token.unwrap(),
                    _ => lane.granted(&claim).await,
                });
                assert_eq!(lane.give_back(&claim).await, Released::Done);
            }
            tokens
        })
    });
    let tokens: Vec<_> = join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
    let distinct: BTreeSet<u64> = tokens.iter().map(|token| token.get()).collect();
    assert_eq!(distinct, (1..=(LANES * ROUNDS) as u64).collect());
}

#[tokio::test]
async fn the_channel_is_silent_unless_somebody_is_granted() {
    let place = Place::new();
    let mut lane = place.lane().await;
    for _ in 0..20 {
        let claim = claim("free");
        lane.grant(&claim).await;
        lane.give_back(&claim).await;
    }
    // A holder that asks again learns from the answer, not from the channel as well.
    let lapsed = claim("lapsed");
    lane.grant(&lapsed).await;
    let waiter = claim("lapsed");
    queued(&lane.ask(&waiter).await);
    end_lease(&mut place.admin().await, &place, "lapsed").await;
    lane.grant(&waiter).await;
    lane.assert_silent(&place, "free").await;
}

#[tokio::test]
async fn whoever_asks_heals_the_lock_for_the_one_that_waits() {
    let place = Place::new();
    let (holder, mut waiting, asking) =
        (place.lane().await, place.lane().await, place.lane().await);
    let dead = claim("job");
    let token = holder.grant(&dead).await;
    let waiter = claim("job");
    queued(&waiting.ask(&waiter).await);
    end_lease(&mut place.admin().await, &place, "job").await;
    match asking.ask(&claim("job")).await {
        Answer::Queued { ahead: 0, behind, holder_left } => {
            assert_eq!(behind.unwrap().get(), token.get() + 1);
            assert!(holder_left > Duration::from_secs(50));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(waiting.granted(&waiter).await.get(), token.get() + 1);
    assert_eq!(holder.give_back(&dead).await, Released::NotHeld);
}

#[tokio::test]
async fn a_break_at_once_passes_on_and_the_holder_hears_when_it_renews() {
    let place = Place::new();
    let (holder, mut waiting) = (place.lane().await, place.lane().await);
    let (held, waiter) = (claim("job"), claim("job"));
    holder.grant(&held).await;
    waiting.ask(&waiter).await;
    let reason = format!("maintenance \u{0} {}", "ö".repeat(50_000));
    let mark = Release::Break { key: held.key.clone(), reason: reason.clone(), now: false };
    assert_eq!(waiting.store.release(&mark).await.unwrap(), Released::Done);
    match &holder.store.renew(&[held.hold()]).await.unwrap()[..] {
        [Renewal::Broken { reason }] => {
            assert!(reason.starts_with("maintenance \u{0} öö"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let cut = Release::Break { key: held.key.clone(), reason, now: true };
    assert_eq!(waiting.store.release(&cut).await.unwrap(), Released::Done);
    assert_eq!(holder.store.renew(&[held.hold()]).await.unwrap(), [Renewal::Lost]);
    waiting.granted(&waiter).await;
}

#[tokio::test]
async fn names_are_compared_by_their_bytes_and_never_read_as_sql() {
    let place = Place::new();
    let lane = place.lane().await;
    let mut names = vec![
        "Job",
        "job",
        "job ",
        "jöb",
        "jo\u{308}b",
        "a/b",
        "a",
        "%",
        "_",
        "a\\",
        "'; DROP TABLE x; --",
        "$1",
        "\"quoted\"",
        "{schema}",
        "lockstep_lock",
        "\u{10ffff}",
        "?",
        "x'00'",
    ];
    let (long, longer) = ("ö".repeat(127), "ö".repeat(127) + "x");
    names.extend([long.as_str(), longer.as_str()]);
    for name in &names {
        assert_eq!(lane.grant(&claim(name)).await.get(), 1, "{name:?} is a lock of its own");
    }
    names.sort_unstable();
    let all = Query::All { prefix: String::new(), limit: 100 };
    let page = lane.store.inspect(&all).await.unwrap();
    let seen: Vec<&str> = page.locks.iter().map(|lock| lock.key.as_str()).collect();
    assert_eq!(seen, names);

    let some = Query::All { prefix: "j".into(), limit: 2 };
    let page = lane.store.inspect(&some).await.unwrap();
    let seen: Vec<&str> = page.locks.iter().map(|lock| lock.key.as_str()).collect();
    assert_eq!((seen, page.more), (vec!["job", "job "], true));
    let none = Query::All { prefix: "%".into(), limit: 9 };
    assert_eq!(lane.store.inspect(&none).await.unwrap().locks.len(), 1);
}

#[tokio::test]
async fn prefixes_keep_tenants_apart() {
    let (one, other) = (Place::new(), Place::new());
    let (one, other) = (one.lane().await, other.lane().await);
    one.grant(&claim("job")).await;
    other.grant(&claim("job")).await;
    let page = other.store.inspect(&Query::All { prefix: String::new(), limit: 9 }).await.unwrap();
    assert_eq!(page.locks.len(), 1);
}

#[tokio::test]
async fn a_token_never_goes_back() {
    let place = Place::new();
    let lane = place.lane().await;
    let mut admin = place.admin().await;
    let mut last = 0;
    for round in 0..12 {
        let claim = claim("job");
        let token = lane.grant(&claim).await.get();
        assert_eq!(token, last + 1);
        last = token;
        assert_eq!(lane.grant(&claim).await.get(), token, "asking again is the same grant");
        match round % 3 {
            0 => assert_eq!(lane.give_back(&claim).await, Released::Done),
            1 => let_time_pass(&mut admin, &place, Duration::from_secs(61)).await,
            _ => {
                let cut = Release::Break { key: claim.key, reason: "x".into(), now: true };
                assert_eq!(lane.store.release(&cut).await.unwrap(), Released::Done);
            }
        }
    }
}

#[tokio::test]
async fn a_batch_is_renewed_at_once_and_answered_in_order() {
    let place = Place::new();
    let lane = Arc::new(place.lane().await);
    let claims: Vec<_> = (0..RENEW_BATCH).rev().map(|n| claim(&format!("k{n}"))).collect();
    join_all(claims.iter().map(|claim| lane.grant(claim))).await;
    let_time_pass(&mut place.admin().await, &place, Duration::from_secs(50)).await;

    let mut holds: Vec<Hold> = claims.iter().map(|claim| claim.hold()).collect();
    holds[1].id = claim("x").id;
    holds[2].key = Key::new("never seen").unwrap();
    lane.give_back(&claims[3]).await;
    let marked =
        Release::Break { key: claims[4].key.clone(), reason: "why not".into(), now: false };
    lane.store.release(&marked).await.unwrap();
    holds[6] = holds[5].clone();

    let answers = lane.store.renew(&holds).await.unwrap();
    for (n, answer) in answers.iter().enumerate() {
        let expected = match n {
            1..=3 => Renewal::Lost,
            4 => Renewal::Broken { reason: "why not".into() },
            _ => Renewal::Renewed,
        };
        assert_eq!(*answer, expected, "number {n}");
    }
    let page = lane.store.inspect(&Query::One(claims[7].key.clone())).await.unwrap();
    assert!(page.locks[0].holder().unwrap().left > Duration::from_secs(50));
    let page = lane.store.inspect(&Query::One(claims[6].key.clone())).await.unwrap();
    assert!(page.locks[0].holder().unwrap().left < Duration::from_secs(11));
    assert_eq!(lane.store.renew(&[]).await.unwrap(), vec![]);
}
