//! Looking at locks.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

use futures_util::future::try_join_all;
use lockstep_core::{ErrorKind, Key, Label, Owner, StoreError, Token};
use lockstep_lock::Share;
use lockstep_lock::store::{HolderView, LockView, Page, WaiterView};
use redis::Value;

use crate::error;
use crate::keys::Layout;
use crate::link::Link;
use crate::scan;
use crate::scripts::INSPECT;
use crate::words::Call;

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
        locks.extend(several(link, layout, batch, false).await?);
        if locks.len() > limit {
            break;
        }
    }
    let more = locks.len() > limit;
    locks.truncate(limit);
    Ok(Page { locks, more })
}

/// The locks that this owner waits for, with their waiters. An owner that has the name of its claim
/// is not found: to note those too would cost every waiter a key, and nobody asks, since such an
/// owner waits for the lock where it was seen and for nothing else.
pub(crate) async fn waited_for_by(
    link: &Link,
    layout: &Layout,
    owner: Owner,
) -> Result<Page, StoreError> {
    let names = noted(link, layout, owner).await?.into_iter().collect::<Vec<Key>>();
    let mut locks = vec![];
    for batch in names.chunks(BATCH) {
        let seen = several(link, layout, batch, true).await?;
        let waits = |lock: &LockView| lock.waiters.iter().any(|waiter| waiter.owner == owner);
        locks.extend(seen.into_iter().filter(waits));
    }
    Ok(Page { locks, more: false })
}

async fn several(
    link: &Link,
    layout: &Layout,
    keys: &[Key],
    particulars: bool,
) -> Result<Vec<LockView>, StoreError> {
    let looks = keys.iter().map(|key| async move {
        match look(link, layout, key, particulars).await {
            // Somebody else's key among ours must not hide ours.
            Err(error) if error.kind() == ErrorKind::Foreign => Ok(None),
            seen => seen,
        }
    });
    Ok(try_join_all(looks).await?.into_iter().flatten().collect())
}

/// Where this owner may wait: what was noted when it last asked.
async fn noted(link: &Link, layout: &Layout, owner: Owner) -> Result<BTreeSet<Key>, StoreError> {
    let waits = layout.waits(owner);
    let mut range = redis::cmd("ZRANGE");
    range.arg(&waits).arg(0).arg(-1);
    match link.call(&range).await? {
        Value::ServerError(refusal) => Err(error::refused(&refusal, &waits)),
        Value::Array(keys) => Ok(named(layout, &keys).collect()),
        other => Err(error::baffled(&waits, other)),
    }
}

fn named(layout: &Layout, keys: &[Value]) -> impl Iterator<Item = Key> {
    keys.iter().filter_map(|key| match key {
        Value::BulkString(key) => layout.owner(key),
        _ => None,
    })
}

async fn scan(link: &Link, layout: &Layout, start: &str) -> Result<BTreeSet<Key>, StoreError> {
    scan::names(link, &layout.pattern(start), &[], |key| layout.owner(key)).await
}

async fn look(
    link: &Link,
    layout: &Layout,
    key: &Key,
    particulars: bool,
) -> Result<Option<LockView>, StoreError> {
    let lock = [layout.lock(key)];
    let mut call = Call::on(&lock);
    call.number(u64::from(particulars));
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
    let [
        alone,
        Value::Int(left_ms),
        Value::Array(sharers),
        Value::Int(waiting),
        Value::Array(waiters),
    ] = &parts[..]
    else {
        return None;
    };
    let mut sharers = sharers.chunks(3).map(read_sharer).collect::<Option<Vec<_>>>()?;
    sharers.sort_by_key(|(order, _)| *order);
    let mut holders: Vec<HolderView> = sharers.into_iter().map(|(_, holder)| holder).collect();
    if *alone != Value::Nil {
        holders.push(read_holder(words(alone)?, *left_ms as u64)?);
    }
    Some(LockView {
        key: key.clone(),
        holders,
        waiting: *waiting as u64,
        waiters: waiters.chunks(2).map(read_waiter).collect::<Option<_>>()?,
    })
}

/// What a claim has asked for, and who asks.
struct Terms {
    share: Share,
    owner: Owner,
    label: Label,
}

impl Terms {
    fn read(words: &str) -> Option<Self> {
        let mut parts = words.splitn(5, ' ');
        // After the ttl.
        let share = parts.nth(1)?.parse().ok()?;
        // After where to tell it.
        let owner = parts.nth(1)?.parse().ok()?;
        Some(Self { share, owner, label: Label::new(parts.next()?) })
    }
}

/// Reads what `row.lua` writes.
fn read_holder(row: &str, left_ms: u64) -> Option<HolderView> {
    let (row, broken) = split_reason(row);
    let mut parts = row.splitn(4, ' ');
    let claim = parts.next()?.get(1..)?.parse().ok()?;
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (seconds, micros) = (number()?, number()?);
    let Terms { share, owner, label } = Terms::read(parts.next()?)?;
    let token = stamp(seconds, micros);
    Some(HolderView {
        claim,
        owner,
        label,
        share,
        token: Some(token),
        since_ms: token.get() / 1000,
        left: Duration::from_millis(left_ms),
        broken,
    })
}

/// Reads a claim, what `shared.lua` says of it, and what is left of its lease; answers also which
/// grant it was.
fn read_sharer(parts: &[Value]) -> Option<(u64, HolderView)> {
    let [claim, particulars, Value::Int(left_us)] = parts else { return None };
    let (particulars, broken) = split_reason(words(particulars)?);
    let mut parts = particulars.splitn(4, ' ');
    let mut integer = || parts.next()?.parse::<u64>().ok();
    let (order, token, since_us) = (integer()?, integer()?, integer()?);
    let Terms { share, owner, label } = Terms::read(parts.next()?)?;
    let holder = HolderView {
        claim: number(claim)?,
        owner,
        label,
        share,
        token: Some(Token::new(token)),
        since_ms: since_us / 1000,
        left: Duration::from_micros(*left_us as u64),
        broken,
    };
    Some((order, holder))
}

fn split_reason(words: &str) -> (&str, Option<String>) {
    match words.split_once('\n') {
        Some((words, reason)) => (words, Some(reason.to_owned())),
        None => (words, None),
    }
}

/// Reads a claim and what `row.lua` says of a waiter.
fn read_waiter(pair: &[Value]) -> Option<WaiterView> {
    let [claim, particulars] = pair else { return None };
    let mut parts = words(particulars)?.splitn(3, ' ').skip(1);
    let since_ms = parts.next()?.parse::<u64>().ok()? / 1000;
    let Terms { share, owner, label } = Terms::read(parts.next()?)?;
    Some(WaiterView { claim: number(claim)?, owner, label, share, since_ms })
}

/// The token that the server's time of a grant is.
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
