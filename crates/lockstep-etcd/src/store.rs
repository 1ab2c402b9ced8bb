//! The verbs of the lock store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lockstep_core::{ClaimId, ErrorKind, StoreError};
use lockstep_lock::clock::{SystemClock, wall_ms};
use lockstep_lock::line::Standing;
use lockstep_lock::queue::TTL_MAX;
use lockstep_lock::store::{
    Answer, Claim, Connect, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Fencing, Inbox, Origin, Scope, Share, StoreFacts};

use crate::book::{Begun, Claimed};
use crate::change::Change;
use crate::config::{Config, Etcd};
use crate::entry::{Entry, Info, token};
use crate::error::{self, Failure, STORE};
use crate::hub::{Hub, Parked};
use crate::inspect;
use crate::layout::range_end;
use crate::link::Link;
use crate::look::{self, Seen, delete_if, equals, range_of};
use crate::proto::{
    Compare, KeyValue, Op, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, With,
    revision,
};
use crate::session::{Session, promised_for};
use crate::worker::delete_own;

/// Below this the disk of a busy cluster would eat the lease.
const TTL_MIN: Duration = Duration::from_millis(100);
/// How many operations a server takes in one transaction, unless told otherwise.
const TXN_OPS: usize = 128;
/// How often something is tried that somebody else changed in between.
const TRIES: usize = 5;

const TWO_HOLDERS_IF: &str = "the clock of etcd's leader runs a quarter faster than ours, the cluster is \
    restored from a snapshot, or somebody deletes the key or revokes the lease by hand";

impl Connect for Etcd {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async move {
            let hub = self.hub()?;
            // What nobody waits for may go through the thread's own connection.
            let front = inbox.is_some().then(|| Link::new(Arc::clone(&self.config)));
            let lane = Lane { config: Arc::clone(&self.config), hub, front, inbox };
            lane.link().line().await?;
            Ok(Arc::new(lane) as Arc<dyn LockStore>)
        })
    }
}

impl Etcd {
    fn hub(&self) -> Result<Arc<Hub>, StoreError> {
        let mut kept = self.hub.lock();
        if let Some(hub) = Weak::upgrade(&kept) {
            return Ok(hub);
        }
        let hub = Hub::start(&self.config, Arc::new(SystemClock))?;
        *kept = Arc::downgrade(&hub);
        Ok(hub)
    }
}

pub(crate) struct Lane {
    pub(crate) config: Arc<Config>,
    pub(crate) hub: Arc<Hub>,
    front: Option<Link>,
    inbox: Option<Inbox>,
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            store: STORE,
            fencing: Fencing::Strong,
            scope: Scope::Network,
            fair: true,
            shared: true,
            deadlocks: false,
            push: true,
            ends_with_connection: false,
            hands_over: true,
            clock: "the etcd leader's; each process's own for what it holds",
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
            two_holders_if: TWO_HOLDERS_IF,
            warnings: vec![],
            origin: Origin { id: None, prefix: self.config.layout.prefix().to_owned() },
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async move {
            match self.ask(claim).await {
                // The lease died since it was last heard of: with it everything that it kept, so
                // this begins anew with another one, at the end of the line.
                Err(Failure::LeaseGone) => Ok(self.ask(claim).await?),
                // Asking again is asking for the same, so another member may be tried at once.
                Err(Failure::Store(error))
                    if error.kind() == ErrorKind::Unavailable && self.link().has_others() =>
                {
                    Ok(self.ask(claim).await?)
                }
                other => Ok(other?),
            }
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        Box::pin(self.renew_all(holds))
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            let done = match what {
                Release::Mine(hold) => self.give_back(hold).await?,
                Release::Downgrade(hold) => self.downgrade(hold).await?,
                Release::Break { key, reason, now } => {
                    inspect::break_lock(self, key, reason, *now).await?
                }
            };
            Ok(if done { Released::Done } else { Released::NotHeld })
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        Box::pin(inspect::look(self, query))
    }
}

/// One ask on its way.
struct Ask<'a> {
    claim: &'a Claim,
    line: Vec<u8>,
    entry: Arc<[u8]>,
    session: Arc<Session>,
}

impl Lane {
    pub(crate) fn link(&self) -> &Link {
        self.front.as_ref().unwrap_or(self.hub.link())
    }

    async fn ask(&self, claim: &Claim) -> Result<Answer, Failure> {
        // Trust is counted from before this, and etcd has promised the lease until after it.
        let session = self.hub.session(claim.ttl).await?;
        let line = self.config.layout.line(&claim.key);
        let before = self.hub.shared().book.lock().get(claim.id).cloned();
        let known = before.as_ref().is_some_and(|claimed| claimed.create.is_some());
        let (begun, entry) = self.hub.begin(claim, &line, &session, self.inbox.as_ref());
        if begun == Begun::Lapsed
            && let Some(lapsed) = before
        {
            // Nobody else deals with this claim while it is being asked for.
            delete_own(self.link(), claim.id, &lapsed, || true).await?;
        }
        let mut ask = Ask { claim, line, entry, session };
        let answer = match claim.wait || known {
            _ if ask.session.is_dead() => Err(Failure::LeaseGone),
            true => self.join(&mut ask).await,
            false => self.take_if_free(&mut ask).await,
        };
        if let Err(Failure::LeaseGone) = &answer {
            self.hub.session_gone(&ask.session);
            self.hub.forget(claim.id);
        }
        answer
    }

    /// For who does not wait: writes only if nobody is there.
    async fn take_if_free(&self, ask: &mut Ask<'_>) -> Result<Answer, Failure> {
        let nobody = Compare {
            range_end: range_end(&ask.line),
            ..equals(&ask.line, With::CreateRevision(0))
        };
        let request = TxnRequest {
            compare: vec![nobody],
            success: vec![put(ask.put())],
            failure: vec![range(look::front(&ask.line, None))],
        };
        let answer = self.link().change(Change { line: ask.line.clone(), request }).await?;
        let at = revision(answer.header.as_ref());
        if answer.succeeded {
            return Ok(self.granted(ask.claim, at));
        }
        let front = range_of(answer.responses.first().ok_or_else(|| error::baffled("line"))?)?;
        let Some(seen) = look::whole(&ask.line, front, at) else { return self.join(ask).await };
        let share = ask.claim.share;
        let answer = match seen.entries.first().map(|first| first.in_line().share.of()) {
            // Keys of locks with longer names are in the way of the comparison and of nothing else.
            None => return self.join(ask).await,
            Some(of) if of != share.of() => Answer::Differs { of },
            // It may fit beside those who hold it, or be one of them.
            Some(_) if share.weight() < share.of() || seen.find(ask.claim.id).is_some() => {
                return self.join(ask).await;
            }
            Some(_) => Answer::Busy,
        };
        self.hub.forget(ask.claim.id);
        look::nothing_in_the_way(&ask.claim.key, &seen)?;
        Ok(answer)
    }

    /// Takes a place in the line, or keeps the one it has.
    async fn join(&self, ask: &mut Ask<'_>) -> Result<Answer, Failure> {
        for _ in 0..TRIES {
            let mine = RangeRequest { key: ask.entry.to_vec(), ..RangeRequest::default() };
            let front = look::front(&ask.line, None);
            let request = TxnRequest {
                compare: vec![equals(&ask.entry, With::CreateRevision(0))],
                success: vec![put(ask.put()), range(front.clone())],
                failure: vec![range(mine), range(front)],
            };
            let answer = self.link().change(Change { line: ask.line.clone(), request }).await?;
            let at = revision(answer.header.as_ref());
            let replies = answer.responses.as_slice();
            if answer.succeeded {
                let [_, front] = replies else { return Err(error::baffled("line").into()) };
                let seen = self.line_to(ask, range_of(front)?, at, at).await?;
                match seen.find(ask.claim.id).map(|(first, _)| first.key.clone()) {
                    // Through another handle it has asked before: that place is the better one.
                    Some(earlier) if *earlier != *ask.entry => {
                        let guard = vec![equals(&ask.entry, With::CreateRevision(at))];
                        delete_if(self.link(), &ask.entry, guard).await?;
                        self.adopt(ask.claim, &earlier, &ask.session);
                        ask.entry = earlier.into();
                        continue;
                    }
                    _ => return self.placed(ask, at, seen).await,
                }
            }
            let [mine, front] = replies else { return Err(error::baffled("line").into()) };
            let Some(mine) = range_of(mine)?.kvs.first() else {
                return Err(error::baffled("key").into());
            };
            let Some(entry) = Entry::read(&ask.line, mine) else {
                return Err(error::baffled("key").into());
            };
            if entry.info().is_none_or(|info| info.claim != ask.claim.id) {
                // What an earlier claim left behind, or somebody else wrote, has this name.
                let mut book = self.hub.shared().book.lock();
                let renamed = book.rename(ask.claim.id, &ask.line, ask.session.lease);
                ask.entry = renamed.ok_or_else(|| error::unreachable("the claim has ended"))?;
                continue;
            }
            if let Some(reason) = entry.info().and_then(|info| info.broken.clone()) {
                return Ok(Answer::Broken { reason });
            }
            if !self.lives_with(ask.claim.id, &entry, &ask.session).await? {
                continue;
            }
            let me = mine.create_revision;
            let seen = self.line_to(ask, range_of(front)?, me, at).await?;
            return self.placed(ask, me, seen).await;
        }
        Err(error::silent("somebody else changes this claim all the time; etcd").into())
    }

    /// The line up to this claim's own key; in a very long one that takes another request.
    async fn line_to(
        &self,
        ask: &Ask<'_>,
        front: &RangeResponse,
        me: i64,
        at: i64,
    ) -> Result<Seen, StoreError> {
        match look::short(&ask.line, front, me, at) {
            Some(seen) => Ok(seen),
            None => look::up_to(self.link(), &ask.line, me, ask.claim.share, None).await,
        }
    }

    /// The claim has its key; what does that mean?
    async fn placed(&self, ask: &Ask<'_>, me: i64, seen: Seen) -> Result<Answer, Failure> {
        let line = seen.line();
        let standing = line.standing(&ask.entry.to_vec());
        if standing == Some(Standing::Holds) {
            return Ok(self.granted(ask.claim, me));
        }
        let in_the_way = look::nothing_in_the_way(&ask.claim.key, &seen);
        let answer = match standing {
            _ if in_the_way.is_err() => None,
            Some(Standing::Differs { of }) => Some(Answer::Differs { of }),
            Some(Standing::Waits { ahead, .. }) if ask.claim.wait => {
                let holders = &seen.entries[..line.holders().min(seen.entries.len())];
                let now = self.hub.now();
                let mut book = self.hub.shared().book.lock();
                book.confirmed(now, ask.claim, me, false);
                let left = |holder: &Entry| {
                    let info = holder.info()?;
                    Some(book.left(now, info.claim).unwrap_or(info.ttl))
                };
                // Of others nothing is known but that they are there.
                let holder_left = holders.iter().filter_map(left).min().unwrap_or(ask.claim.ttl);
                let behind = holders.last().map(Entry::token);
                drop(book);
                self.hub.park(Parked {
                    claim: ask.claim.id,
                    line: ask.line.clone(),
                    entry: ask.entry.to_vec(),
                    create: me,
                    share: ask.claim.share,
                    seen,
                });
                return Ok(Answer::Queued { ahead: ahead.min(100), holder_left, behind });
            }
            Some(_) => Some(Answer::Busy),
            // It was there a moment ago: whoever asks had better ask again.
            None => return Err(error::unreachable("the key of this claim was deleted").into()),
        };
        // It wrote itself into the line and does not stay: nothing of it may be left.
        let guard = vec![equals(&ask.entry, With::CreateRevision(me))];
        delete_if(self.link(), &ask.entry, guard).await?;
        self.hub.forget(ask.claim.id);
        in_the_way?;
        Ok(answer.unwrap_or(Answer::Busy))
    }

    fn granted(&self, claim: &Claim, at: i64) -> Answer {
        self.hub.shared().book.lock().confirmed(self.hub.now(), claim, at, true);
        Answer::Granted { token: Some(token(at)) }
    }

    fn adopt(&self, claim: &Claim, entry: &[u8], session: &Arc<Session>) {
        let (now, inbox) = (self.hub.now(), self.inbox.as_ref());
        self.hub.shared().book.lock().adopt(now, claim, entry, session, inbox);
    }

    async fn give_back(&self, hold: &Hold) -> Result<bool, StoreError> {
        let known = {
            let mut book = self.hub.shared().book.lock();
            // Its key goes because we say so: nobody has lost anything.
            book.get_mut(hold.id).map(|claimed| {
                claimed.releasing = true;
                claimed.clone()
            })
        };
        let deleted = match &known {
            // Guarded by the revision of its creation, so that a release that comes late cannot hit
            // what has got the same name since.
            Some(Claimed { entry, create: Some(create), .. }) => {
                let guard = vec![equals(entry, With::CreateRevision(*create))];
                delete_if(self.link(), entry, guard).await?
            }
            // The answer that would have named its key was lost, or another handle made it.
            _ => {
                let line = self.config.layout.line(&hold.key);
                match look::all(self.link(), &line, None).await?.find(hold.id) {
                    Some((found, _)) => {
                        let guard = vec![equals(&found.key, With::CreateRevision(found.create))];
                        delete_if(self.link(), &found.key, guard).await?
                    }
                    None => false,
                }
            }
        };
        if known.is_some() {
            self.hub.forget(hold.id);
        }
        Ok(deleted && !known.is_some_and(|claimed| claimed.ending))
    }

    async fn downgrade(&self, hold: &Hold) -> Result<bool, StoreError> {
        let line = self.config.layout.line(&hold.key);
        for _ in 0..TRIES {
            let seen = look::all(self.link(), &line, None).await?;
            let Some((found, info)) = seen.find(hold.id) else { return Ok(false) };
            let holds = seen.line().standing(&found.key) == Some(Standing::Holds);
            match info.share {
                Share::Exclusive if holds => {}
                share => return Ok(holds && share == Share::Read),
            }
            let weaker = Info { share: Share::Read, ..info.clone() };
            if look::rewrite(self.link(), found, over(&found.key, &weaker)).await? {
                return Ok(true);
            }
        }
        Err(error::silent("somebody else changes this claim all the time; etcd"))
    }

    async fn renew_all(&self, holds: &[Hold]) -> Result<Vec<Renewal>, StoreError> {
        let mut answers = Vec::with_capacity(holds.len());
        for some in holds.chunks(TXN_OPS) {
            let entries: Vec<Option<Arc<[u8]>>> = {
                let book = self.hub.shared().book.lock();
                some.iter().map(|hold| Some(Arc::clone(&book.get(hold.id)?.entry))).collect()
            };
            let known = entries.iter().flatten();
            let ranges = known
                .map(|key| range(RangeRequest { key: key.to_vec(), ..RangeRequest::default() }));
            let txn = TxnRequest { success: ranges.collect(), ..TxnRequest::default() };
            let found = match txn.success.is_empty() {
                true => vec![],
                false => self.link().txn(txn).await?.responses,
            };
            let mut found = found.iter();
            for (hold, entry) in some.iter().zip(entries) {
                answers.push(match entry {
                    // Another handle took it, or it was granted while nobody listened.
                    None => self.take_over(hold).await?,
                    Some(_) => {
                        let found = found.next().ok_or_else(|| error::baffled("keys"))?;
                        self.renew_one(hold, range_of(found)?.kvs.first()).await?
                    }
                });
            }
        }
        Ok(answers)
    }

    /// Two things prove a hold: its key, read with the consent of a majority after the renewal was
    /// asked for, and the lease that the key lives with, which etcd has promised for another ttl.
    async fn renew_one(&self, hold: &Hold, kv: Option<&KeyValue>) -> Result<Renewal, StoreError> {
        let found = kv.and_then(|kv| Some((kv, Info::read(&kv.value)?)));
        let Some((kv, info)) = found.filter(|(_, info)| info.claim == hold.id) else {
            self.hub.find_out(hold.id);
            return Ok(Renewal::Lost);
        };
        if let Some(reason) = info.broken {
            return Ok(Renewal::Broken { reason });
        }
        let claimed = self.hub.shared().book.lock().get(hold.id).cloned();
        if let Some(claimed) = &claimed
            && claimed.held
            && claimed.create == Some(kv.create_revision)
            && claimed.session.lease == kv.lease
        {
            let until = self.hub.now() + promised_for(hold.ttl);
            if !claimed.session.lives_until(until) {
                let session = self.hub.session_for(claimed.session.seconds, until).await?;
                if session.lease != kv.lease {
                    return Ok(Renewal::Lost);
                }
            }
            let renewed = self.hub.shared().book.lock().renewed(self.hub.now(), hold.id, hold.ttl);
            return Ok(if renewed { Renewal::Renewed } else { Renewal::Lost });
        }
        match claimed.is_some_and(|claimed| claimed.ending) {
            true => Ok(Renewal::Lost),
            false => self.take_over(hold).await,
        }
    }

    /// A hold that another handle took, or one that was granted while nobody listened: from now on it
    /// lives with our lease.
    async fn take_over(&self, hold: &Hold) -> Result<Renewal, StoreError> {
        let line = self.config.layout.line(&hold.key);
        for _ in 0..TRIES {
            let seen = look::all(self.link(), &line, None).await?;
            let Some((found, info)) = seen.find(hold.id) else { return Ok(Renewal::Lost) };
            if let Some(reason) = info.broken.clone() {
                return Ok(Renewal::Broken { reason });
            }
            if seen.line().standing(&found.key) != Some(Standing::Holds) {
                return Ok(Renewal::Lost);
            }
            let session = self.hub.session(hold.ttl).await?;
            // A renewal of the keeper's may be late: it must not take the hold back from whoever adopted it.
            if self.inbox.is_none() && found.lease != session.lease {
                return Ok(Renewal::Lost);
            }
            let claim = Claim {
                id: hold.id,
                key: hold.key.clone(),
                owner: info.owner,
                label: info.label.clone(),
                share: info.share,
                ttl: hold.ttl,
                wait: false,
            };
            // Written down first, and never taken back: if nobody hears of what comes next, it ends with its
            // ttl.
            self.adopt(&claim, &found.key, &session);
            if !session.is_dead() && self.lives_with(hold.id, found, &session).await? {
                self.granted(&claim, found.create);
                return Ok(Renewal::Renewed);
            }
            // The lease was given back just now, or the key was changed after it was read, perhaps by an
            // adoption that was given up and comes late.
        }
        Err(error::silent("somebody else changes this hold all the time; etcd"))
    }

    /// Has this key, as it was read, live with our lease from now on. `false`: it has changed meanwhile.
    async fn lives_with(
        &self,
        claim: ClaimId,
        entry: &Entry,
        session: &Session,
    ) -> Result<bool, Failure> {
        if let Some(claimed) = self.hub.shared().book.lock().get_mut(claim) {
            claimed.known_to = claimed.known_to.max(entry.modified);
        }
        let moved = moved(&entry.key, session);
        Ok(entry.lease == session.lease || look::rewrite(self.link(), entry, moved).await?)
    }
}

impl Ask<'_> {
    fn put(&self) -> PutRequest {
        PutRequest {
            key: self.entry.to_vec(),
            value: Info::of(self.claim, wall_ms()).write(),
            lease: self.session.lease,
            ..PutRequest::default()
        }
    }
}

/// The same value with another lease.
fn moved(entry: &[u8], session: &Session) -> PutRequest {
    let (key, lease) = (entry.to_vec(), session.lease);
    PutRequest { key, lease, ignore_value: true, ..PutRequest::default() }
}

/// Another value with the same lease.
pub(crate) fn over(entry: &[u8], info: &Info) -> PutRequest {
    let (key, value) = (entry.to_vec(), info.write());
    PutRequest { key, value, ignore_lease: true, ..PutRequest::default() }
}

fn put(put: PutRequest) -> RequestOp {
    RequestOp { op: Some(Op::Put(put)) }
}

fn range(range: RangeRequest) -> RequestOp {
    RequestOp { op: Some(Op::Range(range)) }
}
