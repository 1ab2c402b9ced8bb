//! What operators see, and what they do.

use std::collections::BTreeMap;

use lockstep_core::{Key, StoreError};
use lockstep_lock::line::Line;
use lockstep_lock::store::{LockView, Page, Query};

use crate::entry::{Entry, Info};
use crate::error;
use crate::layout::range_end;
use crate::look::{self, delete_if, equals};
use crate::proto::{RangeRequest, SortOrder, SortTarget, With, revision};
use crate::store::{Lane, over};

/// So many keys are read at once where all are.
const PAGE: i64 = 1_000;
const TRIES: usize = 5;

pub(crate) async fn look(lane: &Lane, query: &Query) -> Result<Page, StoreError> {
    match query {
        Query::One(key) => {
            let seen = look::all(lane.link(), &lane.config.layout.line(key), None).await?;
            let view = view(lane, key, &seen.entries, true);
            Ok(Page { locks: view.into_iter().collect(), more: false })
        }
        Query::All { prefix, limit } => list(lane, prefix, *limit).await,
        // Only asked where the store says that it can tell.
        Query::WaitedForBy(_) => Ok(Page::default()),
    }
}

fn view(lane: &Lane, key: &Key, entries: &[Entry], particulars: bool) -> Option<LockView> {
    if entries.is_empty() {
        return None;
    }
    let line = Line::new(entries.iter().map(Entry::in_line).collect());
    let (holders, waiters) = entries.split_at(line.holders());
    let (now, book) = (lane.hub.now(), lane.hub.shared().book.lock());
    let left = |entry: &Entry| book.left(now, entry.info()?.claim);
    Some(LockView {
        key: key.clone(),
        holders: holders.iter().map(|entry| entry.holder(left(entry))).collect(),
        waiting: waiters.len() as u64,
        waiters: waiters.iter().filter(|_| particulars).map(Entry::waiter).collect(),
    })
}

/// Reads every key that starts like this: the order of keys is not that of names (`a b` comes before `a/`
/// and after `a`), so where to stop is only known at the end.
async fn list(lane: &Lane, prefix: &str, limit: usize) -> Result<Page, StoreError> {
    let layout = &lane.config.layout;
    let start = format!("{}{prefix}", layout.prefix()).into_bytes();
    let mut lines: BTreeMap<Key, Vec<Entry>> = BTreeMap::new();
    let mut request = RangeRequest {
        range_end: range_end(&start),
        // An empty key is no key.
        key: if start.is_empty() { vec![0] } else { start },
        limit: PAGE,
        sort_order: SortOrder::None.into(),
        sort_target: SortTarget::Key.into(),
        ..RangeRequest::default()
    };
    loop {
        let page = lane.link().range(request.clone()).await?;
        if request.revision == 0 {
            request.revision = revision(page.header.as_ref());
        }
        for kv in &page.kvs {
            let Some(key) = layout.lock_of(&kv.key).filter(|key| key.as_str().starts_with(prefix))
            else {
                continue;
            };
            let entry = Entry::read(&layout.line(&key), kv);
            if let Some(entry) = entry.filter(|entry| entry.is_a_lock(&layout.line(&key))) {
                lines.entry(key).or_default().push(entry);
            }
        }
        match page.kvs.last() {
            Some(last) if page.more => request.key = [last.key.as_slice(), &[0]].concat(),
            _ => break,
        }
    }
    let more = lines.len() > limit;
    let locks = lines.into_iter().take(limit).filter_map(|(key, mut entries)| {
        entries.sort_by_key(|entry| entry.create);
        view(lane, &key, &entries, false)
    });
    Ok(Page { locks: locks.collect(), more })
}

/// Marks or deletes the keys of all who hold the lock; whether there was one.
pub(crate) async fn break_lock(
    lane: &Lane,
    key: &Key,
    reason: &str,
    now: bool,
) -> Result<bool, StoreError> {
    let line = lane.config.layout.line(key);
    let mut done = false;
    let mut creates: Option<Vec<i64>> = None;
    for _ in 0..TRIES {
        let seen = look::all(lane.link(), &line, None).await?;
        let holders = &seen.entries[..seen.line().holders()];
        // Whom the operator meant is who held it at first, not who came after.
        let meant = creates.get_or_insert_with(|| holders.iter().map(|it| it.create).collect());
        let mut again = false;
        for holder in holders.iter().filter(|holder| meant.contains(&holder.create)) {
            match mark(lane, key, holder, reason, now).await? {
                true => done = true,
                false => again = true,
            }
        }
        if !again {
            return Ok(done);
        }
    }
    Err(error::silent("somebody else changes this lock all the time; etcd"))
}

/// `false` if it has changed since it was read.
async fn mark(
    lane: &Lane,
    key: &Key,
    holder: &Entry,
    reason: &str,
    now: bool,
) -> Result<bool, StoreError> {
    match holder.info() {
        // The words first, so that who listens hears them before its key is gone.
        Some(info) if info.broken.as_deref() != Some(reason) => {
            let marked = Info { broken: Some(reason.to_owned()), ..info.clone() };
            if !look::rewrite(lane.link(), holder, over(&holder.key, &marked)).await? {
                return Ok(false);
            }
        }
        None if !now => {
            return Err(error::foreign(format!(
                "lock `{key}` is held by a client that is not Lockstep and cannot be told: break it at once, \
                 or ask its owner"
            )));
        }
        _ => {}
    }
    if now {
        let guard = vec![equals(&holder.key, With::CreateRevision(holder.create))];
        delete_if(lane.link(), &holder.key, guard).await?;
    }
    Ok(true)
}
