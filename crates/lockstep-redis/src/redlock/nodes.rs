//! The nodes: what a handle knows of each, and a connection to each.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::join;
use lockstep_core::StoreError;
use lockstep_core::time::{Clock, Moment};
use lockstep_lock::clock::SystemClock;
use parking_lot::Mutex;
use redis::Cmd;

use super::debts::{self, Debts};
use super::earlier::Earlier;
use super::greeting;
use super::renewing::Renewing;
use super::round::Vote;
use super::standing::{Bar, Greeting, Reading, Rules, Standing};
use super::waiters::Waiters;
use crate::config::Config;
use crate::error;
use crate::link::{Dialer, Greet};
use crate::plain::node::{Lease, Node, Taken};
use crate::push::{Changed, Changes, Ear};

/// A clock that was read longer ago is read again along with the next ask. What is asked more often than
/// this pays for the watch with a few per cent, and what is not with a few bytes more on the way.
const FRESH: Duration = Duration::from_millis(10);

/// What all lanes of one handle know.
pub(super) struct Shared {
    nodes: Vec<Mutex<Known>>,
    debts: Vec<Debts>,
    pub(super) waiters: Arc<Waiters>,
    pub(super) renewing: Renewing,
}

struct Known {
    standing: Standing,
    /// What is worth knowing about the server itself.
    warnings: Vec<String>,
}

impl Shared {
    pub(super) fn new(nodes: usize, rules: Rules) -> Self {
        let known = || Mutex::new(Known { standing: Standing::new(rules), warnings: vec![] });
        Self {
            nodes: (0..nodes).map(|_| known()).collect(),
            debts: (0..nodes).map(|_| Debts::default()).collect(),
            waiters: Arc::new(Waiters::new(nodes)),
            renewing: Renewing::default(),
        }
    }

    fn greeted(&self, node: usize, greeting: &Greeting, warnings: Vec<String>) {
        {
            let mut known = self.nodes[node].lock();
            known.standing.greeted(greeting);
            known.warnings = warnings;
        }
        // Two names of one server would make one vote two.
        let run = |node: &Mutex<Known>| node.lock().standing.run_id().map(str::to_owned);
        let runs: Vec<Option<String>> = self.nodes.iter().map(run).collect();
        for (at, node) in self.nodes.iter().enumerate() {
            node.lock().standing.set_twin(runs[at].is_some() && runs[..at].contains(&runs[at]));
        }
    }

    /// Whether the node's answer to what was sent at `sent_at` counts.
    pub(super) fn counts(&self, node: usize, sent_at: Moment) -> Result<(), Bar> {
        self.nodes[node].lock().standing.counts(sent_at)
    }

    fn clock_read(&self, node: usize, address: &str, reading: Reading) {
        if let Some(by) = self.nodes[node].lock().standing.clock_read(reading) {
            tracing::warn!(node = address, micros = by, "a node's clock jumped");
        }
    }

    fn clock_is_old(&self, node: usize, now: Moment) -> bool {
        let read_at = self.nodes[node].lock().standing.clock_read_at();
        read_at.is_none_or(|read_at| now.since(read_at) > FRESH)
    }

    pub(super) fn warnings(&self, node: usize) -> Vec<String> {
        self.nodes[node].lock().warnings.clone()
    }
}

/// One lane's connection to one node.
pub(super) struct Member {
    pub(super) index: usize,
    pub(super) address: String,
    pub(super) node: Node,
    /// The connections before this one.
    pub(super) earlier: Arc<Earlier>,
    shared: Arc<Shared>,
    told: Option<Arc<AtomicBool>>,
}

/// What every node is asked.
pub(super) struct Ask {
    pub(super) lease: Arc<Lease>,
    pub(super) call: Cmd,
}

/// A node's answer.
pub(super) struct Ballot {
    pub(super) node: usize,
    pub(super) vote: Vote,
}

impl Member {
    /// Starts to connect. With `listen`, it tells of keys that change.
    pub(super) fn open(
        index: usize,
        config: &Arc<Config>,
        shared: &Arc<Shared>,
        listen: bool,
    ) -> Arc<Self> {
        let address = config.address();
        let mut told = None;
        let ear = match listen {
            false => Ear::Deaf,
            true => {
                let waiters = Arc::clone(&shared.waiters);
                let agreed = Arc::new(AtomicBool::new(false));
                told = Some(Arc::clone(&agreed));
                let hear = Arc::new(move |changed: Changed<'_>| {
                    waiters.changed(index, changed);
                });
                // What this lane releases itself, it tells the waiters itself.
                Ear::Changes(Changes { hear, told: agreed, own: false })
            }
        };
        let earlier = Arc::<Earlier>::default();
        let (knows, named, replaced) = (Arc::clone(shared), address.clone(), Arc::clone(&earlier));
        let greet: Greet = Arc::new(move |line| {
            let (knows, named, replaced) =
                (Arc::clone(&knows), named.clone(), Arc::clone(&replaced));
            Box::pin(async move {
                let (greeting, warnings) = greeting::ask(&line, &named).await?;
                replaced.replace(&line, &greeting.run_id, &named).await?;
                knows.greeted(index, &greeting, warnings);
                Ok(())
            })
        });
        let node = Node::keep(Dialer { config: Arc::clone(config), ear, greet: Some(greet) });
        Arc::new(Self { index, address, node, earlier, shared: Arc::clone(shared), told })
    }

    /// Whether it has agreed to tell of changes.
    pub(super) fn tells(&self) -> bool {
        self.told.as_ref().is_none_or(|told| told.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// What it owes, to whichever lane.
    pub(super) fn debts(&self) -> &Debts {
        &self.shared.debts[self.index]
    }

    /// Asks it for the key.
    pub(super) async fn vote(self: Arc<Self>, ask: Arc<Ask>, asked_at: Moment) -> Ballot {
        let Ask { lease, call } = &*ask;
        let node = self.index;
        let owes = self.debts().owes(&lease.value);
        let taken = if self.shared.clock_is_old(self.index, asked_at) {
            // Along with the ask, and before it: what it grants now, it grants by this clock.
            match join(self.read_clock(), self.node.set_free(lease, call)).await {
                (Ok(()), taken) => taken,
                (Err(error), _) => Err(error),
            }
        } else {
            self.node.set_free(lease, call).await
        };
        let vote = match taken {
            Err(error) => Vote::Void(error::words(&error)),
            Ok(Taken::Mine) if owes => Vote::Void(debts::OWES.into()),
            // Looked at after the answer: whatever connection brought it has been greeted by now.
            Ok(Taken::Mine) => match self.shared.counts(self.index, asked_at) {
                Ok(()) => Vote::Granted,
                Err(bar) => Vote::Void(bar.told(SystemClock.now())),
            },
            Ok(Taken::Others { left, value }) => {
                Vote::Refused { left: left.unwrap_or(Duration::MAX), by: hash(&value) }
            }
            Ok(Taken::Broken { reason }) => Vote::Broken(reason),
        };
        Ballot { node, vote }
    }

    /// Gives back, and tells those who wait in this handle.
    pub(super) async fn give_back(&self, lease: &Lease) -> Result<bool, StoreError> {
        let done = self.node.give_back(&lease.key, &lease.value).await;
        if done.as_ref().is_ok_and(|done| *done) {
            self.shared.waiters.changed(self.index, Changed::Key(lease.key.as_bytes()));
        }
        done
    }

    /// Gives back in the background, now and, if it does not answer, again until the lease has ended.
    pub(super) fn give_back_later(self: &Arc<Self>, lease: &Arc<Lease>) {
        if self.debts().owe(&lease.value) {
            let (member, lease) = (Arc::clone(self), Arc::clone(lease));
            let until = SystemClock.now() + lease.ttl;
            tokio::spawn(async move { member.debts().pay(&member, &lease, until).await });
        }
    }

    /// Reads its clock.
    pub(super) async fn read_clock(&self) -> Result<(), StoreError> {
        let asked_at = SystemClock.now();
        let told = self.node.link.call(&redis::cmd("TIME")).await?;
        match greeting::reading(asked_at, &told) {
            Some(reading) => {
                self.shared.clock_read(self.index, &self.address, reading);
                Ok(())
            }
            None => Err(error::baffled("TIME", told)),
        }
    }
}

fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
