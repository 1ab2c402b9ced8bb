use lockstep::{HolderView, LockView, WaiterView};
use serde_json::{Value, json};

use super::{age, safe, utc};

/// One line about a holder, for messages.
pub(crate) fn held_by(holder: &HolderView, now_ms: u64) -> String {
    let HolderView { label, since_ms, .. } = holder;
    let (since, age) = (utc(*since_ms), age(*since_ms, now_ms));
    format!("held by {:?} since {since} ({age})", safe(label.as_str()))
}

pub(crate) fn lock_json(lock: &LockView) -> Value {
    json!({
        "name": lock.key.as_str(),
        "holder": lock.holder.as_ref().map(holder_json),
        "waiting": lock.waiting,
    })
}

pub(crate) fn holder_json(holder: &HolderView) -> Value {
    json!({
        "label": holder.label.as_str(),
        "owner": holder.owner.to_string(),
        "claim": holder.claim.to_string(),
        "token": holder.token.map(lockstep::Token::get),
        "since": utc(holder.since_ms),
        "since_ms": holder.since_ms,
        "lease_left_ms": u64::try_from(holder.left.as_millis()).unwrap_or(u64::MAX),
        "broken": holder.broken,
    })
}

pub(crate) fn waiter_json(waiter: &WaiterView) -> Value {
    json!({
        "label": waiter.label.as_str(),
        "owner": waiter.owner.to_string(),
        "claim": waiter.claim.to_string(),
        "since": utc(waiter.since_ms),
        "since_ms": waiter.since_ms,
    })
}
