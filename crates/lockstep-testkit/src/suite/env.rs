//! What a case has to work with.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockstep_core::Key;
use lockstep_core::time::{Clock, Moment};
use lockstep_lock::clock::SystemClock;
use lockstep_lock::store::{Connect, LockStore, LockView, Query};
use lockstep_lock::{Guard, Locks, Options, StoreFacts};
use serde::{Deserialize, Serialize};

use super::case::{Case, Fact};
use super::client::Client;
use super::subject::Subject;
use crate::oracle::{Oracle, Verdict};
use crate::wrap::{Counting, FailingVerbs, NoisySignals, SilentSignals, Waiters};

/// A lease that does not end while a case runs.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A lease that renewals keep alive also on a machine that stands still for a second and a half.
pub(crate) const STEADY: Duration = Duration::from_secs(3);
/// A lease that is meant to end.
pub(crate) const SHORT: Duration = Duration::from_millis(200);
/// How long anything may take that shall come at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the handles of a case hear from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signals {
    /// What the store sends.
    AsTheyCome,
    /// Nothing.
    Silent,
    /// What the store sends, and nonsense all the time.
    Noisy,
}

impl fmt::Display for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsTheyCome => "",
            Self::Silent => " (no signals)",
            Self::Noisy => " (spurious signals)",
        })
    }
}

/// What the store says about itself.
pub(crate) async fn facts_of(subject: &Subject) -> StoreFacts {
    let lane = (subject.connect)().open(None).await;
    lane.unwrap_or_else(|error| panic!("{} cannot be opened: {error}", subject.name)).facts()
}

/// The surroundings of one run of one case.
#[derive(Clone)]
pub(crate) struct Env {
    pub(crate) subject: Subject,
    pub(crate) facts: StoreFacts,
    pub(crate) signals: Signals,
    prefix: String,
    /// Who waits through the handles of this run, where the store does not know.
    waiters: Option<Waiters>,
}

impl Env {
    pub(crate) fn new(
        subject: &Subject,
        facts: &StoreFacts,
        case: &Case,
        signals: &Signals,
    ) -> Self {
        Self::named(subject, facts, case.name, *signals)
    }

    pub(crate) fn named(
        subject: &Subject,
        facts: &StoreFacts,
        name: &str,
        signals: Signals,
    ) -> Self {
        let unique = lockstep_core::ClaimId::new().as_u128() as u32;
        let short: String = name.chars().take(40).collect();
        let prefix = format!("{short}-{unique:08x}/");
        let waiters = (!Fact::Particulars.is_claimed(facts)).then(Waiters::default);
        Self { subject: subject.clone(), facts: facts.clone(), signals, prefix, waiters }
    }

    /// Whether the store itself knows who holds and who waits. Elsewhere only a holder's claim can be
    /// seen, and a waiter leaves nothing at the store.
    pub(crate) fn knows_who(&self) -> bool {
        self.waiters.is_none()
    }

    /// Judges a history by what the store promises.
    pub(crate) fn judge(&self, oracle: &Oracle) -> Verdict {
        match self.facts.fair {
            true => oracle.check(),
            false => oracle.check_unfair(),
        }
    }

    /// What all names of this run start with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A name that no other run uses.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The same as a key.
    pub(crate) fn key(&self, name: &str) -> Key {
        Key::new(self.name(name)).expect("names of cases are short")
    }

    /// Another client, with this run's signals.
    pub(crate) fn connect(&self) -> Arc<dyn Connect> {
        let plain = (self.subject.connect)();
        let plain = match &self.waiters {
            Some(waiters) => waiters.watch(plain),
            None => plain,
        };
        match self.signals {
            Signals::AsTheyCome => plain,
            Signals::Silent => Arc::new(SilentSignals::new(plain)),
            Signals::Noisy => Arc::new(NoisySignals::new(plain)),
        }
    }

    /// Another handle; its leases are [`STEADY`].
    pub(crate) async fn locks(&self) -> Result<Locks> {
        Self::open(self.connect()).await
    }

    /// Another handle, and what it asks of the store.
    pub(crate) async fn counted(&self) -> Result<(Arc<Counting>, Locks)> {
        let counting = Arc::new(Counting::new(self.connect()));
        Ok((Arc::clone(&counting), Self::open(counting).await?))
    }

    /// Another handle, and a hand on the line to its store.
    pub(crate) async fn failing(&self) -> Result<(Arc<FailingVerbs>, Locks)> {
        let failing = Arc::new(FailingVerbs::new(self.connect()));
        Ok((Arc::clone(&failing), Self::open(failing).await?))
    }

    /// The same, and an operation has longer there than anybody waits for anything. And the name of a lock.
    pub(crate) async fn patient(&self) -> Result<(Arc<FailingVerbs>, Locks, String)> {
        let failing = Arc::new(FailingVerbs::new(self.connect()));
        let options = Options { op_timeout: PATIENCE * 10, ..Options::default() };
        let locks = Locks::open_with(failing.clone(), options).await?;
        Ok((failing, locks, self.name("patient")))
    }

    /// A handle on this connection; its leases are [`STEADY`].
    pub(crate) async fn open(connect: Arc<dyn Connect>) -> Result<Locks> {
        Ok(Locks::open_with(connect, Options::default()).await?.with_ttl(STEADY))
    }

    /// Another client that speaks in verbs.
    pub(crate) async fn client(&self) -> Result<Client> {
        Client::open((self.subject.connect)()).await
    }

    /// Somebody who looks at the store and touches nothing.
    pub(crate) async fn observer(&self) -> Result<Observer> {
        let store = (self.subject.connect)().open(None).await?;
        Ok(Observer { store, waiters: self.waiters.clone() })
    }
}

/// Looks at the store and touches nothing.
pub(crate) struct Observer {
    store: Arc<dyn LockStore>,
    waiters: Option<Waiters>,
}

impl Observer {
    pub(crate) async fn view(&self, key: &Key) -> Result<Option<LockView>> {
        let page = self.store.inspect(&Query::One(key.clone())).await?;
        anyhow::ensure!(page.locks.len() <= 1, "one lock was asked for: {page:?}");
        Ok(page.locks.into_iter().next())
    }

    /// The promise: a guard stops trusting itself before the store's lease ends.
    pub(crate) async fn sees_trust_end_before_the_lease(&self, guard: &Guard) -> Result<()> {
        let trusted_until = guard.trusted_until();
        let held = self.view(guard.key()).await?.and_then(|view| view.holders.into_iter().next());
        let left = held.filter(|holder| holder.token == guard.token()).map(|holder| holder.left);
        let lease_until = SystemClock.now() + left.unwrap_or_default();
        anyhow::ensure!(
            trusted_until < lease_until,
            "trusted {:?} longer than the lease",
            trusted_until.since(lease_until)
        );
        Ok(())
    }

    /// How many wait for the lock; where the store does not know, how many of this run's own handles do.
    pub(crate) async fn waiting(&self, key: &Key) -> Result<u64> {
        Ok(match &self.waiters {
            Some(waiters) => waiters.of(key),
            None => self.view(key).await?.map_or(0, |view| view.waiting),
        })
    }

    /// Waits until exactly this many wait for the lock.
    pub(crate) async fn sees_waiting(&self, key: &Key, count: u64) -> Result<()> {
        eventually(&format!("{count} wait for {key}"), || async {
            Ok((self.waiting(key).await? == count).then_some(()))
        })
        .await
    }

    /// Waits until nobody holds the lock or waits for it.
    pub(crate) async fn sees_nothing(&self, key: &Key) -> Result<()> {
        eventually(&format!("nobody has {key}"), || async {
            Ok(self.view(key).await?.is_none().then_some(()))
        })
        .await
    }
}

/// Asks again and again until there is an answer.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let give_up = SystemClock.now() + PATIENCE;
    // Short at first for those who are about to be right, longer then for the store's sake.
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(found) = ask().await? {
            return Ok(found);
        }
        if SystemClock.now() > give_up {
            bail!("did not come true within {PATIENCE:?}: {what}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// What must come, and soon enough; how soon is not the question.
pub(crate) async fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> Result<T> {
    let late = || format!("did not happen within {PATIENCE:?}: {what}");
    tokio::time::timeout(PATIENCE, future.into_future()).await.with_context(late)
}

/// What a scenario with a short lease has come to.
pub(crate) enum Run<T> {
    /// It was in time and can be judged.
    Judged(T),
    /// The machine stood still for so long that the lease ended for that reason alone.
    TooSlow,
}

/// Repeats a scenario that the machine was too slow for; `scenario` is told how often it ran.
pub(crate) async fn unless_slow<T, F>(mut scenario: impl FnMut(u32) -> F) -> Result<T>
where
    F: Future<Output = Result<Run<T>>>,
{
    for round in 0..20 {
        if let Run::Judged(verdict) = scenario(round).await? {
            return Ok(verdict);
        }
    }
    bail!("the machine was too slow for this twenty times in a row")
}

/// Measures time on the clock that leases are measured with.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Moment);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(SystemClock.now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        SystemClock.now().since(self.0)
    }
}

/// What is left of a lease of `ttl` if the store's clock may run a little faster than ours: no
/// grant to somebody else may come earlier than this after the ask.
pub(crate) fn at_least(ttl: Duration) -> Duration {
    lockstep_core::Drift::default().shorten(ttl)
}
