//! One bench per test: a prefix of its own, lanes, and a connection to look behind them.

use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner, Token};
use lockstep_lock::store::{
    Answer, Claim, Connect, LockStore, LockView, Query, Release, Released, Renewal,
};
use lockstep_lock::{Inbox, Share};
use lockstep_redis::Redis;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, FromRedisValue};

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// So short that a test may see the end of it.
pub(crate) const SHORT: Duration = Duration::from_millis(60);

pub(crate) fn server() -> String {
    std::env::var("LOCKSTEP_TEST_REDIS")
        .expect("set LOCKSTEP_TEST_REDIS to the URL of a Redis for tests, like redis://127.0.0.1")
}

pub(crate) struct Bench {
    pub(crate) prefix: String,
    pub(crate) lane: Arc<dyn LockStore>,
    pub(crate) raw: MultiplexedConnection,
    key: Key,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let prefix = format!("t{}", ClaimId::new());
        let url = format!("{}?prefix={prefix}", server());
        let lane = Redis::from_url(&url).unwrap().open(Some(Inbox::new())).await.unwrap();
        let client = redis::Client::open(server()).unwrap();
        let raw = client.get_multiplexed_async_connection().await.unwrap();
        Self { prefix, lane, raw, key: Key::new("job").unwrap() }
    }

    pub(crate) async fn another_lane(&self, inbox: Option<Inbox>) -> Arc<dyn LockStore> {
        self.store().open(inbox).await.unwrap()
    }

    pub(crate) fn store(&self) -> Redis {
        Redis::from_url(&format!("{}?prefix={}", server(), self.prefix)).unwrap()
    }

    /// A claim on the key of this bench.
    pub(crate) fn claim(&self, label: &str, ttl: Duration) -> Claim {
        self.claim_on(self.key.as_str(), label, ttl)
    }

    /// A claim of an owner that nobody has named, as most are.
    pub(crate) fn claim_on(&self, name: &str, label: &str, ttl: Duration) -> Claim {
        let id = ClaimId::new();
        Claim {
            id,
            key: Key::new(name).unwrap(),
            owner: Owner::from_u128(id.as_u128()),
            label: Label::new(label),
            ttl,
            share: Share::Exclusive,
            wait: true,
        }
    }

    /// The Redis key of this bench's lock, or what belongs to it.
    pub(crate) fn redis_key(&self, suffix: &str) -> String {
        format!("{}:1:{{{}}}{suffix}", self.prefix, self.key)
    }

    /// Asks, and checks that nothing immortal is left.
    pub(crate) async fn ask(&mut self, claim: &Claim) -> Answer {
        let answer = self.lane.acquire(claim).await.unwrap();
        self.nothing_is_immortal().await;
        answer
    }

    pub(crate) async fn granted(&mut self, claim: &Claim) -> Token {
        match self.ask(claim).await {
            Answer::Granted { token: Some(token) } => token,
            other => panic!("{} should hold: {other:?}", claim.label),
        }
    }

    /// How many are ahead of it.
    pub(crate) async fn queued(&mut self, claim: &Claim) -> u64 {
        match self.ask(claim).await {
            Answer::Queued { ahead, .. } => ahead,
            other => panic!("{} should wait: {other:?}", claim.label),
        }
    }

    pub(crate) async fn renew(&mut self, claim: &Claim) -> Renewal {
        let answers = self.lane.renew(&[claim.hold()]).await.unwrap();
        self.nothing_is_immortal().await;
        answers[0].clone()
    }

    pub(crate) async fn release(&mut self, claim: &Claim) -> Released {
        self.give(Release::Mine(claim.hold())).await
    }

    pub(crate) async fn break_it(&mut self, reason: &str, now: bool) -> Released {
        self.give(Release::Break { key: self.key.clone(), reason: reason.into(), now }).await
    }

    async fn give(&mut self, what: Release) -> Released {
        let released = self.lane.release(&what).await.unwrap();
        self.nothing_is_immortal().await;
        released
    }

    /// As if the holder's lease had just run out.
    pub(crate) async fn end_hold(&mut self, claim: &Claim) {
        let outlives = !self.row().await.starts_with('a');
        let (lock, ttl) = (self.redis_key(""), claim.ttl.as_millis() - 1);
        let ttl = if outlives { ttl } else { 0 };
        self.raw::<()>(&["PEXPIRE", &lock, &ttl.to_string()]).await;
    }

    /// As if the waiter's lease had just run out.
    pub(crate) async fn end_wait(&mut self, claim: &Claim) {
        let (waiters, id) = (self.redis_key(":w"), claim.id.to_string());
        let words: String = self.raw(&["HGET", &waiters, &id]).await;
        let rest = words.split_once(' ').unwrap().1;
        self.raw::<()>(&["HSET", &waiters, &id, &format!("1 {rest}")]).await;
    }

    pub(crate) async fn view(&self) -> Option<LockView> {
        let page = self.lane.inspect(&Query::One(self.key.clone())).await.unwrap();
        assert!(!page.more);
        page.locks.into_iter().next()
    }

    /// Looks until the lock is as it should be: the only way to see time pass at the server.
    pub(crate) async fn see(&self, what: impl Fn(Option<&LockView>) -> bool) {
        until(async || what(self.view().await.as_ref())).await;
    }

    /// What the lock's key says, as a person would read it.
    pub(crate) async fn row(&mut self) -> String {
        let key = self.redis_key("");
        self.raw(&["GET", &key]).await
    }

    pub(crate) async fn raw<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut self.raw).await.unwrap()
    }

    pub(crate) async fn keys(&mut self) -> Vec<String> {
        let pattern = format!("{}:*", self.prefix);
        let mut keys: Vec<String> = self.raw(&["KEYS", &pattern]).await;
        keys.sort();
        keys
    }

    pub(crate) async fn nothing_is_immortal(&mut self) {
        for key in self.keys().await {
            let left: i64 = self.raw.pttl(&key).await.unwrap();
            // -2: it has expired since it was listed.
            assert!(left > 0 || left == -2, "{key} has ttl {left}");
        }
    }
}

/// Asks until the answer is yes; a test that waits for ever says where.
pub(crate) async fn until(mut what: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !what().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it never happened");
}

/// What is published on a channel from now on.
pub(crate) async fn listen(channel: &str) -> impl AsyncFnMut() -> String {
    use futures_util::StreamExt;

    let client = redis::Client::open(server()).unwrap();
    let (mut sink, mut stream) = client.get_async_pubsub().await.unwrap().split();
    sink.subscribe(channel).await.unwrap();
    async move || {
        // The subscription ends with its sink.
        let _sink = &sink;
        let next = tokio::time::timeout(Duration::from_secs(20), stream.next()).await;
        next.expect("nothing was published").unwrap().get_payload().unwrap()
    }
}
