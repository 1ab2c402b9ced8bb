//! Where a claim stands in its line, whom it watches, and what is told when that changes.

use std::sync::Arc;
use std::time::Duration;

use lockstep_core::time::{Clock, Moment};
use lockstep_core::{ClaimId, Token};
use lockstep_lock::Signal;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::line::{Entry, Line, Standing};
use lockstep_lock::store::Released;

use crate::book::{Record, Stage};
use crate::client::wire::{Change, Code, Op, Reply};
use crate::client::{Failure, News, Pending, Session};
use crate::engine::Engine;
use crate::names::{BASIC, Layout, Node};

/// How long to wait before a delete that was not answered is sent again.
pub(crate) const AGAIN: Duration = Duration::from_millis(50);

/// No server takes a request of more than a megabyte.
const WATCHED_AT_ONCE: usize = 1000;

/// Where a claim stands.
#[derive(Debug)]
pub(crate) enum Place {
    Holds {
        /// Whether nobody knew before.
        news: bool,
    },
    Waits {
        ahead: u64,
    },
    Differs(u32),
    /// A child of this name is none of this layout's.
    Foreign(String),
    /// It has no node any more.
    Gone,
}

/// A list of a claim's directory that is on its way.
pub(crate) struct Look {
    /// What the book said when it was sent, or before.
    pub(crate) record: Record,
    pub(crate) list: Pending,
}

impl Look {
    fn now(record: Record) -> Self {
        let [list] = record.session.send([Op::Children { path: record.directory.clone() }]);
        Self { record, list }
    }
}

/// Finds out where a claim stands, and arms what will tell when that changes. `look`: one that is on its
/// way already, sent after the claim's node was made.
pub(crate) async fn settle(
    engine: &Engine,
    claim: ClaimId,
    mut look: Option<Look>,
    waits: bool,
) -> Result<Place, Failure> {
    loop {
        let known = || engine.book.lock().get(claim).cloned();
        let Some(Look { record, list }) = look.take().or_else(|| known().map(Look::now)) else {
            return Ok(Place::Gone);
        };
        let Record { directory, name, session, .. } = &record;
        let children = match list.get().await {
            Ok(Reply::Children(children)) => children,
            Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => return Ok(Place::Gone),
            Err(failure) => return Err(failure),
        };
        let nodes = match engine.config.names.line(&children) {
            Ok(nodes) => nodes,
            Err(foreign) => return Ok(Place::Foreign(foreign)),
        };
        let line = up_to(&nodes, name);
        let (ahead, watch) = match line.standing(name) {
            None => return Ok(Place::Gone),
            Some(Standing::Differs { of }) => return Ok(Place::Differs(of)),
            Some(Standing::Holds) => {
                let news = engine.book.lock().now_holds(claim);
                return Ok(news.map_or(Place::Gone, |news| Place::Holds { news }));
            }
            Some(Standing::Waits { ahead, .. }) if !waits => return Ok(Place::Waits { ahead }),
            Some(Standing::Waits { ahead, watch }) => (ahead, watch),
        };
        let path = |name: String| format!("{directory}/{name}");
        let watch = with_scout(&line, watch, engine.config.names.layout);
        let watch: Vec<String> = watch.into_iter().map(path).collect();
        let armed = |path: &&String| record.armed.as_ref().is_some_and(|all| all.contains(*path));
        let missing: Vec<String> = watch.iter().filter(|path| !armed(path)).cloned().collect();
        let mut round = record.round;
        if !missing.is_empty() {
            let Some(now) = engine.book.lock().watch(claim, &missing) else { continue };
            round = now;
            // Whatever has happened to them since the list is younger than this claim. Later on,
            // something may have happened to them after it came, and would be told again and again;
            // then a list behind the watch shows all that the watch does not tell.
            let first = record.armed.is_none();
            let since = if first { record.token.get() as i64 } else { i64::MAX };
            let watches = missing.chunks(WATCHED_AT_ONCE);
            let watches = watches.map(|paths| Op::Watch { since, paths: paths.to_vec() });
            let list_behind = (!first).then(|| Op::Children { path: directory.clone() });
            let mut sent = session.send_all(watches.chain(list_behind));
            let list_behind = if first { None } else { sent.pop() };
            for watched in sent {
                watched.get().await?;
            }
            engine.book.lock().is_armed(claim, missing.clone(), round);
            if let Some(list) = list_behind {
                let armed = record.armed.iter().flatten().cloned().chain(missing).collect();
                let record = Record { armed: Some(armed), round, ..record };
                look = Some(Look { record, list });
                continue;
            }
        }
        // Who was told of one of them meanwhile is looking again.
        let kept = engine.book.lock().keep(claim, line, round);
        return Ok(kept.map_or(Place::Gone, |()| Place::Waits { ahead }));
    }
}

/// Who watches one node also watches the one before it. When that goes, its turn is the next, and it
/// reads the line while the lock is in other hands; it then knows that nobody else is ahead, and the
/// end of that hold needs no look.
fn with_scout(line: &Line<String>, mut watch: Vec<String>, layout: Layout) -> Vec<String> {
    let entries = line.entries();
    let at = entries.iter().position(|entry| watch == [entry.id.as_str()]);
    // In the other layout everybody has to look every time.
    if let Some(before) =
        at.and_then(|at| at.checked_sub(1)).filter(|_| layout != Layout::ReadWrite)
    {
        watch.push(entries[before].id.clone());
    }
    watch
}

/// The line up to and with this node. Who comes behind it does not matter to it.
fn up_to(nodes: &[Node], name: &str) -> Line<String> {
    let end = nodes.iter().position(|node| node.name == name).map_or(nodes.len(), |at| at + 1);
    let entry = |node: &Node| Entry { id: node.name.clone(), share: node.share };
    Line::new(nodes[..end].iter().map(entry).collect())
}

/// A session has said something. On its own thread, between two replies.
pub(crate) fn hear(engine: &Arc<Engine>, session: u64, news: News) {
    match news {
        News::Changed(change, path) => changed(engine, session, change, &path),
        News::Back => {
            let mut book = engine.book.lock();
            let waiting = book.watches_lost(session);
            let mut bells: Vec<_> = waiting
                .into_iter()
                .filter_map(|claim| Some((claim, book.get(claim)?.inbox.clone()?)))
                .collect();
            bells.extend(book.bystanders());
            drop(book);
            for (claim, inbox) in bells {
                inbox.deliver(Signal::AskAgain { claim });
            }
        }
        News::Over => {
            let (lost, bystanders) = {
                let mut book = engine.book.lock();
                (book.take_all_of(session), book.bystanders())
            };
            for (claim, inbox) in bystanders {
                inbox.deliver(Signal::AskAgain { claim });
            }
            for (claim, record) in lost {
                let Some(inbox) = record.inbox else { continue };
                inbox.deliver(match record.stage {
                    Stage::Holds => {
                        Signal::Lost { claim, reason: "the ZooKeeper session is over".to_owned() }
                    }
                    _ => Signal::AskAgain { claim },
                });
            }
        }
    }
}

fn changed(engine: &Arc<Engine>, session: u64, change: Change, path: &str) {
    let mut book = engine.book.lock();
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut granted = Vec::new();
    let mut unsettled = Vec::new();
    let mut hinted = Vec::new();
    for claim in book.watch_fired(session, path) {
        if let Some(inbox) = book.bystander(claim) {
            hinted.push((claim, inbox));
            continue;
        }
        // Curator's downgrade puts a reader with the same number where a writer was, unannounced.
        let surprises = engine.config.names.layout == Layout::ReadWrite;
        if change == Change::Deleted && !surprises && book.left_before(claim, name) {
            let record = book.get(claim);
            granted.extend(record.and_then(|r| Some((claim, r.token, r.inbox.clone()?))));
        } else {
            unsettled.push(claim);
        }
    }
    drop(book);
    for (claim, token, inbox) in granted {
        inbox.deliver(Signal::Granted { claim, token: Some(token) });
    }
    for (claim, inbox) in hinted {
        inbox.deliver(Signal::AskAgain { claim });
    }
    for claim in unsettled {
        let weak = engine.share();
        engine.run(async move {
            if let Some(engine) = weak.upgrade() {
                resettle(&engine, claim).await;
            }
        });
    }
}

/// Looks where a waiting claim stands now, and tells it if it holds. Two departures make it look twice,
/// and it is told once.
async fn resettle(engine: &Engine, claim: ClaimId) {
    let waits = || {
        let book = engine.book.lock();
        book.get(claim).is_some_and(|record| record.stage != Stage::Holds)
    };
    if !waits() {
        return;
    }
    let place = settle(engine, claim, None, true).await;
    let holds = match place {
        Ok(Place::Holds { news: true }) => true,
        Ok(Place::Waits { .. }) => return,
        // Asking will say what it is.
        _ if waits() => false,
        _ => return,
    };
    let record = engine.book.lock().get(claim).map(|record| (record.token, record.inbox.clone()));
    let Some((token, Some(inbox))) = record else { return };
    inbox.deliver(match holds {
        true => Signal::Granted { claim, token: Some(token) },
        false => Signal::AskAgain { claim },
    });
}

/// Gives back what nobody has asked about for a whole ttl, and says when to look again.
pub(crate) fn end_lapsed(engine: &Arc<Engine>) -> Moment {
    let now = SystemClock.now();
    let mut book = engine.book.lock();
    while let Some((_, record)) = book.take_lapsed(now) {
        forget_wait(engine, &record);
        engine.run(async move {
            while let Err(Failure::Lost { .. }) = delete_own(&record).await {
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
    book.deadlines.next().unwrap_or(Moment::MAX)
}

/// A claim waits no more: what was written down about that goes, in the background.
pub(crate) fn forget_wait(engine: &Engine, record: &Record) {
    if let Some(path) = record.noted.clone() {
        engine.run(delete_for_sure(record.session.clone(), path));
    }
}

/// Deletes a node that bears a name of ours alone, however often the connection is lost. It ends with
/// the session, which takes the node along.
pub(crate) async fn delete_for_sure(session: Session, path: String) {
    while let Err(Failure::Lost { .. }) = delete(&session, path.clone()).await {
        tokio::time::sleep(AGAIN).await;
    }
}

/// Deletes a claim's node, if it is the claim's.
pub(crate) async fn delete_own(record: &Record) -> Result<Released, Failure> {
    match is_own(record).await {
        Ok(true) => delete(&record.session, record.path()).await,
        Ok(false) | Err(Failure::Expired) => Ok(Released::NotHeld),
        Err(failure) => Err(failure),
    }
}

/// Whether the node of this name is the claim's. Names with a number are used once; the one of the
/// basic layout is everybody's, so there one has to look. (Between this look and a delete an operator
/// may break the lock and another take it: one more thing that this layout cannot do.)
pub(crate) async fn is_own(record: &Record) -> Result<bool, Failure> {
    if record.name != BASIC {
        return Ok(true);
    }
    match record.session.call(Op::Exists { path: record.path(), watch: false }).await {
        Ok(Reply::Stat(stat)) => Ok(Token::new(stat.czxid as u64) == record.token),
        Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

pub(crate) async fn delete(session: &Session, path: String) -> Result<Released, Failure> {
    match session.call(Op::Delete { path }).await {
        Ok(_) => Ok(Released::Done),
        // What went with its session is gone as well.
        Err(Failure::Refused(Code::NO_NODE) | Failure::Expired) => Ok(Released::NotHeld),
        Err(failure) => Err(failure),
    }
}
