use std::sync::Arc;

use anyhow::Result;
use futures_util::future::BoxFuture;
use lockstep_lock::store::Connect;

use super::case::Fact;

pub(crate) type OrphanCheck =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<String>>> + Send + Sync>;

/// A store under test, and what a test needs to know to use it.
#[derive(Clone)]
pub struct Subject {
    pub(crate) name: String,
    pub(crate) connect: Arc<dyn Fn() -> Arc<dyn Connect> + Send + Sync>,
    pub(crate) processes: Option<Processes>,
    pub(crate) orphans: Option<OrphanCheck>,
    pub(crate) parallel: usize,
    pub(crate) tells_of_breaks: bool,
    pub(crate) lacks: Vec<Fact>,
}

/// How other processes come to the same store.
#[derive(Clone)]
pub(crate) struct Processes {
    pub(crate) url: String,
    pub(crate) test: &'static str,
}

impl Subject {
    /// A store; every call of `connect` is another client of it.
    pub fn new(
        name: impl Into<String>,
        connect: impl Fn() -> Arc<dyn Connect> + Send + Sync + 'static,
    ) -> Self {
        let (name, connect) = (name.into(), Arc::new(connect));
        Self {
            name,
            connect,
            processes: None,
            orphans: None,
            parallel: 8,
            tells_of_breaks: true,
            lacks: vec![],
        }
    }

    /// The test binary has a test named `test` that calls
    /// [`child::act`](crate::stories::child::act), which reaches the same store at `url`. A store
    /// whose scope is wider than one process needs this.
    #[must_use]
    pub fn with_processes(mut self, url: impl Into<String>, test: &'static str) -> Self {
        self.processes = Some(Processes { url: url.into(), test });
        self
    }

    /// Looks into the store itself for what would stay for ever: keys without an expiry, rows
    /// without a lease. Returns their names.
    #[must_use]
    pub fn with_orphan_check(
        mut self,
        check: impl Fn() -> BoxFuture<'static, Result<Vec<String>>> + Send + Sync + 'static,
    ) -> Self {
        self.orphans = Some(Arc::new(check));
        self
    }

    /// How many cases may run at once; each has a few connections of its own. 8 unless told.
    #[must_use]
    pub fn with_parallel(mut self, cases: usize) -> Self {
        self.parallel = cases;
        self
    }

    /// What this store does not claim, and suite and stories therefore do not try. A store that stops claiming
    /// anything else would otherwise pass with fewer cases.
    #[must_use]
    pub fn without(mut self, facts: &[Fact]) -> Self {
        self.lacks.extend(facts);
        self
    }

    /// The store pushes grants, but who is broken at once hears of it at its next renewal.
    #[must_use]
    pub fn with_breaks_heard_late(mut self) -> Self {
        self.tells_of_breaks = false;
        self
    }
}
