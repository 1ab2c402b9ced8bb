//! The verbs of the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockstep_core::time::{Clock, Moment};
use lockstep_core::{ClaimId, StoreError, Token};
use lockstep_lock::clock::SystemClock;
use lockstep_lock::queue::TTL_MIN;
use lockstep_lock::store::{
    Answer, Claim, Connect, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Fencing, Inbox, Origin, Scope, Share, StoreFacts};

use tokio::sync::oneshot;

use crate::book::{Record, Stage};
use crate::client::wire::{Code, Mode, Op, Part, Reply, Stat};
use crate::client::{Failure, Session};
use crate::config::ZooKeeper;
use crate::engine::{Engine, SESSION_PER_TTL};
use crate::error::{self, STORE};
use crate::inspect;
use crate::names::{self, BASIC, Layout};
use crate::note::{self, Note};
use crate::park::{self, Look, Place};

/// How long one session of several is waited for when all are asked.
const SESSION_PATIENCE: Duration = Duration::from_millis(1500);

/// How often a claim whose node somebody else deletes is made again within one ask.
pub(crate) const TRIES: usize = 5;

/// One lane. Both lanes of a handle share the engine, because they share the session.
pub(crate) struct Lane {
    pub(crate) engine: Arc<Engine>,
    pub(crate) inbox: Option<Inbox>,
}

impl Connect for ZooKeeper {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        async move {
            let start = || Engine::start(Arc::clone(&self.config));
            let engine = Arc::clone(self.engine.get_or_try_init(start).await?);
            Ok(Arc::new(Lane { engine, inbox }) as Arc<dyn LockStore>)
        }
        .boxed()
    }
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        let basic = self.engine.config.names.layout == Layout::Basic;
        StoreFacts {
            store: if basic { "zookeeper-basic" } else { STORE },
            fencing: Fencing::Strong,
            scope: Scope::Network,
            fair: !basic,
            shared: !basic,
            deadlocks: !basic,
            push: true,
            ends_with_connection: false,
            hands_over: false,
            clock: "the leader's, for sessions; the holder's own, for a ttl",
            ttl_min: TTL_MIN,
            ttl_max: (self.engine.longest / SESSION_PER_TTL).min(lockstep_lock::queue::TTL_MAX),
            two_holders_if: "a clock runs so wrong that twice the ttl passes on the leader before the \
                             ttl does on the holder; or somebody deletes a node by hand",
            warnings: vec![],
            origin: Origin::default(),
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        match self.engine.config.names.layout {
            Layout::Basic => self.ask_basic(claim).boxed(),
            _ => self.ask(claim).boxed(),
        }
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        self.renew_all(holds).boxed()
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        match what {
            Release::Mine(hold) => self.give_back(hold).boxed(),
            Release::Downgrade(hold) => self.downgrade(hold).boxed(),
            Release::Break { key, reason, now } => {
                let directory = self.engine.config.names.directory(key);
                self.break_holders(directory, reason, *now).boxed()
            }
        }
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        inspect::look(&self.engine, query).boxed()
    }
}

impl Lane {
    async fn ask(&self, claim: &Claim) -> Result<Answer, StoreError> {
        let until = SystemClock.now() + claim.ttl;
        for _ in 0..TRIES {
            let look = match self.known(claim).await? {
                Some(record) => match self.confirm(claim, record, until).await? {
                    Confirmed::Yes(look) => *look,
                    Confirmed::Broken(reason) => return Ok(Answer::Broken { reason }),
                    Confirmed::Gone => continue,
                },
                None => self.make(claim, until).await?,
            };
            self.engine.due.notify_one();
            let settled = park::settle(&self.engine, claim.id, Some(look), claim.wait).await;
            let directory = self.engine.config.names.directory(&claim.key);
            match settled.map_err(|failure| error::failed(failure, &directory))? {
                Place::Gone => drop(self.engine.book.lock().remove(claim.id)),
                Place::Holds { .. } => {
                    let token = self.engine.book.lock().get(claim.id).map(|record| record.token);
                    return Ok(Answer::Granted { token });
                }
                Place::Waits { ahead } if claim.wait => {
                    self.note_wait(claim).await?;
                    let holder_left = claim.ttl;
                    // It has its token already: what is not that one is an older claim's.
                    let token = self.engine.book.lock().get(claim.id).map(|record| record.token);
                    let behind = token.map(|token| Token::new(token.get().saturating_sub(1)));
                    return Ok(Answer::Queued { ahead, holder_left, behind });
                }
                Place::Waits { .. } => {
                    self.give_back(&claim.hold()).await?;
                    return Ok(Answer::Busy);
                }
                Place::Differs(of) => {
                    self.give_back(&claim.hold()).await?;
                    return Ok(Answer::Differs { of });
                }
                Place::Foreign(child) => {
                    self.give_back(&claim.hold()).await?;
                    return Err(error::foreign(&directory, &child));
                }
            }
        }
        Err(error::baffled(&self.engine.config.names.directory(&claim.key)))
    }

    /// What the store has for this claim: what is in the book, or what a lost reply left behind.
    async fn known(&self, claim: &Claim) -> Result<Option<Record>, StoreError> {
        if let Some(record) = self.remembered(claim) {
            return Ok(Some(record));
        }
        let unsure = self.engine.book.lock().may_have_in(claim.id).is_some();
        if unsure { self.recover(claim).await } else { Ok(None) }
    }

    /// What is in the book. From now on it is this lane that hears of it.
    pub(crate) fn remembered(&self, claim: &Claim) -> Option<Record> {
        let mut book = self.engine.book.lock();
        let record = book.get_mut(claim.id)?;
        record.inbox = self.inbox.clone().or(record.inbox.take());
        Some(record.clone())
    }

    /// A session that lives long enough for this claim.
    pub(crate) async fn session_for(&self, claim: &Claim) -> Result<Session, StoreError> {
        let session = self.engine.session_of(claim.id, claim.ttl);
        let known = session.known().await;
        let (_, timeout) = known.map_err(|failure| error::failed(failure, claim.key.as_str()))?;
        if timeout < claim.ttl * SESSION_PER_TTL {
            return Err(StoreError::config(
                STORE,
                format!("the servers' maxSessionTimeout of {timeout:?} is too short for this ttl"),
            ));
        }
        Ok(session)
    }

    /// Writes down that an owner with a name of its own waits, so that circles can be found. Who has
    /// only the name of its claim waits for nothing else.
    async fn note_wait(&self, claim: &Claim) -> Result<(), StoreError> {
        let record = self.engine.book.lock().get(claim.id).cloned();
        let Some(record) = record.filter(|record| record.noted.is_none()) else { return Ok(()) };
        if claim.owner.as_u128() == claim.id.as_u128() {
            return Ok(());
        }
        let config = &self.engine.config;
        let [all, own] = config.names.waits(claim.owner);
        let path = format!("{own}/{}", claim.id);
        let create = |path: &str, data: &str, mode| Op::Create {
            path: path.to_owned(),
            data: data.into(),
            acl: config.acl(),
            mode,
        };
        let ops = [
            create(&all, "", Mode::Container),
            create(&own, "", Mode::Container),
            create(&path, claim.key.as_str(), Mode::Ephemeral),
        ];
        for pending in record.session.send(ops) {
            match pending.get().await {
                Ok(_) | Err(Failure::Refused(Code::NODE_EXISTS)) => {}
                Err(failure) => return Err(error::failed(failure, &path)),
            }
        }
        match self.engine.book.lock().get_mut(claim.id) {
            Some(record) => record.noted = Some(path),
            // It has gone meanwhile.
            None => self.engine.run(park::delete_for_sure(record.session, path)),
        }
        Ok(())
    }

    /// Looks for the node of a claim whose reply was lost. It is ours only if the session that
    /// made it is the one we have: the node of an older session is about to go, whatever it says.
    async fn recover(&self, claim: &Claim) -> Result<Option<Record>, StoreError> {
        let session = self.engine.session_of(claim.id, claim.ttl);
        let directory = self.engine.config.names.directory(&claim.key);
        let failed = |failure| error::failed(failure, &directory);
        let (id, _) = session.known().await.map_err(failed)?;
        let found = find(&session, &directory, claim.id).await.map_err(failed)?;
        let mut mine = None;
        for (name, stat, data) in found {
            let node = self.engine.config.names.read(&name);
            if stat.owner == id && mine.is_none() && node.is_some() {
                let note = Note::read(&data).unwrap_or_else(|| Note::new(claim));
                mine = Some(self.record(claim, note, &directory, name, stat, &session));
            } else {
                let path = format!("{directory}/{name}");
                park::delete(&session, path).await.map_err(failed)?;
            }
        }
        let mut book = self.engine.book.lock();
        match &mine {
            Some(record) => {
                book.insert(claim.id, record.clone(), SystemClock.now() + claim.ttl);
            }
            None => book.is_certain(claim.id),
        }
        Ok(mine)
    }

    pub(crate) fn record(
        &self,
        claim: &Claim,
        note: Note,
        directory: &str,
        name: String,
        stat: Stat,
        session: &Session,
    ) -> Record {
        Record {
            key: claim.key.clone(),
            token: note.token.unwrap_or(Token::new(stat.czxid as u64)),
            note,
            directory: directory.to_owned(),
            name,
            version: stat.version,
            session: session.clone(),
            inbox: self.inbox.clone(),
            stage: Stage::Made,
            armed: None,
            round: 0,
            noted: None,
            becoming: false,
        }
    }

    /// Makes the claim's node and asks for the list behind it, in one go.
    async fn make(&self, claim: &Claim, until: Moment) -> Result<Look, StoreError> {
        let config = &self.engine.config;
        let directory = config.names.directory(&claim.key);
        let session = self.session_for(claim).await?;
        let note = Note::new(claim);
        let path = format!("{directory}/{}", config.names.node(claim.id, claim.share));
        let (data, acl) = (note.write(), config.acl());
        let create = Op::Create { path, data, acl, mode: Mode::EphemeralSequential };
        for _ in 0..TRIES {
            self.engine.book.lock().may_have(claim.id, &session);
            let list = Op::Children { path: directory.clone() };
            let [made, list] = session.send([create.clone(), list]);
            match made.get().await {
                Ok(Reply::Created { path, stat }) => {
                    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                    let record = self.record(claim, note, &directory, name, stat, &session);
                    self.engine.book.lock().insert(claim.id, record.clone(), until);
                    return Ok(Look { record, list });
                }
                Err(Failure::Refused(Code::NO_NODE)) => {
                    self.engine.book.lock().is_certain(claim.id);
                    self.make_directory(&session, &directory).await?;
                }
                Ok(_) => return Err(error::baffled(&directory)),
                Err(failure) => return Err(self.not_made(claim.id, failure, &directory)),
            }
        }
        Err(error::baffled(&directory))
    }

    /// No answer, or no node: in the first case there may be one all the same.
    pub(crate) fn not_made(&self, claim: ClaimId, failure: Failure, path: &str) -> StoreError {
        if !matches!(failure, Failure::Lost { written: true, .. }) {
            self.engine.book.lock().is_certain(claim);
        }
        error::failed(failure, path)
    }

    /// Containers: the servers remove them when they have been empty for a while.
    pub(crate) async fn make_directory(
        &self,
        session: &Session,
        directory: &str,
    ) -> Result<(), StoreError> {
        let config = &self.engine.config;
        let ops = [&config.names.root[..], directory].map(|path| Op::Create {
            path: path.to_owned(),
            data: vec![],
            acl: config.acl(),
            mode: Mode::Container,
        });
        for pending in session.send(ops) {
            match pending.get().await {
                Ok(_) | Err(Failure::Refused(Code::NODE_EXISTS)) => {}
                Err(Failure::Refused(Code::NO_NODE)) => {
                    return Err(error::no_chroot(&config.chroot));
                }
                Err(failure) => return Err(error::failed(failure, directory)),
            }
        }
        Ok(())
    }

    /// Proves through the leader that the claim still has its node, and asks for the list behind it.
    pub(crate) async fn confirm(
        &self,
        claim: &Claim,
        record: Record,
        until: Moment,
    ) -> Result<Confirmed, StoreError> {
        let path = record.path();
        let failed = |failure| error::failed(failure, &path);
        let check = Op::Multi(vec![Part::Check { path: path.clone(), version: record.version }]);
        let list = Op::Children { path: record.directory.clone() };
        let [checked, list] = record.session.send([check, list]);
        match checked.get().await.map_err(failed)? {
            Reply::Done => {}
            Reply::Failed(codes) => match codes[..] {
                [Code::BAD_VERSION] => {
                    match self.reread(claim.id, &record).await.map_err(failed)? {
                        Reread::Broken(reason) => return Ok(Confirmed::Broken(reason)),
                        Reread::Gone => return Ok(Confirmed::Gone),
                        Reread::Changed => return Ok(Confirmed::Gone),
                    }
                }
                _ => {
                    self.engine.book.lock().node_is_gone(claim.id, &record.name);
                    return Ok(Confirmed::Gone);
                }
            },
            _ => return Err(error::baffled(&path)),
        }
        if !park::is_own(&record).await.map_err(failed)? {
            self.engine.book.lock().remove(claim.id);
            return Ok(Confirmed::Gone);
        }
        self.engine.book.lock().deadlines.extend(claim.id, until);
        Ok(Confirmed::Yes(Box::new(Look { record, list })))
    }

    /// Somebody has written into our node: has it been broken?
    async fn reread(&self, claim: ClaimId, record: &Record) -> Result<Reread, Failure> {
        let path = record.path();
        match record.session.call(Op::GetData { path, watch: false }).await {
            Ok(Reply::Data { data, stat }) => match note::reason(&data) {
                Some(reason) => Ok(Reread::Broken(reason)),
                None => {
                    if let Some(record) = self.engine.book.lock().get_mut(claim) {
                        record.version = stat.version;
                    }
                    Ok(Reread::Changed)
                }
            },
            Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => {
                self.engine.book.lock().node_is_gone(claim, &record.name);
                Ok(Reread::Gone)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn renew_all(&self, holds: &[Hold]) -> Result<Vec<Renewal>, StoreError> {
        let asked_at = SystemClock.now();
        let mut answers = vec![Renewal::Lost; holds.len()];
        let mut sessions: Vec<(Session, Vec<(usize, Record)>)> = vec![];
        for (place, hold) in holds.iter().enumerate() {
            let record = self.engine.book.lock().get(hold.id).cloned();
            let Some(record) = record.filter(|record| record.holds(hold)) else { continue };
            let same = |(session, _): &&mut (Session, _)| session.serial == record.session.serial;
            match sessions.iter_mut().find(same) {
                Some((_, records)) => records.push((place, record)),
                None => sessions.push((record.session.clone(), vec![(place, record)])),
            }
        }
        let alone = sessions.len() == 1;
        let asked = sessions.into_iter().map(|(session, records)| async move {
            let places: Vec<usize> = records.iter().map(|(place, _)| *place).collect();
            let renewing = self.renew_in(&session, records, holds);
            // One that has fallen silent must not keep the others from being heard.
            let renewed = match alone {
                true => renewing.await,
                false => {
                    let silent = || error::failed(Failure::silent(), "the locks of a session");
                    let renewed = tokio::time::timeout(SESSION_PATIENCE, renewing).await;
                    renewed.unwrap_or_else(|_| Err(silent()))
                }
            };
            (places, renewed)
        });
        let (mut heard, mut error) = (false, None);
        for (places, renewed) in join_all(asked).await {
            match renewed {
                Ok(renewed) => {
                    heard = true;
                    renewed.into_iter().for_each(|(place, renewal)| answers[place] = renewal);
                }
                Err(failed) => {
                    let why = failed.to_string();
                    let unsure = || Renewal::Unsure { why: why.clone() };
                    places.into_iter().for_each(|place| answers[place] = unsure());
                    error = Some(failed);
                }
            }
        }
        if let Some(error) = error.filter(|_| !heard) {
            return Err(error);
        }
        let mut book = self.engine.book.lock();
        for (hold, answer) in holds.iter().zip(&answers) {
            if *answer == Renewal::Renewed {
                book.deadlines.extend(hold.id, asked_at + hold.ttl);
            }
        }
        Ok(answers)
    }

    /// A hold whose node is gone is lost, unless a reader's is taking its place.
    fn without_node(&self, claim: ClaimId, name: &str) -> Renewal {
        let over = self.engine.book.lock().node_is_gone(claim, name);
        let why = || "a reader's node is taking its place".to_owned();
        if over { Renewal::Lost } else { Renewal::Unsure { why: why() } }
    }

    /// One request for all holds of a session. Only if it finds fault with one of them, one each.
    async fn renew_in(
        &self,
        session: &Session,
        records: Vec<(usize, Record)>,
        holds: &[Hold],
    ) -> Result<Vec<(usize, Renewal)>, StoreError> {
        let failed = |failure| error::failed(failure, "the locks of this handle");
        let check = |record: &Record| Part::Check { path: record.path(), version: record.version };
        let all: Vec<Part> = records.iter().map(|(_, record)| check(record)).collect();
        // A name that was used before says nothing about whose node it is.
        let unique = records.iter().all(|(_, record)| record.name != BASIC);
        if unique && session.call(Op::Multi(all)).await.map_err(failed)? == Reply::Done {
            return Ok(records.into_iter().map(|(place, _)| (place, Renewal::Renewed)).collect());
        }
        let each = records.iter().map(|(_, record)| Op::Multi(vec![check(record)]));
        let mut answers = Vec::with_capacity(records.len());
        for ((place, record), pending) in records.iter().zip(session.send_all(each)) {
            let renewal = match pending.get().await.map_err(failed)? {
                Reply::Done if park::is_own(record).await.map_err(failed)? => Renewal::Renewed,
                Reply::Done => Renewal::Lost,
                Reply::Failed(codes) if codes[..] == [Code::BAD_VERSION] => {
                    match self.reread(holds[*place].id, record).await.map_err(failed)? {
                        Reread::Broken(reason) => Renewal::Broken { reason },
                        // It was there, and is ours: the next renewal knows its version.
                        Reread::Changed => Renewal::Renewed,
                        Reread::Gone => self.without_node(holds[*place].id, &record.name),
                    }
                }
                Reply::Failed(_) => self.without_node(holds[*place].id, &record.name),
                _ => return Err(error::baffled(&record.path())),
            };
            answers.push((*place, renewal));
        }
        Ok(answers)
    }

    async fn give_back(&self, hold: &Hold) -> Result<Released, StoreError> {
        let (record, unsure) = {
            let book = self.engine.book.lock();
            (book.get(hold.id).cloned(), book.may_have_in(hold.id).is_some())
        };
        let record = record.filter(|record| record.key == hold.key && !unsure);
        if let Some(record) = record {
            let path = record.path();
            let gone = park::delete_own(&record).await;
            let done = gone.map_err(|failure| error::failed(failure, &path))?;
            if let Some(record) = self.engine.book.lock().remove(hold.id) {
                park::forget_wait(&self.engine, &record);
            }
            return Ok(done);
        }
        if !unsure {
            self.engine.book.lock().stand_down(hold.id);
            return Ok(Released::NotHeld);
        }
        // On the engine's own thread, until it is done: nobody else will ever ask for this claim again,
        // and whoever waits here may give up before the servers are back.
        let (tell, told) = oneshot::channel();
        let (weak, hold) = (self.engine.share(), hold.clone());
        self.engine.run(async move {
            let done = remove_strays(weak, &hold).await;
            // Nobody may be waiting any more.
            let _ = tell.send(done);
        });
        Ok(told.await.unwrap_or(Released::NotHeld))
    }

    /// Makes a reader of a writer. On the engine's own thread: whoever waits here may give up, and what
    /// is half done must be done.
    async fn downgrade(&self, hold: &Hold) -> Result<Released, StoreError> {
        let record = {
            let mut book = self.engine.book.lock();
            let record = book.get_mut(hold.id).filter(|record| record.holds(hold));
            let Some(record) = record else { return Ok(Released::NotHeld) };
            match record.share() {
                Share::Read => return Ok(Released::Done),
                Share::Permits { .. } => return Ok(Released::NotHeld),
                Share::Exclusive if record.becoming => {
                    return Err(error::failed(Failure::silent(), &record.path()));
                }
                Share::Exclusive => record.becoming = true,
            }
            let record = record.clone();
            // Until it is done, it may have the one node, the other or both: whoever gives it back has
            // to look.
            book.may_have(hold.id, &record.session);
            record
        };
        let (tell, told) = oneshot::channel();
        let (weak, hold, path) = (self.engine.share(), hold.clone(), record.path());
        self.engine.run(async move {
            let Some(engine) = weak.upgrade() else { return };
            let replaced = replace(&engine, hold.id, &record).await;
            let stands = {
                let mut book = engine.book.lock();
                let stands = book.get(hold.id).is_some();
                if replaced.as_ref().is_err_and(|half_done| half_done.1) || !stands {
                    book.remove(hold.id);
                    book.may_have(hold.id, &record.session);
                } else {
                    book.is_certain(hold.id);
                    if let Some(record) = book.get_mut(hold.id) {
                        record.becoming = false;
                    }
                }
                stands
            };
            // Nobody may be waiting any more.
            let _ = tell.send(replaced.map_err(|(failure, _)| failure));
            if !stands {
                // It lapsed or was given back meanwhile, as the one node that it was.
                remove_strays(weak, &hold).await;
            }
        });
        let replaced = told.await.unwrap_or(Err(Failure::Expired));
        replaced.map_err(|failure| error::failed(failure, &path))
    }

    async fn break_holders(
        &self,
        directory: String,
        reason: &str,
        now: bool,
    ) -> Result<Released, StoreError> {
        let session = self.engine.any_session();
        let failed = |failure| error::failed(failure, &directory);
        let holders = inspect::holders(&self.engine, &session, &directory).await?;
        let mut done = Released::NotHeld;
        for (name, data) in holders {
            let path = format!("{directory}/{name}");
            let data = note::broken(&data, reason);
            match session.call(Op::SetData { path: path.clone(), data, version: -1 }).await {
                Ok(_) => done = Released::Done,
                Err(Failure::Refused(Code::NO_NODE)) => continue,
                Err(failure) => return Err(failed(failure)),
            }
            if now {
                park::delete(&session, path).await.map_err(failed)?;
            }
        }
        Ok(done)
    }
}

/// Replaces the node by a reader's with the same number: first there are both, and then the
/// writer's goes. Who has read the line before is told by the change of the writer's node, and who
/// reads it afterwards sees the reader; so nobody takes the end of the one for the end of the hold.
/// With a failure comes whether it may be half done.
async fn replace(
    engine: &Engine,
    claim: ClaimId,
    record: &Record,
) -> Result<Released, (Failure, bool)> {
    let (names, path) = (&engine.config.names, record.path());
    let digits = record.name.len() - names.node(claim, Share::Exclusive).len();
    let digits = &record.name[record.name.len() - digits..];
    let name = format!("{}{digits}", names.node(claim, Share::Read));
    let reader = format!("{}/{name}", record.directory);
    let note = Note { share: Share::Read, token: Some(record.token), ..record.note.clone() };
    let join = Op::Multi(vec![
        Part::Create {
            path: reader.clone(),
            data: note.write(),
            acl: engine.config.acl(),
            mode: Mode::Ephemeral,
        },
        Part::SetData { path: path.clone(), data: record.note.write(), version: record.version },
    ]);
    match record.session.call(join).await {
        Ok(Reply::Done) => {}
        Ok(_) => return Ok(Released::NotHeld),
        Err(failure) => {
            let written = matches!(failure, Failure::Lost { written: true, .. });
            return Err((failure, written));
        }
    }
    match park::delete(&record.session, path).await.map_err(|failure| (failure, true))? {
        Released::Done => {
            if let Some(record) = engine.book.lock().get_mut(claim) {
                (record.name, record.note, record.version) = (name, note, 0);
            }
            Ok(Released::Done)
        }
        // Somebody broke it between the two.
        Released::NotHeld => {
            park::delete_for_sure(record.session.clone(), reader).await;
            Ok(Released::NotHeld)
        }
    }
}

impl Record {
    fn holds(&self, hold: &Hold) -> bool {
        self.stage == Stage::Holds && self.key == hold.key
    }
}

pub(crate) enum Confirmed {
    Yes(Box<Look>),
    Broken(String),
    Gone,
}

enum Reread {
    Broken(String),
    /// Somebody wrote what we do not understand; it is not a break.
    Changed,
    Gone,
}

/// Finds and deletes what a lost reply has left of a claim, however often the connection is lost.
async fn remove_strays(engine: Weak<Engine>, hold: &Hold) -> Released {
    while let Some(engine) = engine.upgrade() {
        let session = engine.session_of(hold.id, hold.ttl);
        let directory = engine.config.names.directory(&hold.key);
        let tried = async {
            let mut done = Released::NotHeld;
            for (name, ..) in find(&session, &directory, hold.id).await? {
                if park::delete(&session, format!("{directory}/{name}")).await? == Released::Done {
                    done = Released::Done;
                }
            }
            Ok(done)
        };
        match tried.await {
            Err(Failure::Lost { .. }) => tokio::time::sleep(park::AGAIN).await,
            // What it had went with its session, or is not ours to delete.
            other => {
                let record = engine.book.lock().remove(hold.id);
                record.iter().for_each(|record| park::forget_wait(&engine, record));
                return other.unwrap_or(Released::NotHeld);
            }
        }
    }
    Released::NotHeld
}

/// The nodes of a claim: there should be one at most. Behind a sync: a request whose reply was lost
/// may have gone through another server, and this one not know of it yet.
async fn find(
    session: &Session,
    directory: &str,
    claim: ClaimId,
) -> Result<Vec<(String, Stat, Vec<u8>)>, Failure> {
    let path = || directory.to_owned();
    let [synced, list] = session.send([Op::Sync { path: path() }, Op::Children { path: path() }]);
    synced.get().await?;
    let children = match list.get().await {
        Ok(Reply::Children(children)) => children,
        Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => return Ok(vec![]),
        Err(failure) => return Err(failure),
    };
    let start = names::start(claim);
    let mut found = vec![];
    for name in children.into_iter().filter(|name| name.starts_with(&start) || name == BASIC) {
        let path = format!("{directory}/{name}");
        match session.call(Op::GetData { path, watch: false }).await {
            // The one node of the basic layout may be anybody's.
            Ok(Reply::Data { data, .. })
                if name == BASIC && Note::read(&data).is_none_or(|note| note.claim != claim) => {}
            Ok(Reply::Data { data, stat }) => found.push((name, stat, data)),
            Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}
