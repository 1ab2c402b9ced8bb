//! Reading the line of a lock, and the requests that change it.

use lockstep_core::{ClaimId, Key, StoreError};
use lockstep_lock::Share;
use lockstep_lock::line::Line;

use crate::change::Change;
use crate::entry::{Entry, Info};
use crate::error::{self, Failure};
use crate::layout::{line_of, range_end};
use crate::link::Link;
use crate::proto::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, Op, PutRequest,
    RangeRequest, RangeResponse, Reply, RequestOp, ResponseOp, SortOrder, SortTarget, TxnRequest,
    TxnResponse, With, revision,
};

/// So many from the front of a line are read at once.
const FRONT: i64 = 33;
/// So many, where all of a line is read.
const PAGE: i64 = 1_000;

/// A line as it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) entries: Vec<Entry>,
    /// So many more are before the entry at this place.
    gap: Option<(usize, u64)>,
    pub(crate) revision: i64,
}

impl Seen {
    pub(crate) fn line(&self) -> Line<Vec<u8>> {
        let all = || self.entries.iter().map(Entry::in_line);
        match self.gap {
            None => Line::new(all().collect()),
            Some((at, hidden)) => {
                Line::with_gap(all().take(at).collect(), hidden, all().skip(at).collect())
            }
        }
    }

    /// The entry of this claim, whichever handle made it.
    pub(crate) fn find(&self, claim: ClaimId) -> Option<(&Entry, &Info)> {
        let all = self.entries.iter().filter_map(|entry| Some((entry, entry.info()?)));
        all.into_iter().find(|(_, info)| info.claim == claim)
    }

    /// Who came after this revision is not of interest.
    fn until(mut self, create: i64) -> Self {
        self.entries.retain(|entry| entry.create <= create);
        self
    }
}

/// A request for the front of a line.
pub(crate) fn front(line: &[u8], until: Option<i64>) -> RangeRequest {
    RangeRequest {
        key: line.to_vec(),
        range_end: range_end(line),
        limit: FRONT,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        max_create_revision: until.unwrap_or_default(),
        ..RangeRequest::default()
    }
}

/// A request for the last two of a line: me, if I came last, and who is before me.
fn back(line: &[u8], until: Option<i64>) -> RangeRequest {
    RangeRequest { limit: 2, sort_order: SortOrder::Descend.into(), ..front(line, until) }
}

/// Puts the two ends of a line together; `None` if that is not enough for this share.
fn ends(
    line: &[u8],
    (front, back): (&RangeResponse, &RangeResponse),
    me: i64,
    share: Share,
    revision: i64,
) -> Option<Seen> {
    if let Some(seen) = short(line, front, me, revision) {
        return Some(seen);
    }
    let entries = read(line, &front.kvs);
    let wants_all = share.weight() == share.of();
    let strangers = entries.len() < front.kvs.len() || read(line, &back.kvs).len() < back.kvs.len();
    if !wants_all || strangers {
        return None;
    }
    let last = entries.last().map_or(0, |entry| entry.create);
    let mut end = read(line, &back.kvs);
    end.retain(|entry| last < entry.create && entry.create <= me);
    end.reverse();
    let known = entries.len() + end.len();
    // How many came after me is not known, so this is an estimate.
    let hidden = usize::try_from(front.count).unwrap_or(0).saturating_sub(known).clamp(1, 100);
    let gap = Some((entries.len(), hidden as u64));
    Some(Seen { entries: entries.into_iter().chain(end).collect(), gap, revision })
}

/// The line up to the entry that was created at `me`, if that is in this answer.
pub(crate) fn short(line: &[u8], front: &RangeResponse, me: i64, revision: i64) -> Option<Seen> {
    let entries = read(line, &front.kvs);
    let enough = !front.more || entries.iter().any(|entry| entry.create == me);
    enough.then(|| Seen { entries, gap: None, revision }.until(me))
}

/// The line, if all of it is in this answer.
pub(crate) fn whole(line: &[u8], front: &RangeResponse, revision: i64) -> Option<Seen> {
    (!front.more).then(|| Seen { entries: read(line, &front.kvs), gap: None, revision })
}

fn read(line: &[u8], kvs: &[KeyValue]) -> Vec<Entry> {
    kvs.iter().filter_map(|kv| Entry::read(line, kv)).collect()
}

/// Reads the line up to the entry that was created at `me`.
///
/// `at_least`: a member that lags behind may be asked first, because what is ahead of an entry only becomes
/// less, if it knows of that entry; if it does not know as much as this revision, all are asked.
pub(crate) async fn up_to(
    link: &Link,
    line: &[u8],
    me: i64,
    share: Share,
    at_least: Option<i64>,
) -> Result<Seen, StoreError> {
    let mut serializable = at_least.is_some();
    loop {
        let ranges = [front(line, Some(me)), back(line, Some(me))]
            .map(|range| RequestOp { op: Some(Op::Range(RangeRequest { serializable, ..range })) });
        let answer =
            link.txn(TxnRequest { success: ranges.into(), ..TxnRequest::default() }).await?;
        let revision = revision(answer.header.as_ref());
        if at_least.is_some_and(|at_least| revision < at_least.max(me)) && serializable {
            serializable = false;
            continue;
        }
        let [front, back] = answer.responses.as_slice() else { return Err(error::baffled("line")) };
        return match ends(line, (range_of(front)?, range_of(back)?), me, share, revision) {
            Some(seen) => Ok(seen),
            None => all(link, line, Some(me)).await,
        };
    }
}

/// Reads the whole line, page by page, as it was at one revision.
pub(crate) async fn all(link: &Link, line: &[u8], until: Option<i64>) -> Result<Seen, StoreError> {
    let mut seen = Seen::default();
    let mut next = 0;
    loop {
        let request = RangeRequest {
            limit: PAGE,
            min_create_revision: next,
            revision: seen.revision,
            ..front(line, until)
        };
        let page = link.range(request).await?;
        if seen.revision == 0 {
            seen.revision = revision(page.header.as_ref());
        }
        seen.entries.extend(read(line, &page.kvs));
        match page.kvs.last() {
            Some(last) if page.more => next = last.create_revision + 1,
            _ => return Ok(seen),
        }
    }
}

/// A comparison that must be true for a change to happen.
pub(crate) fn equals(key: &[u8], with: With) -> Compare {
    let target = match with {
        With::CreateRevision(_) => CompareTarget::Create,
        With::ModRevision(_) => CompareTarget::Mod,
        With::Lease(_) => CompareTarget::Lease,
    };
    Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key.to_vec(),
        with: Some(with),
        range_end: vec![],
    }
}

/// Deletes a key if all of this is true; whether it did.
pub(crate) async fn delete_if(
    link: &Link,
    key: &[u8],
    compare: Vec<Compare>,
) -> Result<bool, StoreError> {
    let delete = RequestOp { op: Some(Op::Delete(DeleteRangeRequest { key: key.to_vec() })) };
    let request = TxnRequest { compare, success: vec![delete], failure: vec![] };
    let answer = link.change(Change { line: line_of(key).to_vec(), request }).await?;
    Ok(answer.succeeded && deleted(&answer)? > 0)
}

fn deleted(answer: &TxnResponse) -> Result<i64, StoreError> {
    match answer.responses.first().and_then(|response| response.reply.as_ref()) {
        Some(Reply::Delete(deleted)) => Ok(deleted.deleted),
        _ => Err(error::baffled("deletion")),
    }
}

/// Writes over an entry that has not changed since it was read; whether it did.
pub(crate) async fn rewrite(link: &Link, entry: &Entry, put: PutRequest) -> Result<bool, Failure> {
    let compare = vec![equals(&entry.key, With::ModRevision(entry.modified))];
    let put = RequestOp { op: Some(Op::Put(put)) };
    Ok(link.txn(TxnRequest { compare, success: vec![put], failure: vec![] }).await?.succeeded)
}

pub(crate) fn range_of(response: &ResponseOp) -> Result<&RangeResponse, StoreError> {
    match &response.reply {
        Some(Reply::Range(range)) => Ok(range),
        _ => Err(error::baffled("range")),
    }
}

/// Refuses what would be waited for for ever.
pub(crate) fn nothing_in_the_way(key: &Key, seen: &Seen) -> Result<(), StoreError> {
    match seen.entries.iter().find(|entry| crate::entry::is_in_the_way(entry)) {
        Some(entry) => Err(error::foreign(crate::entry::in_the_way(key, entry))),
        None => Ok(()),
    }
}
