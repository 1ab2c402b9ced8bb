//! The end of a handle.

use anyhow::Result;
use lockstep_lock::{LockError, LostCause};

use crate::suite::case::cases;
use crate::suite::env::{Env, LONG, soon};

cases! { Handle:
    closing_gives_everything_back backs CancelSafe Errors;
    closing_ends_those_who_wait backs CancelSafe Errors;
}

async fn closing_gives_everything_back(env: Env) -> Result<()> {
    let (one, other) = (env.locks().await?, env.locks().await?);
    let (held, dropped) = (env.name("held"), env.name("dropped"));
    let guard = one.lock(&held).ttl(LONG).await?;
    drop(one.lock(&dropped).ttl(LONG).await?);
    let mut leaked = None;
    if env.facts.hands_over {
        let only = one.lock(env.name("leaked")).await?;
        leaked = Some(only.leak().expect("the only guard"));
    }
    soon("it is closed", one.close()).await?;
    // Told, not promised: both are free when `close` returns.
    for name in [&held, &dropped] {
        assert!(other.try_lock(name).await?.is_some(), "{name} is still held");
    }
    assert!(!guard.is_trusted());
    assert_eq!(guard.lost().await.cause, LostCause::Closed);
    assert!(matches!(one.lock(&held).await, Err(LockError::Closed)));
    assert!(matches!(one.try_lock(&held).await, Err(LockError::Closed)));
    if let Some(leaked) = leaked {
        assert!(matches!(one.adopt(leaked).await, Err(LockError::Closed)));
    }
    soon("closing twice is nothing", one.close()).await?;
    drop(guard);
    Ok(())
}

async fn closing_ends_those_who_wait(env: Env) -> Result<()> {
    let (one, other) = (env.locks().await?, env.locks().await?);
    let (observer, name, key) = (env.observer().await?, env.name("waits"), env.key("waits"));
    let guard = other.lock(&name).await?;
    let waiting = tokio::spawn(one.lock(&name).ttl(LONG).into_future());
    observer.sees_waiting(&key, 1).await?;
    soon("it is closed", one.close()).await?;
    let ended = soon("who waits is told", waiting).await??;
    assert!(matches!(ended, Err(LockError::Closed)), "{ended:?}");
    observer.sees_waiting(&key, 0).await?;
    assert!(guard.is_trusted());
    guard.release().await?;
    Ok(())
}
