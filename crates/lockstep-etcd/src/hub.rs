//! What lanes see of the thread of a client: its leases, its book of claims, and orders to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::time::{Clock, Moment};
use lockstep_core::{ClaimId, Effect, ErrorKind, StoreError};
use lockstep_lock::Share;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::book::{Begun, Book};
use crate::config::Config;
use crate::error::{self, STORE};
use crate::link::{Link, PATIENCE};
use crate::look::Seen;
use crate::proto::{KeyValue, LeaseKeepAliveResponse, WatchResponse};
use crate::session::{Session, promised_for, seconds_for};
use crate::worker::Worker;

/// The lanes' side of the thread, which ends when the last of these is gone.
pub(crate) struct Hub {
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
}

/// What the thread and the lanes both see.
pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) book: Mutex<Book>,
    pub(crate) sessions: Mutex<HashMap<u64, Arc<Session>>>,
}

pub(crate) type Reply = oneshot::Sender<Result<Arc<Session>, StoreError>>;

/// What lanes want of the thread.
pub(crate) enum Order {
    /// A lease of so many seconds that etcd has promised until then.
    Session(u64, Moment, Reply),
    /// This lease is gone, and with it all its keys.
    Gone(Arc<Session>),
    /// This claim waits.
    Park(Parked),
    /// This claim holds, and what has happened to its key shall be heard.
    Heed(ClaimId),
    /// This claim needs nobody to listen any more.
    Unheed(ClaimId, Arc<[u8]>),
    /// Something is due earlier than the thread thinks.
    Wake,
}

/// A waiter, as it was told its place.
pub(crate) struct Parked {
    pub(crate) claim: ClaimId,
    pub(crate) line: Vec<u8>,
    pub(crate) entry: Vec<u8>,
    pub(crate) create: i64,
    pub(crate) share: Share,
    pub(crate) seen: Seen,
}

/// What the thread's own tasks tell it.
pub(crate) enum Heard {
    /// An answer to a keep-alive; `None`: the stream has ended.
    KeptAlive(u64, Option<LeaseKeepAliveResponse>),
    /// What happened to keys; `None`: the stream has ended.
    Watched(u64, Option<WatchResponse>),
    Opened(u64, Result<Session, StoreError>),
    Looked(ClaimId, Result<Seen, StoreError>),
    /// A claim's own key, as it is at this revision.
    Own(ClaimId, Result<(i64, Option<KeyValue>), StoreError>),
    /// The key of a claim whose time was over is gone; `false`: not known yet.
    Ended(ClaimId, bool),
}

impl Hub {
    pub(crate) fn start(
        config: &Arc<Config>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, StoreError> {
        let no_thread = |error: std::io::Error| {
            let message = format!("cannot start the thread that keeps leases: {error}");
            StoreError::new(STORE, ErrorKind::Busy, Effect::None, message)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(no_thread)?;
        let link = Link::at_home(Arc::clone(config), runtime.handle().clone());
        let (book, sessions) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { link, clock, book, sessions });
        let (orders, inbox) = mpsc::unbounded_channel();
        let worker = Worker::new(Arc::clone(&shared));
        std::thread::Builder::new()
            .name("lockstep-etcd".into())
            .spawn(move || runtime.block_on(worker.run(inbox)))
            .map_err(no_thread)?;
        Ok(Arc::new(Self { shared, orders }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn link(&self) -> &Link {
        &self.shared.link
    }

    pub(crate) fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    /// A lease that etcd has promised for long enough from now on for a claim of this ttl.
    pub(crate) async fn session(&self, ttl: Duration) -> Result<Arc<Session>, StoreError> {
        self.session_for(seconds_for(ttl), self.now() + promised_for(ttl)).await
    }

    /// A lease of so many seconds that etcd has promised until then.
    pub(crate) async fn session_for(
        &self,
        seconds: u64,
        until: Moment,
    ) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = self.shared.sessions.lock().get(&seconds)
            && session.lives_until(until)
        {
            return Ok(Arc::clone(session));
        }
        let (reply, answer) = oneshot::channel();
        self.send(Order::Session(seconds, until, reply));
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(session)) => session,
            _ => Err(error::unreachable("etcd has not confirmed this handle's lease in time")),
        }
    }

    /// etcd says that this lease is gone.
    pub(crate) fn session_gone(&self, session: &Arc<Session>) {
        session.die();
        self.send(Order::Gone(Arc::clone(session)));
    }

    /// Writes down that a claim is about to be asked for.
    pub(crate) fn begin(
        &self,
        claim: &lockstep_lock::store::Claim,
        line: &[u8],
        session: &Arc<Session>,
        inbox: Option<&lockstep_lock::Inbox>,
    ) -> (Begun, Arc<[u8]>) {
        let now = self.now();
        let mut book = self.shared.book.lock();
        let begun = book.begin(now, claim, line, session, inbox);
        let late = book.wakes_at.is_none_or(|at| book.next().is_some_and(|next| next < at));
        drop(book);
        if late {
            self.send(Order::Wake);
        }
        begun
    }

    pub(crate) fn park(&self, parked: Parked) {
        if let Some(claimed) = self.shared.book.lock().get_mut(parked.claim) {
            claimed.heeded = true;
        }
        self.send(Order::Park(parked));
    }

    /// The key of a hold is gone, and why may be known from its history.
    pub(crate) fn find_out(&self, claim: ClaimId) {
        let unheard = self.shared.book.lock().get(claim).is_some_and(|it| it.held && !it.heeded);
        if unheard {
            self.send(Order::Heed(claim));
        }
    }

    /// The claim is gone.
    pub(crate) fn forget(&self, claim: ClaimId) {
        let gone = self.shared.book.lock().remove(claim);
        if let Some(gone) = gone.filter(|gone| gone.heeded) {
            self.send(Order::Unheed(claim, gone.entry));
        }
    }

    fn send(&self, order: Order) {
        // Fails only when the thread has panicked; whoever waits for an answer then times out.
        let _ = self.orders.send(order);
    }
}

impl Shared {
    pub(crate) fn session_gone(&self, session: &Session) {
        session.die();
        let mut sessions = self.sessions.lock();
        if sessions.get(&session.seconds).is_some_and(|kept| kept.lease == session.lease) {
            sessions.remove(&session.seconds);
        }
    }
}
