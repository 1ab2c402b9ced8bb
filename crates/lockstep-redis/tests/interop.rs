//! Plain locks in mutual exclusion with other people's libraries, both ways: redis-py, node-redlock, redsync,
//! and somebody with `redis-cli`. The programs are in `interop/`.

#![expect(clippy::unwrap_used, reason = "a test says by panicking what went wrong")]

#[path = "interop/foreign.rs"]
mod foreign;

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use foreign::{Foreign, Player};
use lockstep_core::{ClaimId, Key};
use lockstep_lock::{Guard, LockError, Locks, LostCause, Options};
use lockstep_redis::Redis;
use lockstep_testkit::servers;
use lockstep_testkit::wrap::Waiters;
use redis::AsyncCommands;
use tokio::task::JoinHandle;

/// A lease that outlasts a test: what is free was given back, or ended by hand.
const LONG: u64 = 60_000;

fn ttl(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Our handle, a name, one of theirs, and a look behind both.
struct Table {
    ours: Locks,
    theirs: Foreign,
    waiters: Waiters,
    name: String,
    raw: redis::aio::MultiplexedConnection,
}

impl Table {
    async fn laid(player: Player) -> Self {
        let url = servers::redis_url();
        let store = Redis::from_url(&format!("{url}/?layout=plain")).unwrap();
        let raw = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await;
        let name = format!("interop:{}", ClaimId::new());
        let waiters = Waiters::default();
        let store = waiters.watch(Arc::new(store));
        let ours = Locks::open_with(store, Options::default()).await.unwrap();
        let theirs = Foreign::start(player).await;
        Self { ours, theirs, waiters, name, raw: raw.unwrap() }
    }

    async fn they(&mut self, order: &str, ttl_ms: impl ToString) -> String {
        let order = format!("{order} {} {}", self.name, ttl_ms.to_string());
        self.theirs.obeys(&order).await
    }

    /// We wait, and the server has said so.
    async fn we_wait(&self) -> JoinHandle<Result<Guard, LockError>> {
        // It would ask again by itself only after twenty seconds.
        let waiting = tokio::spawn(self.ours.lock(&self.name).ttl(ttl(LONG)).into_future());
        let key = Key::new(&self.name).unwrap();
        soon(async {
            while self.waiters.of(&key) == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        waiting
    }

    /// As if the lease had come to its end.
    async fn lease_ends(&mut self) {
        let was_there: bool = self.raw.pexpire(&self.name, 1).await.unwrap();
        assert!(was_there, "somebody held it");
    }

    async fn value(&mut self) -> Option<String> {
        self.raw.get(&self.name).await.unwrap()
    }
}

/// What must come, and soon enough; how soon is not the question.
async fn soon<T>(what: impl IntoFuture<Output = T>) -> T {
    let what = tokio::time::timeout(Duration::from_secs(15), what.into_future());
    what.await.expect("it never happened")
}

async fn they_hold_and_we_wait(player: Player) {
    let mut table = Table::laid(player).await;
    assert_eq!(table.they("try", LONG).await, "held");
    assert!(table.ours.try_lock(&table.name).await.unwrap().is_none());
    let waiting = table.we_wait().await;
    let seen = table.ours.inspect(&table.name).await.unwrap().unwrap();
    assert!(!seen.holder().unwrap().label.as_str().is_empty(), "what they wrote is shown");
    assert!(!waiting.is_finished());
    assert_eq!(table.theirs.obeys("release").await, "released");
    let guard = soon(waiting).await.unwrap().unwrap();
    assert!(guard.is_trusted() && guard.token().is_none());
    assert_eq!(table.they("try", LONG).await, "refused", "while we hold it");
    guard.release().await.unwrap();
    assert_eq!(table.value().await, None);
}

async fn we_hold_and_they_wait(player: Player) {
    let mut table = Table::laid(player).await;
    let guard = table.ours.lock(&table.name).ttl(ttl(LONG)).await.unwrap();
    assert_eq!(table.they("try", LONG).await, "refused");
    let order = format!("wait {} {LONG}", table.name);
    table.theirs.says(&order).await;
    assert!(guard.is_trusted());
    guard.release().await.unwrap();
    assert_eq!(table.theirs.answers().await, "held");
    assert!(table.ours.try_lock(&table.name).await.unwrap().is_none(), "while they hold it");
    assert_eq!(table.theirs.obeys("release").await, "released");
}

async fn they_die_and_we_inherit(player: Player) {
    let mut table = Table::laid(player).await;
    assert_eq!(table.they("try", LONG).await, "held");
    table.theirs.dies().await;
    let waiting = table.we_wait().await;
    table.lease_ends().await;
    let guard = soon(waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

async fn nobody_deletes_the_successors_lock(player: Player) {
    let mut table = Table::laid(player).await;
    // Theirs runs out, and we are next.
    assert_eq!(table.they("try", LONG).await, "held");
    table.lease_ends().await;
    let guard = soon(table.ours.lock(&table.name).ttl(ttl(LONG))).await.unwrap();
    let value = table.value().await;
    assert_eq!(table.theirs.obeys("release").await, "not held");
    assert_eq!(table.value().await, value, "ours is untouched");
    assert!(guard.is_trusted());
    guard.release().await.unwrap();

    // Ours runs out, and they are next.
    let leaked = table.ours.lock(&table.name).ttl(ttl(LONG)).await.unwrap().leak().unwrap();
    table.lease_ends().await;
    assert_eq!(table.they("wait", LONG).await, "held");
    let value = table.value().await;
    match table.ours.adopt(leaked).await {
        Err(LockError::Lost(lost)) => assert_eq!(lost.cause, LostCause::Taken),
        other => panic!("it is theirs: {other:?}"),
    }
    assert_eq!(table.value().await, value, "theirs is untouched");
    assert_eq!(table.theirs.obeys(&format!("extend {LONG}")).await, "extended");
    assert_eq!(table.theirs.obeys("release").await, "released");
}

async fn a_break_takes_it_from_them(player: Player) {
    let mut table = Table::laid(player).await;
    assert_eq!(table.they("try", LONG).await, "held");
    assert!(table.ours.break_lock(&table.name, "stuck").await.unwrap());
    let seen = table.ours.inspect(&table.name).await.unwrap().unwrap();
    assert_eq!(seen.holder().unwrap().broken.as_deref(), Some("stuck"));
    assert!(table.ours.try_lock(&table.name).await.unwrap().is_none(), "not before its lease ends");
    assert_eq!(table.theirs.obeys(&format!("extend {LONG}")).await, "not held");
    assert_eq!(table.theirs.obeys("release").await, "not held");
    table.lease_ends().await;
    let guard = soon(table.ours.lock(&table.name).ttl(ttl(LONG))).await.unwrap();
    guard.release().await.unwrap();

    assert_eq!(table.they("try", LONG).await, "held");
    assert!(table.ours.break_lock_now(&table.name, "stuck").await.unwrap());
    let guard = table.ours.try_lock(&table.name).await.unwrap().expect("it is free at once");
    assert_eq!(table.theirs.obeys("release").await, "not held");
    guard.release().await.unwrap();
}

macro_rules! plays {
    ($($player:ident => $variant:ident;)+) => {$(
        mod $player {
            use super::*;

            #[tokio::test]
            async fn they_hold_and_we_wait() {
                super::they_hold_and_we_wait(Player::$variant).await;
            }

            #[tokio::test]
            async fn we_hold_and_they_wait() {
                super::we_hold_and_they_wait(Player::$variant).await;
            }

            #[tokio::test]
            async fn they_die_and_we_inherit() {
                super::they_die_and_we_inherit(Player::$variant).await;
            }

            #[tokio::test]
            async fn nobody_deletes_the_successors_lock() {
                super::nobody_deletes_the_successors_lock(Player::$variant).await;
            }

            #[tokio::test]
            async fn a_break_takes_it_from_them() {
                super::a_break_takes_it_from_them(Player::$variant).await;
            }
        }
    )+};
}

plays! {
    redis_py => Python;
    node_redlock => Node;
    redsync => Go;
    by_hand => Shell;
}

/// What redis-py does unless it is told otherwise: a lock that never ends.
#[tokio::test]
async fn a_lock_of_redis_py_without_ttl_is_waited_for_and_not_broken_by_halves() {
    let mut table = Table::laid(Player::Python).await;
    assert_eq!(table.they("try", "-").await, "held");
    let value = table.value().await;
    assert!(table.ours.try_lock(&table.name).await.unwrap().is_none());
    let waiting = table.we_wait().await;
    let refused = table.ours.break_lock(&table.name, "stuck").await.unwrap_err();
    assert!(refused.to_string().contains("--now"), "{refused}");
    assert_eq!(table.value().await, value, "nothing was changed");
    assert!(!waiting.is_finished());
    assert_eq!(table.theirs.obeys("release").await, "released");
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}
