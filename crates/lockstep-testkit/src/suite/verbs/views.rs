//! What operators see.

use anyhow::{Context, Result};
use lockstep_core::{Label, MAX_LABEL_BYTES};
use lockstep_lock::store::{Claim, Page};

use crate::suite::case::cases;
use crate::suite::client::claim;
use crate::suite::env::{Env, LONG, SHORT, eventually};

cases! { Verbs:
    one_lock_is_shown_with_its_waiters_in_order backs Inspect Particulars;
    locks_are_listed_in_order_of_their_names backs Inspect;
    a_list_is_cut_at_its_limit_and_says_so backs Inspect;
    the_dead_are_not_shown backs Inspect Leases;
    labels_are_shown_as_they_were_given backs Inspect Particulars;
}

async fn one_lock_is_shown_with_its_waiters_in_order(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("one"));
    let label = |n: usize| Label::new(format!("waiter {n}"));
    client.granted(&claim(&key, LONG)).await?;
    let waiters: Vec<Claim> =
        (0..5).map(|n| Claim { label: label(n), ..claim(&key, LONG) }).collect();
    for waiter in &waiters {
        client.queued(waiter).await?;
    }
    let view = client.view(&key).await?.context("it is held")?;
    assert_eq!((view.waiting, view.waiters.len()), (5, 5));
    for (seen, waiter) in view.waiters.iter().zip(&waiters) {
        assert_eq!((seen.claim, seen.owner), (waiter.id, waiter.owner));
        assert_eq!(seen.label, waiter.label);
        assert!(seen.since_ms > 1_500_000_000_000, "milliseconds of a wall clock: {seen:?}");
    }
    Ok(())
}

fn names(page: &Page) -> Vec<&str> {
    page.locks.iter().map(|view| view.key.as_str()).collect()
}

/// The order is that of the bytes: a collation would call different names equal.
async fn locks_are_listed_in_order_of_their_names(env: Env) -> Result<()> {
    let client = env.client().await?;
    let mut expected: Vec<String> =
        ["b", "a", "B", "A", "ä", "a b", "a-b", "a_b", "日", "10", "9", "z"]
            .map(|name| env.name(&format!("in/{name}")))
            .to_vec();
    for name in &expected {
        client.granted(&claim(&lockstep_core::Key::new(name)?, LONG)).await?;
    }
    client.granted(&claim(&env.key("out"), LONG)).await?;
    client.granted(&claim(&env.key("i"), LONG)).await?;
    // What the names start with, in the middle of another name.
    let middle = lockstep_core::Key::new(format!("x{}", expected[0]))?;
    client.granted(&claim(&middle, LONG)).await?;
    let waited_for = lockstep_core::Key::new(&expected[0])?;
    client.queued(&claim(&waited_for, LONG)).await?;
    expected.sort();

    let page = client.list(&env.name("in/"), 100).await?;
    assert_eq!((names(&page), page.more), (expected.iter().map(String::as_str).collect(), false));
    for view in &page.locks {
        assert!(view.holder().is_some() && view.waiters.is_empty(), "{view:?}");
        let waited_for = env.knows_who() && view.key == waited_for;
        assert_eq!(view.waiting, u64::from(waited_for), "{view:?}");
    }
    let all = client.list(env.prefix(), 100).await?;
    assert_eq!(all.locks.len(), expected.len() + 2);
    assert!(client.list(&env.name("none"), 100).await?.locks.is_empty());
    Ok(())
}

async fn a_list_is_cut_at_its_limit_and_says_so(env: Env) -> Result<()> {
    let client = env.client().await?;
    for n in 0..7 {
        client.granted(&claim(&env.key(&format!("{n}")), LONG)).await?;
    }
    let page = client.list(env.prefix(), 3).await?;
    let first: Vec<String> = (0..3).map(|n| env.name(&format!("{n}"))).collect();
    assert_eq!((names(&page), page.more), (first.iter().map(String::as_str).collect(), true));
    let page = client.list(env.prefix(), 7).await?;
    assert_eq!((page.locks.len(), page.more), (7, false));
    let page = client.list("", 1).await?;
    assert_eq!((page.locks.len(), page.more), (1, true), "an empty prefix is every name");
    Ok(())
}

async fn the_dead_are_not_shown(env: Env) -> Result<()> {
    let client = env.client().await?;
    let short = SHORT.max(env.facts.ttl_min);
    let (held, free) = (env.key("held"), env.key("free"));
    client.granted(&claim(&held, LONG)).await?;
    client.queued(&claim(&held, short)).await?;
    client.granted(&claim(&free, short)).await?;
    eventually("the dead are gone from both views", || async {
        let one = client.view(&held).await?.context("it is held")?;
        let page = client.list(env.prefix(), 10).await?;
        Ok((one.waiting == 0 && names(&page) == [held.as_str()]).then_some((one, page)))
    })
    .await
    .map(|(one, page)| {
        assert!(one.waiters.is_empty(), "{one:?}");
        assert_eq!(page.locks[0].waiting, 0);
    })?;
    assert_eq!(client.view(&free).await?, None);
    Ok(())
}

async fn labels_are_shown_as_they_were_given(env: Env) -> Result<()> {
    let client = env.client().await?;
    let long = "ö".repeat(MAX_LABEL_BYTES / 2);
    let labels = ["", "host 7 program", "it's \"x\"; -- % _ {} \\ $1 ?", "🔒 日本 e\u{301}", &long];
    for (n, label) in labels.into_iter().enumerate() {
        let key = env.key(&format!("{n}"));
        let mine = Claim { label: Label::new(label), ..claim(&key, LONG) };
        client.granted(&mine).await?;
        let waiter = Claim { label: Label::new(label), ..claim(&key, LONG) };
        client.queued(&waiter).await?;
        let view = client.view(&key).await?.context("it is held")?;
        assert_eq!(
            view.holder().map(|holder| holder.label.as_str().to_owned()),
            Some(label.into())
        );
        assert_eq!(view.waiters[0].label.as_str(), label);
    }
    Ok(())
}
