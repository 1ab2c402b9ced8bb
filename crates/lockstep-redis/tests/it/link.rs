//! Connections: made, lost, made again, refused.

use lockstep_core::{ClaimId, Effect, ErrorKind, Owner};
use lockstep_lock::store::{Answer, Claim, Connect, Query};
use lockstep_lock::{Fencing, Inbox, Scope};
use lockstep_redis::Redis;
use lockstep_testkit::servers::{RedisOptions, RedisServer};

use crate::support::{Bench, LONG, listen, server, until};

/// The bench's server with another database, whose clients can be told from others' by it.
fn database(number: u32, prefix: &str) -> Redis {
    Redis::from_url(&format!("{}/{number}?prefix={prefix}", server().trim_end_matches('/')))
        .unwrap()
}

/// Cuts all connections to a database, and says how many there were.
async fn cut(bench: &mut Bench, database: u32) -> usize {
    let clients: String = bench.raw(&["CLIENT", "LIST"]).await;
    let mine = clients.lines().filter(|line| line.contains(&format!(" db={database} ")));
    let ids: Vec<&str> =
        mine.map(|line| line.strip_prefix("id=").unwrap().split(' ').next().unwrap()).collect();
    for id in &ids {
        bench.raw::<redis::Value>(&["CLIENT", "KILL", "ID", id]).await;
    }
    ids.len()
}

#[tokio::test]
async fn a_lane_that_was_cut_hears_again_without_being_asked() {
    let mut bench = Bench::new().await;
    let lane = database(7, &bench.prefix).open(Some(Inbox::new())).await.unwrap();
    let [a, b] = ["a", "b"].map(|label| bench.claim(label, LONG));
    assert!(matches!(lane.acquire(&a).await.unwrap(), Answer::Granted { .. }));
    assert!(matches!(lane.acquire(&b).await.unwrap(), Answer::Queued { .. }));
    let channel = {
        let pattern = format!("{}:1:in:*", bench.prefix);
        let channels: Vec<String> = bench.raw(&["PUBSUB", "CHANNELS", &pattern]).await;
        let own = bench.claim_on("own", "own", LONG);
        bench.granted(&own).await;
        let lock = format!("{}:1:{{own}}", bench.prefix);
        let row: String = bench.raw(&["GET", &lock]).await;
        let benchs = row.split(' ').nth(5).unwrap();
        channels.into_iter().find(|channel| *channel != benchs).unwrap()
    };
    for _ in 0..3 {
        assert_eq!(cut(&mut bench, 7).await, 1);
        until(async || {
            let (_, listeners): (String, u64) = bench.raw(&["PUBSUB", "NUMSUB", &channel]).await;
            listeners == 1
        })
        .await;
    }
    let mut told = listen(&channel).await;
    lane.release(&lockstep_lock::store::Release::Mine(a.hold())).await.unwrap();
    assert!(told().await.starts_with(&format!("granted {} ", b.id)));
}

#[tokio::test]
async fn a_silent_lane_that_was_cut_answers_the_next_call() {
    let mut bench = Bench::new().await;
    let lane = database(8, &bench.prefix).open(None).await.unwrap();
    let a = bench.claim("a", LONG);
    for round in 0..5 {
        let mut answer = lane.acquire(&a).await;
        if let Err(error) = &answer {
            // The cut was not noticed before the request was under way: that must be said, and
            // asking again must help.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert_eq!(error.effect(), Effect::Unknown, "{error}");
            answer = lane.acquire(&a).await;
        }
        assert!(matches!(answer.unwrap(), Answer::Granted { .. }), "round {round}");
        assert_eq!(cut(&mut bench, 8).await, 1);
    }
}

#[tokio::test]
async fn lanes_without_inbox_do_not_subscribe() {
    let mut bench = Bench::new().await;
    let lane = bench.another_lane(None).await;
    let a = bench.claim("a", LONG);
    lane.acquire(&a).await.unwrap();
    assert_eq!(bench.row().await.split(' ').nth(5).unwrap(), "-");
    let pattern = format!("{}:1:in:*", bench.prefix);
    let channels: Vec<String> = bench.raw(&["PUBSUB", "CHANNELS", &pattern]).await;
    assert_eq!(channels.len(), 1, "only the bench's own");
    // Asking through another lane moves the inbox, but never to none.
    bench.granted(&a).await;
    lane.acquire(&a).await.unwrap();
    assert_eq!(bench.row().await.split(' ').nth(5).unwrap(), channels[0]);

    let owner = Owner::from_u128(0xfeed);
    let b = Claim { owner, ..bench.claim("b", LONG) };
    bench.queued(&b).await;
    lane.acquire(&b).await.unwrap();
    let place: String = bench.raw(&["HGET", &bench.redis_key(":w"), &b.id.to_string()]).await;
    assert_eq!(place.split(' ').nth(4).unwrap(), channels[0]);
    let notes: Vec<String> = bench.raw(&["KEYS", &format!("{}:1:o:*", bench.prefix)]).await;
    assert_eq!(notes, [format!("{}:1:o:{owner}", bench.prefix)], "it waits as who it is");
}

#[tokio::test]
async fn a_lane_that_is_dropped_closes_its_connection() {
    let mut bench = Bench::new().await;
    let lane = database(9, &bench.prefix).open(Some(Inbox::new())).await.unwrap();
    drop(lane);
    until(async || {
        let clients: String = bench.raw(&["CLIENT", "LIST"]).await;
        !clients.contains(" db=9 ")
    })
    .await;
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again() {
    let mut bench = Bench::new().await;
    let a = bench.claim("a", LONG);
    bench.raw::<()>(&["SCRIPT", "FLUSH"]).await;
    bench.granted(&a).await;
    bench.raw::<()>(&["SCRIPT", "FLUSH"]).await;
    bench.release(&a).await;
    bench.raw::<()>(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(bench.lane.inspect(&Query::One(a.key)).await.unwrap().locks, []);
}

#[tokio::test]
async fn facts_are_as_they_are() {
    let facts = Bench::new().await.lane.facts();
    assert_eq!((facts.store, facts.clock), ("redis", "the Redis server's"));
    assert_eq!((facts.fencing, facts.scope), (Fencing::ClockBound, Scope::Network));
    assert!(facts.fair && facts.push);
    for word in ["failover", "persistence", "evict", "clock"] {
        assert!(facts.two_holders_if.contains(word), "{word}");
    }
}

#[tokio::test]
async fn nobody_there_is_named_with_what_to_do() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error =
        Redis::from_url(&format!("redis://{free}")).unwrap().open(None).await.err().unwrap();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    let message = error.to_string();
    assert!(message.contains(&free.to_string()) && message.contains("URL"), "{message}");
}

#[tokio::test]
async fn wrong_credentials_and_missing_rights_are_denied() {
    let mut bench = Bench::new().await;
    let user = format!("u{}", ClaimId::new());
    let rights = ["on", ">c4n4ry", "~*", "+@connection", "+info", "+evalsha"];
    let mut words = vec!["ACL", "SETUSER", &user];
    words.extend(rights);
    bench.raw::<()>(&words).await;
    let url = |password: &str| server().replacen("://", &format!("://{user}:{password}@"), 1);

    let wrong = Redis::from_url(&url("wr0ng")).unwrap().open(None).await.err().unwrap();
    assert_eq!((wrong.kind(), wrong.effect()), (ErrorKind::Denied, Effect::None));
    assert!(!format!("{wrong} {wrong:?}").contains("wr0ng"), "{wrong:?}");

    let deaf = Redis::from_url(&url("c4n4ry")).unwrap().open(Some(Inbox::new())).await;
    assert_eq!(deaf.err().unwrap().kind(), ErrorKind::Denied, "it may not subscribe");

    let lane = Redis::from_url(&url("c4n4ry")).unwrap().open(None).await.unwrap();
    let denied = lane.acquire(&bench.claim("a", LONG)).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    bench.raw::<()>(&["ACL", "DELUSER", &user]).await;
}

#[tokio::test]
async fn a_password_that_is_changed_in_its_file_is_used_by_the_next_connection() {
    let password = Some("the first".to_owned());
    let server = RedisServer::start(RedisOptions { password, ..RedisOptions::default() }).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "the first\n").unwrap();
    let url =
        format!("redis://127.0.0.1:{}?password_file={}", server.port(), file.path().display());
    let lane = Redis::from_url(&url).unwrap().open(None).await.unwrap();
    let claim = Bench::new().await.claim("a", LONG);
    assert!(matches!(lane.acquire(&claim).await.unwrap(), Answer::Granted { .. }));

    std::fs::write(file.path(), "the second").unwrap();
    server.ask(&["CONFIG", "SET", "requirepass", "the second"]).unwrap();
    // Whoever asked with the first password is cut off as well.
    assert!(server.ask(&["PING"]).is_err());
    let admin = redis::Client::open(format!("redis://:the%20second@127.0.0.1:{}", server.port()));
    let mut admin = admin.unwrap().get_connection().unwrap();
    let _: redis::Value =
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query(&mut admin).unwrap();
    until(async || lane.acquire(&claim).await.is_ok()).await;
}
