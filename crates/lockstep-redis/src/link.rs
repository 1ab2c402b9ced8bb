//! One connection that is always being kept up.
//!
//! A task dials again as soon as the connection is gone, whether or not somebody is asking, because
//! waiters must hear signals again. Requests are never repeated here: one that was under way when
//! the connection broke has an unknown outcome, and who asked decides.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockstep_core::retry::Backoff;
use lockstep_core::{Effect, ErrorKind, StoreError};
use redis::Value;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::config::Config;
use crate::error::{self, STORE};
use crate::hello;
use crate::line::{Line, Reply};
use crate::push::Ear;
use crate::words::Words;

/// How long a connection may take to be made, and an answer to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

const REDIAL: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };

/// A lane's connection, and whoever replaces it.
pub(crate) struct Link {
    address: String,
    state: watch::Receiver<State>,
    breaks: Arc<Breaks>,
    redialer: AbortHandle,
}

enum State {
    /// The first connection has number 1.
    Up { number: u64, line: Arc<Line> },
    /// The first try after a loss is under way: it is worth waiting for.
    Dialing,
    /// The last try failed, like this; the next follows by itself.
    Down(ErrorKind, String),
}

/// Which connections are known to be broken.
#[derive(Default)]
pub(crate) struct Breaks {
    highest: AtomicU64,
    rung: Notify,
}

/// Somebody who waits for an answer; dropped when it gives up.
struct Waiting<'a> {
    breaks: &'a Breaks,
    number: u64,
    since: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // A silent connection is given up as well: nothing tells it from one that a firewall has
        // forgotten, which would stay silent for a quarter of an hour. Less than all of the patience
        // counts, because the limit of who asks began to run a little before.
        if self.since.elapsed() > PATIENCE.mul_f64(0.9) {
            self.breaks.note(self.number);
        }
    }
}

/// What dialing takes.
pub(crate) struct Dialer {
    pub(crate) config: Arc<Config>,
    /// Where signals go.
    pub(crate) ear: Ear,
    /// Asked of every connection before it is used for anything.
    pub(crate) greet: Option<Greet>,
}

/// What is asked of a connection before it is used; an error is as if it had not been made.
pub(crate) type Greet =
    Arc<dyn Fn(Arc<Line>) -> BoxFuture<'static, Result<(), StoreError>> + Send + Sync>;

impl Link {
    /// Connects for the first time, on the current runtime.
    pub(crate) async fn open(dialer: Dialer) -> Result<Self, StoreError> {
        let breaks = Arc::new(Breaks::default());
        let line = dialer.dial(1, &breaks).await?;
        let address = dialer.config.address();
        let (tell, state) = watch::channel(State::Up { number: 1, line });
        let redialer =
            tokio::spawn(redial(dialer, Arc::clone(&breaks), tell, false)).abort_handle();
        Ok(Self { address, state, breaks, redialer })
    }

    /// Starts to connect, on the current runtime: a server that cannot be reached now is one that may be
    /// later.
    pub(crate) fn keep(dialer: Dialer) -> Self {
        let breaks = Arc::new(Breaks::default());
        // The first connection counts as broken before it was made.
        breaks.note(1);
        let address = dialer.config.address();
        let (tell, state) = watch::channel(State::Dialing);
        let redialer = tokio::spawn(redial(dialer, Arc::clone(&breaks), tell, true)).abort_handle();
        Self { address, state, breaks, redialer }
    }

    /// Whether there is a connection, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up { number, .. } if !self.breaks.has(*number))
    }

    /// Sends a command once. The server's refusals are answers, not errors. Who asks has a limit of its
    /// own, and a second timer for each request would be started and cancelled for nothing; for who has
    /// none, the line ends this after twice its patience.
    pub(crate) async fn call(&self, words: &dyn Words) -> Result<Value, StoreError> {
        let (number, reply) = match self.try_send(words) {
            Some(sent) => sent,
            None => {
                self.reached().await?;
                let gone = || self.unreachable("was reached again and lost at once");
                self.try_send(words).ok_or_else(gone)?
            }
        };
        let waiting = Waiting { breaks: &self.breaks, number, since: Instant::now() };
        let answer = reply.answer().await;
        // Whatever came, it has not given up.
        std::mem::forget(waiting);
        answer.map_err(|failure| {
            self.breaks.note(number);
            error::interrupted(failure, &self.address)
        })
    }

    /// Sends a command if there is a connection; its number is told as well.
    fn try_send(&self, words: &dyn Words) -> Option<(u64, Reply)> {
        match &*self.state.borrow() {
            State::Up { number, line } if !self.breaks.has(*number) => {
                Some((*number, line.send(words)?))
            }
            _ => None,
        }
    }

    /// Returns when there is a connection, or there could not be one.
    pub(crate) async fn reached(&self) -> Result<(), StoreError> {
        let settled = |state: &State| match state {
            State::Up { number, .. } => !self.breaks.has(*number),
            State::Dialing => false,
            State::Down(..) => true,
        };
        let mut state = self.state.clone();
        let outcome = tokio::time::timeout(PATIENCE, state.wait_for(settled)).await;
        match outcome.as_ref().map(|state| state.as_deref()) {
            Ok(Ok(State::Up { .. })) => Ok(()),
            Ok(Ok(State::Down(kind, message))) => {
                Err(StoreError::new(STORE, *kind, Effect::None, message))
            }
            Ok(Ok(State::Dialing)) | Err(_) => {
                Err(self.unreachable("has not been reached again yet"))
            }
            Ok(Err(_)) => Err(self.unreachable("cannot be reached: the runtime has ended")),
        }
    }

    fn unreachable(&self, why: &str) -> StoreError {
        let message = format!("{} {why}", self.address);
        StoreError::new(STORE, ErrorKind::Unavailable, Effect::None, message)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.redialer.abort();
    }
}

impl Breaks {
    pub(crate) fn note(&self, number: u64) {
        self.highest.fetch_max(number, Ordering::AcqRel);
        self.rung.notify_one();
    }

    fn has(&self, number: u64) -> bool {
        number <= self.highest.load(Ordering::Acquire)
    }
}

impl Dialer {
    async fn dial(&self, number: u64, breaks: &Arc<Breaks>) -> Result<Arc<Line>, StoreError> {
        let password = self.config.password()?;
        let made = hello::connect(&self.config, password.as_deref(), &self.ear);
        let made = tokio::time::timeout(PATIENCE, made).await;
        let made = made.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        let socket = made.map_err(|error| {
            error::unreachable(error, &self.config.address(), password.as_deref())
        })?;
        let breaks = Arc::clone(breaks);
        let line =
            Arc::new(Line::start(socket, self.ear.clone(), PATIENCE, move || breaks.note(number)));
        if let Some(greet) = &self.greet {
            greet(Arc::clone(&line)).await?;
        }
        Ok(line)
    }
}

/// Replaces each broken connection; ends with the link. `first`: there was none before.
async fn redial(dialer: Dialer, breaks: Arc<Breaks>, tell: watch::Sender<State>, mut first: bool) {
    let mut number = 1;
    loop {
        while !breaks.has(number) {
            breaks.rung.notified().await;
        }
        tracing::debug!(address = dialer.config.address(), "connection to Redis lost");
        tell.send_replace(State::Dialing);
        let mut tries = 0;
        let line = loop {
            number += 1;
            match dialer.dial(number, &breaks).await {
                Ok(line) => break line,
                Err(error) => {
                    tries += 1;
                    tracing::debug!(tries, %error, "Redis not reached");
                    tell.send_replace(State::Down(error.kind(), error::words(&error)));
                    let random = Uuid::new_v4().as_u128() as u64;
                    tokio::time::sleep(REDIAL.delay(tries, random)).await;
                }
            }
        };
        tell.send_replace(State::Up { number, line });
        // Before the first connection there was nothing to be heard.
        if !std::mem::take(&mut first) {
            dialer.ear.missed();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::frame;

    /// Takes connections, is polite to each, and says nothing after that.
    async fn serve_silence(listener: TcpListener) {
        let mut kept = vec![];
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![];
            for _ in ["HELLO", "LIB-NAME", "LIB-VER"] {
                let length = loop {
                    match frame::first(&bytes).expect("a command") {
                        Some((_, length)) => break length,
                        None => stream.read_buf(&mut bytes).await.expect("a client"),
                    };
                };
                bytes.drain(..length);
                stream.write_all(b"+OK\r\n").await.expect("a client");
            }
            kept.push(stream);
        }
    }

    #[tokio::test]
    async fn who_has_waited_long_enough_gives_the_connection_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("its address"));
        tokio::spawn(serve_silence(listener));
        let config = Arc::new(Config::from_url(&url).expect("a URL"));
        let link =
            Link::open(Dialer { config, ear: Ear::Deaf, greet: None }).await.expect("a link");
        let first = |state: &State| matches!(state, State::Up { number: 1, .. });
        let ask = async |patience: Duration| {
            let ping = redis::cmd("PING");
            let answer = tokio::time::timeout(patience, link.call(&ping)).await;
            assert!(answer.is_err(), "it said something");
        };
        ask(PATIENCE / 10).await;
        assert!(link.is_up() && first(&link.state.borrow()), "others may be more patient");
        ask(PATIENCE).await;
        assert!(!link.is_up() || !first(&link.state.borrow()), "nothing is asked there any more");
    }
}
