//! What all lanes of one handle share: a thread with a runtime of its own, the sessions that live on
//! it, and the book of what belongs to them. A busy executor cannot starve it, and a session's news
//! are acted upon where they arrive.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lockstep_core::time::Clock;
use lockstep_core::{ClaimId, Effect, ErrorKind, StoreError};
use lockstep_lock::clock::SystemClock;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::book::Book;
use crate::client::wire::{Code, Op};
use crate::client::{Ears, Failure, News, Session};
use crate::config::Config;
use crate::error::{self, STORE};
use crate::park;

/// A session outlives its client by this many times the longest ttl it serves: decision 15.
pub(crate) const SESSION_PER_TTL: u32 = 2;
/// And by no less than this: a server or a network that stands still for a moment must not cost every
/// lock.
const SESSION_MIN: Duration = Duration::from_secs(4);
/// A session that lives longer than this many times what is needed is not shared: who dies should be
/// missed soon.
const SESSION_SHARED: u32 = 4;

/// A server takes the requests of one connection one by one. So a handle that has this many under way
/// opens another session, up to this many for one length.
const CROWDED: usize = 16;
const SESSIONS_MAX: usize = 4;

/// Timers stop while the machine sleeps, and leases do not.
const SLICE: Duration = Duration::from_millis(500);
/// How long the thread waits for its sessions to say goodbye.
const PARTING: Duration = Duration::from_secs(1);

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Engine {
    pub(crate) config: Arc<Config>,
    pub(crate) book: Mutex<Book>,
    /// Rung when the book's first deadline may have changed.
    pub(crate) due: Arc<Notify>,
    /// The longest session that the servers grant.
    pub(crate) longest: Duration,
    sessions: Mutex<Vec<(Duration, Session)>>,
    jobs: mpsc::UnboundedSender<Job>,
    serials: AtomicU64,
    myself: Weak<Engine>,
}

impl Engine {
    /// Starts the thread and looks at the servers once.
    pub(crate) async fn start(config: Arc<Config>) -> Result<Arc<Self>, StoreError> {
        let jobs = start_thread()?;
        let longest = probe(&config, &jobs).await?;
        let engine = Arc::new_cyclic(|myself| Self {
            config,
            book: Mutex::default(),
            due: Arc::default(),
            longest,
            sessions: Mutex::default(),
            jobs,
            serials: AtomicU64::new(1),
            myself: Weak::clone(myself),
        });
        engine.run(end_what_lapses(Arc::downgrade(&engine), Arc::clone(&engine.due)));
        Ok(engine)
    }

    /// Runs something on the thread.
    pub(crate) fn run(&self, job: impl Future<Output = ()> + Send + 'static) {
        // The thread ends after the last engine.
        let _ = self.jobs.send(Box::pin(job));
    }

    pub(crate) fn share(&self) -> Weak<Engine> {
        Weak::clone(&self.myself)
    }

    /// A session that lives long enough for claims of this ttl: the one with the least to do.
    fn session_for(&self, ttl: Duration) -> Session {
        let need = (ttl * SESSION_PER_TTL).max(SESSION_MIN);
        let mut sessions = self.sessions.lock();
        sessions.retain(|(_, session)| !session.is_over());
        let fits = |timeout: Duration| need <= timeout && timeout <= need * SESSION_SHARED;
        let fitting = || sessions.iter().filter(|(timeout, _)| fits(*timeout));
        let ease = |(timeout, session): &&(Duration, Session)| {
            (!session.is_up(), session.under_way(), *timeout)
        };
        let best = fitting().min_by_key(ease).map(|(_, session)| session.clone());
        let crowded = best.as_ref().is_none_or(|best| best.under_way() >= CROWDED);
        // One that is being dialed may never come up, and says nothing about crowds.
        let enough = fitting().count() >= SESSIONS_MAX || fitting().any(|(_, it)| !it.is_up());
        if let Some(best) = best.clone().filter(|_| !crowded || enough) {
            return best;
        }
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let session = start_session(&self.config, &self.jobs, need, serial, self.ears());
        sessions.push((need, session.clone()));
        // A crowd does not wait for it.
        best.unwrap_or(session)
    }

    /// The session for a claim: the one that may have made a node for it, so that this is decided
    /// behind that request; otherwise any that lives long enough.
    pub(crate) fn session_of(&self, claim: ClaimId, ttl: Duration) -> Session {
        let unsure = self.book.lock().may_have_in(claim);
        unsure.filter(|session| !session.is_over()).unwrap_or_else(|| self.session_for(ttl))
    }

    /// Any session: for looking.
    pub(crate) fn any_session(&self) -> Session {
        let mut sessions = self.sessions.lock();
        sessions.retain(|(_, session)| !session.is_over());
        match sessions.first() {
            Some((_, session)) => session.clone(),
            None => {
                drop(sessions);
                self.session_for(Duration::ZERO)
            }
        }
    }

    fn ears(&self) -> Arc<dyn Ears> {
        Arc::new(Listener(Weak::clone(&self.myself)))
    }
}

/// Weak: a session must not keep the engine that keeps it.
struct Listener(Weak<Engine>);

impl Ears for Listener {
    fn hear(&self, session: u64, news: News) {
        if let Some(engine) = self.0.upgrade() {
            park::hear(&engine, session, news);
        }
    }
}

/// For the session that only asks what the servers grant.
struct Deaf;

impl Ears for Deaf {
    fn hear(&self, _: u64, _: News) {}
}

fn start_thread() -> Result<mpsc::UnboundedSender<Job>, StoreError> {
    let no_thread = |error: std::io::Error| {
        let message = format!("cannot start the thread that speaks to ZooKeeper: {error}");
        StoreError::new(STORE, ErrorKind::Busy, Effect::None, message)
    };
    let (jobs, mut inbox) = mpsc::unbounded_channel::<Job>();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    let work = async move {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                job = inbox.recv() => match job {
                    Some(job) => drop(tasks.spawn(job)),
                    None => break,
                },
                Some(_) = tasks.join_next() => {}
            }
        }
        let parting = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(PARTING, parting).await;
    };
    std::thread::Builder::new()
        .name("lockstep-zookeeper".into())
        .spawn(move || runtime.block_on(work))
        .map_err(no_thread)?;
    Ok(jobs)
}

fn start_session(
    config: &Config,
    jobs: &mpsc::UnboundedSender<Job>,
    timeout: Duration,
    serial: u64,
    ears: Arc<dyn Ears>,
) -> Session {
    let random = Uuid::new_v4().as_u128() as u64;
    let (session, work) = Session::new(config.setup(timeout), serial, random, ears);
    let _ = jobs.send(Box::pin(work));
    session
}

/// Asks for a session without end, to hear how long one may be, and whether the chroot is there.
async fn probe(config: &Config, jobs: &mpsc::UnboundedSender<Job>) -> Result<Duration, StoreError> {
    let endless = Duration::from_millis(i32::MAX as u64);
    let session = start_session(config, jobs, endless, 0, Arc::new(Deaf));
    let path = if config.chroot.is_empty() { "/" } else { &config.chroot };
    match session.call(Op::Exists { path: path.to_owned(), watch: false }).await {
        Ok(_) => {}
        Err(Failure::Refused(Code::NO_NODE)) => return Err(error::no_chroot(path)),
        Err(failure) => return Err(error::failed(failure, path)),
    }
    let (_, longest) = session.known().await.map_err(|failure| error::failed(failure, path))?;
    Ok(longest)
}

/// Deletes the nodes of claims that nobody has asked about for a whole ttl.
async fn end_what_lapses(engine: Weak<Engine>, due: Arc<Notify>) {
    while let Some(next) = engine.upgrade().map(|engine| park::end_lapsed(&engine)) {
        let left = next.since(SystemClock.now()).min(SLICE);
        tokio::select! {
            () = due.notified() => {}
            () = tokio::time::sleep(left) => {}
        }
    }
}
