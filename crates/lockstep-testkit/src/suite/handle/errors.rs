//! What is refused, and in which words.

use std::time::Duration;

use anyhow::Result;
use lockstep_core::KeyError;
use lockstep_lock::{Fencing, LockError, Need, Scope};

use crate::suite::case::cases;
use crate::suite::env::Env;

cases! { Handle:
    bad_names_are_refused backs Names Errors;
    ttls_outside_the_range_are_refused backs Ttl Errors;
    what_is_not_offered_cannot_be_required backs Errors;
}

async fn bad_names_are_refused(env: Env) -> Result<()> {
    let locks = env.locks().await?;
    let is = |error: LockError, expected: KeyError| {
        assert!(matches!(&error, LockError::Name(found) if *found == expected), "{error:?}");
        assert!(!error.may_retry() && !error.may_have_happened());
    };
    is(locks.lock("").await.expect_err("empty"), KeyError::Empty);
    is(locks.try_lock("").await.expect_err("empty"), KeyError::Empty);
    let long = "x".repeat(256);
    is(locks.lock(&long).await.expect_err("too long"), KeyError::TooLong { bytes: 256 });
    let control = KeyError::Control { at: 1, character: '\n' };
    is(locks.lock("a\nb").await.expect_err("a line break"), control);
    is(locks.inspect("a\0").await.expect_err("NUL"), KeyError::Control { at: 1, character: '\0' });
    is(locks.break_lock("", "why").await.expect_err("empty"), KeyError::Empty);
    Ok(())
}

async fn ttls_outside_the_range_are_refused(env: Env) -> Result<()> {
    let locks = env.locks().await?;
    let (min, max) = (locks.facts().ttl_min, locks.facts().ttl_max);
    for wrong in [Duration::ZERO, min - Duration::from_millis(1), max + Duration::from_millis(1)] {
        match locks.lock(env.name("ttl")).ttl(wrong).await {
            Err(LockError::Ttl { ttl, min: at_least, max: at_most, .. }) => {
                assert_eq!((ttl, at_least, at_most), (wrong, min, max));
            }
            other => anyhow::bail!("{wrong:?} is outside {min:?} to {max:?}: {other:?}"),
        }
    }
    for right in [min, max] {
        // So short a lease may end before it is used; it is not refused for its length.
        match locks.try_lock(env.name("ttl")).ttl(right).await {
            Err(error @ LockError::Ttl { .. }) => anyhow::bail!("{right:?}: {error}"),
            Ok(Some(guard)) => drop(guard.release().await),
            _ => {}
        }
    }
    Ok(())
}

async fn what_is_not_offered_cannot_be_required(env: Env) -> Result<()> {
    let locks = env.locks().await?;
    let facts = locks.facts().clone();
    let needs = [
        (Need::Fair, facts.fair),
        (Need::Push, facts.push),
        (Need::Fencing(Fencing::Strong), facts.fencing == Fencing::Strong),
        (Need::Fencing(Fencing::None), true),
        (Need::Scope(Scope::Network), facts.scope == Scope::Network),
        (Need::Scope(Scope::Process), true),
    ];
    for (need, offered) in needs {
        match locks.require(need) {
            Ok(_) => assert!(offered, "{need}"),
            Err(LockError::Unmet { need: which, store }) => {
                assert!(!offered && which == need && store == facts.store, "{need}");
            }
            Err(other) => anyhow::bail!("{other}"),
        }
    }
    assert!(!facts.two_holders_if.is_empty() && !facts.clock.is_empty(), "{facts:?}");
    Ok(())
}
