//! Looking without changing anything: one state of the file, read in one transaction.

use lockstep_core::{ClaimId, Key, Label, Owner};
use lockstep_lock::queue::Now;
use lockstep_lock::store::{LockView, Page, Query, WaiterView};
use rusqlite::{Connection, params};

use super::config::Tenant;
use super::error::Failure;
use super::row::{Holders, Row, id, nanos};
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
        Query::WaitedForBy(owner) => {
            let mut waits = conn.prepare_cached(include_str!("sql/waiter_waits.sql"))?;
            let values = params![owner.as_u128().to_be_bytes(), nanos(now.moment)];
            let keys = waits.query_map(values, |row| row.get::<_, String>(0))?;
            let mut locks = vec![];
            for key in keys {
                if let Some(key) = tenant.lock(&key?) {
                    locks.extend(one(conn, tenant, now, &key)?);
                }
            }
            Page { locks, more: false }
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
    let row = Row::load(conn, &row_key)?;
    let holders = row.holder_views(now)?;
    let mut list = conn.prepare_cached(include_str!("sql/waiter_list.sql"))?;
    let mut found = list.query(params![row_key, nanos(now.moment)])?;
    let mut waiters = vec![];
    while let Some(waiter) = found.next()? {
        waiters.push(WaiterView {
            claim: ClaimId::from_u128(id(waiter, 0)?),
            owner: Owner::from_u128(id(waiter, 1)?),
            label: Label::new(waiter.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?),
            share: row.share(waiter.get(4)?)?,
            since_ms: waiter.get::<_, i64>(3)? as u64,
        });
    }
    let waiting = waiters.len() as u64;
    let seen = !holders.is_empty() || waiting > 0;
    Ok(seen.then(|| LockView { key: key.clone(), holders, waiting, waiters }))
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
        let total = row.get(2)?;
        let holders = Holders::read(row, 3, row.get(1)?)?.load(conn, row_key)?;
        let live = holders.iter().filter(|holder| holder.lives(now));
        let holders = live.map(|holder| holder.view(now, total)).collect::<Result<Vec<_>, _>>()?;
        let waiting = row.get::<_, i64>(11)? as u64;
        if holders.is_empty() && waiting == 0 {
            continue;
        }
        if page.locks.len() == limit {
            page.more = true;
            break;
        }
        page.locks.push(LockView { key, holders, waiting, waiters: vec![] });
    }
    Ok(page)
}
