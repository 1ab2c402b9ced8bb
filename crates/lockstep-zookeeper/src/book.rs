//! What this handle has in the store: one entry per claim that has a node, who watches what, and
//! when what nobody asks about any more is over. Pure: no clock, no task, no socket.

use std::collections::{HashMap, HashSet};

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Key, Token};
use lockstep_lock::deadlines::Deadlines;
use lockstep_lock::line::{Line, Standing};
use lockstep_lock::{Inbox, Share};

use crate::client::Session;
use crate::note::Note;

/// Longer lines are read again instead of kept.
const KEPT_AHEAD: usize = 16;

/// A claim that has a node.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) note: Note,
    /// The directory, and the node's name in it.
    pub(crate) directory: String,
    pub(crate) name: String,
    /// The version of its data as we wrote them.
    pub(crate) version: i32,
    pub(crate) token: Token,
    /// Whose node it is: a session that is over leaves nothing to its successor.
    pub(crate) session: Session,
    pub(crate) inbox: Option<Inbox>,
    pub(crate) stage: Stage,
    /// What the server will tell it of, once each; `None` if it never watched anything.
    pub(crate) armed: Option<HashSet<String>>,
    /// Grows with each watch, and with each notice: who knew it before an answer came knows whether
    /// somebody else has looked meanwhile.
    pub(crate) round: u64,
    /// Where it is written down that it waits, if it is.
    pub(crate) noted: Option<String>,
    /// Its node is being replaced by a reader's.
    pub(crate) becoming: bool,
}

/// How far a claim is, as far as we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has a node, and nobody has looked yet.
    Made,
    /// It waits; the line up to it, if that was short when it was read and nothing in it can change
    /// unheard.
    Waits(Option<Line<String>>),
    Holds,
}

impl Record {
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.directory, self.name)
    }

    pub(crate) fn share(&self) -> Share {
        self.note.share
    }
}

/// Everything this handle has in the store.
#[derive(Default)]
pub(crate) struct Book {
    records: HashMap<ClaimId, Record>,
    pub(crate) deadlines: Deadlines<ClaimId>,
    /// Claims that may have a node we have not heard of: a request for it was sent, in this session.
    unsure: HashMap<ClaimId, Session>,
    /// Who wants to hear of a path, from which session. Two sessions may speak to servers of which one
    /// is behind the other: what one tells is nothing to who has read the line in the other.
    watches: HashMap<(u64, String), HashSet<ClaimId>>,
    /// Who waits without a node of its own.
    bystanders: HashMap<ClaimId, Inbox>,
}

impl Book {
    /// A request that may make a node is about to be sent.
    pub(crate) fn may_have(&mut self, claim: ClaimId, session: &Session) {
        self.unsure.insert(claim, session.clone());
    }

    /// The session of that request, if it is not certain what came of it.
    pub(crate) fn may_have_in(&self, claim: ClaimId) -> Option<Session> {
        self.unsure.get(&claim).cloned()
    }

    /// It is certain that there is no node, or that it is in the book.
    pub(crate) fn is_certain(&mut self, claim: ClaimId) {
        self.unsure.remove(&claim);
    }

    pub(crate) fn get(&self, claim: ClaimId) -> Option<&Record> {
        self.records.get(&claim)
    }

    pub(crate) fn get_mut(&mut self, claim: ClaimId) -> Option<&mut Record> {
        self.records.get_mut(&claim)
    }

    pub(crate) fn insert(&mut self, claim: ClaimId, record: Record, until: Moment) {
        self.unsure.remove(&claim);
        self.bystanders.remove(&claim);
        self.records.insert(claim, record);
        self.deadlines.extend(claim, until);
    }

    pub(crate) fn remove(&mut self, claim: ClaimId) -> Option<Record> {
        self.deadlines.remove(claim);
        self.unsure.remove(&claim);
        self.bystanders.remove(&claim);
        let record = self.records.remove(&claim)?;
        self.watches.retain(|_, claims| {
            claims.remove(&claim);
            !claims.is_empty()
        });
        Some(record)
    }

    /// A node of the claim is not there any more. Unless it was replaced, the claim is over; is it?
    pub(crate) fn node_is_gone(&mut self, claim: ClaimId, name: &str) -> bool {
        let replaced = |record: &Record| record.becoming || record.name != name;
        let over = !self.records.get(&claim).is_some_and(replaced);
        if over {
            self.remove(claim);
        }
        over
    }

    /// The claim whose time is over, if there is one. It is out of the book.
    pub(crate) fn take_lapsed(&mut self, now: Moment) -> Option<(ClaimId, Record)> {
        while let Some(claim) = self.deadlines.take_ended(now) {
            if let Some(record) = self.remove(claim) {
                return Some((claim, record));
            }
        }
        None
    }

    /// This claim waits and is about to watch these paths: the notice may be faster than the answer.
    /// Says which round this is; `None` if it does not wait: a notice may have been faster than this.
    pub(crate) fn watch(&mut self, claim: ClaimId, paths: &[String]) -> Option<u64> {
        let record = self.records.get_mut(&claim)?;
        if record.stage == Stage::Holds {
            return None;
        }
        record.stage = Stage::Waits(None);
        record.armed.get_or_insert_default();
        record.round += 1;
        for path in paths {
            let watch = (record.session.serial, path.clone());
            self.watches.entry(watch).or_default().insert(claim);
        }
        Some(record.round)
    }

    /// The server watches these, unless it has told of one meanwhile.
    pub(crate) fn is_armed(&mut self, claim: ClaimId, paths: Vec<String>, round: u64) {
        let record = self.records.get_mut(&claim).filter(|record| record.round == round);
        if let Some(armed) = record.and_then(|record| record.armed.as_mut()) {
            armed.extend(paths);
        }
    }

    /// From now on departures are taken out of this line, unless there was a notice since. `None` if
    /// the claim has lapsed meanwhile.
    pub(crate) fn keep(&mut self, claim: ClaimId, line: Line<String>, round: u64) -> Option<()> {
        let record = self.records.get_mut(&claim)?;
        let short = line.entries().len() <= KEPT_AHEAD;
        if record.stage != Stage::Holds && record.round == round && short {
            record.stage = Stage::Waits(Some(line));
        }
        Some(())
    }

    /// This claim has no node, and wants to be told when it is worth asking again.
    pub(crate) fn stand_by(&mut self, claim: ClaimId, session: u64, path: &str, inbox: Inbox) {
        self.bystanders.insert(claim, inbox);
        self.watches.entry((session, path.to_owned())).or_default().insert(claim);
    }

    /// Who waited without a node does not do so any more.
    pub(crate) fn stand_down(&mut self, claim: ClaimId) {
        self.bystanders.remove(&claim);
    }

    /// Whom to tell that asking again is worth it.
    pub(crate) fn bystander(&self, claim: ClaimId) -> Option<Inbox> {
        self.bystanders.get(&claim).cloned()
    }

    /// All who wait without a node.
    pub(crate) fn bystanders(&self) -> Vec<(ClaimId, Inbox)> {
        self.bystanders.iter().map(|(claim, inbox)| (*claim, inbox.clone())).collect()
    }

    /// This session will tell nobody of this path again; who wanted to hear it?
    pub(crate) fn watch_fired(&mut self, session: u64, path: &str) -> HashSet<ClaimId> {
        let claims = self.watches.remove(&(session, path.to_owned())).unwrap_or_default();
        for claim in &claims {
            let Some(record) = self.records.get_mut(claim) else { continue };
            record.round += 1;
            record.armed.as_mut().map(|armed| armed.remove(path));
        }
        claims
    }

    /// A connection was lost, and with it what its session watched. Who waits must ask again.
    pub(crate) fn watches_lost(&mut self, session: u64) -> Vec<ClaimId> {
        let waiting = self.waiting_in(session);
        for claim in &waiting {
            let Some(record) = self.records.get_mut(claim) else { continue };
            record.stage = Stage::Waits(None);
            record.round += 1;
            record.armed = record.armed.take().map(|_| HashSet::new());
        }
        waiting
    }

    /// A node has gone that this claim waited for. Whether the claim is known to hold the lock
    /// now: what was ahead of it can only have become less since the line was read.
    pub(crate) fn left_before(&mut self, claim: ClaimId, name: &str) -> bool {
        let Some(record) = self.records.get_mut(&claim) else { return false };
        let Stage::Waits(Some(line)) = &mut record.stage else { return false };
        line.leave(&name.to_owned());
        let holds = line.standing(&record.name) == Some(Standing::Holds);
        if holds {
            record.stage = Stage::Holds;
        }
        holds
    }

    /// The claim holds the lock; whether that is news. `None` if it has lapsed meanwhile, and its node is
    /// about to go.
    pub(crate) fn now_holds(&mut self, claim: ClaimId) -> Option<bool> {
        let record = self.records.get_mut(&claim)?;
        Some(std::mem::replace(&mut record.stage, Stage::Holds) != Stage::Holds)
    }

    /// The claims of a session that wait.
    fn waiting_in(&self, session: u64) -> Vec<ClaimId> {
        let waits = |record: &Record| matches!(record.stage, Stage::Waits(_));
        let mine = |record: &Record| record.session.serial == session && waits(record);
        self.records.iter().filter(|(_, record)| mine(record)).map(|(claim, _)| *claim).collect()
    }

    /// A session is over, and with it all that was its.
    pub(crate) fn take_all_of(&mut self, session: u64) -> Vec<(ClaimId, Record)> {
        self.watches.retain(|(watched_in, _), _| *watched_in != session);
        let all = self.records.iter().filter(|(_, record)| record.session.serial == session);
        let claims: Vec<ClaimId> = all.map(|(claim, _)| *claim).collect();
        claims.into_iter().filter_map(|claim| Some((claim, self.remove(claim)?))).collect()
    }
}
