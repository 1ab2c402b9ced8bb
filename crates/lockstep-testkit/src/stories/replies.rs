//! Requests that pass and replies that do not.

use std::sync::Arc;

use anyhow::Result;
use futures_util::future::try_join_all;

use super::stage;
use crate::oracle::{Counter, Oracle, Recorder};
use crate::suite::Subject;
use crate::suite::env::{Env, LONG, soon};
use crate::wrap::VerbName;

const WORKERS: usize = 4;
const ROUNDS: u64 = 12;

/// The store has written, the reply is lost, and the client takes that for a failure: the lock
/// stays, or is taken twice. Here an unknown outcome is settled: what may have been granted is
/// given back at once, and a release that was carried out is a success.
///
/// # Errors
/// It is not, on this store.
pub async fn reply_lost_after_write(subject: &Subject) -> Result<()> {
    let env = &stage(subject, "reply_lost_after_write").await;
    let counter = Arc::new(Counter::in_memory());
    let name = env.name("counter");
    let workers = try_join_all((0..WORKERS).map(|n| work(env, n, &name, &counter)));
    let (mut oracle, mut done) = (Oracle::default(), 0);
    // The leases outlast the story: who gets in, gets in because somebody gave back.
    for (recorder, acknowledged) in soon("everybody gets in", workers).await?? {
        oracle = oracle.with(recorder.events());
        done += acknowledged;
    }
    assert_eq!(done, WORKERS as u64 * ROUNDS);
    counter.check(done)?;
    assert_eq!(oracle.check_unfair().into_result()? as u64, done);
    env.observer().await?.sees_nothing(&env.key("counter")).await
}

async fn work(env: &Env, n: usize, name: &str, counter: &Counter) -> Result<(Recorder, u64)> {
    let (failing, locks) = env.failing().await?;
    let recorder = Recorder::in_memory(format!("worker {n}"));
    let mut acknowledged = 0;
    for round in 0.. {
        if acknowledged == ROUNDS {
            break;
        }
        // One lost reply may be made up for by asking again at once; two end a request.
        let lost: &[(VerbName, u64)] = match round % 6 {
            1 => &[(VerbName::Acquire, 1)],
            3 => &[(VerbName::Acquire, 1), (VerbName::Acquire, 2)],
            5 => &[(VerbName::Release, 1)],
            _ => &[],
        };
        lost.iter().for_each(|(verb, nth)| failing.lose_reply(*verb, *nth));
        let mut attempt = recorder.asks(name);
        let guard = match locks.lock(name).ttl(LONG).await {
            Ok(guard) => guard,
            Err(error) => {
                assert!(error.may_have_happened() && error.may_retry(), "{error:?}");
                attempt.gave_up();
                continue;
            }
        };
        attempt.granted(&guard);
        counter.increment().await?;
        attempt.releases(&guard);
        guard.release().await?;
        acknowledged += 1;
    }
    Ok((recorder, acknowledged))
}
