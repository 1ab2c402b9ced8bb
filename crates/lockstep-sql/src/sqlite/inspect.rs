//! Looking without changing anything: one state of the file, read in one transaction.

use lockstep_core::{ClaimId, Key, Label, Owner};
use lockstep_lock::queue::Now;
use lockstep_lock::store::{LockView, Page, Query, WaiterView};
use rusqlite::{Connection, params};

use super::config::Tenant;
use super::error::Failure;
use super::row::{Holder, Row, id, nanos};
use super::tx::Tx;

pub(super) fn inspect(
    conn: &Connection,
    tenant: &Tenant,
    now: Now,
    query: &Query,
) -> Result<Page, Failure> {
    let tx = Tx::read(conn)?;
    let page = match query {
        Query::One(key) => {
            let view = one(conn, tenant, now, key)?;
            Page { locks: view.into_iter().collect(), more: false }
        }
        Query::All { prefix, limit } => all(conn, tenant, now, prefix, *limit)?,
    };
    tx.commit()?;
    Ok(page)
}

fn one(
    conn: &Connection,
    tenant: &Tenant,
    now: Now,
    key: &Key,
) -> Result<Option<LockView>, Failure> {
    let row_key = tenant.row_key(key.as_str());
    let holder = Row::load(conn, &row_key)?.holder_view(now);
    let mut waiters = conn.prepare_cached(include_str!("sql/waiter_list.sql"))?;
    let waiters = waiters.query_map(params![row_key, nanos(now.moment)], |row| {
        Ok(WaiterView {
            claim: ClaimId::from_u128(id(row, 0)?),
            owner: Owner::from_u128(id(row, 1)?),
            label: Label::new(row.get_ref(2)?.as_str()?),
            since_ms: row.get::<_, i64>(3)? as u64,
        })
    })?;
    let waiters: Vec<WaiterView> = waiters.collect::<Result<_, _>>()?;
    let waiting = waiters.len() as u64;
    let seen = holder.is_some() || waiting > 0;
    Ok(seen.then(|| LockView { key: key.clone(), holder, waiting, waiters }))
}

/// Goes through the rows in order, the free ones too: nothing but their keys is kept sorted.
fn all(
    conn: &Connection,
    tenant: &Tenant,
    now: Now,
    prefix: &str,
    limit: usize,
) -> Result<Page, Failure> {
    let start = tenant.row_key(prefix);
    let mut list = conn.prepare_cached(include_str!("sql/lock_list.sql"))?;
    let mut rows = list.query(params![start, nanos(now.moment)])?;
    let mut page = Page::default();
    while let Some(row) = rows.next()? {
        let row_key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        if !row_key.starts_with(&start) {
            break;
        }
        let Some(key) = tenant.lock(row_key) else { continue };
        let token = row.get(1)?;
        let holder = Holder::read(row, 2)?.and_then(|holder| holder.view(now, token));
        let waiting = row.get::<_, i64>(9)? as u64;
        if holder.is_none() && waiting == 0 {
            continue;
        }
        if page.locks.len() == limit {
            page.more = true;
            break;
        }
        page.locks.push(LockView { key, holder, waiting, waiters: vec![] });
    }
    Ok(page)
}
