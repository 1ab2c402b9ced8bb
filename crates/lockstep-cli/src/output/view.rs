use lockstep::{HolderView, LockView, WaiterView};
use serde_json::{Value, json};

use super::{age, safe, utc};

/// One line about who holds a lock, for messages.
pub(crate) fn held_by(lock: &LockView, now_ms: u64) -> Option<String> {
    let HolderView { label, since_ms, .. } = lock.holder()?;
    let others = and_others(lock);
    let since = match since_ms {
        0 => String::new(),
        ms => format!(" since {} ({})", utc(*ms), age(*ms, now_ms)),
    };
    Some(format!("held by {:?}{others}{since}", safe(label.as_str())))
}

/// What stands behind the first holder of a lock that several hold.
pub(crate) fn and_others(lock: &LockView) -> String {
    match lock.holders.len() {
        0 | 1 => String::new(),
        holders => format!(" and {} more", holders - 1),
    }
}

pub(crate) fn lock_json(lock: &LockView) -> Value {
    json!({
        "name": lock.key.as_str(),
        "holders": lock.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "waiting": lock.waiting,
    })
}

pub(crate) fn holder_json(holder: &HolderView) -> Value {
    json!({
        "label": holder.label.as_str(),
        "owner": holder.owner.to_string(),
        "claim": holder.claim.to_string(),
        "share": holder.share.to_string(),
        "token": holder.token.map(lockstep::Token::get),
        "since": (holder.since_ms > 0).then(|| utc(holder.since_ms)),
        "since_ms": (holder.since_ms > 0).then_some(holder.since_ms),
        "lease_left_ms": u64::try_from(holder.left.as_millis()).ok(),
        "broken": holder.broken,
    })
}

pub(crate) fn waiter_json(waiter: &WaiterView) -> Value {
    json!({
        "label": waiter.label.as_str(),
        "owner": waiter.owner.to_string(),
        "claim": waiter.claim.to_string(),
        "share": waiter.share.to_string(),
        "since": utc(waiter.since_ms),
        "since_ms": waiter.since_ms,
    })
}
