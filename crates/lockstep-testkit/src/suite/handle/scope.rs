//! Who shares a lock: all that the store's scope names.

use anyhow::{Context, Result};
use lockstep_lock::Scope;

use crate::stories::puppet::Puppet;
use crate::suite::case::cases;
use crate::suite::env::Env;

cases! { Signals:
    everybody_in_scope_is_excluded backs Scope Exclusive;
}

async fn everybody_in_scope_is_excluded(env: Env) -> Result<()> {
    let (one, other, name) = (env.locks().await?, env.locks().await?, env.name("scope"));
    let guard = one.lock(&name).await?;
    assert!(other.try_lock(&name).await?.is_none(), "another handle");
    if env.facts.scope > Scope::Process {
        let needs = "a scope beyond one process needs Subject::with_processes to be backed";
        env.subject.processes.as_ref().context(needs)?;
        let mut puppet = Puppet::start(&env.subject).await?;
        assert_eq!(puppet.tries(&name).await?, None, "another process");
        let token = guard.token();
        guard.release().await?;
        let theirs = puppet.locks(&name, crate::suite::env::STEADY).await?;
        assert!(token.is_none() || theirs.token > token, "{theirs:?}");
        assert!(other.try_lock(&name).await?.is_none(), "while another process holds it");
        puppet.releases().await?;
        puppet.ends().await?;
    } else {
        guard.release().await?;
    }
    other.try_lock(&name).await?.context("it is free")?.release().await?;
    Ok(())
}
