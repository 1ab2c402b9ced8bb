//! The verbs on one connection, each one transaction. Synchronous: who may wait, and for how long,
//! is decided in `store.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockstep_core::Key;
use lockstep_core::time::Clock;
use lockstep_lock::clock::wall_ms;
use lockstep_lock::queue::Now;
use lockstep_lock::store::{Answer, Claim, Hold, Page, Query, Release, Released, Renewal};
use rusqlite::{Connection, OptionalExtension, params};

use super::boot::{self, OtherBoot};
use super::config::{Config, Synchronous, Tenant};
use super::error::Failure;
use super::file::{self, FileId};
use super::inspect::inspect;
use super::open::{self, Opened};
use super::row::{Row, blob, nanos};
use super::tx::Tx;
use super::wake::{InboxId, Told};

/// How often the epoch may change under one verb before it gives up.
const SETTLES: u32 = 8;

/// All locks of one file, seen through one connection.
pub(super) struct Table {
    conn: Connection,
    path: PathBuf,
    file: FileId,
    config: Config,
    clock: Arc<dyn Clock>,
    boot: String,
    epoch: i64,
}

impl Table {
    pub(super) fn new(opened: Opened, config: Config, clock: Arc<dyn Clock>, boot: String) -> Self {
        let Opened { conn, path, file, epoch } = opened;
        Self { conn, path, file, config, clock, boot, epoch }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn synchronous(&self) -> Synchronous {
        self.config.synchronous
    }

    /// Looks at the same locks without standing in the way of this table's verbs.
    pub(super) fn reader(&self) -> Reader {
        let (path, tenant) = (self.path.clone(), self.config.tenant.clone());
        Reader { path, tenant, clock: Arc::clone(&self.clock) }
    }

    pub(super) fn acquire(
        &mut self,
        claim: &Claim,
        inbox: Option<InboxId>,
    ) -> Result<(Answer, Vec<Told>), Failure> {
        self.change(&claim.key, |row, now| {
            let mut told = row.heal(now)?;
            let answer = row.ask(now, claim, inbox)?;
            // Telling the asker what its own answer already says would only wake it twice.
            told.retain(|told| told.claim != claim.id);
            Ok((answer, told))
        })
    }

    pub(super) fn renew(&mut self, holds: &[Hold]) -> Result<Vec<Renewal>, Failure> {
        let tx = Tx::write(&self.conn)?;
        self.check_file()?;
        let now = self.now();
        let renewals =
            holds.iter().map(|hold| renew_one(&self.conn, &self.config.tenant, now, hold));
        let renewals = renewals.collect::<Result<_, _>>()?;
        tx.commit()?;
        Ok(renewals)
    }

    pub(super) fn release(&mut self, what: &Release) -> Result<(Released, Vec<Told>), Failure> {
        if let Release::Mine(hold) = what
            && self.release_unwaited(hold)?
        {
            return Ok((Released::Done, vec![]));
        }
        self.change(what.key(), |row, now| {
            if !row.is_stored() {
                return Ok((Released::NotHeld, vec![]));
            }
            // Not healed before: an operator who breaks a holder that has run out must not hit the
            // innocent one that is next.
            row.expire(now);
            let mut told = vec![];
            let done = match what {
                Release::Mine(hold) => row.give_back(now, hold)?,
                Release::Downgrade(hold) => row.downgrade(hold),
                Release::Break { reason, now: false, .. } => row.mark_broken(reason),
                Release::Break { reason, now: true, .. } => {
                    told = row.break_now(reason);
                    !told.is_empty()
                }
            };
            told.extend(row.heal(now)?);
            Ok((if done { Released::Done } else { Released::NotHeld }, told))
        })
    }

    /// What nearly every release is: a live hold that nobody waits for, in the one statement that
    /// is a transaction by itself.
    fn release_unwaited(&self, hold: &Hold) -> Result<bool, Failure> {
        let key = self.config.tenant.row_key(hold.key.as_str());
        let mut release = self.conn.prepare_cached(include_str!("sql/lock_release.sql"))?;
        let moment = nanos(self.clock.now());
        // It commits by itself, so a failure may be the commit's.
        let released = release.execute(params![key, blob(hold.id), moment]);
        Ok(released.map_err(Failure::of_commit)? == 1)
    }

    /// The same without waiting for the disk, on a connection that otherwise does. Nobody is granted
    /// anything by it: if the power fails before it gets there, the lock is free with the next boot.
    pub(super) fn release_without_disk(&self, hold: &Hold) -> Result<bool, Failure> {
        open::use_disk(&self.conn, Synchronous::Normal)?;
        let released = self.release_unwaited(hold);
        open::use_disk(&self.conn, self.config.synchronous).map_err(Failure::of_commit)?;
        released
    }

    pub(super) fn inspect(&mut self, query: &Query) -> Result<Page, Failure> {
        inspect(&self.conn, &self.config.tenant, self.now(), query)
    }

    /// Changes one row in one transaction, under a settled epoch.
    fn change<T>(
        &mut self,
        key: &Key,
        step: impl Fn(&mut Row<'_>, Now) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let key = self.config.tenant.row_key(key.as_str());
        for _ in 0..SETTLES {
            match self.try_change(&key, &step) {
                Err(Failure::Exhausted) => {
                    boot::use_up(&self.conn)?;
                    self.settle()?;
                }
                Err(Failure::Unsettled) => self.settle()?,
                done => return done,
            }
        }
        Err(Failure::Locked)
    }

    fn try_change<T>(
        &self,
        key: &str,
        step: impl Fn(&mut Row<'_>, Now) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let tx = Tx::write(&self.conn)?;
        self.check_file()?;
        let mut row = Row::load(&self.conn, key)?;
        if row.epoch() != self.epoch {
            return Err(Failure::Unsettled);
        }
        // Only now: the wait for the write lock is over, and moments follow commits.
        let result = step(&mut row, self.now())?;
        row.save()?;
        tx.commit()?;
        Ok(result)
    }

    fn settle(&mut self) -> Result<(), Failure> {
        let folder = file::folder_of(&self.path);
        let synchronous = self.config.synchronous;
        self.epoch = boot::settle(&self.conn, &self.boot, folder, synchronous, OtherBoot::Refuse)?;
        Ok(())
    }

    /// SQLite goes on with a file that has lost its name; others would lock another file.
    fn check_file(&self) -> Result<(), Failure> {
        if FileId::of(&self.path) == Some(self.file) {
            return Ok(());
        }
        Err(Failure::foreign(format!(
            "{} was deleted or replaced while it was in use: its locks are worth nothing any more",
            self.path.display()
        )))
    }

    fn now(&self) -> Now {
        now(&*self.clock)
    }
}

/// See [`Table::reader`].
pub(super) struct Reader {
    path: PathBuf,
    tenant: Tenant,
    clock: Arc<dyn Clock>,
}

impl Reader {
    pub(super) fn inspect(&self, query: &Query) -> Result<Page, Failure> {
        inspect(&open::connect(&self.path)?, &self.tenant, now(&*self.clock), query)
    }
}

/// The moment of a verb.
pub(super) fn now(clock: &dyn Clock) -> Now {
    Now { moment: clock.now(), wall_ms: wall_ms() }
}

fn renew_one(
    conn: &Connection,
    tenant: &Tenant,
    now: Now,
    hold: &Hold,
) -> Result<Renewal, Failure> {
    let (key, claim) = (tenant.row_key(hold.key.as_str()), blob(hold.id));
    let (moment, until) = (nanos(now.moment), nanos(now.moment + hold.ttl));
    let mut renew = conn.prepare_cached(include_str!("sql/lock_renew.sql"))?;
    if renew.execute(params![key, claim, moment, until])? == 1 {
        return Ok(Renewal::Renewed);
    }
    let mut renew = conn.prepare_cached(include_str!("sql/holder_renew.sql"))?;
    if renew.execute(params![key, claim, moment, until])? == 1 {
        return Ok(Renewal::Renewed);
    }
    let mut broken = conn.prepare_cached(include_str!("sql/lock_broken.sql"))?;
    let reason = broken.query_row(params![key, claim, moment], |row| row.get(0)).optional()?;
    Ok(reason.map_or(Renewal::Lost, |reason| Renewal::Broken { reason }))
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
