//! Giving back: only what is mine, and only once.

use anyhow::Result;
use lockstep_core::ClaimId;
use lockstep_lock::store::{Claim, Released, Renewal};

use crate::suite::case::cases;
use crate::suite::client::claim;
use crate::suite::env::{Env, LONG};

cases! { Verbs:
    a_released_lock_is_free backs Exclusive;
    a_release_by_somebody_else_changes_nothing backs Exclusive;
    a_second_release_finds_nothing backs Exclusive Errors;
    a_waiter_gives_its_place_back backs Fair;
}

async fn a_released_lock_is_free(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("free"));
    let (mine, next) = (claim(&key, LONG), claim(&key, LONG));
    one.granted(&mine).await?;
    assert_eq!(one.release(&mine).await?, Released::Done);
    assert_eq!(other.view(&key).await?, None, "nobody holds it, nobody waits");
    other.granted(&next).await?;
    Ok(())
}

async fn a_release_by_somebody_else_changes_nothing(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("mine"));
    let (mine, waiter) = (claim(&key, LONG), claim(&key, LONG));
    let token = one.granted(&mine).await?;
    one.queued(&waiter).await?;
    let stranger = claim(&key, LONG);
    assert_eq!(other.release(&stranger).await?, Released::NotHeld);
    let same_owner = Claim { id: ClaimId::new(), ..mine.clone() };
    assert_eq!(other.release(&same_owner).await?, Released::NotHeld, "a claim, not an owner");
    let elsewhere = Claim { key: env.key("another"), ..mine.clone() };
    assert_eq!(other.release(&elsewhere).await?, Released::NotHeld, "another lock");
    assert_eq!(one.holder(&key).await?, Some(mine.id));
    if env.knows_who() {
        assert_eq!(one.waiters(&key).await?, [waiter.id]);
    }
    assert_eq!(one.renew(&mine).await?, Renewal::Renewed);
    assert_eq!(one.granted(&mine).await?, token);
    Ok(())
}

async fn a_second_release_finds_nothing(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("twice"));
    assert_eq!(client.release(&claim(&key, LONG)).await?, Released::NotHeld, "never held");
    let (mine, next) = (claim(&key, LONG), claim(&key, LONG));
    client.granted(&mine).await?;
    client.queued(&next).await?;
    assert_eq!(client.release(&mine).await?, Released::Done);
    assert_eq!(client.release(&mine).await?, Released::NotHeld);
    client.granted(&next).await?;
    assert_eq!(client.holder(&key).await?, Some(next.id), "the next one's lock is untouched");
    Ok(())
}

async fn a_waiter_gives_its_place_back(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("place"));
    let holder = claim(&key, LONG);
    let [first, middle, last] = [(); 3].map(|()| claim(&key, LONG));
    client.granted(&holder).await?;
    for waiter in [&first, &middle, &last] {
        client.queued(waiter).await?;
    }
    assert_eq!(client.release(&middle).await?, Released::Done);
    assert_eq!(client.holder(&key).await?, Some(holder.id), "the holder goes on holding");
    assert_eq!(client.waiters(&key).await?, [first.id, last.id]);
    assert_eq!(client.queued(&last).await?.ahead, 1);
    assert_eq!(client.release(&middle).await?, Released::NotHeld);
    assert_eq!(client.release(&first).await?, Released::Done);
    client.release(&holder).await?;
    assert_eq!(client.holder(&key).await?, Some(last.id));
    Ok(())
}
