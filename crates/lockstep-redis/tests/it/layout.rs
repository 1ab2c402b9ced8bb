//! What is in the server: readable, bounded, and ours alone.

use std::time::Duration;

use lockstep_core::{Effect, ErrorKind, Key};
use lockstep_lock::store::{Query, Release, Released, Renewal};

use crate::support::{Bench, LONG, SHORT};

#[tokio::test]
async fn people_can_read_the_holder() {
    let mut bench = Bench::new().await;
    let a = bench.claim("host-17 worker", LONG);
    let token = bench.granted(&a).await;
    let row = bench.row().await;
    let words: Vec<&str> = row.splitn(8, ' ').collect();
    let [state_and_claim, seconds, micros, ttl, share, inbox, owner, label] = words[..] else {
        panic!("{row}");
    };
    assert_eq!(state_and_claim, format!("a{}", a.id));
    let number = |text: &str| text.parse::<u64>().unwrap();
    assert_eq!(number(seconds) * 1_000_000 + number(micros), token.get(), "it is the clock");
    assert_eq!((ttl, share), ("60000", "exclusive"));
    assert!(inbox.starts_with(&format!("{}:1:in:", bench.prefix)));
    assert_eq!(owner, a.owner.to_string());
    assert_eq!(label, "host-17 worker");

    let b = bench.claim("b", LONG);
    bench.queued(&b).await;
    assert_eq!(bench.row().await, format!("w{}", &row[1..]), "somebody waits");
    bench.break_it("stuck", false).await;
    assert_eq!(bench.row().await, format!("b{}\nstuck", &row[1..]));
    bench.release(&b).await;
    bench.release(&a).await;
    assert_eq!(bench.keys().await, [""; 0], "a free lock leaves nothing");
}

#[tokio::test]
async fn keys_that_somebody_waits_for_live_one_ttl_longer_than_leases() {
    let mut bench = Bench::new().await;
    let a = bench.claim("a", LONG);
    let b = bench.claim("b", Duration::from_secs(600));
    let within = async |bench: &mut Bench, suffix: &str, least: i64, most: i64| {
        let left: i64 = bench.raw(&["PTTL", &bench.redis_key(suffix)]).await;
        assert!((least..=most).contains(&left), "{suffix}: {left}");
    };
    bench.granted(&a).await;
    within(&mut bench, "", 50_000, 60_000).await;
    let left = bench.view().await.unwrap().holder().unwrap().left;
    bench.queued(&b).await;
    let still = bench.view().await.unwrap().holder().unwrap().left;
    assert!(still <= left && still + Duration::from_secs(10) > left, "{left:?}, then {still:?}");
    within(&mut bench, "", 110_000, 120_000).await;
    assert_eq!(bench.renew(&a).await, Renewal::Renewed);
    // A short waiter must not cut the queue's life short.
    let c = bench.claim("c", LONG);
    bench.queued(&c).await;
    assert_eq!(bench.release(&c).await, Released::Done);
    within(&mut bench, "", 110_000, 120_000).await;
    within(&mut bench, ":q", 1_190_000, 1_200_000).await;
    within(&mut bench, ":w", 1_190_000, 1_200_000).await;
    bench.release(&a).await;
    within(&mut bench, "", 1_190_000, 1_200_000).await;
    bench.release(&b).await;

    let brief = bench.claim_on("brief", "a", Duration::from_micros(20_500));
    bench.granted(&brief).await;
    let lock = format!("{}:1:{{brief}}", bench.prefix);
    let row: String = bench.raw(&["GET", &lock]).await;
    assert_eq!(
        row.split(' ').nth(3),
        Some("21"),
        "a lease is never shorter than its holder believes"
    );
}

#[tokio::test]
async fn a_key_that_nobody_waits_for_ends_with_its_lease() {
    let mut bench = Bench::new().await;
    let a = bench.claim("a", LONG);
    bench.granted(&a).await;
    let lock = bench.redis_key("");
    bench.raw::<()>(&["PEXPIRE", &lock, "30000"]).await;
    assert_eq!(bench.renew(&a).await, Renewal::Renewed);
    let left: i64 = bench.raw(&["PTTL", &lock]).await;
    assert!((50_000..=60_000).contains(&left), "{left}");
    // Broken, it outlives the lease that it still has: what was promised is kept.
    bench.break_it("stuck", false).await;
    let left: i64 = bench.raw(&["PTTL", &lock]).await;
    assert!((110_000..=120_000).contains(&left), "{left}");
    let b = bench.claim("b", LONG);
    assert_eq!(bench.queued(&b).await, 0);
    bench.end_hold(&a).await;
    bench.granted(&b).await;
}

#[tokio::test]
async fn tokens_grow_even_when_the_clock_has_not() {
    let mut bench = Bench::new().await;
    let [a, b, c] = ["a", "b", "c"].map(|label| bench.claim(label, LONG));
    bench.granted(&a).await;
    bench.queued(&b).await;
    // As if the server's clock had been an hour ahead when it was granted.
    let row = bench.row().await;
    let mut words: Vec<String> = row.split(' ').map(str::to_owned).collect();
    let ahead = words[1].parse::<u64>().unwrap() + 3600;
    (words[1], words[2]) = (ahead.to_string(), "999999".into());
    bench.raw::<()>(&["SET", &bench.redis_key(""), &words.join(" "), "KEEPTTL"]).await;
    let first = ahead * 1_000_000 + 999_999;
    bench.release(&a).await;
    assert_eq!(bench.granted(&b).await.get(), first + 1, "it was passed on");
    bench.end_hold(&b).await;
    assert_eq!(bench.granted(&c).await.get(), first + 2, "its holder is dead");
}

#[tokio::test]
async fn the_last_to_come_is_last_even_when_the_clock_was_set_back() {
    let mut bench = Bench::new().await;
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|label| bench.claim(label, LONG));
    bench.granted(&a).await;
    bench.queued(&b).await;
    // As if the server's clock had been an hour ahead when it came.
    let queue = bench.redis_key(":q");
    bench.raw::<String>(&["ZINCRBY", &queue, "3600000000", &b.id.to_string()]).await;
    assert_eq!(bench.queued(&c).await, 1);
    assert_eq!(bench.queued(&d).await, 2);
    let line: Vec<String> = bench.raw(&["ZRANGE", &queue, "0", "-1"]).await;
    assert_eq!(line, [b, c, d].map(|claim| claim.id.to_string()));
}

#[tokio::test]
async fn what_was_deleted_by_hand_does_not_come_back_for_ever() {
    for suffix in [":q", ":w"] {
        let mut bench = Bench::new().await;
        let [a, b, c] = ["a", "b", "c"].map(|label| bench.claim(label, LONG));
        bench.granted(&a).await;
        bench.queued(&b).await;
        assert_eq!(bench.raw::<i64>(&["DEL", &bench.redis_key(suffix)]).await, 1);
        // With every answer the bench looks whether a key is immortal.
        bench.queued(&c).await;
        bench.queued(&b).await;
    }
}

#[tokio::test]
async fn what_we_did_not_write_is_left_alone_and_named() {
    for (suffix, make) in [
        ("", &["SET", "string"][..]),
        ("", &["RPUSH", "list"]),
        ("", &["HSET", "name", "value"]),
        ("", &["SET", "a0123 1 2 3"]),
        ("", &["SET", "s1 2 3 4"]),
        // As builds wrote it whose keys outlive every lease.
        ("", &["SET", "h0123456789abcdef0123456789abcdef 1 2 3 exclusive - 5 label"]),
        ("", &["SET", "a0123 1 2 3 4/x - 5 label"]),
        ("", &["SET", "x0123456789abcdef0123456789abcdef 1 2 3 exclusive - 5 label"]),
        ("", &["SET", "a0123456789abcdef0123456789abcdef 1 2 3 whole - 5 label"]),
        ("", &["SET", "a0123456789abcdef0123456789abcdeX 1 2 3 exclusive - 5 label"]),
        (":q", &["SET", "string"]),
        (":w", &["SET", "string"]),
    ] {
        let mut bench = Bench::new().await;
        let [a, b] = ["a", "b"].map(|label| bench.claim(label, LONG));
        let strange = bench.redis_key(suffix);
        if !suffix.is_empty() {
            // Somebody in the queue, so that both are needed.
            bench.granted(&a).await;
            bench.queued(&b).await;
            bench.raw::<()>(&["DEL", &strange]).await;
        }
        let mut words = vec![make[0], &strange];
        words.extend(&make[1..]);
        bench.raw::<redis::Value>(&words).await;
        bench.raw::<()>(&["PEXPIRE", &strange, "60000"]).await;

        let mut before = vec![];
        for key in bench.keys().await {
            before.push(bench.raw::<redis::Value>(&["DUMP", &key]).await);
        }
        let asked = bench.lane.acquire(&bench.claim("c", LONG)).await;
        let given = bench.lane.release(&Release::Mine(a.hold())).await;
        let now = Release::Break { key: a.key.clone(), reason: "x".into(), now: true };
        let broken = bench.lane.release(&now).await;
        let looked = bench.lane.inspect(&Query::One(a.key.clone())).await;
        let results = [asked.map(drop), given.map(drop), broken.map(drop), looked.map(drop)];
        for (verb, result) in ["acquire", "release", "break", "inspect"].iter().zip(results) {
            let error = result.expect_err(verb);
            assert_eq!(error.kind(), ErrorKind::Foreign, "{verb} {words:?}: {error}");
            assert_eq!(error.effect(), Effect::None, "{verb} {words:?}: {error}");
            assert!(error.to_string().contains(&bench.redis_key("")), "{error}");
        }
        let mut after = vec![];
        for key in bench.keys().await {
            after.push(bench.raw::<redis::Value>(&["DUMP", &key]).await);
        }
        assert!(before == after, "{words:?} was changed");
    }
}

#[tokio::test]
async fn a_listing_is_ordered_cut_and_undisturbed() {
    let mut bench = Bench::new().await;
    let names = ["a", "a*", "a*b", "a{1}", "a%7B", "b", "ö", "a[x]"];
    for name in names {
        bench.granted(&bench.claim_on(name, "holder", LONG)).await;
    }
    bench.queued(&bench.claim_on("b", "waiter", LONG)).await;
    let released = bench.claim_on("a free", "a", LONG);
    bench.granted(&released).await;
    assert_eq!(bench.release(&released).await, Released::Done);
    bench.granted(&bench.claim_on("a gone", "a", SHORT)).await;
    let strange = format!("{}:1:{{a strange}}", bench.prefix);
    bench.raw::<()>(&["SET", &strange, "x", "PX", "60000"]).await;

    let list = async |bench: &Bench, prefix: &str, limit: usize| {
        let query = Query::All { prefix: prefix.into(), limit };
        let page = bench.lane.inspect(&query).await.unwrap();
        let seen: Vec<String> = page.locks.iter().map(|lock| lock.key.to_string()).collect();
        (seen, page.more)
    };
    let mut sorted = names.map(String::from).to_vec();
    sorted.sort();
    crate::support::until(async || list(&bench, "", 100).await.0.len() == names.len()).await;
    assert_eq!(list(&bench, "", 100).await, (sorted.clone(), false));
    assert_eq!(list(&bench, "", 8).await, (sorted.clone(), false));
    assert_eq!(list(&bench, "", 3).await, (sorted[..3].to_vec(), true));
    assert_eq!(list(&bench, "", 0).await, (vec![], true));
    assert_eq!(list(&bench, "a*", 9).await, (vec!["a*".into(), "a*b".into()], false));
    assert_eq!(list(&bench, "a{", 9).await, (vec!["a{1}".into()], false));
    assert_eq!(list(&bench, "a%7", 9).await, (vec!["a%7B".into()], false));
    assert_eq!(list(&bench, "nothing", 9).await, (vec![], false));

    let query = Query::All { prefix: "b".into(), limit: 9 };
    let lock = bench.lane.inspect(&query).await.unwrap().locks.remove(0);
    assert_eq!((lock.waiting, lock.waiters.len()), (1, 0), "particulars only for one");
    let one = bench.lane.inspect(&Query::One(Key::new("b").unwrap())).await.unwrap();
    assert_eq!(one.locks[0].waiters[0].label.as_str(), "waiter");
    assert_eq!(one.locks[0].holder().unwrap().label.as_str(), "holder");
}
