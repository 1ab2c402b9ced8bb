//! Elections: the term is the token.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::StreamExt;

use crate::suite::case::cases;
use crate::suite::env::{Env, soon};

cases! { Handle:
    candidates_lead_one_after_the_other_with_growing_terms backs Fencing Fair;
    observers_see_leaders_come_and_go backs Fencing;
}

async fn candidates_lead_one_after_the_other_with_growing_terms(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("terms"));
    let first = one.election(&name).campaign().label("one").await?;
    let next = tokio::spawn({
        let election = other.election(&name);
        async move { election.campaign().label("other").await }
    });
    env.observer().await?.sees_waiting(&env.key("terms"), 1).await?;
    let leader = other.election(&name).leader().await?.context("somebody leads")?;
    assert_eq!((leader.name.as_str(), leader.term), ("one", first.term()));
    assert_eq!(first.lead(async { 7 }).await?, 7);
    let term = first.term();
    first.resign().await?;
    let next = soon("the other leads", next).await???;
    assert!(next.term() > term);
    next.resign().await?;
    assert_eq!(one.election(&name).leader().await?, None);
    Ok(())
}

async fn observers_see_leaders_come_and_go(env: Env) -> Result<()> {
    let (locks, observer, name) = (env.locks().await?, env.locks().await?, env.name("seen"));
    let election = locks.election(&name);
    let seen = observer.election(&name).observe_every(Duration::from_millis(20));
    let mut seen = Box::pin(seen);
    assert_eq!(soon("the first look", seen.next()).await?.context("a look")??, None);
    for candidate in ["10.0.0.1:80", "10.0.0.2:80"] {
        let leadership = election.campaign().label(candidate).await?;
        let leader = soon("a leader is seen", seen.next()).await?.context("a look")??;
        let leader = leader.context("it leads")?;
        assert_eq!((leader.name.as_str(), leader.term), (candidate, leadership.term()));
        leadership.resign().await?;
        assert_eq!(soon("it is gone", seen.next()).await?.context("a look")??, None);
    }
    Ok(())
}
