//! The keeper: one thread per handle that renews what is held, ends trust in time and gives back
//! what dropped guards and cancelled requests leave behind. It has a runtime and a lane to the
//! store of its own, so that a busy executor cannot starve it.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockstep_core::time::{Clock, Moment};
use lockstep_core::{ClaimId, Drift, Effect, ErrorKind, Lease, StoreError};
use metrics::{counter, histogram};
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell, mpsc, watch};
use tokio::task::JoinSet;
use tracing::{Instrument, debug_span};

use crate::drive::{bounded, sleep_until};
use crate::error::LostCause;
use crate::renewals::{Change, Renewals, patience};
use crate::store::{Connect, Hold, LockStore, Release};

/// Connecting may try several addresses and a TLS handshake: it gets the time of this many operations.
pub(crate) const OPENING: u32 = 3;

/// What the guard and the keeper both see of one hold.
pub(crate) struct Trust {
    until: AtomicU64,
    /// It ends here whatever is renewed: the maximum hold.
    limit: Moment,
    lost: OnceCell<LostCause>,
    rung: Notify,
}

impl Trust {
    fn new(until: Moment, limit: Moment) -> Arc<Self> {
        let until = AtomicU64::new(until.as_nanos());
        Arc::new(Self { until, limit, lost: OnceCell::new(), rung: Notify::new() })
    }

    pub(crate) fn until(&self) -> Moment {
        Moment::from_nanos(self.until.load(Ordering::Acquire))
    }

    /// Why trust has ended, also if the clock has ended it and nobody has noticed yet.
    pub(crate) fn cause(&self) -> LostCause {
        // In this order: whoever ends it takes the time away last.
        let until = self.until();
        let by_the_clock =
            if until >= self.limit { LostCause::MaxHold } else { LostCause::Expired };
        self.lost.get().cloned().unwrap_or(by_the_clock)
    }

    /// Ends trust, once.
    pub(crate) fn end(&self, cause: LostCause) -> bool {
        let first = self.lost.set(cause).is_ok();
        if first {
            self.until.store(0, Ordering::Release);
            self.rung.notify_waiters();
        }
        first
    }

    /// Resolves when trust has ended. Cancel safe.
    pub(crate) async fn ended(&self) -> LostCause {
        loop {
            let rung = self.rung.notified();
            if let Some(cause) = self.lost.get() {
                return cause.clone();
            }
            rung.await;
        }
    }
}

/// The handle's side of the keeper; the thread ends when the last of these is gone and what was
/// left behind has been given back.
#[derive(Clone)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
}

struct Shared {
    store: &'static str,
    clock: Arc<dyn Clock>,
    drift: Drift,
    op_timeout: Duration,
    held: Mutex<Held>,
    changed: Notify,
    closing: Notify,
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct Held {
    renewals: Renewals,
    /// Of all claims that have a guard, also of those whose trust has ended.
    trusts: HashMap<ClaimId, Arc<Trust>>,
    /// What is being given back.
    returning: HashSet<ClaimId>,
    /// What is being adopted.
    adopting: HashSet<ClaimId>,
    /// When the thread will look again by itself; before its first look, nothing.
    wakes_at: Option<Moment>,
    closed: bool,
}

enum Order {
    GiveBack { hold: Hold, unsure: bool },
    Close,
}

/// How a keeper is set up.
pub(crate) struct Setup {
    pub(crate) store: &'static str,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) drift: Drift,
    pub(crate) op_timeout: Duration,
}

impl Keeper {
    pub(crate) fn start(connect: Arc<dyn Connect>, setup: Setup) -> Result<Self, StoreError> {
        let Setup { store, clock, drift, op_timeout } = setup;
        let (orders, inbox) = mpsc::unbounded_channel();
        let (held, changed, closing) = (Mutex::default(), Notify::new(), Notify::new());
        let ended = watch::Sender::new(false);
        let shared = Shared { store, clock, drift, op_timeout, held, changed, closing, ended };
        let shared = Arc::new(shared);
        let no_thread = |error: std::io::Error| {
            let message = format!("cannot start the thread that renews locks: {error}");
            StoreError::new(store, ErrorKind::Busy, Effect::None, message)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(no_thread)?;
        let lane = Arc::new(Lane { connect, store: OnceCell::new(), op_timeout });
        let (tasks, renewals) = (JoinSet::new(), JoinSet::new());
        let worker = Worker { shared: Arc::clone(&shared), lane, tasks, renewals };
        std::thread::Builder::new()
            .name("lockstep-keeper".into())
            .spawn(move || runtime.block_on(worker.run(inbox)))
            .map_err(no_thread)?;
        Ok(Self { shared, orders })
    }

    /// Takes a granted hold in; from here on it is renewed until [`forget`](Self::forget).
    pub(crate) fn keep(&self, hold: Hold, lease: Lease, limit: Moment) -> Arc<Trust> {
        let mut held = self.shared.held.lock();
        let id = hold.id;
        let trust = Trust::new(held.renewals.insert(hold, lease, limit), limit);
        if held.closed {
            held.renewals.remove(id);
            trust.end(LostCause::Closed);
        } else {
            held.trusts.insert(id, Arc::clone(&trust));
        }
        // To wake a thread costs more than all the rest of a free lock, and most holds are gone
        // again before anything is due.
        let in_time = held.wakes_at <= held.renewals.next();
        drop(held);
        if !in_time {
            self.shared.changed.notify_one();
        }
        trust
    }

    /// The right to make a guard for a claim that had one before. Nobody has it while there is one, while
    /// another adopts it, or while it is on its way back: the end of one guard would be the end of the
    /// other, and that one would not know.
    pub(crate) fn adopt(&self, id: ClaimId) -> Option<Adoption<'_>> {
        let mut held = self.shared.held.lock();
        let taken = held.trusts.contains_key(&id) || held.returning.contains(&id);
        let free = !taken && held.adopting.insert(id);
        free.then(|| Adoption { keeper: self, id })
    }

    /// No renewal of this claim is sent after this returns, except one that is already on its
    /// way, which the store ignores once the hold is gone.
    pub(crate) fn forget(&self, id: ClaimId) {
        let mut held = self.shared.held.lock();
        held.renewals.remove(id);
        held.trusts.remove(&id);
    }

    /// The same for a hold that the caller gives back itself; it says so when it [has](Self::returned). In
    /// one step: between two, it could be adopted.
    pub(crate) fn returns(&self, id: ClaimId) {
        let mut held = self.shared.held.lock();
        held.renewals.remove(id);
        held.trusts.remove(&id);
        held.returning.insert(id);
    }

    pub(crate) fn returned(&self, id: ClaimId) {
        self.shared.held.lock().returning.remove(&id);
    }

    /// Gives the hold or the place back in the background, for as long as the store may still
    /// have it, and renews it no more. `unsure`: a request for it may still be on its way and overtake the
    /// release.
    pub(crate) fn give_back(&self, hold: Hold, unsure: bool) {
        let id = hold.id;
        self.returns(id);
        // Once the handle is closed and all is given back, the thread has ended; the ttl does the rest.
        if self.orders.send(Order::GiveBack { hold, unsure }).is_err() {
            self.returned(id);
        }
    }

    /// The claims that are on their way back: whatever the store still has of them will end.
    pub(crate) fn returning(&self) -> HashSet<ClaimId> {
        self.shared.held.lock().returning.clone()
    }

    /// Ends trust in a hold that the store says it has taken away. Weak: an inbox that a store
    /// keeps must not keep the thread alive.
    pub(crate) fn on_broken(&self) -> impl Fn(ClaimId, String) + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move |id, reason| {
            if let Some(shared) = shared.upgrade() {
                shared.lose(id, LostCause::Broken(reason));
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.held.lock().closed
    }

    /// Resolves when the handle is closed. Cancel safe.
    pub(crate) async fn closed(&self) {
        loop {
            let closing = self.shared.closing.notified();
            if self.is_closed() {
                return;
            }
            closing.await;
        }
    }

    /// Ends every hold, gives everything back and stops the thread. A store that does not answer is not
    /// waited for until the last ttl has passed: the thread goes on trying by itself.
    pub(crate) async fn close(&self) {
        let ids: Vec<ClaimId> = {
            let mut held = self.shared.held.lock();
            held.closed = true;
            held.trusts.keys().copied().collect()
        };
        self.shared.closing.notify_waiters();
        for id in ids {
            let hold = self.shared.held.lock().renewals.remove(id);
            self.shared.lose(id, LostCause::Closed);
            if let Some(hold) = hold {
                self.give_back(hold, false);
            }
        }
        // Fails only when the thread has been told before; then its end is what is waited for.
        let _ = self.orders.send(Order::Close);
        let mut told = self.shared.ended.subscribe();
        let limit = self.shared.op_timeout * OPENING;
        if tokio::time::timeout(limit, told.wait_for(|ended| *ended)).await.is_err() {
            tracing::warn!(store = self.shared.store, "closed before the store has been told");
        }
    }
}

/// Somebody adopts; dropped when it is done or has given up.
pub(crate) struct Adoption<'a> {
    keeper: &'a Keeper,
    id: ClaimId,
}

impl Drop for Adoption<'_> {
    fn drop(&mut self) {
        self.keeper.shared.held.lock().adopting.remove(&self.id);
    }
}

impl Shared {
    fn lose(&self, id: ClaimId, cause: LostCause) {
        let mut held = self.held.lock();
        held.renewals.remove(id);
        let trust = held.trusts.get(&id).cloned();
        drop(held);
        if let Some(trust) = trust
            && trust.end(cause.clone())
            // Who closes its handle wants to.
            && cause != LostCause::Closed
        {
            counter!("lockstep_losses_total", "store" => self.store).increment(1);
            tracing::warn!(claim = %id, %cause, store = self.store, "lock lost");
        }
    }
}

/// The keeper's own lane, opened when first needed and after that kept.
struct Lane {
    connect: Arc<dyn Connect>,
    store: OnceCell<Arc<dyn LockStore>>,
    op_timeout: Duration,
}

impl Lane {
    async fn get(&self) -> Result<&Arc<dyn LockStore>, StoreError> {
        // As long as the other lane gets: a store that can be opened must also be renewed on.
        let limit = self.op_timeout * OPENING;
        let open = || bounded("keeper", limit, self.connect.open(None));
        self.store.get_or_try_init(open).await
    }
}

struct Worker {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    /// What is being given back.
    tasks: JoinSet<()>,
    renewals: JoinSet<()>,
}

impl Worker {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let lane = Arc::clone(&self.lane);
        // Opened ahead of the first renewal: by then the server may have no connection left.
        self.tasks.spawn(async move {
            if let Err(error) = lane.get().await {
                tracing::warn!(%error, "the lane for renewals is not open yet");
            }
        });
        loop {
            let next = self.tend();
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::GiveBack { hold, unsure }) => self.give_back(hold, unsure),
                    Some(Order::Close) | None => break,
                },
                () = self.shared.changed.notified() => {}
                () = sleep_until(&*self.shared.clock, next) => {}
                Some(_) = self.tasks.join_next() => {}
                Some(_) = self.renewals.join_next() => {}
            }
        }
        // Nothing is held any more, so what the store may still say to them tells nobody anything.
        self.renewals.abort_all();
        // What was dropped while the handle was being closed is given back as well.
        loop {
            tokio::select! {
                biased;
                Some(order) = orders.recv() => {
                    if let Order::GiveBack { hold, unsure } = order {
                        self.give_back(hold, unsure);
                    }
                }
                task = self.tasks.join_next() => if task.is_none() { break },
            }
        }
        self.shared.ended.send_replace(true);
    }

    /// Does what is due and says when to look again.
    fn tend(&mut self) -> Moment {
        let now = self.shared.clock.now();
        loop {
            let mut held = self.shared.held.lock();
            let ended = held.renewals.take_ended(now);
            let batch = held.renewals.take_due(now);
            let next = held.renewals.next().unwrap_or(Moment::MAX);
            held.wakes_at = Some(next);
            drop(held);
            for (id, cause) in ended {
                self.shared.lose(id, cause);
            }
            let Some((holds, late)) = batch else { return next };
            histogram!("lockstep_renewal_lateness_seconds", "store" => self.shared.store)
                .record(late.as_secs_f64());
            let span = debug_span!("renew", holds = holds.len(), late = ?late);
            let renewal = renew(Arc::clone(&self.shared), Arc::clone(&self.lane), now, holds);
            self.renewals.spawn(renewal.instrument(span));
        }
    }

    fn give_back(&mut self, hold: Hold, unsure: bool) {
        let (shared, lane) = (Arc::clone(&self.shared), Arc::clone(&self.lane));
        let span = debug_span!("release", key = %hold.key, claim = %hold.id);
        let released = async move {
            give_back(&shared, &lane, &hold).await;
            if unsure {
                // After one more operation's time, a request that was on its way has either
                // arrived or died, so nothing can be granted behind this second release.
                sleep_until(&*shared.clock, shared.clock.now() + shared.op_timeout).await;
                give_back(&shared, &lane, &hold).await;
            }
            shared.held.lock().returning.remove(&hold.id);
        };
        self.tasks.spawn(released.instrument(span));
    }
}

async fn renew(shared: Arc<Shared>, lane: Arc<Lane>, asked_at: Moment, holds: Vec<Hold>) {
    let answer = match lane.get().await {
        Ok(store) => {
            let verb = bounded(shared.store, shared.op_timeout, store.renew(&holds));
            let mut verb = pin!(verb);
            let patience = patience(&holds, shared.op_timeout);
            match tokio::time::timeout(patience, &mut verb).await {
                Ok(answer) => answer,
                // Too late to wait for this one alone.
                Err(_) => {
                    let now = shared.clock.now();
                    let left = shared.held.lock().renewals.failed(now, asked_at, &holds);
                    // With a short ttl this is all that is heard before the lock is lost.
                    if left > 0 {
                        tracing::warn!(
                            holds = left,
                            "no answer to a renewal yet; it is sent again"
                        );
                    }
                    shared.changed.notify_one();
                    verb.await
                }
            }
        }
        Err(error) => Err(error),
    };
    // Nothing is logged under the mutex, which every lock and every drop takes.
    let changes = match answer {
        Ok(answers) => {
            counter!("lockstep_renewals_total", "store" => shared.store)
                .increment(holds.len() as u64);
            let mut held = shared.held.lock();
            let now = shared.clock.now();
            let changes = held.renewals.answered(now, asked_at, &holds, answers, shared.drift);
            for change in &changes {
                if let Change::Extended(id, until) = change
                    && let Some(trust) = held.trusts.get(id)
                    && trust.lost.get().is_none()
                {
                    trust.until.store(until.as_nanos(), Ordering::Release);
                }
            }
            changes
        }
        Err(error) => {
            counter!("lockstep_renewal_errors_total", "store" => shared.store).increment(1);
            let now = shared.clock.now();
            let left = shared.held.lock().renewals.failed(now, asked_at, &holds);
            // Of what is gone, or was asked about again, nobody wants to hear.
            if left > 0 {
                tracing::warn!(%error, holds = left, "renewal failed; it is tried again");
            }
            vec![]
        }
    };
    for change in changes {
        match change {
            Change::Extended(..) => {}
            Change::Lost(id) => shared.lose(id, LostCause::Taken),
            Change::Broken(id, reason) => shared.lose(id, LostCause::Broken(reason)),
        }
    }
    shared.changed.notify_one();
}

/// Releases until the store has said so, or the lease must have ended by itself.
async fn give_back(shared: &Shared, lane: &Lane, hold: &Hold) {
    let give_up_at = shared.clock.now() + hold.ttl.max(shared.op_timeout);
    let what = Release::Mine(hold.clone());
    let mut pause = Duration::from_millis(50);
    loop {
        let released = match lane.get().await {
            Ok(store) => bounded(shared.store, shared.op_timeout, store.release(&what)).await,
            Err(error) => Err(error),
        };
        match released {
            Ok(_) => return,
            Err(error) if !error.may_retry() || shared.clock.now() >= give_up_at => {
                tracing::warn!(%error, key = %hold.key, "left to its ttl");
                return;
            }
            Err(_) => {}
        }
        sleep_until(&*shared.clock, shared.clock.now() + pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
