//! A smoke of the verbs; the conformance suite goes further.

use std::time::Duration;

use lockstep_core::ClaimId;
use lockstep_lock::Locks;
use lockstep_lock::store::{Answer, Claim, Hold, RENEW_BATCH, Released, Renewal};
use lockstep_redis::Redis;

use crate::support::{Bench, LONG, SHORT, listen, server};

#[tokio::test]
async fn a_release_passes_the_lock_to_the_first_in_line() {
    let mut bench = Bench::new().await;
    let [a, b, c] = ["a", "b", "c"].map(|label| bench.claim(label, LONG));
    let first = bench.granted(&a).await;
    assert_eq!(bench.queued(&b).await, 0);
    assert_eq!(bench.queued(&c).await, 1);
    match bench.ask(&c).await {
        Answer::Queued { ahead: 1, holder_left, behind } => {
            assert!(holder_left <= LONG && holder_left > LONG / 2, "{holder_left:?}");
            assert_eq!(behind, Some(first));
        }
        other => panic!("{other:?}"),
    }

    assert_eq!(bench.release(&a).await, Released::Done);
    let view = bench.view().await.unwrap();
    let second = view.holder().unwrap().token.unwrap();
    assert_eq!(view.holder().unwrap().claim, b.id);
    assert_eq!(view.waiters.iter().map(|w| w.claim).collect::<Vec<_>>(), [c.id]);
    assert!(second > first);
    assert_eq!(bench.granted(&b).await, second, "asking again must not raise the token");
    assert_eq!(bench.queued(&c).await, 0);
    assert_eq!(bench.release(&a).await, Released::NotHeld);

    assert_eq!(bench.release(&b).await, Released::Done);
    assert_eq!(bench.release(&c).await, Released::Done);
    assert_eq!(bench.view().await, None);
    assert!(bench.granted(&a).await > second);
}

#[tokio::test]
async fn only_the_next_is_told() {
    let mut bench = Bench::new().await;
    let [a, b, c] = ["a", "b", "c"].map(|label| bench.claim(label, LONG));
    bench.granted(&a).await;
    let own_channel = bench.row().await.split(' ').nth(5).unwrap().to_owned();
    let other = bench.another_lane(Some(lockstep_lock::Inbox::new())).await;
    other.acquire(&b).await.unwrap();
    bench.queued(&c).await;
    let waiter = bench.raw::<String>(&["HGET", &bench.redis_key(":w"), &b.id.to_string()]).await;
    let others_channel = waiter.split(' ').nth(4).unwrap().to_owned();
    let mut own = listen(&own_channel).await;
    let mut others = listen(&others_channel).await;

    bench.release(&a).await;
    let token = bench.view().await.unwrap().holder().unwrap().token.unwrap();
    assert_eq!(others().await, format!("granted {} {token}", b.id));
    bench.break_it("moving house", true).await;
    assert_eq!(others().await, format!("lost {} moving house", b.id));
    // The first that this lane is told is about c: of b's grant it heard nothing.
    let token = bench.view().await.unwrap().holder().unwrap().token.unwrap();
    assert_eq!(own().await, format!("granted {} {token}", c.id));
}

#[tokio::test]
async fn a_long_queue_is_counted_from_its_head_only_if_nobody_looks_after_the_lock_there() {
    let mut bench = Bench::new().await;
    let holder = bench.claim("holder", LONG);
    bench.granted(&holder).await;
    let waiters: Vec<Claim> = (0..20).map(|_| bench.claim("waiter", LONG)).collect();
    for (ahead, waiter) in waiters.iter().enumerate() {
        assert_eq!(bench.queued(waiter).await, ahead as u64);
    }
    // Asked a very long time ago: as if their processes had died.
    let die = async |bench: &mut Bench, dead: &[Claim]| {
        for dead in dead {
            let lapsed = "1 1 1 exclusive - 0 dead";
            let (place, claim) = (bench.redis_key(":w"), dead.id.to_string());
            bench.raw::<i64>(&["HSET", &place, &claim, lapsed]).await;
        }
    };
    die(&mut bench, &waiters[1..19]).await;
    assert_eq!(bench.queued(&waiters[19]).await, 19, "the head lives");
    die(&mut bench, &waiters[..1]).await;
    assert_eq!(bench.queued(&waiters[19]).await, 3, "sixteen were looked at");
}

#[tokio::test]
async fn a_try_neither_waits_nor_loses_a_place() {
    let mut bench = Bench::new().await;
    let [a, b] = ["a", "b"].map(|label| bench.claim(label, LONG));
    bench.granted(&a).await;
    let hasty = Claim { wait: false, ..b.clone() };
    assert_eq!(bench.ask(&hasty).await, Answer::Busy);
    assert_eq!(bench.view().await.unwrap().waiting, 0);
    bench.queued(&b).await;
    assert_eq!(bench.ask(&hasty).await, Answer::Busy);
    assert_eq!(bench.view().await.unwrap().waiting, 1);
}

#[tokio::test]
async fn a_dead_waiter_is_passed_over_and_a_late_one_goes_to_the_end() {
    let mut bench = Bench::new().await;
    let [a, dead, late, c] = ["a", "dead", "late", "c"].map(|label| bench.claim(label, LONG));
    bench.granted(&a).await;
    assert_eq!(bench.queued(&dead).await, 0);
    assert_eq!(bench.queued(&late).await, 1);
    assert_eq!(bench.queued(&c).await, 2);
    bench.end_wait(&dead).await;
    bench.end_wait(&late).await;
    assert_eq!(bench.view().await.unwrap().waiting, 1);
    assert_eq!(bench.queued(&c).await, 0, "the dead are not counted");
    assert_eq!(bench.queued(&late).await, 1, "its place was lost");

    assert_eq!(bench.release(&a).await, Released::Done);
    bench.granted(&c).await;
    assert_eq!(bench.release(&c).await, Released::Done);
    bench.granted(&late).await;
    assert_eq!(bench.release(&dead).await, Released::NotHeld);
}

#[tokio::test]
async fn a_lease_that_ran_out_is_not_brought_back() {
    let mut bench = Bench::new().await;
    let a = bench.claim("a", SHORT);
    let first = bench.granted(&a).await;
    bench.see(|lock| lock.is_none()).await;
    assert_eq!(bench.renew(&a).await, Renewal::Lost);
    assert_eq!(bench.release(&a).await, Released::NotHeld);
    assert!(bench.granted(&a).await > first, "a new hold has a new token");
}

/// Its key is still there: whoever waits has not asked again yet.
#[tokio::test]
async fn a_lease_that_ran_out_is_not_brought_back_before_who_waits_has_it() {
    let mut bench = Bench::new().await;
    let [a, b] = ["a", "b"].map(|label| bench.claim(label, LONG));
    let first = bench.granted(&a).await;
    bench.queued(&b).await;
    bench.end_hold(&a).await;
    assert_eq!(bench.renew(&a).await, Renewal::Lost);
    assert_eq!(bench.release(&a).await, Released::NotHeld);
    assert!(bench.granted(&b).await > first);
}

#[tokio::test]
async fn whoever_asks_heals_the_lock_for_the_next_in_line() {
    let mut bench = Bench::new().await;
    let [crashed, b, c] = ["crashed", "b", "c"].map(|label| bench.claim(label, LONG));
    let first = bench.granted(&crashed).await;
    bench.queued(&b).await;
    bench.end_hold(&crashed).await;
    assert_eq!(bench.view().await.unwrap().holder(), None);
    assert_eq!(bench.queued(&c).await, 0, "b has it, although c asked");
    assert_eq!(bench.view().await.unwrap().holder().unwrap().claim, b.id);
    assert!(bench.granted(&b).await > first);
    bench.end_hold(&b).await;
    assert_eq!(bench.release(&b).await, Released::NotHeld);
    assert_eq!(bench.view().await.unwrap().holder().unwrap().claim, c.id, "a release heals too");
}

#[tokio::test]
async fn a_thousand_dead_waiters_are_cleared_by_one_release() {
    let mut bench = Bench::new().await;
    let [a, last] = ["a", "last"].map(|label| bench.claim(label, LONG));
    bench.granted(&a).await;
    let dead: Vec<Claim> = (0..1000).map(|_| bench.claim("dead", SHORT)).collect();
    futures_util::future::try_join_all(dead.iter().map(|claim| bench.lane.acquire(claim)))
        .await
        .unwrap();
    bench.queued(&last).await;
    bench.see(|lock| lock.is_some_and(|lock| lock.waiting == 1)).await;
    bench.release(&a).await;
    bench.granted(&last).await;
    assert_eq!(bench.keys().await, [bench.redis_key("")], "queue and waiters are gone");
}

#[tokio::test]
async fn a_broken_hold_ends_with_its_lease_or_at_once() {
    let mut bench = Bench::new().await;
    let [a, b] = ["a", "b"].map(|label| bench.claim(label, LONG));
    assert_eq!(bench.break_it("nobody", false).await, Released::NotHeld);
    bench.granted(&a).await;
    bench.queued(&b).await;
    assert_eq!(bench.break_it("", false).await, Released::Done);
    assert_eq!(bench.renew(&a).await, Renewal::Broken { reason: "".into() });
    assert_eq!(bench.break_it("stuck\nfor hours", false).await, Released::Done);
    let reason = "stuck\nfor hours".to_owned();
    assert_eq!(bench.renew(&a).await, Renewal::Broken { reason: reason.clone() });
    assert_eq!(bench.ask(&a).await, Answer::Broken { reason: reason.clone() });
    assert_eq!(bench.view().await.unwrap().holder().unwrap().broken, Some(reason));
    assert_eq!(bench.queued(&b).await, 0, "it is still a's until the lease ends");

    assert_eq!(bench.break_it("now", true).await, Released::Done);
    bench.granted(&b).await;
    assert_eq!(bench.view().await.unwrap().holder().unwrap().broken, None);
    assert_eq!(bench.renew(&a).await, Renewal::Lost);
    assert_eq!(bench.renew(&b).await, Renewal::Renewed);
    assert_eq!(bench.break_it("now", true).await, Released::Done);
    assert_eq!(bench.view().await, None);
}

#[tokio::test]
async fn a_full_batch_is_renewed_in_order() {
    let mut bench = Bench::new().await;
    let claims: Vec<Claim> =
        (0..RENEW_BATCH).map(|n| bench.claim_on(&format!("lock {n}"), "a", LONG)).collect();
    futures_util::future::try_join_all(claims.iter().map(|claim| bench.lane.acquire(claim)))
        .await
        .unwrap();
    let mut holds: Vec<Hold> = claims.iter().map(Claim::hold).collect();
    holds[7].id = ClaimId::new();
    let wrong = format!("{}:1:{{lock 9}}", bench.prefix);
    bench.raw::<()>(&["SET", &wrong, "not a lock", "PX", "60000"]).await;
    let renewals = bench.lane.renew(&holds).await.unwrap();
    for (n, renewal) in renewals.iter().enumerate() {
        let lost = n == 7 || n == 9;
        assert_eq!(*renewal, if lost { Renewal::Lost } else { Renewal::Renewed }, "{n}");
    }
    assert_eq!(bench.lane.renew(&[]).await.unwrap(), []);
    bench.nothing_is_immortal().await;
}

#[tokio::test]
async fn a_waiting_handle_hears_of_its_grant() {
    let url = format!("{}?prefix=t{}", server(), ClaimId::new());
    let open = || async { Locks::open(Redis::from_url(&url).unwrap()).await.unwrap() };
    let (one, other) = (open().await, open().await);
    let held = one.lock("job").ttl(LONG).await.unwrap();
    let waiting = tokio::spawn(other.lock("job").ttl(LONG).into_future());
    let queued = async || {
        let seen = one.inspect("job").await.unwrap();
        seen.is_some_and(|lock| lock.waiting == 1)
    };
    crate::support::until(queued).await;
    held.release().await.unwrap();
    // It would ask again only after a third of its ttl, twenty seconds.
    let told = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    told.expect("no signal came").unwrap().unwrap().release().await.unwrap();
}
