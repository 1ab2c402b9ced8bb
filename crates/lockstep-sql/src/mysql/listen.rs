//! The one connection of a lane that hears of grants: it waits on the server, and whoever passes a
//! lock on interrupts that (`release.sql`, `wake.sql`).
//!
//! It waits in `GET_LOCK` for a name that a connection of the pool keeps: the *door*. Not in `SLEEP`:
//! all sleeps of a MariaDB share one mutex, and an interruption that finds it taken by another
//! sleeper stops them all for two seconds (docs/decisions/0009-mysql-push.md). It is found by another
//! name that it keeps itself: the *ear*.
//!
//! Every wait begins with a look at the locks that are waited for, so an interruption that comes
//! too early loses nothing; one that never comes costs the rest of a wait.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::retry::Backoff;
use lockstep_core::{ClaimId, StoreError, Token};
use lockstep_lock::store::Claim;
use lockstep_lock::{Inbox, Signal};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Value};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::config::{OPERATION, Purpose, Settings};
use super::pool::{Connections, Reply, discard, read};
use super::rows::Grant;
use super::{error, rows};

/// One wait. Shorter than what administrators take for a slow query (10 s).
const WAIT: Duration = Duration::from_secs(3);

/// How long the connection is kept when nobody waits any more.
const LINGER: Duration = Duration::from_secs(5);

/// How long a lane tries to wake itself. Directly this takes a millisecond or two.
const SELF_TEST: Duration = Duration::from_secs(1);

const RECONNECT: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };

/// Listens, while somebody waits, until it is dropped.
pub(super) struct Listener {
    ear: Arc<Ear>,
    task: JoinHandle<()>,
}

struct Ear {
    settings: Arc<Settings>,
    connections: Arc<Connections>,
    /// In the names of its ear and its door.
    mark: u128,
    inbox: Inbox,
    waiting: Mutex<HashMap<ClaimId, Wait>>,
    queued: Notify,
}

struct Wait {
    key: String,
    /// Whether it wants all of the lock; who does never stands beside others.
    whole: bool,
    /// When its place in the queue is lost, unless it asks again.
    until: Instant,
    /// The answer to its ask is still to come, and may be the grant itself.
    asking: bool,
    /// What was heard meanwhile.
    heard: Option<Token>,
}

impl Listener {
    /// Connects only when somebody waits.
    pub(super) fn start(
        settings: Arc<Settings>,
        connections: Arc<Connections>,
        inbox: Inbox,
    ) -> Self {
        let ear = Arc::new(Ear {
            settings,
            connections,
            mark: Uuid::new_v4().as_u128(),
            inbox,
            waiting: Mutex::default(),
            queued: Notify::new(),
        });
        let task = tokio::spawn(Arc::clone(&ear).listen());
        Self { ear, task }
    }

    /// What the rows of waiters name it by.
    pub(super) fn mark(&self) -> Vec<u8> {
        rows::bytes(self.ear.mark)
    }

    /// A claim is about to be asked for. Before, not after: it can be granted before we know that it
    /// was queued. Says whether it was asked for before.
    pub(super) fn expect(&self, claim: &Claim, key: &str) -> bool {
        let until = Instant::now() + claim.ttl;
        let whole = claim.share.weight() == claim.share.of();
        let wait = Wait { key: key.to_owned(), whole, until, asking: true, heard: None };
        self.ear.waiting.lock().insert(claim.id, wait).is_some()
    }

    /// It was queued, or may have been: somebody must listen now.
    pub(super) fn queued(&self, claim: ClaimId) {
        let heard = self.ear.waiting.lock().get_mut(&claim).and_then(|wait| {
            wait.asking = false;
            wait.heard
        });
        match heard {
            Some(token) => self.ear.hear(claim, token),
            None => self.ear.queued.notify_one(),
        }
    }

    /// It does not wait.
    pub(super) fn forget(&self, claim: ClaimId) {
        self.ear.waiting.lock().remove(&claim);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection that is closed at once, also in the middle of a wait.
struct Line(Option<Conn>);

/// A statement without parameters is sent as it is, one with some is prepared once.
struct Statement {
    text: String,
    parameters: Vec<Value>,
}

/// How a statement ended.
enum Heard {
    /// In good time, with nothing.
    Nothing,
    /// Interrupted: something was granted.
    Interrupted,
    /// These were granted.
    Granted(Vec<Grant>),
    /// Nobody keeps the door any more, and it was given to us.
    DoorOpen,
}

impl Line {
    /// Closes the door and stands before it.
    async fn open(
        settings: &Settings,
        connections: &Connections,
        mark: u128,
    ) -> Result<Self, StoreError> {
        // If it is not free, another connection of the pool has kept it from the last time.
        connections.ask("DO GET_LOCK(?, 0)", (door(mark),)).await?;
        let mut line = Self(Some(settings.connect(Purpose::Long).await?));
        // One second: the connection before this one may not have ended yet.
        let keep = format!("DO GET_LOCK('lockstep-ear-{mark:032X}', 1)");
        line.ask(Statement { text: keep, parameters: vec![] }).await?;
        Ok(line)
    }

    /// `None` if it was interrupted.
    async fn ask(&mut self, statement: Statement) -> Result<Option<Reply>, StoreError> {
        let conn = self.0.as_mut().ok_or_else(error::no_connection)?;
        match timeout(WAIT + OPERATION, statement.run(conn)).await {
            Err(_) => Err(error::no_answer()),
            Ok(Ok(reply)) => Ok(Some(reply)),
            Ok(Err(error)) if error::is_interruption(&error) => Ok(None),
            Ok(Err(error)) => Err(error::answered(error)),
        }
    }

    async fn hear(&mut self, statement: Statement) -> Result<Heard, StoreError> {
        let Some(reply) = self.ask(statement).await? else { return Ok(Heard::Interrupted) };
        let heard: Option<String> = rows::get(&rows::only(reply)?, "heard")?;
        Ok(match heard.as_deref() {
            // An interruption need not end the statement: what it was in the middle of has no
            // result then.
            None => Heard::Interrupted,
            Some("0") => Heard::Nothing,
            Some("1") => Heard::DoorOpen,
            Some(grants) => Heard::Granted(rows::grants(grants)?),
        })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(discard);
    }
}

impl Ear {
    async fn listen(self: Arc<Self>) {
        let (mut line, mut tries) = (None::<Line>, 0);
        loop {
            let Some(statement) = self.statement() else {
                // Nobody waits.
                if timeout(LINGER, self.queued.notified()).await.is_err() {
                    line = None;
                    self.queued.notified().await;
                }
                continue;
            };
            let heard = match &mut line {
                Some(line) => line.hear(statement).await,
                None => match Line::open(&self.settings, &self.connections, self.mark).await {
                    Ok(open) => {
                        line = Some(open);
                        if tries > 0 {
                            tracing::info!(store = error::STORE, tries, "listening again");
                            self.inbox.deliver(Signal::AskAllAgain);
                        }
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            let heard = match heard {
                Ok(Heard::Granted(granted)) => self.tell(line.as_mut(), granted).await,
                Ok(Heard::DoorOpen) => {
                    line = None;
                    Ok(())
                }
                Ok(Heard::Nothing | Heard::Interrupted) => Ok(()),
                Err(error) => Err(error),
            };
            tries = match heard {
                Ok(()) => 0,
                Err(error) => {
                    // Also because what is late would be taken for the answer to something else.
                    line = None;
                    tracing::warn!(store = error::STORE, %error, tries, "cannot listen");
                    let random = Uuid::new_v4().as_u128() as u64;
                    sleep(RECONNECT.delay(tries + 1, random)).await;
                    tries + 1
                }
            };
        }
    }

    /// Tells of those that somebody vouches for, and makes sure of the others first.
    async fn tell(&self, line: Option<&mut Line>, granted: Vec<Grant>) -> Result<(), StoreError> {
        let (sure, seen): (Vec<Grant>, _) = granted.into_iter().partition(|grant| grant.told);
        sure.iter().for_each(|grant| self.hear(grant.claim, grant.token));
        if self.is_on_the_disk(line, &seen).await? {
            seen.iter().for_each(|grant| self.hear(grant.claim, grant.token));
        }
        Ok(())
    }

    /// InnoDB shows a commit to others before it is on the disk, and a crash of the server in between
    /// takes it back: somebody else would get the same token. So where nobody vouches for it, a
    /// change of our own, the smallest there is, is committed behind what was seen.
    async fn is_on_the_disk(
        &self,
        line: Option<&mut Line>,
        seen: &[Grant],
    ) -> Result<bool, StoreError> {
        let tables = {
            let waiting = self.waiting.lock();
            let seen = |id: &ClaimId| seen.iter().any(|grant| grant.claim == *id);
            let wanted: Vec<_> = waiting.iter().filter(|(id, _)| seen(id)).collect();
            if wanted.is_empty() {
                return Ok(false);
            }
            ["lockstep_lock", "lockstep_holder"].map(|table| {
                let (which, parameters) = those(&wanted);
                let text = format!("UPDATE {table} SET until_us = until_us + 1 WHERE {which}");
                Statement { text, parameters }
            })
        };
        let Some(line) = line else { return Ok(false) };
        for statement in tables {
            // What was interrupted has changed nothing.
            if line.ask(statement).await?.is_some_and(|reply| reply.changed > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn hear(&self, claim: ClaimId, token: Token) {
        let mut waiting = self.waiting.lock();
        match waiting.get_mut(&claim) {
            None => {}
            Some(wait) if wait.asking => wait.heard = Some(token),
            Some(_) => {
                waiting.remove(&claim);
                drop(waiting);
                self.inbox.deliver(Signal::Granted { claim, token: Some(token) });
            }
        }
    }

    /// Looks which of those who wait were granted what they wait for, and waits if none was.
    /// `None` if nobody waits.
    fn statement(&self) -> Option<Statement> {
        let mut waiting = self.waiting.lock();
        let now = Instant::now();
        waiting.retain(|_, wait| now < wait.until);
        // Who has heard already only waits for the answer to its ask.
        let unheard: Vec<_> = waiting.iter().filter(|(_, wait)| wait.heard.is_none()).collect();
        (!unheard.is_empty()).then(|| listening(self.mark, &unheard))
    }
}

impl Statement {
    async fn run(self, conn: &mut Conn) -> Result<Reply, Error> {
        if self.parameters.is_empty() {
            read(conn.query_iter(self.text).await?).await
        } else {
            read(conn.exec_iter(self.text, self.parameters).await?).await
        }
    }
}

/// The rows of these locks that are these claims'. For one it is a text that the server knows already;
/// for several, which are hardly ever the same number twice, it has no parameters.
fn those(waiting: &[(&ClaimId, &Wait)]) -> (String, Vec<Value>) {
    let one = "lock_key = ? AND claim = ?";
    if let [(claim, wait)] = waiting {
        return (
            one.to_owned(),
            vec![wait.key.as_str().into(), rows::bytes(claim.as_u128()).into()],
        );
    }
    let (mut keys, mut claims) = (vec![], vec![]);
    for (claim, wait) in waiting {
        keys.push(literal(wait.key.as_bytes()));
        claims.push(literal(&claim.as_u128().to_be_bytes()));
    }
    keys.sort_unstable();
    keys.dedup();
    let (keys, claims) = (keys.join(","), claims.join(","));
    (format!("lock_key IN ({keys}) AND claim IN ({claims})"), vec![])
}

/// One answer, `heard`: what [`rows::grants`] reads, or how the wait for the door ended.
fn listening(mark: u128, waiting: &[(&ClaimId, &Wait)]) -> Statement {
    // Whoever granted it may keep a user lock of this name (release.sql).
    let told = "IS_USED_LOCK(CONCAT('lockstep-told-', HEX(claim), '-', HEX(token))) IS NOT NULL";
    let grant = format!("CONCAT(HEX(claim), ' ', token, ' ', {told}, ';')");
    let shares = waiting.iter().any(|(_, wait)| !wait.whole);
    let tables: &[&str] = match waiting {
        [] => &[],
        _ if shares => &["lockstep_lock", "lockstep_holder"],
        _ => &["lockstep_lock"],
    };
    let (mut looks, mut parameters) = (String::new(), vec![]);
    for table in tables {
        let (which, these) = those(waiting);
        let _ = write!(
            looks,
            "(SELECT GROUP_CONCAT({grant} SEPARATOR '') FROM {table} WHERE {which}), "
        );
        parameters.extend(these);
    }
    let wait = format!("GET_LOCK('{}', {})", door(mark), WAIT.as_secs());
    let text = format!("SELECT /* lockstep_listen {mark:032X} */ COALESCE({looks}{wait}) AS heard");
    Statement { text, parameters }
}

fn door(mark: u128) -> String {
    format!("lockstep-door-{mark:032X}")
}

fn literal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("x'"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }) + "'"
}

/// Whether a waiting statement of ours can be found and interrupted from a connection of the pool.
/// A proxy may send the two to different servers, or lend the session to somebody else.
pub(super) async fn hears_itself(
    settings: &Settings,
    connections: &Connections,
) -> Result<bool, StoreError> {
    let mark = Uuid::new_v4().as_u128();
    let mut line = Line::open(settings, connections, mark).await?;
    let mut waiting = pin!(line.hear(listening(mark, &[])));
    let deadline = Instant::now() + SELF_TEST;
    let heard = loop {
        match timeout(Duration::from_millis(2), &mut waiting).await {
            Ok(heard) => break matches!(heard?, Heard::Interrupted),
            Err(_) if Instant::now() >= deadline => break false,
            Err(_) => {}
        }
        connections.ask("CALL lockstep_wake_v1(?)", (format!("{mark:032X},"),)).await?;
    };
    connections.ask("DO RELEASE_LOCK(?)", (door(mark),)).await?;
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_asks_for_each_key_once_and_for_every_claim() {
        let until = Instant::now();
        let wait = |key: &str| Wait {
            key: key.to_owned(),
            whole: true,
            until,
            asking: false,
            heard: None,
        };
        let waiting = [(ClaimId::from_u128(1), wait("/a")), (ClaimId::from_u128(2), wait("/a"))];
        let waiting: Vec<_> = waiting.iter().map(|(claim, wait)| (claim, wait)).collect();
        let (one, two) = ("0".repeat(31) + "1", "0".repeat(31) + "2");
        let which = format!("lock_key IN (x'2f61') AND claim IN (x'{one}',x'{two}')");
        let Statement { text, parameters } = listening(10, &waiting);
        assert!(text.contains(&which) && parameters.is_empty(), "{text}");
        assert!(
            text.contains(&format!("GET_LOCK('lockstep-door-{}A', 3)", "0".repeat(31))),
            "{text}"
        );
    }
}
