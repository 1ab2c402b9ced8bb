use std::fmt;
use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::BoxFuture;
use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::{Fencing, StoreFacts};
use serde::{Deserialize, Serialize};

use super::env::{Env, Signals};
use super::report::{Entry, Outcome};

/// After this long a case hangs: the slowest takes a tenth of it.
const LIMIT: Duration = Duration::from_secs(120);

/// What a store promises, and a case can back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// One holder at a time.
    Exclusive,
    /// Among all clients that its scope names.
    Scope,
    /// Asking again is asking for the same.
    Idempotent,
    /// A lease runs out by itself and is never brought back.
    Leases,
    /// Tokens grow.
    Fencing,
    /// Waiters are served in the order they came.
    Fair,
    /// Readers, and takers of permits, hold a lock together.
    Shared,
    /// Circles of waiters are found.
    Deadlocks,
    /// The store itself knows who holds and who waits: owner, label, since when.
    Particulars,
    /// A waiter is told at once.
    Push,
    /// The range of ttls.
    Ttl,
    /// Operators can take a lock away.
    Break,
    /// Operators see who holds and who waits.
    Inspect,
    /// Different names are different locks.
    Names,
    /// A dropped future leaves nothing behind.
    CancelSafe,
    /// Owners enter again.
    Reentry,
    /// Locks can be handed over.
    HandOver,
    /// Errors say what happened.
    Errors,
}

impl Fact {
    /// Every fact, in the order of the matrix.
    pub const ALL: [Self; 18] = [
        Self::Exclusive,
        Self::Scope,
        Self::Idempotent,
        Self::Leases,
        Self::Fencing,
        Self::Fair,
        Self::Shared,
        Self::Deadlocks,
        Self::Particulars,
        Self::Push,
        Self::Ttl,
        Self::Break,
        Self::Inspect,
        Self::Names,
        Self::CancelSafe,
        Self::Reentry,
        Self::HandOver,
        Self::Errors,
    ];

    /// What the store says about it; `None` if it does not claim it.
    pub fn claimed_as(self, facts: &StoreFacts) -> Option<String> {
        let yes = |claimed: bool| claimed.then(|| "yes".to_owned());
        match self {
            Self::Fencing if facts.fencing == Fencing::None => None,
            Self::Fencing => Some(facts.fencing.to_string()),
            Self::Scope => Some(facts.scope.to_string()),
            Self::Fair => yes(facts.fair),
            Self::Shared => yes(facts.shared),
            Self::Deadlocks => yes(facts.deadlocks),
            // Serving in order takes knowing who waits.
            Self::Particulars => yes(facts.fair),
            Self::Push => yes(facts.push),
            Self::HandOver => yes(facts.hands_over),
            Self::Ttl => Some(format!("{:?} to {:?}", facts.ttl_min, facts.ttl_max)),
            _ => yes(true),
        }
    }

    pub(crate) fn is_claimed(self, facts: &StoreFacts) -> bool {
        self.claimed_as(facts).is_some()
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exclusive => "exclusive",
            Self::Scope => "scope",
            Self::Idempotent => "idempotent",
            Self::Leases => "leases",
            Self::Fencing => "fencing",
            Self::Fair => "fair",
            Self::Shared => "shared",
            Self::Deadlocks => "deadlocks",
            Self::Particulars => "particulars",
            Self::Push => "push",
            Self::Ttl => "ttl",
            Self::Break => "break",
            Self::Inspect => "inspect",
            Self::Names => "names",
            Self::CancelSafe => "cancel safe",
            Self::Reentry => "re-entry",
            Self::HandOver => "hand-over",
            Self::Errors => "errors",
        })
    }
}

/// One case: runs only where the store claims all that it backs.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) backs: &'static [Fact],
    pub(crate) level: Level,
    pub(crate) run: fn(Env) -> BoxFuture<'static, Result<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Asks the store directly.
    Verbs,
    /// Through a handle, whatever its signals do.
    Handle,
    /// Through a handle, and about its signals: only as the store sends them.
    Signals,
}

/// A list of cases of one level: the name of each is the name of its function.
macro_rules! cases {
    ($level:ident: $($run:ident backs $($fact:ident)+;)+) => {
        pub(in crate::suite) const CASES: &[$crate::suite::case::Case] = &[$(
            $crate::suite::case::Case {
                name: stringify!($run),
                backs: &[$($crate::suite::case::Fact::$fact),+],
                level: $crate::suite::case::Level::$level,
                run: |env| Box::pin($run(env)),
            },
        )+];
    };
}
pub(crate) use cases;

impl Case {
    /// Under which signals it runs.
    pub(crate) fn signals(&self) -> &'static [Signals] {
        match self.level {
            Level::Verbs | Level::Signals => &[Signals::AsTheyCome],
            Level::Handle => &[Signals::AsTheyCome, Signals::Silent, Signals::Noisy],
        }
    }

    pub(crate) async fn run(&self, env: Env, signals: &Signals) -> Entry {
        let (outcome, took) = judged((self.run)(env)).await;
        Entry::new(self.name, *signals, self.backs, outcome, took)
    }
}

/// Runs something that may fail, panic or hang.
pub(crate) async fn judged(
    work: impl Future<Output = Result<()>> + Send + 'static,
) -> (Outcome, Duration) {
    let started = SystemClock.now();
    let task = tokio::spawn(work);
    let abort = task.abort_handle();
    let outcome = match tokio::time::timeout(LIMIT, task).await {
        Ok(Ok(Ok(()))) => Outcome::Passed,
        Ok(Ok(Err(error))) => Outcome::Failed(format!("{error:#}")),
        Ok(Err(error)) => Outcome::Failed(match error.try_into_panic() {
            Ok(panic) => panic_text(&*panic),
            Err(error) => error.to_string(),
        }),
        Err(_) => {
            abort.abort();
            Outcome::Failed(format!("hangs: not done within {LIMIT:?}"))
        }
    };
    (outcome, SystemClock.now().since(started))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("panicked").to_owned()
}
