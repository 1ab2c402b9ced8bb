//! What is the plain layout's own: keys that others write, or have written otherwise.

use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{ClaimId, Effect, ErrorKind, Key, Label, Owner};
use lockstep_lock::store::{
    Answer, Claim, Connect, LockStore, LockView, Query, Release, Released, Renewal,
};
use lockstep_lock::{Fencing, Inbox, LockError, Locks, Need, Share, Signal};
use lockstep_redis::Redis;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{LONG, SHORT, server, until};

struct Bench {
    name: Key,
    lane: Arc<dyn LockStore>,
    /// The claims that were told to ask again.
    told: UnboundedReceiver<ClaimId>,
    raw: MultiplexedConnection,
}

impl Bench {
    async fn new() -> Self {
        Self::at(&server()).await
    }

    async fn at(server_url: &str) -> Self {
        let (tell, told) = unbounded_channel();
        let inbox = Inbox::tapped(move |signal| {
            if let Signal::AskAgain { claim } = signal {
                let _ = tell.send(claim);
            }
        });
        let lane = store(server_url).open(Some(inbox)).await.unwrap();
        let client = redis::Client::open(server()).unwrap();
        let raw = client.get_multiplexed_async_connection().await.unwrap();
        let name = Key::new(format!("plain:{}", ClaimId::new())).unwrap();
        Self { name, lane, told, raw }
    }

    fn claim(&self, ttl: Duration) -> Claim {
        let id = ClaimId::new();
        Claim {
            id,
            key: self.name.clone(),
            owner: Owner::from_u128(id.as_u128()),
            label: Label::new("bench"),
            ttl,
            share: Share::Exclusive,
            wait: true,
        }
    }

    async fn raw<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut self.raw).await.unwrap()
    }

    async fn value(&mut self) -> Option<String> {
        let name = self.name.clone();
        self.raw(&["GET", name.as_str()]).await
    }

    async fn is_told(&mut self) -> ClaimId {
        let told = tokio::time::timeout(Duration::from_secs(20), self.told.recv());
        told.await.expect("nobody was told").unwrap()
    }

    async fn view(&self) -> Option<LockView> {
        let page = self.lane.inspect(&Query::One(self.name.clone())).await.unwrap();
        page.locks.into_iter().next()
    }

    fn broken(&self, now: bool) -> Release {
        Release::Break { key: self.name.clone(), reason: "why not".into(), now }
    }
}

fn store(server_url: &str) -> Redis {
    Redis::from_url(&format!("{server_url}?layout=plain")).unwrap()
}

async fn handle() -> Locks {
    Locks::open(store(&server())).await.unwrap()
}

#[tokio::test]
async fn the_key_is_the_name_and_the_value_is_the_claim() {
    let mut bench = Bench::new().await;
    let mine = bench.claim(LONG);
    assert_eq!(bench.lane.acquire(&mine).await.unwrap(), Answer::Granted { token: None });
    assert_eq!(bench.value().await, Some(mine.id.to_string()));
    let name = bench.name.clone();
    let left: i64 = bench.raw(&["PTTL", name.as_str()]).await;
    assert!((1..=60_000).contains(&left), "{left}");
    assert_eq!(bench.lane.release(&Release::Mine(mine.hold())).await.unwrap(), Released::Done);
    assert_eq!(bench.value().await, None);

    let locks = handle().await;
    let prefixed = Redis::from_url(&format!("{}/?layout=plain&prefix=plain:", server())).unwrap();
    let prefixed = Locks::open(prefixed).await.unwrap();
    let guard = locks.lock(name.as_str()).await.unwrap();
    let short = name.as_str().strip_prefix("plain:").unwrap();
    assert!(prefixed.try_lock(short).await.unwrap().is_none(), "the same key");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_left_alone() {
    let mut bench = Bench::new().await;
    let name = bench.name.clone();
    bench.raw::<()>(&["HSET", name.as_str(), "field", "somebody's"]).await;
    let claim = bench.claim(LONG);
    let look = Query::One(name.clone());
    for error in [
        bench.lane.acquire(&claim).await.unwrap_err(),
        bench.lane.inspect(&look).await.unwrap_err(),
        bench.lane.release(&bench.broken(false)).await.unwrap_err(),
        bench.lane.release(&bench.broken(true)).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Foreign, Effect::None));
        let message = error.to_string();
        assert!(message.contains(name.as_str()) && message.contains("hash"), "{message}");
    }
    assert_eq!(bench.lane.renew(&[claim.hold()]).await.unwrap(), [Renewal::Lost]);
    let released = bench.lane.release(&Release::Mine(claim.hold())).await.unwrap();
    assert_eq!(released, Released::NotHeld);
    let field: String = bench.raw(&["HGET", name.as_str(), "field"]).await;
    assert_eq!(field, "somebody's");
    let left: i64 = bench.raw(&["PTTL", name.as_str()]).await;
    assert_eq!(left, -1, "not even its ttl was touched");
    bench.raw::<()>(&["DEL", name.as_str()]).await;
}

#[tokio::test]
async fn a_key_without_ttl_is_somebodys_until_that_one_says_otherwise() {
    let mut bench = Bench::new().await;
    let (name, claim) = (bench.name.clone(), bench.claim(LONG));
    bench.raw::<()>(&["SET", name.as_str(), "for ever"]).await;
    match bench.lane.acquire(&claim).await.unwrap() {
        Answer::Queued { holder_left, .. } => assert!(holder_left > LONG, "{holder_left:?}"),
        other => panic!("{other:?}"),
    }
    let refused = bench.lane.release(&bench.broken(false)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Foreign, Effect::None));
    assert!(refused.to_string().contains("--now"), "{refused}");
    assert_eq!(bench.value().await.as_deref(), Some("for ever"));
    bench.raw::<()>(&["DEL", name.as_str()]).await;
    assert_eq!(bench.is_told().await, claim.id, "also of what a stranger deletes");
    assert_eq!(bench.lane.acquire(&claim).await.unwrap(), Answer::Granted { token: None });

    bench.raw::<()>(&["SET", name.as_str(), "for ever"]).await;
    assert_eq!(bench.lane.release(&bench.broken(true)).await.unwrap(), Released::Done);
    assert_eq!(bench.value().await, None);
}

/// The server tells by itself: nobody asks here, and nothing was configured.
#[tokio::test]
async fn waiters_are_told_when_a_lease_comes_to_its_end() {
    let mut bench = Bench::new().await;
    let (name, waiter) = (bench.name.clone(), bench.claim(LONG));
    // Again if the machine was too slow to ask before the end.
    for ms in ["200", "2000", "20000"] {
        bench.raw::<()>(&["SET", name.as_str(), "theirs", "PX", ms]).await;
        match bench.lane.acquire(&waiter).await.unwrap() {
            Answer::Queued { .. } => break,
            _ => assert_ne!(ms, "20000"),
        }
    }
    assert_eq!(bench.is_told().await, waiter.id);
    assert_eq!(bench.lane.acquire(&waiter).await.unwrap(), Answer::Granted { token: None });
}

#[tokio::test]
async fn a_lease_that_ran_out_is_not_brought_back_and_not_given_back() {
    let mut bench = Bench::new().await;
    let mine = bench.claim(SHORT);
    bench.lane.acquire(&mine).await.unwrap();
    until(async || bench.view().await.is_none()).await;
    assert_eq!(bench.lane.renew(&[mine.hold()]).await.unwrap(), [Renewal::Lost]);
    assert_eq!(bench.value().await, None);
    let name = bench.name.clone();
    bench.raw::<()>(&["SET", name.as_str(), "the next", "PX", "60000"]).await;
    assert_eq!(bench.lane.renew(&[mine.hold()]).await.unwrap(), [Renewal::Lost]);
    let late = bench.lane.release(&Release::Mine(mine.hold())).await.unwrap();
    assert_eq!(late, Released::NotHeld);
    assert_eq!(bench.value().await.as_deref(), Some("the next"));
    let left: i64 = bench.raw(&["PTTL", name.as_str()]).await;
    assert!(left <= 60_000, "{left}");
    bench.raw::<()>(&["DEL", name.as_str()]).await;
}

#[tokio::test]
async fn a_break_is_read_by_its_holder_and_may_be_said_again() {
    let mut bench = Bench::new().await;
    let mine = bench.claim(LONG);
    bench.lane.acquire(&mine).await.unwrap();
    for reason in ["first", "it's: \"second\""] {
        let what = Release::Break { key: mine.key.clone(), reason: reason.into(), now: false };
        assert_eq!(bench.lane.release(&what).await.unwrap(), Released::Done);
        let broken = Renewal::Broken { reason: reason.into() };
        assert_eq!(bench.lane.renew(&[mine.hold()]).await.unwrap(), [broken]);
        assert_eq!(bench.value().await, Some(format!("broken:{}:{reason}", mine.id)));
        let view = bench.view().await.unwrap();
        assert_eq!(view.holder().unwrap().claim, mine.id);
        assert_eq!(view.holder().unwrap().broken.as_deref(), Some(reason));
    }
    let name = mine.key.as_str();
    let left: i64 = bench.raw(&["PTTL", name]).await;
    assert!((1..=60_000).contains(&left), "{left}");
    let other = Claim { wait: false, ..bench.claim(LONG) };
    assert_eq!(bench.lane.acquire(&other).await.unwrap(), Answer::Busy);
    assert_eq!(bench.lane.release(&Release::Mine(mine.hold())).await.unwrap(), Released::Done);
    assert_eq!(bench.value().await, None);
}

#[tokio::test]
async fn what_it_does_not_have_is_refused_by_name() {
    let (bench, locks) = (Bench::new().await, handle().await);
    let shared = Claim { share: Share::Read, ..bench.claim(LONG) };
    let error = bench.lane.acquire(&shared).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("layout=lockstep"), "{error}");

    let unmet = |error: LockError| match error {
        LockError::Unmet { need, store: "redis-plain" } => need,
        other => panic!("{other}"),
    };
    assert_eq!(unmet(locks.read("a").await.unwrap_err()), Need::Shared);
    assert_eq!(unmet(locks.permits("a", 2).acquire(1).await.unwrap_err()), Need::Shared);
    let counted = Need::Fencing(Fencing::ClockBound);
    assert_eq!(unmet(locks.election("a").campaign().await.unwrap_err()), counted);
    assert_eq!(unmet(locks.require(counted).err().unwrap()), counted);
    assert!(locks.facts().push);

    let everything = locks.list("", 10).await.unwrap_err().to_string();
    assert!(everything.contains("prefix"), "{everything}");
}

#[tokio::test]
async fn strings_are_listed_and_nothing_else() {
    let mut bench = Bench::new().await;
    let name = bench.name.clone();
    let key = |what: &str| format!("{name}/{what}");
    bench.raw::<()>(&["SET", &key("a"), "worker 7", "PX", "60000"]).await;
    bench.raw::<()>(&["SET", &key("b"), "for ever"]).await;
    bench.raw::<()>(&["HSET", &key("c"), "field", "value"]).await;
    bench.raw::<()>(&["SET", &key("d\n"), "no name of ours", "PX", "60000"]).await;
    let query = Query::All { prefix: key(""), limit: 10 };
    let page = bench.lane.inspect(&query).await.unwrap();
    let seen: Vec<(&str, &str)> = page
        .locks
        .iter()
        .map(|lock| (lock.key.as_str(), lock.holder().unwrap().label.as_str()))
        .collect();
    assert_eq!(seen, [(&*key("a"), "worker 7"), (&*key("b"), "for ever")]);
    bench.raw::<()>(&["DEL", &key("a"), &key("b"), &key("c"), &key("d\n")]).await;
}

/// A user who may not ask to be told, as behind some proxies: waiters ask at intervals, and it is said.
#[tokio::test]
async fn where_the_server_does_not_tell_waiters_ask() {
    let mut bench = Bench::new().await;
    let user = format!("u{}", ClaimId::new());
    let rights = ["on", ">secret", "~*", "+@all", "-client|tracking"];
    bench.raw::<()>(&[&["ACL", "SETUSER", &user][..], &rights].concat()).await;
    let url = server().replacen("://", &format!("://{user}:secret@"), 1);
    let (deaf, name) = (Locks::open(store(&url)).await.unwrap(), bench.name.clone());
    assert!(!deaf.facts().push);
    assert!(!store(&url).open(None).await.unwrap().facts().push, "for whoever asks");
    let guard = handle().await.lock(name.as_str()).ttl(LONG).await.unwrap();
    let waiting = tokio::spawn(deaf.lock(name.as_str()).ttl(LONG).into_future());
    assert!(deaf.try_lock(name.as_str()).await.unwrap().is_none());
    guard.release().await.unwrap();
    // Being told would be the only other way to hear of it within twenty seconds.
    let served = tokio::time::timeout(Duration::from_secs(15), waiting).await;
    served.expect("it does not ask").unwrap().unwrap().release().await.unwrap();
    drop(deaf);
    bench.raw::<()>(&["ACL", "DELUSER", &user]).await;
}

/// What was told while a connection was lost is made up for.
#[tokio::test]
async fn a_waiter_whose_connection_was_cut_asks_again() {
    let mut bench = Bench::at(&format!("{}/11", server().trim_end_matches('/'))).await;
    let (name, waiter) = (bench.name.clone(), bench.claim(LONG));
    bench.raw::<()>(&["SELECT", "11"]).await;
    bench.raw::<()>(&["SET", name.as_str(), "theirs", "PX", "60000"]).await;
    bench.raw::<()>(&["SELECT", "0"]).await;
    bench.lane.acquire(&waiter).await.unwrap();
    let clients: String = bench.raw(&["CLIENT", "LIST"]).await;
    let id = clients.lines().find(|line| line.contains(" db=11 ")).unwrap();
    let id = id.strip_prefix("id=").unwrap().split(' ').next().unwrap();
    bench.raw::<redis::Value>(&["CLIENT", "KILL", "ID", id]).await;
    assert_eq!(bench.is_told().await, waiter.id);
    // And the new connection listens as the old one did.
    bench.lane.acquire(&waiter).await.unwrap();
    bench.raw::<()>(&["SELECT", "11"]).await;
    bench.raw::<()>(&["DEL", name.as_str()]).await;
    assert_eq!(bench.is_told().await, waiter.id);
}
