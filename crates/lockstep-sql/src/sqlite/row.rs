//! One lock's row and queue inside a write transaction: `lockstep_lock::queue`, step by step, on
//! tables. What is decided here is decided there in the same words.

use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Label, Owner, Token};
use lockstep_lock::Signal;
use lockstep_lock::queue::Now;
use lockstep_lock::store::{Answer, Claim, Hold, HolderView, Released};
use rusqlite::{Connection, OptionalExtension, params};

use super::boot::EPOCH_SHIFT;
use super::error::Failure;
use super::wake::{InboxId, Told};

/// A lock as it is in the table. What changes is written by [`save`](Self::save).
pub(super) struct Row<'a> {
    conn: &'a Connection,
    key: &'a str,
    epoch: i64,
    stored: bool,
    changed: bool,
    /// Whether it was taken from a holder just now. A lock that was free before has no waiters: it
    /// would have passed on.
    freed: bool,
    token: i64,
    pub(super) holder: Option<Holder>,
}

pub(super) struct Holder {
    pub(super) claim: ClaimId,
    owner: Owner,
    label: Label,
    since_ms: u64,
    pub(super) until: Moment,
    inbox: Option<InboxId>,
    broken: Option<String>,
}

impl<'a> Row<'a> {
    /// Reads the row, which need not exist.
    pub(super) fn load(conn: &'a Connection, key: &'a str) -> Result<Self, Failure> {
        let mut load = conn.prepare_cached(include_str!("sql/lock_load.sql"))?;
        let found = load.query_row([key], |row| {
            let token: Option<i64> = row.get(1)?;
            Ok(Self {
                conn,
                key,
                epoch: row.get(0)?,
                stored: token.is_some(),
                changed: false,
                freed: false,
                token: token.unwrap_or(0),
                holder: Holder::read(row, 2)?,
            })
        });
        found.optional()?.ok_or_else(|| Failure::foreign("the row of lockstep_meta is missing"))
    }

    pub(super) fn is_stored(&self) -> bool {
        self.stored
    }

    pub(super) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Ends a lease that has run out, forgets dead waiters at the head of the queue, and grants
    /// a free lock to the first that lives.
    pub(super) fn heal(&mut self, now: Now) -> Result<Option<Told>, Failure> {
        self.expire(now);
        if self.holder.is_some() || !self.freed {
            return Ok(None);
        }
        let mut next = self.conn.prepare_cached(include_str!("sql/waiter_next.sql"))?;
        let next = next.query_row(params![self.key, nanos(now.moment)], |row| {
            let ttl = Duration::from_nanos(row.get::<_, i64>(4)? as u64);
            let holder = Holder {
                claim: ClaimId::from_u128(id(row, 1)?),
                owner: Owner::from_u128(id(row, 2)?),
                label: Label::new(row.get_ref(3)?.as_str()?),
                since_ms: now.wall_ms,
                until: now.moment + ttl,
                inbox: row.get(5)?,
                broken: None,
            };
            Ok((row.get::<_, i64>(0)?, holder))
        });
        let next = next.optional()?;
        let served = next.as_ref().map_or(i64::MAX, |(seq, _)| *seq);
        let mut forget = self.conn.prepare_cached(include_str!("sql/waiter_forget.sql"))?;
        forget.execute(params![self.key, served])?;
        let Some((_, holder)) = next else { return Ok(None) };
        let (claim, inbox) = (holder.claim, holder.inbox);
        let token = Some(self.grant(holder)?);
        Ok(Some(Told { claim, inbox, signal: Signal::Granted { claim, token } }))
    }

    pub(super) fn expire(&mut self, now: Now) {
        if self.holder.as_ref().is_some_and(|holder| holder.until <= now.moment) {
            self.free();
        }
    }

    fn free(&mut self) -> Option<Holder> {
        let holder = self.holder.take();
        self.freed |= holder.is_some();
        holder
    }

    pub(super) fn ask(
        &mut self,
        now: Now,
        claim: &Claim,
        inbox: Option<InboxId>,
    ) -> Result<Answer, Failure> {
        let token = Token::new(self.token as u64);
        match &mut self.holder {
            None => {
                let holder = Holder {
                    claim: claim.id,
                    owner: claim.owner,
                    label: claim.label.clone(),
                    since_ms: now.wall_ms,
                    until: now.moment + claim.ttl,
                    inbox,
                    broken: None,
                };
                Ok(Answer::Granted { token: Some(self.grant(holder)?) })
            }
            Some(holder) if holder.claim == claim.id => match &holder.broken {
                Some(reason) => Ok(Answer::Broken { reason: reason.clone() }),
                None => {
                    holder.until = now.moment + claim.ttl;
                    holder.inbox = inbox.or(holder.inbox);
                    self.changed = true;
                    Ok(Answer::Granted { token: Some(token) })
                }
            },
            Some(_) if !claim.wait => Ok(Answer::Busy),
            Some(holder) => {
                let holder_left = holder.until.since(now.moment);
                let place = self.enqueue(now, claim, inbox)?;
                let mut ahead = self.conn.prepare_cached(include_str!("sql/waiter_ahead.sql"))?;
                let ahead: i64 = ahead
                    .query_row(params![self.key, place, nanos(now.moment)], |row| row.get(0))?;
                let ahead = ahead as u64;
                Ok(Answer::Queued { ahead, holder_left, behind: Some(token) })
            }
        }
    }

    /// The next token: one more than the last, and of this epoch (see `boot.rs`).
    fn grant(&mut self, holder: Holder) -> Result<Token, Failure> {
        let token = (self.token + 1).max(self.epoch << EPOCH_SHIFT | 1);
        if token >> EPOCH_SHIFT != self.epoch {
            return Err(Failure::Exhausted);
        }
        self.token = token;
        self.holder = Some(holder);
        self.changed = true;
        Ok(Token::new(token as u64))
    }

    /// Keeps or gives the claim a place; a place whose lease has run out is lost, and the claim
    /// goes to the end.
    fn enqueue(&self, now: Now, claim: &Claim, inbox: Option<InboxId>) -> Result<i64, Failure> {
        let until = nanos(now.moment + claim.ttl);
        let mut find = self.conn.prepare_cached(include_str!("sql/waiter_find.sql"))?;
        let place = find
            .query_row(params![self.key, blob(claim.id)], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })
            .optional()?;
        if let Some((seq, lives_until)) = place {
            if nanos(now.moment) < lives_until {
                let mut keep = self.conn.prepare_cached(include_str!("sql/waiter_keep.sql"))?;
                keep.execute(params![self.key, seq, until, inbox])?;
                return Ok(seq);
            }
            self.leave(claim.id)?;
        }
        let mut insert = self.conn.prepare_cached(include_str!("sql/waiter_insert.sql"))?;
        let values = params![
            self.key,
            blob(claim.id),
            claim.owner.as_u128().to_be_bytes(),
            claim.label.as_str(),
            now.wall_ms as i64,
            until,
            i64::try_from(claim.ttl.as_nanos()).unwrap_or(i64::MAX),
            inbox
        ];
        Ok(insert.query_row(values, |row| row.get(0))?)
    }

    pub(super) fn give_back(&mut self, hold: &Hold) -> Result<Released, Failure> {
        if self.holder.as_ref().is_some_and(|holder| holder.claim == hold.id) {
            self.free();
            return Ok(Released::Done);
        }
        Ok(if self.leave(hold.id)? { Released::Done } else { Released::NotHeld })
    }

    fn leave(&self, claim: ClaimId) -> Result<bool, Failure> {
        let mut leave = self.conn.prepare_cached(include_str!("sql/waiter_leave.sql"))?;
        Ok(leave.execute(params![self.key, blob(claim)])? > 0)
    }

    pub(super) fn mark_broken(&mut self, reason: &str) -> Released {
        match &mut self.holder {
            Some(holder) => {
                holder.broken = Some(reason.to_owned());
                self.changed = true;
                Released::Done
            }
            None => Released::NotHeld,
        }
    }

    /// Takes the lock from its holder, who is told why.
    pub(super) fn break_now(&mut self, reason: &str) -> Option<Told> {
        let Holder { claim, inbox, .. } = self.free()?;
        Some(Told { claim, inbox, signal: Signal::Lost { claim, reason: reason.to_owned() } })
    }

    /// Writes what has changed.
    pub(super) fn save(self) -> Result<(), Failure> {
        if !self.changed && !self.freed {
            return Ok(());
        }
        let mut write = self.conn.prepare_cached(if self.stored {
            include_str!("sql/lock_update.sql")
        } else {
            include_str!("sql/lock_insert.sql")
        })?;
        let holder = self.holder.as_ref();
        write.execute(params![
            self.key,
            self.token,
            holder.map(|holder| blob(holder.claim)),
            holder.map(|holder| holder.owner.as_u128().to_be_bytes()),
            holder.map(|holder| holder.label.as_str()),
            holder.map(|holder| holder.since_ms as i64),
            holder.map(|holder| nanos(holder.until)),
            holder.and_then(|holder| holder.inbox),
            holder.and_then(|holder| holder.broken.as_deref()),
        ])?;
        Ok(())
    }

    /// What people see of the holder, if its lease lives.
    pub(super) fn holder_view(&self, now: Now) -> Option<HolderView> {
        self.holder.as_ref().and_then(|holder| holder.view(now, self.token))
    }
}

impl Holder {
    /// The holder in the seven columns from `first` on: claim, owner, label, since_ms, until_ns,
    /// inbox, broken.
    pub(super) fn read(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Option<Self>> {
        if row.get_ref(first)? == rusqlite::types::ValueRef::Null {
            return Ok(None);
        }
        Ok(Some(Self {
            claim: ClaimId::from_u128(id(row, first)?),
            owner: Owner::from_u128(id(row, first + 1)?),
            label: Label::new(row.get_ref(first + 2)?.as_str()?),
            since_ms: row.get::<_, i64>(first + 3)? as u64,
            until: Moment::from_nanos(row.get::<_, i64>(first + 4)? as u64),
            inbox: row.get(first + 5)?,
            broken: row.get(first + 6)?,
        }))
    }

    pub(super) fn view(&self, now: Now, token: i64) -> Option<HolderView> {
        (now.moment < self.until).then(|| HolderView {
            claim: self.claim,
            owner: self.owner,
            label: self.label.clone(),
            token: Some(Token::new(token as u64)),
            since_ms: self.since_ms,
            left: self.until.since(now.moment),
            broken: self.broken.clone(),
        })
    }
}

/// A moment as SQLite's signed integer; what lies beyond is never reached.
pub(super) fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn blob(claim: ClaimId) -> [u8; 16] {
    claim.as_u128().to_be_bytes()
}

/// The id in a column.
pub(super) fn id(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u128> {
    row.get(column).map(u128::from_be_bytes)
}
