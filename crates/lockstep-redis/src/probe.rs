//! One look at the server when a lane is opened.

use lockstep_core::StoreError;
use redis::{FromRedisValue, Value};

use crate::error::STORE;
use crate::link::Link;

/// What is worth knowing about this very server, by its address.
///
/// # Errors
/// A server that is part of a Redis Cluster, or a Sentinel, is refused.
pub(crate) async fn warnings(link: &Link, address: &str) -> Result<Vec<String>, StoreError> {
    let info = match link.call(&redis::cmd("INFO")).await? {
        Value::ServerError(refusal) => {
            let code = refusal.code();
            return Ok(vec![format!(
                "{address}: INFO is refused ({code}): eviction and replication could not be checked"
            )]);
        }
        answer => String::from_redis_value(answer).unwrap_or_default(),
    };
    if let Some(what) = unfit(&info) {
        let message = format!(
            "{address} is {what}, which is not supported yet: use a single server, or a primary with \
             replicas"
        );
        return Err(StoreError::config(STORE, message));
    }
    Ok(read(&info).into_iter().map(|warning| format!("{address}: {warning}")).collect())
}

/// What it is, if nothing can be locked there whatever is done.
pub(crate) fn unfit(info: &str) -> Option<&'static str> {
    if field(info, "cluster_enabled") == Some("1") {
        return Some("part of a Redis Cluster");
    }
    (field(info, "redis_mode") == Some("sentinel")).then_some("a Redis Sentinel")
}

pub(crate) fn read(info: &str) -> Vec<String> {
    let mut warnings = vec![];
    match field(info, "maxmemory_policy") {
        None | Some("noeviction") => {}
        Some(policy) => {
            let when = match field(info, "maxmemory") {
                Some("0") | None => "once a maxmemory is set",
                Some(_) => "when memory is short",
            };
            warnings.push(format!(
                "maxmemory-policy is {policy}: {when}, the server may evict a held lock, and \
                 somebody else gets it; set noeviction"
            ));
        }
    }
    match field(info, "connected_slaves") {
        None | Some("0") => {}
        Some(count) => warnings.push(format!(
            "{count} replica(s) attached: replication is asynchronous, so a failover may forget \
             a lock that was just granted"
        )),
    }
    if field(info, "role") == Some("slave") {
        warnings.push("this is a replica, where nothing can be locked: use the primary".into());
    }
    warnings
}

pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_server_needs_no_words() {
        let info = "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\
                    # Replication\r\nrole:master\r\nconnected_slaves:0\r\n";
        assert_eq!(read(info), Vec::<String>::new());
    }

    #[test]
    fn eviction_replicas_and_replicas_themselves_are_named() {
        let info = "maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\nrole:slave\r\n\
                    connected_slaves:2\r\n";
        let warnings = read(info);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings[0].contains("allkeys-lru") && warnings[0].contains("memory is short"));
        assert!(warnings[1].starts_with("2 replica"));
        assert!(warnings[2].contains("primary"));
    }
}
