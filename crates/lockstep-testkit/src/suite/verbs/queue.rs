//! The queue: order of arrival, places, and what waiters are told.

use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_lock::Signal;
use lockstep_lock::store::{Answer, Released};

use crate::suite::case::cases;
use crate::suite::client::{claim, hasty};
use crate::suite::env::{Env, LONG, Run, SHORT, Stopwatch, at_least, eventually, unless_slow};

cases! { Verbs:
    waiters_are_told_their_place_and_what_they_wait_behind backs Fair;
    a_release_passes_to_the_first_waiter_in_the_same_step backs Fair Exclusive;
    a_passed_on_lock_lasts_as_long_as_it_is_trusted backs Leases;
    a_waiter_is_told_when_the_lock_is_free backs Push;
    only_the_next_waiter_is_told backs Push Fair;
    a_waiter_keeps_its_place_by_asking backs Fair Idempotent;
    a_lapsed_waiter_goes_to_the_end backs Fair Leases;
    a_dead_waiter_is_skipped backs Leases Fair;
    a_newcomer_does_not_overtake backs Fair;
}

async fn waiters_are_told_their_place_and_what_they_wait_behind(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("places"));
    let token = one.granted(&claim(&key, LONG)).await?;
    let waiters: Vec<_> = (0..4).map(|_| claim(&key, LONG)).collect();
    for (n, waiter) in waiters.iter().enumerate() {
        let client = if n % 2 == 0 { &one } else { &other };
        let place = client.queued(waiter).await?;
        assert_eq!(place.ahead, n as u64);
        assert!(place.behind >= token, "{place:?}");
        assert!(place.holder_left <= LONG, "{place:?}");
        // Whoever is next looks sooner where a lock may end before its lease does.
        let sooner = env.facts.ends_with_connection;
        assert!(place.holder_left >= LONG / 2 || sooner, "{place:?}");
    }
    let ids: Vec<_> = waiters.iter().map(|waiter| waiter.id).collect();
    assert_eq!(one.waiters(&key).await?, ids);
    for (n, waiter) in waiters.iter().enumerate() {
        assert_eq!(one.queued(waiter).await?.ahead, n as u64, "asking again keeps the place");
    }
    Ok(())
}

async fn a_release_passes_to_the_first_waiter_in_the_same_step(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("pass"));
    let (holder, first, second) = (claim(&key, LONG), claim(&key, LONG), claim(&key, LONG));
    one.granted(&holder).await?;
    other.queued(&first).await?;
    one.queued(&second).await?;
    assert_eq!(one.release(&holder).await?, Released::Done);
    // Nobody has asked since: whoever looks must not find the lock free.
    assert_eq!(one.holder(&key).await?, Some(first.id));
    assert_eq!(one.queued(&second).await?.ahead, 0);
    let token = other.granted(&first).await?;
    assert!(one.queued(&second).await?.behind >= token);
    Ok(())
}

/// The guard trusts a pushed grant from the moment its last ask was sent.
async fn a_passed_on_lock_lasts_as_long_as_it_is_trusted(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("lasts"));
    let (holder, waiter) = (claim(&key, LONG), claim(&key, LONG / 2));
    client.granted(&holder).await?;
    let asked = Stopwatch::start();
    client.queued(&waiter).await?;
    client.release(&holder).await?;
    let left = eventually("the waiter holds it", || async {
        let holder = client.view(&key).await?.and_then(|view| view.holders.into_iter().next());
        if holder.as_ref().is_none_or(|holder| holder.claim != waiter.id) {
            client.ask(&waiter).await?;
        }
        Ok(holder.filter(|holder| holder.claim == waiter.id).map(|holder| holder.left))
    })
    .await?;
    assert!(left <= waiter.ttl, "{left:?} of {:?}", waiter.ttl);
    assert!(left + asked.elapsed() >= at_least(waiter.ttl), "{left:?} of {:?}", waiter.ttl);
    Ok(())
}

async fn a_waiter_is_told_when_the_lock_is_free(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("free"));
    let (holder, waiter) = (claim(&key, LONG), claim(&key, LONG));
    one.granted(&holder).await?;
    other.queued(&waiter).await?;
    assert_eq!(other.heard_of(&waiter), [], "not before");
    one.release(&holder).await?;
    // Nobody asks, so only the store can have said it.
    eventually("the waiter is told", || async { Ok(other.heard_of(&waiter).into_iter().next()) })
        .await?;
    other.granted(&waiter).await?;
    Ok(())
}

async fn only_the_next_waiter_is_told(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("told"));
    let (holder, first, second) = (claim(&key, LONG), claim(&key, LONG), claim(&key, LONG));
    one.granted(&holder).await?;
    let behind = other.queued(&first).await?.behind;
    other.queued(&second).await?;
    one.release(&holder).await?;
    let signal = eventually("the first waiter is told", || async {
        Ok(other.heard_of(&first).into_iter().next())
    })
    .await?;
    if let Signal::Granted { token: Some(token), .. } = signal {
        assert!(Some(token) > behind, "a pushed grant is newer than the one it waited for");
        assert_eq!(other.granted(&first).await?, Some(token), "and its token is the grant's");
    }
    other.granted(&first).await?;
    other.release(&first).await?;
    eventually("the second waiter is told", || async {
        Ok(other.heard_of(&second).into_iter().next())
    })
    .await?;
    assert_eq!(other.heard_of(&second).len(), 1, "only when it was its turn");
    Ok(())
}

async fn a_waiter_keeps_its_place_by_asking(env: Env) -> Result<()> {
    let client = env.client().await?;
    let ttl = Duration::from_millis(400).max(env.facts.ttl_min);
    let ahead = unless_slow(|round| {
        let (client, key) = (&client, env.key(&format!("kept {round}")));
        async move {
            let (keen, idle) = (claim(&key, ttl), claim(&key, LONG));
            client.granted(&claim(&key, LONG)).await?;
            let mut lease = Stopwatch::start();
            let mut place = client.queued(&keen).await?;
            client.queued(&idle).await?;
            let waiting = Stopwatch::start();
            while waiting.elapsed() < ttl * 3 {
                tokio::time::sleep(ttl / 8).await;
                let asked = Stopwatch::start();
                place = client.queued(&keen).await?;
                if lease.elapsed() > at_least(ttl) {
                    return Ok(Run::TooSlow);
                }
                lease = asked;
            }
            Ok(Run::Judged(place.ahead))
        }
    })
    .await?;
    assert_eq!(ahead, 0, "it has asked all the time, and still is before the other");
    Ok(())
}

async fn a_lapsed_waiter_goes_to_the_end(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("lapsed"));
    let (holder, lapses, stays) =
        (claim(&key, LONG), claim(&key, SHORT.max(env.facts.ttl_min)), claim(&key, LONG));
    client.granted(&holder).await?;
    client.queued(&lapses).await?;
    client.queued(&stays).await?;
    eventually("only one waits", || async {
        Ok((client.waiters(&key).await? == [stays.id]).then_some(()))
    })
    .await?;
    let back = lockstep_lock::store::Claim { ttl: LONG, ..lapses };
    assert_eq!(client.queued(&back).await?.ahead, 1);
    assert_eq!(client.waiters(&key).await?, [stays.id, back.id]);
    client.release(&holder).await?;
    assert_eq!(client.holder(&key).await?, Some(stays.id));
    Ok(())
}

async fn a_dead_waiter_is_skipped(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("dead"));
    let (holder, alive) = (claim(&key, LONG), claim(&key, LONG));
    client.granted(&holder).await?;
    for _ in 0..3 {
        client.queued(&claim(&key, SHORT.max(env.facts.ttl_min))).await?;
    }
    client.queued(&alive).await?;
    eventually("the dead do not count", || async {
        let view = client.view(&key).await?.context("it is held")?;
        Ok((view.waiting == 1).then_some(()))
    })
    .await?;
    assert_eq!(client.queued(&alive).await?.ahead, 0, "the dead are not ahead of anybody");
    client.release(&holder).await?;
    client.granted(&alive).await?;
    Ok(())
}

async fn a_newcomer_does_not_overtake(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("order"));
    let (holder, waiter) = (claim(&key, LONG), claim(&key, LONG));
    client.granted(&holder).await?;
    client.queued(&waiter).await?;
    client.release(&holder).await?;
    let newcomer = claim(&key, LONG);
    assert_eq!(client.queued(&newcomer).await?.ahead, 0, "behind the waiter that now holds it");
    assert_eq!(client.ask(&hasty(&key, LONG)).await?, Answer::Busy);
    assert_eq!(client.holder(&key).await?, Some(waiter.id));
    Ok(())
}
