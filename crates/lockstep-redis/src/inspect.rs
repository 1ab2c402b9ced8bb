//! Looking at locks.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

use futures_util::future::try_join_all;
use lockstep_core::{ErrorKind, Key, Label, StoreError, Token};
use lockstep_lock::store::{HolderView, LockView, Page, WaiterView};
use redis::Value;

use crate::error;
use crate::keys::Layout;
use crate::link::Link;
use crate::scripts::INSPECT;

/// How many locks are looked at with one round trip.
const BATCH: usize = 100;

/// One lock, with its waiters.
pub(crate) async fn one(link: &Link, layout: &Layout, key: &Key) -> Result<Page, StoreError> {
    let view = look(link, layout, key, true).await?;
    Ok(Page { locks: view.into_iter().collect(), more: false })
}

/// The first `limit` locks whose names start with `start`. Locks that come or go meanwhile may
/// or may not be seen; each is shown as it was at one moment.
pub(crate) async fn all(
    link: &Link,
    layout: &Layout,
    start: &str,
    limit: usize,
) -> Result<Page, StoreError> {
    let names = scan(link, layout, start).await?.into_iter().collect::<Vec<Key>>();
    let mut locks = vec![];
    for batch in names.chunks(BATCH) {
        let looks = batch.iter().map(|key| async move {
            match look(link, layout, key, false).await {
                // Somebody else's key among ours must not hide ours.
                Err(error) if error.kind() == ErrorKind::Foreign => Ok(None),
                seen => seen,
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

async fn scan(link: &Link, layout: &Layout, start: &str) -> Result<BTreeSet<Key>, StoreError> {
    let pattern = layout.pattern(start);
    let mut names = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
        let (next, keys) = match link.call(&scan).await? {
            Value::ServerError(refusal) => return Err(error::refused(&refusal, &pattern)),
            Value::Array(page) => match <[Value; 2]>::try_from(page) {
                Ok([Value::BulkString(next), Value::Array(keys)]) => (next, keys),
                other => return Err(error::baffled(&pattern, other)),
            },
            other => return Err(error::baffled(&pattern, other)),
        };
        names.extend(keys.iter().filter_map(|key| match key {
            Value::BulkString(key) => layout.owner(key),
            _ => None,
        }));
        if next == b"0" {
            return Ok(names);
        }
        cursor = next;
    }
}

async fn look(
    link: &Link,
    layout: &Layout,
    key: &Key,
    particulars: bool,
) -> Result<Option<LockView>, StoreError> {
    let lock = [layout.lock(key)];
    let mut call = INSPECT.on(&lock);
    call.arg(i32::from(particulars));
    let answer = INSPECT.run(link, &call, &lock[0]).await?;
    if answer == Value::Nil {
        return Ok(None);
    }
    match read(key, &answer) {
        Some(view) => Ok(Some(view)),
        None => Err(error::baffled(&lock[0], answer)),
    }
}

fn read(key: &Key, answer: &Value) -> Option<LockView> {
    let Value::Array(parts) = answer else { return None };
    let [holder, Value::Int(left_ms), Value::Int(waiting), Value::Array(waiters)] = &parts[..]
    else {
        return None;
    };
    Some(LockView {
        key: key.clone(),
        holder: match holder {
            Value::Nil => None,
            row => Some(read_holder(words(row)?, *left_ms as u64)?),
        },
        waiting: *waiting as u64,
        waiters: waiters.chunks(2).map(read_waiter).collect::<Option<_>>()?,
    })
}

/// Reads what `row.lua` writes; the key lives for one ttl longer than the lease.
fn read_holder(row: &str, left_ms: u64) -> Option<HolderView> {
    let (row, broken) = match row.split_once('\n') {
        Some((row, reason)) => (row, Some(reason.to_owned())),
        None => (row, None),
    };
    let mut parts = row.splitn(7, ' ');
    let claim = parts.next()?.get(1..)?.parse().ok()?;
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (seconds, micros, ttl_ms) = (number()?, number()?, number()?);
    let owner = parts.nth(1)?.parse().ok()?;
    let token = stamp(seconds, micros);
    Some(HolderView {
        claim,
        owner,
        label: Label::new(parts.next()?),
        token: Some(token),
        since_ms: token.get() / 1000,
        left: Duration::from_millis(left_ms.saturating_sub(ttl_ms)),
        broken,
    })
}

/// Reads a claim and what `row.lua` says of a waiter.
fn read_waiter(pair: &[Value]) -> Option<WaiterView> {
    let [claim, particulars] = pair else { return None };
    let mut parts = words(particulars)?.splitn(6, ' ').skip(2);
    let since_ms = parts.next()?.parse::<u64>().ok()? / 1000;
    let owner = parts.nth(1)?.parse().ok()?;
    Some(WaiterView { claim: number(claim)?, owner, label: Label::new(parts.next()?), since_ms })
}

/// The token that the server's time of a grant is.
pub(crate) fn token(seconds: &Value, micros: &Value) -> Option<Token> {
    Some(stamp(number(seconds)?, number(micros)?))
}

fn stamp(seconds: u64, micros: u64) -> Token {
    Token::new(seconds * 1_000_000 + micros)
}

fn number<T: FromStr>(value: &Value) -> Option<T> {
    words(value)?.parse().ok()
}

fn words(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}
