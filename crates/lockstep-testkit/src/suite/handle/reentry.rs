//! Re-entry by owner: counted, with one token, and closed to everybody else.

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use lockstep_core::{Owner, Token};

use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, soon};

cases! { Handle:
    an_owner_enters_again_and_every_entry_counts backs Reentry;
    one_owner_may_ask_from_many_tasks_at_once backs Reentry;
    other_owners_wait backs Reentry Exclusive;
    an_owner_enters_again_what_it_has_adopted backs Reentry HandOver;
}

async fn an_owner_enters_again_and_every_entry_counts(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("counted"));
    let owner = Owner::new();
    let outer = one.lock(&name).owner(&owner).await?;
    let inner = one.lock(&name).owner(&owner).await?;
    let innermost = one.try_lock(&name).owner(&owner).await?.context("its own")?;
    let token = outer.token();
    assert_eq!((inner.token(), innermost.token()), (token, token));
    // In any order: the entries are alike.
    outer.release().await?;
    assert!(other.try_lock(&name).await?.is_none());
    assert!(inner.is_trusted() && innermost.is_trusted());
    drop(innermost);
    assert!(other.try_lock(&name).await?.is_none());
    let mut inner = inner;
    if env.facts.hands_over {
        let leaked = inner.leak().expect("the last entry can be handed over");
        inner = one.adopt(leaked).await?;
    }
    inner.release().await?;
    let next = other.try_lock(&name).await?.context("the last release frees it")?;
    next.release().await?;

    let later = one.lock(&name).owner(&owner).await?;
    let later_token: Option<Token> = later.token();
    assert!(token.is_none() || later_token > token, "a new hold has a new token");
    later.release().await?;
    Ok(())
}

async fn one_owner_may_ask_from_many_tasks_at_once(env: Env) -> Result<()> {
    let (counting, locks) = env.counted().await?;
    let (other, name, owner) = (env.locks().await?, env.name("tasks"), Owner::new());
    let asks = (0..8).map(|_| locks.lock(&name).owner(&owner).ttl(LONG).into_future());
    let guards = soon("all enter", try_join_all(asks)).await??;
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()));
    assert_eq!(counting.counts().acquires, 1, "the store sees one claim");
    let mut guards = guards.into_iter();
    let last = guards.next().context("there are eight")?;
    try_join_all(guards.map(|guard| guard.release())).await?;
    assert!(other.try_lock(&name).await?.is_none());
    last.release().await?;
    let next = other.try_lock(&name).await?.context("all have left")?;
    next.release().await?;
    Ok(())
}

async fn other_owners_wait(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("others"));
    let owner = Owner::new();
    let guard = one.lock(&name).owner(&owner).await?;
    assert!(one.try_lock(&name).owner(&Owner::new()).await?.is_none(), "another owner");
    assert!(one.try_lock(&name).await?.is_none(), "no owner");
    // An owner is known to its handle only: another process could have guessed it.
    assert!(other.try_lock(&name).owner(&owner).await?.is_none(), "the same owner, elsewhere");
    let elsewhere = one.lock(env.name("elsewhere")).owner(&owner).await?;
    assert!(elsewhere.is_trusted(), "and the owner is not held up by itself");
    guard.release().await?;
    let next = soon("it is free", other.lock(&name).owner(&owner)).await??;
    next.release().await?;
    Ok(())
}

/// Otherwise it would wait for itself.
async fn an_owner_enters_again_what_it_has_adopted(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("adopted"));
    let owner = Owner::new();
    let leaked = one.lock(&name).owner(&owner).await?.leak().expect("the only entry");
    let outer = other.adopt(leaked).await?;
    let inner = soon("it enters again", other.lock(&name).owner(&owner)).await??;
    assert_eq!(outer.token(), inner.token());
    outer.release().await?;
    assert!(one.try_lock(&name).await?.is_none());
    inner.release().await?;
    Ok(())
}
