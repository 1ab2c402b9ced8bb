//! One lock's row and queue inside a write transaction: `lockstep_lock::queue`, step by step, on
//! tables. What is decided here is decided there in the same words.

use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Label, Owner, Token};
use lockstep_lock::queue::Now;
use lockstep_lock::store::{Answer, Claim, Hold, HolderView, WHOLE};
use lockstep_lock::{Share, Signal};
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
    /// Whether it was taken from all its holders just now. A lock that was free before has no
    /// waiters: it would have passed on.
    freed: bool,
    token: i64,
    total: u32,
    /// Whether the holders stand in a table of their own, and whether they did before.
    several: bool,
    were_several: bool,
    holders: Vec<Holder>,
    gone: Vec<ClaimId>,
}

pub(super) struct Holder {
    claim: ClaimId,
    owner: Owner,
    label: Label,
    token: i64,
    weight: u32,
    since_ms: u64,
    until: Moment,
    inbox: Option<InboxId>,
    broken: Option<String>,
    changed: bool,
}

/// What stands for the claim where the holders stand elsewhere.
const SEVERAL: [u8; 16] = [0; 16];

impl<'a> Row<'a> {
    /// Reads the row, which need not exist.
    pub(super) fn load(conn: &'a Connection, key: &'a str) -> Result<Self, Failure> {
        let mut load = conn.prepare_cached(include_str!("sql/lock_load.sql"))?;
        let found = load.query_row([key], |row| {
            let token: Option<i64> = row.get(1)?;
            let holders = Holders::read(row, 3, token.unwrap_or(0))?;
            Ok((row.get(0)?, token, row.get::<_, Option<u32>>(2)?.unwrap_or(WHOLE), holders))
        });
        let Some((epoch, token, total, holders)) = found.optional()? else {
            return Err(Failure::foreign("the row of lockstep_meta is missing"));
        };
        let several = matches!(holders, Holders::Several);
        Ok(Self {
            conn,
            key,
            epoch,
            stored: token.is_some(),
            changed: false,
            freed: false,
            token: token.unwrap_or(0),
            total,
            several,
            were_several: several,
            holders: holders.load(conn, key)?,
            gone: vec![],
        })
    }

    pub(super) fn is_stored(&self) -> bool {
        self.stored
    }

    pub(super) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Ends leases that have run out, forgets dead waiters at the head of the queue, and grants the
    /// first that live, as many as fit.
    pub(super) fn heal(&mut self, now: Now) -> Result<Vec<Told>, Failure> {
        self.expire(now);
        let mut told = vec![];
        // Where one holder has all of it nobody can fit, and a lock that was free has no waiters.
        while if self.holders.is_empty() { self.freed } else { self.has_room(1) } {
            let mut next = self.conn.prepare_cached(include_str!("sql/waiter_next.sql"))?;
            let next = next.query_row(params![self.key, nanos(now.moment)], |row| {
                let ttl = Duration::from_nanos(row.get::<_, i64>(4)? as u64);
                let holder = Holder {
                    claim: ClaimId::from_u128(id(row, 1)?),
                    owner: Owner::from_u128(id(row, 2)?),
                    label: Label::new(row.get_ref(3)?.as_str()?),
                    token: 0,
                    weight: row.get(6)?,
                    since_ms: now.wall_ms,
                    until: now.moment + ttl,
                    inbox: row.get(5)?,
                    broken: None,
                    changed: true,
                };
                Ok((row.get::<_, i64>(0)?, holder))
            });
            let next = next.optional()?;
            let fits = next.as_ref().is_none_or(|(_, holder)| self.has_room(holder.weight));
            let served = match &next {
                None => i64::MAX,
                Some((seq, _)) if fits => *seq,
                Some((seq, _)) => seq - 1,
            };
            let mut forget = self.conn.prepare_cached(include_str!("sql/waiter_forget.sql"))?;
            forget.execute(params![self.key, served])?;
            let Some((_, holder)) = next.filter(|_| fits) else { break };
            let (claim, inbox) = (holder.claim, holder.inbox);
            let token = Some(self.grant(holder)?);
            told.push(Told { claim, inbox, signal: Signal::Granted { claim, token } });
        }
        Ok(told)
    }

    pub(super) fn expire(&mut self, now: Now) {
        self.remove(|holder| holder.until <= now.moment);
    }

    /// Takes the lock from those of its holders.
    fn remove(&mut self, which: impl Fn(&Holder) -> bool) -> Vec<Holder> {
        let removed: Vec<Holder> = self.holders.extract_if(.., |holder| which(holder)).collect();
        self.gone.extend(removed.iter().map(|holder| holder.claim));
        if self.holders.is_empty() && !removed.is_empty() {
            self.freed = true;
            self.several = false;
        }
        removed
    }

    /// Whether so much more can be held. A lock that nobody holds takes the total of who comes.
    fn has_room(&self, weight: u32) -> bool {
        let used: u64 = self.holders.iter().map(|holder| u64::from(holder.weight)).sum();
        used + u64::from(weight) <= u64::from(self.total)
    }

    fn is_waited_for(&self, now: Now) -> Result<bool, Failure> {
        let mut next = self.conn.prepare_cached(include_str!("sql/waiter_next.sql"))?;
        Ok(next.exists(params![self.key, nanos(now.moment)])?)
    }

    pub(super) fn ask(
        &mut self,
        now: Now,
        claim: &Claim,
        inbox: Option<InboxId>,
    ) -> Result<Answer, Failure> {
        if let Some(holder) = self.holders.iter_mut().find(|holder| holder.claim == claim.id) {
            if let Some(reason) = &holder.broken {
                return Ok(Answer::Broken { reason: reason.clone() });
            }
            holder.until = now.moment + claim.ttl;
            holder.inbox = inbox.or(holder.inbox);
            holder.changed = true;
            self.changed = true;
            return Ok(Answer::Granted { token: Some(Token::new(holder.token as u64)) });
        }
        if self.holders.is_empty() {
            self.total = claim.share.of();
        } else if self.total != claim.share.of() {
            return Ok(Answer::Differs { of: self.total });
        }
        // The row is healed: whoever is first in the queue lives and does not fit.
        let weight = claim.share.weight();
        if self.has_room(weight) && (self.holders.is_empty() || !self.is_waited_for(now)?) {
            let holder = Holder {
                claim: claim.id,
                owner: claim.owner,
                label: claim.label.clone(),
                token: 0,
                weight,
                since_ms: now.wall_ms,
                until: now.moment + claim.ttl,
                inbox,
                broken: None,
                changed: true,
            };
            return Ok(Answer::Granted { token: Some(self.grant(holder)?) });
        }
        if !claim.wait {
            return Ok(Answer::Busy);
        }
        let ends = self.holders.iter().map(|holder| holder.until).min().unwrap_or(now.moment);
        let place = self.enqueue(now, claim, inbox)?;
        let mut ahead = self.conn.prepare_cached(include_str!("sql/waiter_ahead.sql"))?;
        let ahead: i64 =
            ahead.query_row(params![self.key, place, nanos(now.moment)], |row| row.get(0))?;
        Ok(Answer::Queued {
            ahead: ahead as u64,
            holder_left: ends.since(now.moment),
            behind: Some(Token::new(self.token as u64)),
        })
    }

    /// The next token: one more than the last, and of this epoch (see `boot.rs`). Readers that hold
    /// together have one: it says after which writer they read.
    fn grant(&mut self, mut holder: Holder) -> Result<Token, Failure> {
        let joins = holder.weight == 1 && self.total == WHOLE && !self.holders.is_empty();
        if !joins {
            let token = (self.token + 1).max(self.epoch << EPOCH_SHIFT | 1);
            if token >> EPOCH_SHIFT != self.epoch {
                return Err(Failure::Exhausted);
            }
            self.token = token;
        }
        if !self.holders.is_empty() && !self.several {
            self.several = true;
            self.holders.iter_mut().for_each(|holder| holder.changed = true);
        }
        holder.token = self.token;
        self.holders.push(holder);
        self.changed = true;
        Ok(Token::new(self.token as u64))
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
            inbox,
            claim.share.weight()
        ];
        Ok(insert.query_row(values, |row| row.get(0))?)
    }

    pub(super) fn give_back(&mut self, now: Now, hold: &Hold) -> Result<bool, Failure> {
        if !self.remove(|holder| holder.claim == hold.id).is_empty() {
            return Ok(true);
        }
        // A place whose lease has run out is not there any more, forgotten or not.
        Ok(self.leave(hold.id)?.is_some_and(|until| nanos(now.moment) < until))
    }

    /// Forgets a place; answers with the end of its lease.
    fn leave(&self, claim: ClaimId) -> Result<Option<i64>, Failure> {
        let mut leave = self.conn.prepare_cached(include_str!("sql/waiter_leave.sql"))?;
        Ok(leave.query_row(params![self.key, blob(claim)], |row| row.get(0)).optional()?)
    }

    pub(super) fn downgrade(&mut self, hold: &Hold) -> bool {
        let mine = self.holders.iter_mut().find(|holder| holder.claim == hold.id);
        let Some(holder) = mine.filter(|_| self.total == WHOLE) else { return false };
        holder.weight = Share::Read.weight();
        holder.changed = true;
        self.changed = true;
        true
    }

    pub(super) fn mark_broken(&mut self, reason: &str) -> bool {
        for holder in &mut self.holders {
            holder.broken = Some(reason.to_owned());
            holder.changed = true;
            self.changed = true;
        }
        !self.holders.is_empty()
    }

    /// Takes the lock from all its holders, who are told why.
    pub(super) fn break_now(&mut self, reason: &str) -> Vec<Told> {
        let lost = self.remove(|_| true).into_iter().map(|Holder { claim, inbox, .. }| Told {
            claim,
            inbox,
            signal: Signal::Lost { claim, reason: reason.to_owned() },
        });
        lost.collect()
    }

    /// Writes what has changed.
    pub(super) fn save(self) -> Result<(), Failure> {
        if !self.changed && self.gone.is_empty() {
            return Ok(());
        }
        let mut write = self.conn.prepare_cached(if self.stored {
            include_str!("sql/lock_update.sql")
        } else {
            include_str!("sql/lock_insert.sql")
        })?;
        let holder = self.holders.first().filter(|_| !self.several);
        let claim = match (self.several, holder) {
            (true, _) => Some(SEVERAL),
            (false, holder) => holder.map(|holder| blob(holder.claim)),
        };
        write.execute(params![
            self.key,
            self.token,
            claim,
            holder.map(|holder| holder.owner.as_u128().to_be_bytes()),
            holder.map(|holder| holder.label.as_str()),
            holder.map(|holder| holder.since_ms as i64),
            holder.map(|holder| nanos(holder.until)),
            holder.and_then(|holder| holder.inbox),
            holder.and_then(|holder| holder.broken.as_deref()),
            holder.map_or(0, |holder| holder.weight),
            self.total,
        ])?;
        self.save_several()
    }

    fn save_several(&self) -> Result<(), Failure> {
        if self.were_several && !self.several {
            self.conn.prepare_cached(include_str!("sql/holder_clear.sql"))?.execute([self.key])?;
        }
        if !self.several {
            return Ok(());
        }
        for gone in self.gone.iter().filter(|_| self.were_several) {
            let mut forget = self.conn.prepare_cached(include_str!("sql/holder_forget.sql"))?;
            forget.execute(params![self.key, blob(*gone)])?;
        }
        for holder in self.holders.iter().filter(|holder| holder.changed) {
            let mut write = self.conn.prepare_cached(include_str!("sql/holder_write.sql"))?;
            write.execute(params![
                self.key,
                blob(holder.claim),
                holder.owner.as_u128().to_be_bytes(),
                holder.label.as_str(),
                holder.since_ms as i64,
                nanos(holder.until),
                holder.inbox,
                holder.broken,
                holder.weight,
                holder.token,
            ])?;
        }
        Ok(())
    }

    /// How a share of this lock is called.
    pub(super) fn share(&self, weight: u32) -> Result<Share, Failure> {
        share(weight, self.total)
    }

    /// What people see of the holders whose leases live.
    pub(super) fn holder_views(&self, now: Now) -> Result<Vec<HolderView>, Failure> {
        let live = self.holders.iter().filter(|holder| holder.lives(now));
        live.map(|holder| holder.view(now, self.total)).collect()
    }
}

/// Where the holders stand.
pub(super) enum Holders {
    Nobody,
    One(Holder),
    Several,
}

impl Holders {
    /// What the eight columns from `first` on say of them: claim, owner, label, since_ms, until_ns,
    /// inbox, broken, weight.
    pub(super) fn read(
        row: &rusqlite::Row<'_>,
        first: usize,
        token: i64,
    ) -> rusqlite::Result<Self> {
        Ok(match row.get::<_, Option<[u8; 16]>>(first)? {
            None => Self::Nobody,
            Some(SEVERAL) => Self::Several,
            Some(_) => Self::One(Holder::read(row, first, token)?),
        })
    }

    pub(super) fn load(self, conn: &Connection, key: &str) -> Result<Vec<Holder>, Failure> {
        match self {
            Self::Nobody => Ok(vec![]),
            Self::One(holder) => Ok(vec![holder]),
            Self::Several => {
                let mut list = conn.prepare_cached(include_str!("sql/holder_list.sql"))?;
                let holders = list.query_map([key], |row| Holder::read(row, 0, row.get(8)?))?;
                Ok(holders.collect::<Result<_, _>>()?)
            }
        }
    }
}

impl Holder {
    fn read(row: &rusqlite::Row<'_>, first: usize, token: i64) -> rusqlite::Result<Self> {
        Ok(Self {
            claim: ClaimId::from_u128(id(row, first)?),
            owner: Owner::from_u128(id(row, first + 1)?),
            label: Label::new(row.get_ref(first + 2)?.as_str()?),
            token,
            weight: row.get(first + 7)?,
            since_ms: row.get::<_, i64>(first + 3)? as u64,
            until: Moment::from_nanos(row.get::<_, i64>(first + 4)? as u64),
            inbox: row.get(first + 5)?,
            broken: row.get(first + 6)?,
            changed: false,
        })
    }

    pub(super) fn lives(&self, now: Now) -> bool {
        now.moment < self.until
    }

    pub(super) fn view(&self, now: Now, total: u32) -> Result<HolderView, Failure> {
        Ok(HolderView {
            claim: self.claim,
            owner: self.owner,
            label: self.label.clone(),
            share: share(self.weight, total)?,
            token: Some(Token::new(self.token as u64)),
            since_ms: self.since_ms,
            left: self.until.since(now.moment),
            broken: self.broken.clone(),
        })
    }
}

fn share(weight: u32, total: u32) -> Result<Share, Failure> {
    Share::from_numbers(weight, total)
        .ok_or_else(|| Failure::foreign(format!("a share of {weight}/{total}")))
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
