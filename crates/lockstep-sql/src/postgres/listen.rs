//! The one connection of a lane that listens, for as long as the lane lives.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::retry::Backoff;
use lockstep_core::{StoreError, Token};
use lockstep_lock::{Inbox, Signal};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client};
use uuid::Uuid;

use super::config::{self, OPERATION, Settings};
use super::error;

/// Between two looks whether a silent connection is alive. TCP finds a dead machine; this also
/// finds a dead proxy.
const PING: Duration = Duration::from_secs(10);

const RECONNECT: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };

/// What a lane says to itself to find out whether notifications arrive.
pub(super) const HELLO: &str = "hello";

/// Listens until it is dropped.
pub(super) struct Listener {
    ear: Arc<Ear>,
    task: JoinHandle<()>,
}

/// Where notifications go, and what it takes to listen again.
struct Ear {
    settings: Arc<Settings>,
    session: bool,
    channel: String,
    inbox: Inbox,
    heard_itself: Notify,
}

impl Listener {
    /// Listens when this returns. `session` as for [`Settings::connect`].
    pub(super) async fn start(
        settings: Arc<Settings>,
        session: bool,
        inbox: Inbox,
    ) -> Result<Self, StoreError> {
        // The functions know by the name whether holds end with this connection.
        let kind = if settings.bound { "lockstepb" } else { "lockstep" };
        let channel = format!("{kind}_{}", Uuid::new_v4().simple());
        let heard_itself = Notify::new();
        let ear = Arc::new(Ear { settings, session, channel, inbox, heard_itself });
        let line = ear.listen().await?;
        let task = tokio::spawn(Arc::clone(&ear).keep_listening(line));
        Ok(Self { ear, task })
    }

    /// The channel, which others write into the rows of locks.
    pub(super) fn channel(&self) -> &str {
        &self.ear.channel
    }

    /// Whether [`HELLO`], sent by somebody else, arrives in time.
    pub(super) async fn hears(&self, patience: Duration) -> bool {
        timeout(patience, self.ear.heard_itself.notified()).await.is_ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection that listens.
struct Line {
    client: Client,
    pump: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl Line {
    /// Returns when the connection is lost. Any error is taken for that: what remains is to
    /// connect again.
    async fn lost(&mut self) {
        loop {
            tokio::select! {
                _ = &mut self.pump => return,
                () = sleep(PING) => {
                    let alive = timeout(OPERATION, self.client.batch_execute("SELECT 1")).await;
                    if !matches!(alive, Ok(Ok(()))) {
                        return;
                    }
                }
            }
        }
    }
}

impl Ear {
    async fn listen(self: &Arc<Self>) -> Result<Line, StoreError> {
        let (client, connection) = self.settings.connect(self.session).await?;
        let line = Line { client, pump: tokio::spawn(Arc::clone(self).pump(connection)) };
        let mut listen = format!("LISTEN {}", self.channel);
        if self.settings.bound {
            // As long as this session has it, its holders live; see gone.sql.
            listen +=
                &format!("; SELECT pg_advisory_lock(hashtextextended('{}', 0))", self.channel);
        }
        timeout(OPERATION, line.client.batch_execute(&listen))
            .await
            .map_err(|_| error::no_answer())?
            .map_err(error::answered)?;
        Ok(line)
    }

    async fn keep_listening(self: Arc<Self>, mut line: Line) {
        loop {
            line.lost().await;
            drop(line);
            tracing::warn!(store = error::STORE, "lost the connection that listens");
            let mut tries = 0;
            line = loop {
                tries += 1;
                sleep(RECONNECT.delay(tries, Uuid::new_v4().as_u128() as u64)).await;
                match self.listen().await {
                    Ok(line) => break line,
                    Err(error) => tracing::debug!(%error, tries, "cannot listen yet"),
                }
            };
            tracing::info!(store = error::STORE, tries, "listening again");
            self.inbox.deliver(Signal::AskAllAgain);
        }
    }

    /// Drives the connection, and passes on what it hears.
    async fn pump(self: Arc<Self>, mut connection: config::Line) {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(note) = message {
                self.hear(note.channel(), note.payload());
            }
        }
    }

    fn hear(&self, channel: &str, payload: &str) {
        if channel != self.channel {
            // A pooler has lent us a session that still listens for somebody else.
        } else if payload == HELLO {
            self.heard_itself.notify_one();
        } else if let Some(signal) = parse(payload) {
            self.inbox.deliver(signal);
        } else {
            // Anyone with access to the database may write here.
            tracing::debug!(store = error::STORE, "a notification that is not ours");
        }
    }
}

/// `granted <claim> <token>` or `lost <claim> <reason>`.
fn parse(payload: &str) -> Option<Signal> {
    let (what, rest) = payload.split_once(' ')?;
    let (claim, rest) = rest.split_once(' ')?;
    let claim = claim.parse().ok()?;
    match what {
        "granted" => Some(Signal::Granted { claim, token: Some(Token::new(rest.parse().ok()?)) }),
        "lost" => Some(Signal::Lost { claim, reason: rest.to_owned() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use lockstep_core::ClaimId;

    use super::*;

    /// Behind a pooler a lane hears how another tests itself, and must not conclude that it hears
    /// itself.
    #[test]
    fn a_word_for_somebody_else_is_not_taken_for_ones_own() {
        let ear = Ear {
            settings: Arc::new(Settings::parse("postgres://host/database").unwrap()),
            session: false,
            channel: "lockstep_1".to_owned(),
            inbox: Inbox::new(),
            heard_itself: Notify::new(),
        };
        ear.hear("lockstep_2", HELLO);
        assert_eq!(ear.heard_itself.notified().now_or_never(), None);
        ear.hear("lockstep_1", HELLO);
        assert_eq!(ear.heard_itself.notified().now_or_never(), Some(()));
    }

    #[test]
    fn payloads_are_read_and_nonsense_is_not() {
        let claim = ClaimId::from_u128(7);
        assert_eq!(
            parse(&format!("granted {claim} 42")),
            Some(Signal::Granted { claim, token: Some(Token::new(42)) })
        );
        assert_eq!(
            parse(&format!("lost {claim} two  words")),
            Some(Signal::Lost { claim, reason: "two  words".to_owned() })
        );
        for nonsense in ["", "granted", "granted 7 42", "granted x y", "lost"] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
        assert_eq!(parse(&format!("granted {claim} -1")), None);
    }
}
