//! Operators who take a lock away.

use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_lock::store::{Answer, Claim, Released, Renewal};

use crate::suite::case::cases;
use crate::suite::client::claim;
use crate::suite::env::{Env, LONG, Run, Stopwatch, at_least, eventually, unless_slow};

cases! { Verbs:
    a_broken_lock_is_not_renewed_and_says_why backs Break;
    a_broken_lock_passes_on_when_its_lease_ends backs Break Leases;
    a_lock_broken_now_passes_on_at_once backs Break;
    breaking_a_free_lock_finds_nothing backs Break;
    a_broken_lock_can_be_given_back backs Break;
    a_break_does_not_hit_who_is_next backs Break;
}

const REASON: &str = "it's \"stuck\": 100 % {certain} \\ 🔒";

async fn a_broken_lock_is_not_renewed_and_says_why(env: Env) -> Result<()> {
    let (one, operator, key) = (env.client().await?, env.client().await?, env.key("broken"));
    let (mine, waiter) = (claim(&key, LONG), claim(&key, LONG));
    let token = one.granted(&mine).await?;
    one.queued(&waiter).await?;
    assert_eq!(operator.break_lock(&key, REASON, false).await?, Released::Done);
    let reason = REASON.to_owned();
    assert_eq!(one.renew(&mine).await?, Renewal::Broken { reason: reason.clone() });
    assert_eq!(one.ask(&mine).await?, Answer::Broken { reason: reason.clone() });
    let view = operator.view(&key).await?.context("it is still held")?;
    let holder = view.holder().context("by the same holder")?;
    assert_eq!((holder.claim, holder.token), (mine.id, token));
    assert_eq!(holder.broken, Some(reason));
    assert_eq!(operator.queued(&waiter).await?.ahead, 0, "it passes on later, not now");
    Ok(())
}

async fn a_broken_lock_passes_on_when_its_lease_ends(env: Env) -> Result<()> {
    let client = env.client().await?;
    unless_slow(|round| {
        let (client, key) = (&client, env.key(&format!("passes {round}")));
        async move {
            let mine = claim(&key, Duration::from_millis(600));
            let waiter = claim(&key, LONG);
            let asked = Stopwatch::start();
            client.granted(&mine).await?;
            client.ask(&waiter).await?;
            client.break_lock(&key, REASON, false).await?;
            // What these two do must not make the lease longer.
            client.renew(&mine).await?;
            client.ask(&mine).await?;
            if asked.elapsed() >= at_least(mine.ttl) {
                return Ok(Run::TooSlow);
            }
            client.granted_in_the_end(&waiter).await?;
            assert!(asked.elapsed() >= at_least(mine.ttl), "after {:?}", asked.elapsed());
            assert!(asked.elapsed() < LONG / 2, "after {:?}", asked.elapsed());
            assert_eq!(client.renew(&mine).await?, Renewal::Lost);
            // The break was of one hold: the next one is whole.
            assert_eq!(client.renew(&waiter).await?, Renewal::Renewed);
            assert_eq!(client.queued(&Claim { ttl: LONG, ..mine }).await?.ahead, 0);
            Ok(Run::Judged(()))
        }
    })
    .await
}

async fn a_lock_broken_now_passes_on_at_once(env: Env) -> Result<()> {
    let (one, operator, key) = (env.client().await?, env.client().await?, env.key("now"));
    let (mine, waiter) = (claim(&key, LONG), claim(&key, LONG));
    one.granted(&mine).await?;
    one.queued(&waiter).await?;
    assert_eq!(operator.break_lock(&key, REASON, true).await?, Released::Done);
    one.granted(&waiter).await?;
    assert_eq!(one.renew(&mine).await?, Renewal::Lost);
    assert_eq!(one.release(&mine).await?, Released::NotHeld);
    assert_eq!(one.holder(&key).await?, Some(waiter.id));
    assert_eq!(one.renew(&waiter).await?, Renewal::Renewed, "the next hold is whole");

    assert_eq!(operator.break_lock(&key, REASON, true).await?, Released::Done);
    assert_eq!(operator.view(&key).await?, None, "nobody waited, so it is free");
    Ok(())
}

async fn breaking_a_free_lock_finds_nothing(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("free"));
    for now in [false, true] {
        assert_eq!(client.break_lock(&key, REASON, now).await?, Released::NotHeld);
    }
    let mine = claim(&key, LONG);
    client.granted(&mine).await?;
    assert_eq!(client.renew(&mine).await?, Renewal::Renewed, "no break waits for a holder");
    client.release(&mine).await?;
    for now in [false, true] {
        assert_eq!(client.break_lock(&key, REASON, now).await?, Released::NotHeld);
    }
    Ok(())
}

async fn a_broken_lock_can_be_given_back(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("back"));
    let (mine, waiter) = (claim(&key, LONG), claim(&key, LONG));
    client.granted(&mine).await?;
    client.queued(&waiter).await?;
    client.break_lock(&key, REASON, false).await?;
    assert_eq!(client.release(&mine).await?, Released::Done, "it was still the holder's");
    client.granted(&waiter).await?;
    let holder = client
        .view(&key)
        .await?
        .and_then(|view| view.holders.into_iter().next())
        .context("it is held")?;
    assert_eq!(holder.broken, None, "the mark went with the hold");
    Ok(())
}

async fn a_break_does_not_hit_who_is_next(env: Env) -> Result<()> {
    let client = env.client().await?;
    for now in [false, true] {
        unless_slow(|round| {
            let (client, key) = (&client, env.key(&format!("innocent {now} {round}")));
            async move {
                let (mine, waiter) = (claim(&key, Duration::from_millis(300)), claim(&key, LONG));
                client.granted(&mine).await?;
                if !matches!(client.ask(&waiter).await?, Answer::Queued { .. }) {
                    return Ok(Run::TooSlow);
                }
                let holder = eventually("the holder's lease ends", || async {
                    let holder = client.holder(&key).await?;
                    Ok((holder != Some(mine.id)).then_some(holder))
                })
                .await?;
                if holder.is_some() {
                    // Where the first in line holds by being first, nobody is ever about to be
                    // granted, and a break means whom it finds.
                    assert_eq!(holder, Some(waiter.id));
                    return Ok(Run::Judged(()));
                }
                // Looking heals nothing: the lease has run out, and nobody has been granted yet.
                assert_eq!(client.break_lock(&key, REASON, now).await?, Released::NotHeld);
                client.granted(&waiter).await?;
                assert_eq!(client.renew(&waiter).await?, Renewal::Renewed, "it was not meant");
                Ok(Run::Judged(()))
            }
        })
        .await?;
    }
    Ok(())
}
