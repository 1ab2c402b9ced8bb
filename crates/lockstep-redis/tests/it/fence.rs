//! Plain writes that a replaced holder cannot make.

use lockstep_core::{ErrorKind, Token};
use lockstep_lock::Locks;
use lockstep_redis::Redis;
use lockstep_redis::fence::{Fence, FenceError, GuardedScript};
use redis::AsyncCommands;

use crate::support::{Bench, server};

fn stale(result: Result<(), FenceError>) -> (u64, u64) {
    match result {
        Err(FenceError::Stale { token, seen, .. }) => (token.get(), seen.get()),
        other => panic!("expected a stale fence, got {other:?}"),
    }
}

#[tokio::test]
async fn the_write_of_a_holder_that_was_replaced_is_refused() {
    let Bench { mut raw, prefix, .. } = Bench::new().await;
    let url = format!("{}?prefix={prefix}", server());
    let locks = Locks::open(Redis::from_url(&url).unwrap()).await.unwrap();
    let late = locks.lock("stock").await.unwrap();
    locks.break_lock_now("stock", "test").await.unwrap();
    let next = locks.lock("stock").await.unwrap();
    let key = format!("{prefix}:stock");

    let (late, next) = (Fence::of(&late).unwrap(), Fence::of(&next).unwrap());
    late.set(&mut raw, &key, 1).await.unwrap();
    next.set(&mut raw, &key, 2).await.unwrap();
    next.set(&mut raw, &key, 3).await.unwrap();
    let (token, seen) = stale(late.set(&mut raw, &key, 4).await);
    assert!(token < seen);
    assert_eq!(raw.get::<_, i64>(&key).await.unwrap(), 3);
}

#[tokio::test]
async fn a_script_keeps_its_keys_and_arguments_and_runs_only_for_the_latest() {
    let Bench { mut raw, prefix, .. } = Bench::new().await;
    let keys = [format!("{{{prefix}}}a"), format!("{{{prefix}}}b")];
    let keys = keys.each_ref().map(String::as_str);
    let shift = GuardedScript::new(
        "redis.call('DECRBY', KEYS[1], ARGV[1]); return redis.call('INCRBY', KEYS[2], ARGV[2])",
    );
    // One apart, where a floating point number cannot tell them any more, and one digit more.
    let tokens = [(1 << 53) - 1, 1 << 53, (1 << 53) + 1, u64::MAX / 2, 10_000_000_000_000_000_000];
    for (n, token) in tokens.into_iter().enumerate() {
        let fence = Fence::new(Token::new(token));
        let sum: i64 = fence.run(&mut raw, &shift, &keys, &["2", "3"]).await.unwrap();
        assert_eq!(sum, 3 * (n as i64 + 1));
        for older in &tokens[..n] {
            let fence = Fence::new(Token::new(*older));
            let refused = fence.run::<()>(&mut raw, &shift, &keys, &["2", "3"]).await;
            assert_eq!(stale(refused), (*older, token));
        }
    }
    assert_eq!(raw.get::<_, i64>(keys[0]).await.unwrap(), -10);
}

#[tokio::test]
async fn what_goes_wrong_in_a_script_is_told_and_no_stale_fence() {
    let Bench { mut raw, prefix, .. } = Bench::new().await;
    let fence = Fence::new(Token::new(7));
    let key = format!("{prefix}:text");
    fence.set(&mut raw, &key, "word").await.unwrap();
    let add = GuardedScript::new("return redis.call('INCR', KEYS[1])");
    let none: [&str; 0] = [];
    let error = fence.run::<i64>(&mut raw, &add, &[&key], &none).await.unwrap_err();
    assert!(matches!(&error, FenceError::Store(e) if e.kind() == ErrorKind::Foreign), "{error:?}");
    let error = fence.run::<i64>(&mut raw, &add, &[], &none).await.unwrap_err();
    assert!(matches!(&error, FenceError::Store(e) if e.kind() == ErrorKind::Config), "{error:?}");
}
