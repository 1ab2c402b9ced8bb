//! Leases: they end by themselves, renewals extend them, nothing brings them back.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use lockstep_lock::store::{Answer, Claim, RENEW_BATCH, Released, Renewal};

use crate::suite::case::cases;
use crate::suite::client::{Client, claim, hasty};
use crate::suite::env::{Env, LONG, SHORT, Stopwatch, at_least, eventually};

cases! { Verbs:
    a_lease_ends_by_itself_and_not_early backs Leases Exclusive;
    any_ask_heals_a_lock_whose_holder_is_gone backs Leases Fair;
    a_renewal_extends_the_lease backs Leases;
    a_renewal_never_brings_a_lease_back backs Leases;
    five_hundred_renewals_come_back_in_order backs Leases;
    the_shortest_and_the_longest_ttl_are_taken backs Ttl;
}

async fn a_lease_ends_by_itself_and_not_early(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("ends"));
    let (dies, next) = (claim(&key, SHORT.max(env.facts.ttl_min)), claim(&key, LONG));
    let asked = Stopwatch::start();
    one.granted(&dies).await?;
    other.granted_in_the_end(&next).await?;
    assert!(asked.elapsed() >= at_least(dies.ttl), "granted after {:?}", asked.elapsed());
    assert_eq!(one.release(&dies).await?, Released::NotHeld, "too late");
    assert_eq!(one.renew(&dies).await?, Renewal::Lost);
    assert_eq!(one.queued(&Claim { ttl: LONG, ..dies }).await?.ahead, 0, "it is a waiter now");
    assert_eq!(other.holder(&key).await?, Some(next.id));
    Ok(())
}

/// A dead holder tells nobody: whoever comes by, even without wanting to wait, passes the lock on.
async fn any_ask_heals_a_lock_whose_holder_is_gone(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("healed"));
    let (dies, waiter) = (claim(&key, SHORT.max(env.facts.ttl_min)), claim(&key, LONG));
    client.granted(&dies).await?;
    client.ask(&waiter).await?;
    eventually("the holder is gone", || async {
        Ok((client.holder(&key).await? != Some(dies.id)).then_some(()))
    })
    .await?;
    assert_eq!(client.ask(&hasty(&key, LONG)).await?, Answer::Busy, "somebody waits for it");
    assert_eq!(client.holder(&key).await?, Some(waiter.id));
    client.granted(&waiter).await?;
    Ok(())
}

async fn left(client: &Client, mine: &Claim) -> Result<Duration> {
    let holder = client.view(&mine.key).await?.and_then(|view| view.holders.into_iter().next());
    holder.filter(|holder| holder.claim == mine.id).map(|holder| holder.left).context("it is held")
}

async fn a_renewal_extends_the_lease(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("renewed"));
    let mine = claim(&key, LONG);
    let token = client.granted(&mine).await?;
    // Repeated, because a machine that stands still can eat the difference.
    eventually("a renewal makes the lease longer", || async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = left(&client, &mine).await?;
        let sent = Stopwatch::start();
        assert_eq!(client.renew(&mine).await?, Renewal::Renewed);
        let after = left(&client, &mine).await?;
        assert!(after + sent.elapsed() >= at_least(mine.ttl), "a full ttl from now: {after:?}");
        Ok((after > before).then_some(()))
    })
    .await?;
    assert_eq!(client.granted(&mine).await?, token, "the token is still the same");
    Ok(())
}

async fn a_renewal_never_brings_a_lease_back(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("gone"));
    assert_eq!(client.renew(&claim(&key, LONG)).await?, Renewal::Lost, "never held");
    let dies = claim(&key, SHORT.max(env.facts.ttl_min));
    client.granted(&dies).await?;
    eventually("the lease ends", || async { Ok(client.view(&key).await?.is_none().then_some(())) })
        .await?;
    assert_eq!(client.renew(&dies).await?, Renewal::Lost, "run out");
    assert_eq!(client.view(&key).await?, None, "and it stays so");

    let (mine, waiter) = (claim(&key, LONG), claim(&key, LONG));
    client.granted(&mine).await?;
    client.queued(&waiter).await?;
    assert_eq!(client.renew(&waiter).await?, Renewal::Lost, "who waits does not hold");
    client.release(&mine).await?;
    assert_eq!(client.renew(&mine).await?, Renewal::Lost, "given back");
    if !env.facts.fair {
        // Nobody hands it over there: it is whose ask comes first.
        assert_eq!(client.holder(&key).await?, None);
        client.granted(&waiter).await?;
    }
    assert_eq!(client.holder(&key).await?, Some(waiter.id));
    client.release(&waiter).await?;
    assert_eq!(client.renew(&waiter).await?, Renewal::Lost);
    assert_eq!(client.view(&key).await?, None);
    Ok(())
}

/// In turn: held, held and given back, never asked for, held by somebody else, broken.
async fn prepare(client: &Client, n: usize, mine: &Claim) -> Result<()> {
    match n % 5 {
        0 => client.granted(mine).await.map(drop),
        1 => {
            client.granted(mine).await?;
            client.release(mine).await.map(drop)
        }
        2 => Ok(()),
        3 => client.granted(&claim(&mine.key, LONG)).await.map(drop),
        _ => {
            client.granted(mine).await?;
            client.break_lock(&mine.key, &format!("reason {n}"), false).await.map(drop)
        }
    }
}

async fn five_hundred_renewals_come_back_in_order(env: Env) -> Result<()> {
    let client = env.client().await?;
    let claims: Vec<Claim> =
        (0..RENEW_BATCH).map(|n| claim(&env.key(&format!("{n}")), LONG)).collect();
    for (n, some) in claims.chunks(20).enumerate() {
        let prepared = some.iter().enumerate().map(|(m, mine)| prepare(&client, n * 20 + m, mine));
        try_join_all(prepared).await?;
    }
    let holds: Vec<_> = claims.iter().map(Claim::hold).collect();
    let answers = client.renew_all(&holds).await?;
    assert_eq!(answers.len(), holds.len());
    for (n, answer) in answers.into_iter().enumerate() {
        let expected = match n % 5 {
            0 => Renewal::Renewed,
            4 => Renewal::Broken { reason: format!("reason {n}") },
            _ => Renewal::Lost,
        };
        assert_eq!(answer, expected, "hold {n}");
    }
    assert_eq!(client.renew_all(&[]).await?, []);
    let twice = [holds[0].clone(), holds[0].clone()];
    assert_eq!(client.renew_all(&twice).await?, [Renewal::Renewed, Renewal::Renewed]);
    Ok(())
}

async fn the_shortest_and_the_longest_ttl_are_taken(env: Env) -> Result<()> {
    let client = env.client().await?;
    let (shortest, longest) = (
        claim(&env.key("shortest"), env.facts.ttl_min),
        claim(&env.key("longest"), env.facts.ttl_max),
    );
    client.granted(&shortest).await?;
    eventually("the shortest lease ends", || async {
        Ok(client.view(&shortest.key).await?.is_none().then_some(()))
    })
    .await?;
    let sent = Stopwatch::start();
    client.granted(&longest).await?;
    let left = left(&client, &longest).await?;
    assert!(left <= longest.ttl && left + sent.elapsed() >= at_least(longest.ttl), "{left:?}");
    assert_eq!(client.release(&longest).await?, Released::Done);
    Ok(())
}
