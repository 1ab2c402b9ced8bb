//! Locks that several hold, as they are in the server.

use std::time::Duration;

use lockstep_core::{Effect, ErrorKind, Owner};
use lockstep_lock::Share;
use lockstep_lock::store::{Answer, Claim, LockStore, Query, Release, Released, Renewal};

use crate::support::{Bench, LONG, SHORT};

fn reader(bench: &Bench, label: &str, ttl: Duration) -> Claim {
    Claim { share: Share::Read, ..bench.claim(label, ttl) }
}

async fn life(bench: &mut Bench, suffix: &str) -> i64 {
    let key = bench.redis_key(suffix);
    bench.raw(&["PTTL", &key]).await
}

#[tokio::test]
async fn one_is_in_the_text_and_several_are_beside_it() {
    let mut bench = Bench::new().await;
    let (a, b) = (reader(&bench, "a", LONG), reader(&bench, "host 2 b", LONG));
    let writer = bench.claim("writer", LONG);
    let token = bench.granted(&a).await;
    let row = bench.row().await;
    assert!(row.starts_with(&format!("a{} ", a.id)) && row.contains(" 60000 read "), "{row}");
    assert_eq!(bench.keys().await, [bench.redis_key("")]);

    assert_eq!(bench.granted(&b).await, token);
    let (seconds, micros) = (token.get() / 1_000_000, token.get() % 1_000_000);
    assert_eq!(bench.row().await, format!("s{seconds} {micros} 2147483647 2 2"));
    let words: String = bench.raw(&["HGET", &bench.redis_key(":h"), &b.id.to_string()]).await;
    assert!(words.starts_with(&format!("2 {token} ")), "{words}");
    assert!(words.ends_with(&format!(" {} host 2 b", b.owner)), "{words}");
    let keys = ["", ":e", ":h"].map(|suffix| bench.redis_key(suffix));
    assert_eq!(bench.keys().await, keys);

    bench.queued(&writer).await;
    bench.release(&a).await;
    bench.release(&b).await;
    let row = bench.row().await;
    assert!(row.starts_with(&format!("w{} ", writer.id)), "one text again: {row}");
    assert_eq!(bench.keys().await, [bench.redis_key("")]);
    bench.release(&writer).await;
    for claim in [&a, &b] {
        bench.granted(claim).await;
    }
    for claim in [&a, &b] {
        assert_eq!(bench.release(claim).await, Released::Done);
    }
    assert_eq!(bench.keys().await, [""; 0], "a free lock leaves nothing");
}

#[tokio::test]
async fn shared_keys_live_as_long_as_the_longest_lease() {
    let mut bench = Bench::new().await;
    let ten_minutes = Duration::from_secs(600);
    let (long, short) = (reader(&bench, "long", ten_minutes), reader(&bench, "short", LONG));
    for both in [[&long, &short], [&short, &long]] {
        for claim in both {
            bench.granted(claim).await;
        }
        for suffix in ["", ":h", ":e"] {
            let life = life(&mut bench, suffix).await;
            assert!((1_190_000..=1_200_000).contains(&life), "{suffix}: {life}");
        }
        // A renewal does not cut them short, and prolongs them when it must.
        bench.renew(&short).await;
        assert!(life(&mut bench, "").await > 1_190_000);
        for suffix in ["", ":h", ":e"] {
            bench.raw::<()>(&["PEXPIRE", &bench.redis_key(suffix), "700000"]).await;
        }
        bench.renew(&short).await;
        assert!(life(&mut bench, "").await <= 700_000, "it is enough for the short one");
        bench.renew(&long).await;
        for suffix in ["", ":h", ":e"] {
            assert!(life(&mut bench, suffix).await > 1_190_000, "{suffix}");
        }
        for claim in both {
            bench.release(claim).await;
        }
    }
}

#[tokio::test]
async fn who_shared_it_and_died_is_forgotten_with_the_lock() {
    let mut bench = Bench::new().await;
    let claims = [reader(&bench, "a", SHORT), reader(&bench, "b", SHORT)];
    for claim in &claims {
        bench.granted(claim).await;
    }
    bench.see(|lock| lock.is_none()).await;
    for claim in &claims {
        assert_eq!(bench.renew(claim).await, Renewal::Lost);
        assert_eq!(bench.release(claim).await, Released::NotHeld);
    }
    let writer = bench.claim("writer", LONG);
    bench.granted(&writer).await;
    crate::support::until(async || bench.keys().await == [bench.redis_key("")]).await;
}

#[tokio::test]
async fn what_was_deleted_by_hand_blocks_nobody_for_ever() {
    let mut bench = Bench::new().await;
    let (a, b) = (reader(&bench, "a", LONG), reader(&bench, "b", LONG));
    for gone in [":h", ":e", ""] {
        bench.granted(&a).await;
        bench.granted(&b).await;
        bench.raw::<()>(&["DEL", &bench.redis_key(gone)]).await;
        assert_eq!(bench.renew(&a).await, Renewal::Lost, "without {gone}");
        let (c, d) = (reader(&bench, "c", LONG), reader(&bench, "d", LONG));
        bench.granted(&c).await;
        bench.granted(&d).await;
        let holders = bench.view().await.unwrap().holders;
        assert_eq!(holders.iter().map(|h| h.claim).collect::<Vec<_>>(), [c.id, d.id]);
        bench.break_it("clear", true).await;
        assert_eq!(bench.view().await, None);
    }
}

#[tokio::test]
async fn a_thousand_readers_are_let_in_together_and_leave_nothing() {
    let mut bench = Bench::new().await;
    let writer = bench.claim("writer", LONG);
    bench.granted(&writer).await;
    let readers: Vec<Claim> = (0..1000).map(|_| reader(&bench, "reader", LONG)).collect();
    let lane = bench.lane.clone();
    let asks = readers.iter().map(|claim| lane.acquire(claim));
    futures_util::future::try_join_all(asks).await.unwrap();
    let queue = bench.view().await.unwrap().waiters.into_iter().map(|waiter| waiter.claim);
    bench.release(&writer).await;
    let view = bench.view().await.unwrap();
    assert_eq!((view.holders.len(), view.waiting), (1000, 0));
    assert!(view.holders.iter().map(|holder| holder.claim).eq(queue), "in the order they came");
    let gone: Vec<Release> = readers.iter().map(|claim| Release::Mine(claim.hold())).collect();
    futures_util::future::try_join_all(gone.iter().map(|what| lane.release(what))).await.unwrap();
    assert_eq!(bench.keys().await, [""; 0]);
}

#[tokio::test]
async fn where_an_owner_waits_is_noted_until_its_lease_ends() {
    let mut bench = Bench::new().await;
    bench.granted(&bench.claim("a", LONG)).await;
    let waits = Claim { owner: Owner::new(), ..bench.claim("waits", LONG) };
    bench.queued(&bench.claim("unnamed", LONG)).await;
    bench.queued(&waits).await;
    let note = format!("{}:1:o:{}", bench.prefix, waits.owner);
    let life: i64 = bench.raw(&["PTTL", &note]).await;
    assert!((110_000..=120_000).contains(&life), "{life}");
    let notes = bench.keys().await.into_iter().filter(|key| key.contains(":1:o:"));
    assert!(notes.eq([&*note]), "only who was named");

    // What has run out is cleared when the note is prolonged.
    bench.raw::<()>(&["ZADD", &note, "1", "old"]).await;
    bench.raw::<()>(&["PEXPIRE", &note, "60000"]).await;
    bench.queued(&waits).await;
    let noted: Vec<String> = bench.raw(&["ZRANGE", &note, "0", "-1"]).await;
    assert_eq!(noted, [bench.redis_key("")]);

    // Somebody else's key there is left alone, and nobody else is disturbed.
    bench.raw::<()>(&["SET", &note, "strange", "PX", "60000"]).await;
    bench.queued(&waits).await;
    assert_eq!(bench.raw::<String>(&["GET", &note]).await, "strange");
    let error = bench.lane.inspect(&Query::WaitedForBy(waits.owner)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign);
}

/// Every verb that may let somebody join looks first, also where the first of them fits alone.
#[tokio::test]
async fn strange_keys_beside_a_shared_lock_are_left_alone_and_named() {
    for (suffix, held) in [(":h", 1), (":e", 1), (":h", 2), (":e", 2), (":q", 2), (":w", 2)] {
        for dead in [false, true] {
            let mut bench = Bench::new().await;
            let holders = ["a", "b"].map(|label| reader(&bench, label, LONG));
            for claim in &holders[..held] {
                bench.granted(claim).await;
            }
            let (writer, late) = (bench.claim("writer", LONG), reader(&bench, "late", LONG));
            bench.queued(&writer).await;
            bench.queued(&late).await;
            if dead {
                bench.end_wait(&writer).await;
            }
            let strange = bench.redis_key(suffix);
            bench.raw::<()>(&["DEL", &strange]).await;
            bench.raw::<()>(&["SET", &strange, "strange", "PX", "60000"]).await;

            let before = dump(&mut bench).await;
            let mut results = vec![];
            let lane: &dyn LockStore = &*bench.lane;
            if dead {
                let ask = lane.acquire(&reader(&bench, "c", LONG)).await;
                results.push(("acquire", ask.map(drop)));
                let downgraded = lane.release(&Release::Downgrade(holders[0].hold())).await;
                results.push(("downgrade", downgraded.map(drop)));
            }
            let given_up = lane.release(&Release::Mine(writer.hold())).await;
            results.push(("give up", given_up.map(drop)));
            for now in [false, true] {
                let what = Release::Break { key: writer.key.clone(), reason: "x".into(), now };
                results.push(("break", lane.release(&what).await.map(drop)));
            }
            for (verb, result) in results {
                let at = format!("{verb} with {suffix}, {held} holding, writer dead: {dead}");
                let error = result.expect_err(&at);
                assert_eq!(error.kind(), ErrorKind::Foreign, "{at}: {error}");
                assert_eq!(error.effect(), Effect::None, "{at}: {error}");
            }
            assert!(before == dump(&mut bench).await, "{suffix} {held} {dead}: changed");
        }
    }
    // A lock that nobody shares does not mind.
    let mut bench = Bench::new().await;
    bench.raw::<()>(&["SET", &bench.redis_key(":h"), "strange", "PX", "60000"]).await;
    let [a, b] = ["a", "b"].map(|label| bench.claim(label, LONG));
    bench.granted(&a).await;
    bench.queued(&b).await;
    bench.release(&a).await;
    assert!(matches!(bench.ask(&b).await, Answer::Granted { .. }));
}

async fn dump(bench: &mut Bench) -> Vec<redis::Value> {
    let mut dump = vec![];
    for key in bench.keys().await {
        dump.push(bench.raw(&["DUMP", &key]).await);
    }
    dump
}
