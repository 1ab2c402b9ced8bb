//! Who gets a lock, who does not, and what asking again means.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_core::{Effect, StoreError, Token};
use lockstep_lock::Fencing;
use lockstep_lock::store::{Answer, Released, Renewal};

use crate::suite::case::cases;
use crate::suite::client::{Client, claim, hasty};
use crate::suite::env::{Env, LONG, SHORT, Stopwatch, at_least, eventually};
use crate::wrap::{FailingVerbs, VerbName};

cases! { Verbs:
    a_free_lock_is_granted_and_shown backs Exclusive Inspect;
    a_held_lock_is_busy_for_those_who_do_not_wait backs Exclusive Errors;
    a_lock_that_was_waited_for_is_busy_for_those_who_do_not_wait backs Exclusive Fair;
    locks_do_not_stand_in_each_others_way backs Names;
    asking_again_is_the_same_grant_with_a_fresh_lease backs Idempotent;
    a_grant_whose_reply_was_lost_is_asked_for_again backs Idempotent;
    a_place_whose_reply_was_lost_is_asked_for_again backs Idempotent Fair;
    many_who_ask_at_once_are_not_all_granted backs Exclusive;
    tokens_only_grow backs Fencing;
}

async fn a_free_lock_is_granted_and_shown(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("free"));
    assert_eq!(client.view(&key).await?, None);
    let mine = claim(&key, LONG);
    let asked = Stopwatch::start();
    let token = client.granted(&mine).await?;
    assert_eq!(token.is_some(), env.facts.fencing != Fencing::None, "facts() and grants differ");
    let view = client.view(&key).await?.context("a held lock is shown")?;
    assert_eq!((&view.key, view.waiting, view.waiters.len()), (&key, 0, 0));
    let holder = view.holder().context("a held lock has a holder")?;
    assert_eq!((holder.claim, holder.token), (mine.id, token));
    assert_eq!(holder.broken, None);
    if env.knows_who() {
        assert_eq!((holder.owner, &holder.label), (mine.owner, &mine.label));
        assert!(holder.since_ms > 1_500_000_000_000, "milliseconds of a wall clock: {holder:?}");
    }
    assert!(holder.left <= LONG, "{holder:?}");
    // Shorter than what the guard trusts would break the promise.
    assert!(holder.left + asked.elapsed() >= at_least(LONG), "{holder:?}");
    Ok(())
}

async fn a_held_lock_is_busy_for_those_who_do_not_wait(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("busy"));
    let holder = claim(&key, LONG);
    one.granted(&holder).await?;
    assert_eq!(other.ask(&hasty(&key, LONG)).await?, Answer::Busy);
    assert_eq!(one.ask(&hasty(&key, LONG)).await?, Answer::Busy, "also for the same client");
    assert_eq!(other.holder(&key).await?, Some(holder.id));
    assert_eq!(other.waiters(&key).await?, [], "who does not wait leaves nothing behind");
    Ok(())
}

async fn a_lock_that_was_waited_for_is_busy_for_those_who_do_not_wait(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("waited for"));
    let holder = claim(&key, LONG);
    one.granted(&holder).await?;
    one.queued(&claim(&key, LONG)).await?;
    assert_eq!(one.release(&holder).await?, Released::Done);
    assert_eq!(other.ask(&hasty(&key, LONG)).await?, Answer::Busy, "somebody waited for it");
    Ok(())
}

async fn locks_do_not_stand_in_each_others_way(env: Env) -> Result<()> {
    let client = env.client().await?;
    let (one, other) = (claim(&env.key("one"), LONG), claim(&env.key("other"), LONG));
    client.granted(&one).await?;
    client.granted(&other).await?;
    assert_eq!(client.release(&one).await?, Released::Done);
    assert_eq!(client.holder(&other.key).await?, Some(other.id));
    Ok(())
}

async fn asking_again_is_the_same_grant_with_a_fresh_lease(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("again"));
    let mine = claim(&key, LONG);
    let token = client.granted(&mine).await?;
    let left = || async {
        let view = client.view(&key).await?;
        view.and_then(|view| view.holders.into_iter().next())
            .map(|holder| holder.left)
            .context("it is held")
    };
    // Repeated, because a machine that stands still can eat the difference.
    eventually("asking again makes the lease longer", || async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = left().await?;
        assert_eq!(client.granted(&mine).await?, token, "the same grant has the same token");
        Ok((left().await? > before).then_some(()))
    })
    .await
}

/// A client whose replies can be lost.
async fn failing_client(env: &Env) -> Result<(Arc<FailingVerbs>, Client)> {
    let failing = Arc::new(FailingVerbs::new((env.subject.connect)()));
    Ok((Arc::clone(&failing), Client::open(failing).await?))
}

fn is_unknown(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<StoreError>();
    error.is_some_and(|error| error.effect() == Effect::Unknown && error.may_retry())
}

async fn a_grant_whose_reply_was_lost_is_asked_for_again(env: Env) -> Result<()> {
    let (failing, client) = failing_client(&env).await?;
    let key = env.key("lost");
    let mine = claim(&key, LONG);
    failing.lose_reply(VerbName::Acquire, 1);
    let error = client.ask(&mine).await.expect_err("the reply is lost");
    assert!(is_unknown(&error), "{error:?}");
    let held = client
        .view(&key)
        .await?
        .and_then(|view| view.holders.into_iter().next())
        .context("it happened")?;
    assert_eq!(held.claim, mine.id);
    assert_eq!(client.granted(&mine).await?, held.token, "one grant, one token");

    failing.lose_reply(VerbName::Release, 1);
    assert!(is_unknown(&client.release(&mine).await.expect_err("the reply is lost")));
    assert_eq!(client.release(&mine).await?, Released::NotHeld);
    Ok(())
}

async fn a_place_whose_reply_was_lost_is_asked_for_again(env: Env) -> Result<()> {
    let (failing, client) = failing_client(&env).await?;
    let key = env.key("lost");
    let (holder, first, second) = (claim(&key, LONG), claim(&key, LONG), claim(&key, LONG));
    client.granted(&holder).await?;
    failing.lose_reply(VerbName::Acquire, 1);
    client.ask(&first).await.expect_err("the reply is lost");
    client.queued(&second).await?;
    assert_eq!(client.queued(&first).await?.ahead, 0, "it kept the place it was not told of");
    assert_eq!(client.waiters(&key).await?, [first.id, second.id], "one claim, one place");
    Ok(())
}

/// The same key, fresh for the store, from many clients at once: the insert race of a first grant.
async fn many_who_ask_at_once_are_not_all_granted(env: Env) -> Result<()> {
    let clients = futures_util::future::try_join_all((0..8).map(|_| env.client())).await?;
    for round in 0..10 {
        let key = env.key(&format!("race {round}"));
        let claims: Vec<_> = clients.iter().map(|_| hasty(&key, LONG)).collect();
        let asks = clients.iter().zip(&claims).map(|(client, claim)| client.ask(claim));
        let answers = futures_util::future::try_join_all(asks).await?;
        let granted = answers.iter().filter(|a| matches!(a, Answer::Granted { .. })).count();
        let busy = answers.iter().filter(|answer| **answer == Answer::Busy).count();
        assert_eq!((granted, busy), (1, 7), "{answers:?}");
    }
    Ok(())
}

async fn tokens_only_grow(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("tokens"));
    let mut last: Option<Token> = None;
    let mut larger = |token: Option<Token>, how: &str| {
        assert!(token > last, "{how}: {token:?} after {last:?}");
        last = token;
    };
    for _ in 0..3 {
        let mine = claim(&key, LONG);
        larger(client.granted(&mine).await?, "the next owner");
        client.renew(&mine).await?;
        client.release(&mine).await?;
    }
    let dies = claim(&key, SHORT.max(env.facts.ttl_min));
    larger(client.granted(&dies).await?, "after a release");
    let heir = claim(&key, LONG);
    let token = client.granted_in_the_end(&heir).await?;
    larger(token, "after an expiry");
    assert_eq!(client.granted(&heir).await?, token, "entering again never raises it");

    let waiter = claim(&key, LONG);
    let behind = client.queued(&waiter).await?.behind;
    assert!(behind >= token, "a waiter is told the token it waits behind");
    client.release(&heir).await?;
    let token = client.granted(&waiter).await?;
    assert!(token > behind, "or a pushed grant could not be told from an old one");
    larger(token, "passed on by a release");

    let broken = claim(&key, LONG);
    client.queued(&broken).await?;
    client.break_lock(&key, "tokens", true).await?;
    larger(client.granted(&broken).await?, "passed on by a break");
    assert_eq!(client.renew(&waiter).await?, Renewal::Lost);
    Ok(())
}
