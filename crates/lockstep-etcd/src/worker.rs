//! The thread of a client: it keeps leases alive, listens for waiters and holders, and deletes the
//! keys of claims whose time is over. No executor of the user's can hold it up.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, StoreError};
use lockstep_lock::Signal;
use tokio::sync::mpsc;

use crate::book::Claimed;
use crate::departures::Departures;
use crate::entry::{Entry, Info, token};
use crate::error::STORE;
use crate::hub::{Heard, Order, Parked, Reply, Shared};
use crate::link::Link;
use crate::look::{self, delete_if, equals};
use crate::proto::{
    EventType, KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, RangeRequest, WatchResponse, With, revision,
};
use crate::session::Session;
use crate::streams::{KeepAlives, Watches, Why};
use crate::waiting::{Step, Target, Waiter};

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";

/// How often the thread looks around; sleeping longer would miss that the machine slept.
const SLICE: Duration = Duration::from_millis(500);
/// A hold of this age is listened for, so that its holder hears at once if its key goes.
const SETTLED: Duration = Duration::from_millis(100);
/// Beyond this many watches, holders hear of it with their renewals.
const WATCHES_MAX: usize = 10_000;
/// An answer to a keep-alive may take this long.
const KEEP_ALIVE_LIMIT: Duration = Duration::from_secs(1);
/// How long a line is listened to when nobody waits in it any more.
const LINGER: Duration = Duration::from_secs(1);
/// A lease that nobody has used for this long is given back.
const IDLE: Duration = Duration::from_secs(60);

/// The thread's own.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    heard: mpsc::UnboundedSender<Heard>,
    hears: mpsc::UnboundedReceiver<Heard>,
    keep_alives: KeepAlives,
    /// When each lease is to be kept alive next, and when it was used last.
    due: HashMap<i64, (Moment, Moment)>,
    opening: BTreeSet<u64>,
    asked: Vec<(u64, Moment, Reply)>,
    watches: Watches,
    waiters: HashMap<ClaimId, (Waiter, Parked)>,
    /// The lines that are listened to as a whole.
    lines: HashMap<Vec<u8>, Departures>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (heard, hears) = mpsc::unbounded_channel();
        Self {
            shared,
            heard,
            hears,
            keep_alives: KeepAlives::new(),
            due: HashMap::new(),
            opening: BTreeSet::new(),
            asked: vec![],
            watches: Watches::new(),
            waiters: HashMap::new(),
            lines: HashMap::new(),
        }
    }

    pub(crate) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            let sleep = self.tend();
            tokio::select! {
                biased;
                Some(heard) = self.hears.recv() => self.heard(heard),
                order = orders.recv() => match order {
                    Some(order) => self.ordered(order),
                    None => break,
                },
                () = tokio::time::sleep(sleep) => {}
            }
        }
        self.end().await;
    }

    /// Does what is due and says how long to sleep.
    fn tend(&mut self) -> Duration {
        let now = self.shared.clock.now();
        if self.keep_alives.is_silent(now, KEEP_ALIVE_LIMIT) {
            tracing::debug!("no answer to a keep-alive; trying another connection");
            self.reconnect(now);
        }
        let mut next = now + SLICE;
        for session in self.sessions() {
            let (due, _) = *self.due.entry(session.lease).or_insert((now, now));
            if due <= now {
                self.keep_alive(&session, now);
            } else {
                next = next.min(due);
            }
        }
        while let Some((claim, claimed)) = { self.shared.book.lock().take_ended(now) } {
            self.end_claim(claim, claimed);
        }
        while self.watches.len() < WATCHES_MAX
            && let Some(claim) = { self.shared.book.lock().take_settled(now, SETTLED) }
        {
            self.heed(claim);
        }
        next = next.min(self.leave_idle_lines(now));
        let mut book = self.shared.book.lock();
        next = next.min(book.next().unwrap_or(Moment::MAX));
        book.wakes_at = Some(next);
        next.since(now)
    }

    /// Says when to look again.
    fn leave_idle_lines(&mut self, now: Moment) -> Moment {
        let watches = &mut self.watches;
        let mut next = Moment::MAX;
        self.lines.retain(|key, line| {
            let end = line.kept_until(LINGER).unwrap_or(Moment::MAX);
            if end <= now {
                watches.remove(None, key);
            } else {
                next = next.min(end);
            }
            end > now
        });
        next
    }

    fn sessions(&self) -> Vec<Arc<Session>> {
        self.shared.sessions.lock().values().cloned().collect()
    }

    fn keep_alive(&mut self, session: &Arc<Session>, now: Moment) {
        let used = self.due.get(&session.lease).map_or(now, |(_, used)| *used);
        let book = self.shared.book.lock();
        let used = if book.uses(session.lease) { now } else { used };
        let is_idle = now.since(used) > IDLE.max(session.time);
        if is_idle {
            // While nobody can write into the book: whoever has got this lease before and does so now sees that
            // it is dead.
            session.die();
        }
        drop(book);
        if is_idle {
            self.retire(session);
            return;
        }
        self.due.insert(session.lease, (now + session.keep_alive_every(), used));
        self.keep_alives.send(&self.shared, &self.heard, session.lease);
    }

    /// Gives back a lease that nobody has used for long.
    fn retire(&mut self, session: &Arc<Session>) {
        self.shared.session_gone(session);
        self.due.remove(&session.lease);
        self.keep_alives.forget(session.lease);
        let (shared, id) = (Arc::clone(&self.shared), session.lease);
        tokio::spawn(async move { revoke(&shared, id).await });
    }

    fn ordered(&mut self, order: Order) {
        match order {
            Order::Session(seconds, until, reply) => self.session_wanted(seconds, until, reply),
            Order::Gone(session) => self.lease_gone(&session),
            Order::Park(parked) => self.park(parked),
            Order::Heed(claim) => self.heed(claim),
            Order::Unheed(claim, entry) => self.unheed(claim, &entry),
            Order::Wake => {}
        }
    }

    fn session_wanted(&mut self, seconds: u64, until: Moment, reply: Reply) {
        let session = self.shared.sessions.lock().get(&seconds).cloned();
        match session {
            Some(session) if session.lives_until(until) => drop(reply.send(Ok(session))),
            Some(session) => {
                if !self.keep_alives.awaits(session.lease) {
                    self.keep_alives.send(&self.shared, &self.heard, session.lease);
                }
                self.asked.push((seconds, until, reply));
            }
            None => {
                self.asked.push((seconds, until, reply));
                if self.opening.insert(seconds) {
                    let (shared, heard) = (Arc::clone(&self.shared), self.heard.clone());
                    tokio::spawn(async move {
                        let opened = open_session(&shared, seconds).await;
                        let _ = heard.send(Heard::Opened(seconds, opened));
                    });
                }
            }
        }
    }

    fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::KeptAlive(generation, _) if !self.keep_alives.is_current(generation) => {}
            Heard::Watched(generation, _) if !self.watches.is_current(generation) => {}
            Heard::KeptAlive(_, Some(answer)) => self.kept_alive(&answer),
            Heard::Watched(_, Some(response)) => self.watched(&response),
            Heard::KeptAlive(_, None) | Heard::Watched(_, None) => {
                self.reconnect(self.shared.clock.now());
            }
            Heard::Opened(seconds, opened) => self.opened(seconds, opened),
            Heard::Looked(claim, Ok(seen)) => {
                if let Some((waiter, _)) = self.waiters.get_mut(&claim) {
                    let steps = waiter.read(seen.line(), seen.revision);
                    self.act(claim, steps);
                }
            }
            Heard::Looked(claim, Err(_)) => self.act(claim, vec![Step::Ask]),
            Heard::Own(claim, Ok((at, kv))) => self.own(claim, at, kv.as_ref()),
            Heard::Own(_, Err(_)) => {}
            Heard::Ended(claim, true) => {
                let mut book = self.shared.book.lock();
                if book.get(claim).is_some_and(|claimed| claimed.ending)
                    && let Some(gone) = book.remove(claim)
                {
                    drop(book);
                    self.unheed(claim, &gone.entry);
                }
            }
            Heard::Ended(claim, false) => {
                let claimed = self.shared.book.lock().get(claim).cloned();
                // The lease may have ended it meanwhile, or the claim is asked for anew.
                if let Some(claimed) = claimed.filter(|claimed| claimed.ending) {
                    self.end_claim(claim, claimed);
                }
            }
        }
    }

    fn opened(&mut self, seconds: u64, opened: Result<Session, StoreError>) {
        self.opening.remove(&seconds);
        let opened = opened.map(Arc::new);
        if let Ok(session) = &opened {
            let now = self.shared.clock.now();
            self.due.insert(session.lease, (now + session.keep_alive_every(), now));
            self.shared.sessions.lock().insert(seconds, Arc::clone(session));
        }
        let mut error = opened.as_ref().err().map(|e| (e.kind(), e.effect(), words(e)));
        for (wanted, until, reply) in std::mem::take(&mut self.asked) {
            match (&opened, &mut error) {
                (Ok(session), _) if wanted == seconds => drop(reply.send(Ok(Arc::clone(session)))),
                (_, Some((kind, effect, words))) if wanted == seconds => {
                    let error = StoreError::new(STORE, *kind, *effect, words.clone());
                    let _ = reply.send(Err(error));
                }
                _ => self.asked.push((wanted, until, reply)),
            }
        }
    }

    fn kept_alive(&mut self, answer: &LeaseKeepAliveResponse) {
        let sent_at = self.keep_alives.answered(answer);
        let Some(session) = self.sessions().into_iter().find(|s| s.lease == answer.id) else {
            return;
        };
        match (u64::try_from(answer.ttl).unwrap_or(0), sent_at) {
            (0, _) => self.lease_gone(&session),
            (seconds, Some(sent_at)) => {
                session.confirmed(sent_at, Duration::from_secs(seconds));
                self.serve(&session);
            }
            (_, None) => {}
        }
    }

    /// Answers who waited for this lease to be confirmed.
    fn serve(&mut self, session: &Arc<Session>) {
        for (seconds, until, reply) in std::mem::take(&mut self.asked) {
            if seconds != session.seconds {
                self.asked.push((seconds, until, reply));
            } else if session.lives_until(until) {
                let _ = reply.send(Ok(Arc::clone(session)));
            } else {
                // It was confirmed for a question that was sent too early.
                if !self.keep_alives.awaits(session.lease) {
                    self.keep_alives.send(&self.shared, &self.heard, session.lease);
                }
                self.asked.push((seconds, until, reply));
            }
        }
    }

    /// With the lease all its keys are gone: holders have lost, waiters have no place.
    fn lease_gone(&mut self, session: &Arc<Session>) {
        tracing::warn!(lease = format!("{:x}", session.lease), "the lease of this handle is gone");
        self.shared.session_gone(session);
        self.due.remove(&session.lease);
        self.keep_alives.forget(session.lease);
        let claims = self.shared.book.lock().with_lease(session.lease);
        for claim in claims {
            self.lost(claim, "its lease is gone from etcd");
        }
        for (seconds, until, reply) in std::mem::take(&mut self.asked) {
            self.session_wanted(seconds, until, reply);
        }
    }

    fn lost(&mut self, claim: ClaimId, why: &str) {
        let Some(gone) = self.shared.book.lock().remove(claim) else { return };
        self.unheed(claim, &gone.entry);
        if gone.releasing || gone.ending {
            return;
        }
        let Some(inbox) = gone.inbox else { return };
        inbox.deliver(match gone.held {
            true => Signal::Lost { claim, reason: gone.broken.unwrap_or_else(|| why.to_owned()) },
            false => Signal::AskAgain { claim },
        });
    }

    fn park(&mut self, parked: Parked) {
        let claim = parked.claim;
        // It may have been given back since it was told its place.
        if self.shared.book.lock().get(claim).is_none() {
            return;
        }
        let (line, read_at) = (parked.seen.line(), parked.seen.revision);
        let steps = match self.waiters.get_mut(&claim) {
            Some((waiter, before)) if before.create == parked.create => waiter.read(line, read_at),
            _ => {
                self.stop_waiting(claim);
                let (waiter, steps) = Waiter::new(parked.entry.clone(), line, read_at);
                if !waiter.listens_to_the_line() {
                    self.watches.add(&self.shared, &self.heard, Why::Own(claim), &parked.entry);
                }
                self.waiters.insert(claim, (waiter, parked));
                steps
            }
        };
        self.act(claim, steps);
    }

    fn unheed(&mut self, claim: ClaimId, entry: &[u8]) {
        self.stop_waiting(claim);
        self.watches.remove(Some(claim), entry);
    }

    fn stop_waiting(&mut self, claim: ClaimId) -> Option<Parked> {
        let (waiter, parked) = self.waiters.remove(&claim)?;
        for target in waiter.into_watched() {
            self.unwatch(claim, &parked.line, &target);
        }
        Some(parked)
    }

    fn unwatch(&mut self, claim: ClaimId, line: &[u8], target: &Target) {
        match target {
            Target::Key(key) => self.watches.remove(Some(claim), key),
            Target::Line => {
                if let Some(line) = self.lines.get_mut(line) {
                    line.leaves(claim, self.shared.clock.now());
                }
            }
        }
    }

    /// Listens for a holder, and to all that has happened to its key: an operator's words may come
    /// right before its end.
    fn heed(&mut self, claim: ClaimId) {
        let (key, known) = {
            let mut book = self.shared.book.lock();
            let Some(claimed) = book.get_mut(claim) else { return };
            claimed.heeded = true;
            (claimed.entry.to_vec(), claimed.create.map(|_| claimed.known_to))
        };
        let why = known.map_or(Why::Own(claim), |known| Why::OwnSince(claim, known + 1));
        self.watches.add(&self.shared, &self.heard, why, &key);
    }

    fn watched(&mut self, response: &WatchResponse) {
        let Some((why, key)) = self.watches.get(response.watch_id).cloned() else { return };
        if response.is_given_up() {
            return self.given_up(why, &key);
        }
        if response.created {
            self.listening(why, &key, revision(response.header.as_ref()));
        }
        for event in &response.events {
            let Some(kv) = &event.kv else { continue };
            let gone = event.kind == i32::from(EventType::Delete);
            match why {
                Why::Own(claim) | Why::OwnSince(claim, _) => {
                    self.own(claim, kv.mod_revision, (!gone).then_some(kv));
                }
                Why::Ahead(claim) => self.ahead(claim, kv, gone),
                Why::Line if gone => self.left_line(&key, kv),
                Why::Line => {}
            }
        }
    }

    /// Compacted, or the right to read was taken away.
    fn given_up(&mut self, why: Why, key: &[u8]) {
        match why {
            Why::OwnSince(claim, _) => {
                self.watches.remove(Some(claim), key);
                self.watches.add(&self.shared, &self.heard, Why::Own(claim), key);
            }
            Why::Own(claim) | Why::Ahead(claim) => {
                self.watches.remove(Some(claim), key);
                self.act(claim, vec![Step::Ask]);
            }
            Why::Line => {
                self.watches.remove(None, key);
                let line = self.lines.remove(key);
                for claim in line.iter().flat_map(Departures::waiters) {
                    self.act(*claim, vec![Step::Ask]);
                }
            }
        }
    }

    fn listening(&mut self, why: Why, key: &[u8], since: i64) {
        match why {
            Why::Own(claim) => self.look_at_own(claim, key.to_vec()),
            Why::OwnSince(..) => {}
            Why::Ahead(claim) => {
                if let Some((waiter, _)) = self.waiters.get_mut(&claim) {
                    let steps = waiter.listening(&Target::Key(key.to_vec()), since);
                    self.act(claim, steps);
                }
            }
            Why::Line => {
                let Some(line) = self.lines.get_mut(key) else { return };
                line.listening(since);
                for claim in line.waiters().to_vec() {
                    self.tell_departures(claim);
                }
            }
        }
    }

    /// Something has happened to somebody who is ahead.
    fn ahead(&mut self, claim: ClaimId, kv: &KeyValue, gone: bool) {
        let Some((waiter, parked)) = self.waiters.get_mut(&claim) else { return };
        let share = || Some(Entry::read(&parked.line, kv)?.in_line().share);
        let steps = match gone {
            true => waiter.left(&kv.key, kv.mod_revision),
            false => share().map_or(vec![], |it| waiter.weakened(&kv.key, it, kv.mod_revision)),
        };
        self.act(claim, steps);
    }

    /// Somebody has left a line that is listened to.
    fn left_line(&mut self, line: &[u8], kv: &KeyValue) {
        let Some(departures) = self.lines.get_mut(line) else { return };
        departures.left(&kv.key, kv.mod_revision);
        for claim in departures.waiters().to_vec() {
            let Some((waiter, parked)) = self.waiters.get_mut(&claim) else { continue };
            if parked.entry == kv.key && parked.create < kv.mod_revision {
                self.own(claim, kv.mod_revision, None);
            } else {
                let steps = waiter.left(&kv.key, kv.mod_revision);
                self.act(claim, steps);
            }
        }
    }

    /// What the watch over its line knows already, for who begins to wait.
    fn tell_departures(&mut self, claim: ClaimId) {
        let Some((waiter, parked)) = self.waiters.get_mut(&claim) else { return };
        let Some(line) = self.lines.get(&parked.line) else { return };
        let Some(since) = line.since() else { return };
        let mut steps = waiter.listening(&Target::Line, since);
        for (at, key) in line.after(waiter.read_at()) {
            steps.extend(waiter.left(key, *at));
        }
        self.act(claim, steps);
    }

    fn look_at_own(&self, claim: ClaimId, key: Vec<u8>) {
        let (shared, heard) = (Arc::clone(&self.shared), self.heard.clone());
        tokio::spawn(async move {
            let range = RangeRequest { key, ..RangeRequest::default() };
            let found = shared.link.range(range).await.map(|found| {
                let at = revision(found.header.as_ref());
                let kv = found.kvs.into_iter().next();
                (kv.as_ref().map_or(at, |kv| kv.mod_revision), kv)
            });
            let _ = heard.send(Heard::Own(claim, found.map_err(StoreError::from)));
        });
    }

    /// A claim's own key, as it has been since this revision.
    fn own(&mut self, claim: ClaimId, at: i64, kv: Option<&KeyValue>) {
        let mut book = self.shared.book.lock();
        let Some(claimed) = book.get_mut(claim) else { return };
        // What came before is told as well. It may be about who had the hold before us, or about an earlier key
        // of the same name.
        if claimed.create.is_none() || at <= claimed.known_to {
            return;
        }
        let Some(kv) = kv else {
            drop(book);
            return self.lost(claim, "its key was deleted from etcd");
        };
        if claimed.create != Some(kv.create_revision) {
            return;
        }
        if kv.lease != claimed.session.lease && !claimed.releasing {
            // Another handle has taken it over, and looks after it from now on.
            let entry = Arc::clone(&claimed.entry);
            book.remove(claim);
            drop(book);
            return self.unheed(claim, &entry);
        }
        claimed.broken = Info::read(&kv.value).and_then(|info| info.broken);
    }

    fn act(&mut self, claim: ClaimId, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Watch(Target::Key(key)) => {
                    self.watches.add(&self.shared, &self.heard, Why::Ahead(claim), &key);
                }
                Step::Watch(Target::Line) => self.listen_to_line(claim),
                Step::Unwatch(target) => {
                    if let Some(line) = self.waiters.get(&claim).map(|(_, it)| it.line.clone()) {
                        self.unwatch(claim, &line, &target);
                    }
                }
                Step::Look => self.look(claim),
                Step::Grant => self.grant(claim),
                Step::Ask => self.ask_again(claim),
            }
        }
    }

    fn listen_to_line(&mut self, claim: ClaimId) {
        let Some((_, parked)) = self.waiters.get(&claim) else { return };
        let now = self.shared.clock.now();
        let line = self.lines.entry(parked.line.clone()).or_insert_with(|| Departures::new(now));
        line.joins(claim);
        self.watches.add(&self.shared, &self.heard, Why::Line, &parked.line);
        self.tell_departures(claim);
    }

    fn look(&self, claim: ClaimId) {
        let Some((waiter, parked)) = self.waiters.get(&claim) else { return };
        let (shared, heard) = (Arc::clone(&self.shared), self.heard.clone());
        let (line, create, share) = (parked.line.clone(), parked.create, parked.share);
        let at_least = waiter.must_know();
        tokio::spawn(async move {
            let seen = look::up_to(&shared.link, &line, create, share, Some(at_least)).await;
            let _ = heard.send(Heard::Looked(claim, seen));
        });
    }

    /// Tells a waiter that it is its turn, if the lease that its key lives with does.
    fn grant(&mut self, claim: ClaimId) {
        let Some(parked) = self.stop_waiting(claim) else { return };
        let heeded = self.watches.has(claim, &parked.entry);
        let now = self.shared.clock.now();
        let mut book = self.shared.book.lock();
        let Some(claimed) = book.get_mut(claim) else { return };
        let same = claimed.create == Some(parked.create);
        if claimed.ending || claimed.releasing || !same {
            return;
        }
        let inbox = claimed.inbox.clone();
        let signal = if claimed.session.lives_until(now) {
            book.pushed(now, claim, heeded);
            Signal::Granted { claim, token: Some(token(parked.create)) }
        } else {
            Signal::AskAgain { claim }
        };
        drop(book);
        if let Some(inbox) = inbox {
            inbox.deliver(signal);
        }
    }

    fn ask_again(&mut self, claim: ClaimId) {
        if self.stop_waiting(claim).is_some() {
            let inbox =
                self.shared.book.lock().get(claim).and_then(|claimed| claimed.inbox.clone());
            if let Some(inbox) = inbox {
                inbox.deliver(Signal::AskAgain { claim });
            }
        }
    }

    /// Deletes the key of a claim whose time is over, unless another handle has taken it over.
    fn end_claim(&self, claim: ClaimId, claimed: Claimed) {
        let (shared, heard) = (Arc::clone(&self.shared), self.heard.clone());
        tokio::spawn(async move {
            let still = || shared.book.lock().get(claim).is_some_and(|claimed| claimed.ending);
            let done = delete_own(&shared.link, claim, &claimed, still).await.is_ok();
            if !done {
                tokio::time::sleep(SLICE).await;
            }
            let _ = heard.send(Heard::Ended(claim, done || claimed.session.is_dead()));
        });
    }

    /// Whatever was said on the old connection is void.
    fn reconnect(&mut self, now: Moment) {
        self.shared.link.give_up_current();
        self.keep_alives.close();
        self.watches.close();
        self.lines.clear();
        let waiters: Vec<ClaimId> = self.waiters.keys().copied().collect();
        self.shared.book.lock().heed_nobody(now);
        for claim in waiters {
            self.ask_again(claim);
        }
        // At once, and then at the usual times.
        for (due, _) in self.due.values_mut() {
            *due = (*due).min(now + KEEP_ALIVE_LIMIT / 10);
        }
    }

    /// Leases that nobody needs are given back; the others end by themselves, and what they hold may be
    /// taken over until then.
    async fn end(self) {
        for session in self.sessions() {
            if !self.shared.book.lock().uses(session.lease) {
                revoke(&self.shared, session.lease).await;
            }
        }
    }
}

/// Deletes what a claim may have, if it is this handle's still.
///
/// Where the answer that named its create revision was lost, that is read first, and `still` says whether
/// this is what was to be deleted: the claim may have been asked for anew meanwhile, with a new key of the same
/// name and lease.
pub(crate) async fn delete_own(
    link: &Link,
    claim: ClaimId,
    claimed: &Claimed,
    still: impl Fn() -> bool,
) -> Result<bool, StoreError> {
    let create = match claimed.create {
        Some(create) => create,
        None => {
            let range = RangeRequest { key: claimed.entry.to_vec(), ..RangeRequest::default() };
            match link.range(range).await?.kvs.first() {
                Some(kv)
                    if still() && Info::read(&kv.value).is_some_and(|it| it.claim == claim) =>
                {
                    kv.create_revision
                }
                _ => return Ok(false),
            }
        }
    };
    let guard = [With::Lease(claimed.session.lease), With::CreateRevision(create)];
    delete_if(link, &claimed.entry, guard.map(|with| equals(&claimed.entry, with)).into()).await
}

async fn open_session(shared: &Shared, seconds: u64) -> Result<Session, StoreError> {
    let asked_at = shared.clock.now();
    let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
    let granted: LeaseGrantResponse = shared.link.call(GRANT, LeaseGrantRequest { ttl }).await?;
    let time = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0).max(seconds));
    Ok(Session::new(granted.id, seconds, time, asked_at))
}

async fn revoke(shared: &Shared, id: i64) {
    let revoked: Result<LeaseRevokeResponse, _> =
        shared.link.call(REVOKE, LeaseRevokeRequest { id }).await;
    if let Err(error) = revoked.map_err(StoreError::from) {
        tracing::debug!(%error, "a lease is left to its time");
    }
}

/// The message without the store's name, which is put before it again.
fn words(error: &StoreError) -> String {
    let text = error.to_string();
    text.strip_prefix("etcd: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
