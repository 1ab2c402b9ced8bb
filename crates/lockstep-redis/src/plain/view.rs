//! Looking at plain locks. All that can be seen of a holder is its value.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::try_join_all;
use lockstep_core::{ClaimId, ErrorKind, Key, Label, Owner, StoreError};
use lockstep_lock::Share;
use lockstep_lock::store::{HolderView, LockView, Page};

use super::node::{Node, Seen};
use crate::error::STORE;
use crate::{keys, scan};

/// How many keys are looked at with one round trip.
const BATCH: usize = 100;

/// What is shown of a value that is not ours.
const SHOWN_CHARS: usize = 40;

/// One lock.
pub(crate) async fn one(node: &Node, prefix: &str, key: &Key) -> Result<Page, StoreError> {
    let seen = node.look(&format!("{prefix}{key}")).await?;
    let view = seen.map(|seen| view(key.clone(), &seen));
    Ok(Page { locks: view.into_iter().collect(), more: false })
}

/// The first `limit` strings whose names start with `start`: nothing tells a lock from another string.
pub(crate) async fn all(
    node: &Node,
    prefix: &str,
    start: &str,
    limit: usize,
) -> Result<Page, StoreError> {
    if prefix.is_empty() && start.is_empty() {
        return Err(StoreError::config(
            STORE,
            "with ?layout=plain every string of the database may be a lock: say how the names of yours \
             start, or give them a ?prefix=",
        ));
    }
    let names: Vec<Key> = names(node, prefix, start).await?.into_iter().collect();
    let mut locks: Vec<LockView> = vec![];
    for batch in names.chunks(BATCH) {
        let looks = batch.iter().map(|key| async move {
            match node.look(&format!("{prefix}{key}")).await {
                // It was a string when it was listed.
                Err(error) if error.kind() == ErrorKind::Foreign => Ok(None),
                Err(error) => Err(error),
                Ok(seen) => Ok(seen.map(|seen| view(key.clone(), &seen))),
            }
        });
        locks.extend(try_join_all(looks).await?.into_iter().flatten());
        if locks.len() > limit {
            break;
        }
    }
    let more = locks.len() > limit;
    locks.truncate(limit);
    Ok(Page { locks, more })
}

pub(crate) async fn names(
    node: &Node,
    prefix: &str,
    start: &str,
) -> Result<BTreeSet<Key>, StoreError> {
    let pattern = keys::literally(&format!("{prefix}{start}")) + "*";
    let named = |key: &[u8]| {
        let name = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?;
        Key::new(name).ok()
    };
    scan::names(&node.link, &pattern, &["TYPE", "string"], named).await
}

pub(crate) fn view(key: Key, seen: &Seen) -> LockView {
    let value = String::from_utf8_lossy(&seen.value);
    let (whose, broken) = match value.strip_prefix("broken:").and_then(|rest| rest.split_once(':'))
    {
        Some((whose, reason)) => (whose, Some(reason.to_owned())),
        None => (&*value, None),
    };
    // Not only we write 32 digits; what others write says as much to people as a claim does.
    let claim = whose.parse().unwrap_or_else(|_| ClaimId::from_u128(0));
    let holder = HolderView {
        claim,
        owner: Owner::from_u128(claim.as_u128()),
        label: shown(whose),
        share: Share::Exclusive,
        token: None,
        since_ms: 0,
        left: seen.left.unwrap_or(Duration::MAX),
        broken,
    };
    LockView { key, holders: vec![holder], waiting: 0, waiters: vec![] }
}

fn shown(value: &str) -> Label {
    match value.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => Label::new(format!("{}…", &value[..at])),
        None => Label::new(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(value: &[u8]) -> HolderView {
        let seen = Seen { value: value.to_vec(), left: None };
        let key = Key::new("k").unwrap();
        view(key, &seen).holders.remove(0)
    }

    #[test]
    fn values_are_shown_as_far_as_they_can_be_read() {
        let ours = seen(b"0000000000000000000000000000feed");
        assert_eq!(ours.claim, ClaimId::from_u128(0xfeed));
        assert_eq!((ours.broken, ours.left), (None, Duration::MAX));
        let broken = seen(b"broken:0000000000000000000000000000feed:it is: stuck");
        assert_eq!(broken.claim, ClaimId::from_u128(0xfeed));
        assert_eq!(broken.broken.as_deref(), Some("it is: stuck"));
        let foreign = seen(b"worker-7\n\xff");
        assert_eq!(foreign.label.as_str(), "worker-7 \u{fffd}");
        assert_eq!(seen(&[b'x'; 99]).label.as_str().chars().count(), SHOWN_CHARS + 1);
    }
}
