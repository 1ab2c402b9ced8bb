//! Looking at locks.

use std::collections::BTreeSet;
use std::time::Duration;

use lockstep_core::time::Clock;
use lockstep_core::{ClaimId, ErrorKind, Key, Label, Owner, StoreError, Token};
use lockstep_lock::clock::SystemClock;
use lockstep_lock::line::{Entry, Line};
use lockstep_lock::store::{HolderView, LockView, Page, Query, WaiterView};

use crate::client::wire::{Code, Op, Reply, Stat};
use crate::client::{Failure, Session};
use crate::engine::Engine;
use crate::error;
use crate::names::{Names, Node};
use crate::note::Note;

/// How many directories are asked for at once.
const BATCH: usize = 100;

/// A node, as it was when somebody looked.
struct Seen {
    node: Node,
    data: Vec<u8>,
    stat: Stat,
}

pub(crate) async fn look(engine: &Engine, query: &Query) -> Result<Page, StoreError> {
    let session = engine.any_session();
    catch_up(engine, &session);
    match query {
        Query::One(key) => {
            let view = one(engine, &session, key, true).await?;
            Ok(Page { locks: view.into_iter().collect(), more: false })
        }
        Query::All { prefix, limit } => all(engine, &session, prefix, *limit).await,
        Query::WaitedForBy(owner) => waited_for_by(engine, &session, *owner).await,
    }
}

/// What is read after this is not older than what anybody has been told before: another session may be
/// at a server that is ahead of ours. If it fails, so does what is read.
fn catch_up(engine: &Engine, session: &Session) {
    let [sent] = session.send([Op::Sync { path: engine.config.names.root.clone() }]);
    // Nobody waits for its answer, but it is not to be dropped before it is sent.
    engine.run(async move { drop(sent.get().await) });
}

/// The locks that an owner waits for, with their waiters. An owner that has only the name of its claim
/// is not found: see `Lane::note_wait`.
async fn waited_for_by(
    engine: &Engine,
    session: &Session,
    owner: Owner,
) -> Result<Page, StoreError> {
    let [_, own] = engine.config.names.waits(owner);
    let claims = children(session, &own).await?;
    let asks = claims.iter().map(|claim| {
        let path = format!("{own}/{claim}");
        Op::GetData { path, watch: false }
    });
    let mut keys = BTreeSet::new();
    for pending in session.send_all(asks) {
        match pending.get().await {
            Ok(Reply::Data { data, .. }) => {
                keys.extend(std::str::from_utf8(&data).ok().and_then(|key| Key::new(key).ok()));
            }
            Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => {}
            Err(failure) => return Err(error::failed(failure, &own)),
        }
    }
    let mut locks = vec![];
    for key in keys {
        let view = one(engine, session, &key, true).await?;
        // What was written down is a hint: it may have been served, or gone, since.
        let waits = |lock: &LockView| lock.waiters.iter().any(|waiter| waiter.owner == owner);
        locks.extend(view.filter(waits));
    }
    Ok(Page { locks, more: false })
}

/// The names and data of the nodes that hold a lock.
pub(crate) async fn holders(
    engine: &Engine,
    session: &Session,
    directory: &str,
) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    catch_up(engine, session);
    let mut seen = nodes(engine, session, directory).await?;
    seen.truncate(holding(&seen));
    Ok(seen.into_iter().map(|seen| (seen.node.name, seen.data)).collect())
}

async fn all(
    engine: &Engine,
    session: &Session,
    prefix: &str,
    limit: usize,
) -> Result<Page, StoreError> {
    let root = engine.config.names.root.clone();
    let directories = children(session, &root).await?;
    let keys = directories.iter().filter_map(|directory| Names::key(directory));
    let mut keys: Vec<Key> = keys.filter(|key| key.as_str().starts_with(prefix)).collect();
    keys.sort();
    let mut locks = vec![];
    for batch in keys.chunks(BATCH) {
        let looks = batch.iter().map(|key| async move {
            match one(engine, session, key, false).await {
                // Somebody else's node among ours must not hide ours.
                Err(error) if error.kind() == ErrorKind::Foreign => Ok(None),
                seen => seen,
            }
        });
        let seen = futures_util::future::try_join_all(looks).await?;
        locks.extend(seen.into_iter().flatten());
        if locks.len() > limit {
            break;
        }
    }
    let more = locks.len() > limit;
    locks.truncate(limit);
    Ok(Page { locks, more })
}

async fn one(
    engine: &Engine,
    session: &Session,
    key: &Key,
    particulars: bool,
) -> Result<Option<LockView>, StoreError> {
    let directory = engine.config.names.directory(key);
    let seen = nodes(engine, session, &directory).await?;
    if seen.is_empty() {
        return Ok(None);
    }
    let (holders, waiters) = seen.split_at(holding(&seen));
    Ok(Some(LockView {
        key: key.clone(),
        holders: holders.iter().map(|seen| seen.holder(engine)).collect(),
        waiting: waiters.len() as u64,
        waiters: waiters.iter().filter(|_| particulars).map(Seen::waiter).collect(),
    }))
}

fn holding(seen: &[Seen]) -> usize {
    let entry = |seen: &Seen| Entry { id: (), share: seen.node.share };
    Line::new(seen.iter().map(entry).collect()).holders()
}

/// The nodes of a lock in the order of their places. Those that went while we looked are not shown.
async fn nodes(
    engine: &Engine,
    session: &Session,
    directory: &str,
) -> Result<Vec<Seen>, StoreError> {
    let children = children(session, directory).await?;
    let nodes = engine.config.names.line(&children);
    let nodes = nodes.map_err(|child| error::foreign(directory, &child))?;
    let asks = nodes.iter().map(|node| {
        let path = format!("{directory}/{}", node.name);
        Op::GetData { path, watch: false }
    });
    let mut seen = Vec::with_capacity(nodes.len());
    for (pending, node) in session.send_all(asks).into_iter().zip(&nodes) {
        match pending.get().await {
            Ok(Reply::Data { data, stat }) => seen.push(Seen { node: node.clone(), data, stat }),
            Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => {}
            Err(failure) => return Err(error::failed(failure, directory)),
        }
    }
    Ok(seen)
}

async fn children(session: &Session, path: &str) -> Result<Vec<String>, StoreError> {
    match session.call(Op::Children { path: path.to_owned() }).await {
        Ok(Reply::Children(children)) => Ok(children),
        Ok(_) => Err(error::baffled(path)),
        Err(Failure::Refused(Code::NO_NODE)) => Ok(vec![]),
        Err(failure) => Err(error::failed(failure, path)),
    }
}

impl Seen {
    fn claim(&self) -> ClaimId {
        let noted = || Note::read(&self.data).map(|note| note.claim);
        let claim = self.node.claim.or_else(noted);
        claim.unwrap_or(ClaimId::from_u128(self.stat.czxid as u128))
    }

    /// Another program's node says in its data who it is, in its own words.
    fn who(&self) -> (Owner, Label) {
        match Note::read(&self.data) {
            Some(note) => (note.owner, note.label),
            None => {
                let words = Label::new(String::from_utf8_lossy(&self.data));
                (Owner::from_u128(self.claim().as_u128()), words)
            }
        }
    }

    fn holder(&self, engine: &Engine) -> HolderView {
        let (claim, (owner, label)) = (self.claim(), self.who());
        let note = Note::read(&self.data);
        // Only the process that holds it knows when it last asked.
        let end = engine.book.lock().deadlines.end(claim);
        let left = match end {
            Some(end) => end.since(SystemClock.now()),
            None => note.as_ref().map_or(Duration::ZERO, |note| note.ttl),
        };
        let token = note.as_ref().and_then(|note| note.token);
        HolderView {
            claim,
            owner,
            label,
            share: self.node.share,
            token: Some(token.unwrap_or(Token::new(self.stat.czxid as u64))),
            since_ms: self.stat.ctime as u64,
            left,
            broken: note.and_then(|note| note.broken),
        }
    }

    fn waiter(&self) -> WaiterView {
        let (owner, label) = self.who();
        let since_ms = self.stat.ctime as u64;
        WaiterView { claim: self.claim(), owner, label, share: self.node.share, since_ms }
    }
}
