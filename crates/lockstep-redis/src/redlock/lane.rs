//! One lane: a connection to every node, and what the verbs have in common.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use lockstep_core::time::Clock;
use lockstep_core::{Effect, ErrorKind, Key, StoreError};
use lockstep_lock::Inbox;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::store::Hold;
use tokio::task::AbortHandle;

use super::arithmetic::quorum;
use super::config::{Redlock, STORE, Settings};
use super::nodes::{Member, Shared};
use crate::error;
use crate::plain::node::Lease;

/// How often the nodes' clocks are read when nobody asks for anything.
const BEAT: Duration = Duration::from_secs(2);
/// How long a node has to answer however short the lease is.
const LEAST: Duration = Duration::from_millis(100);
/// How long opening waits for the slowest node, if the others are a quorum.
const OPENING: Duration = Duration::from_millis(800);

pub(super) struct Lane {
    pub(super) config: Arc<Settings>,
    pub(super) shared: Arc<Shared>,
    pub(super) members: Vec<Arc<Member>>,
    pub(super) inbox: Option<Inbox>,
    beat: Option<AbortHandle>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(beat) = &self.beat {
            beat.abort();
        }
    }
}

impl Lane {
    /// Connects to all nodes; a quorum must be there.
    pub(super) async fn open(store: &Redlock, inbox: Option<Inbox>) -> Result<Self, StoreError> {
        let (config, shared) = (Arc::clone(&store.config), Arc::clone(&store.shared));
        let nodes = config.nodes.iter().enumerate();
        let members: Vec<Arc<Member>> =
            nodes.map(|(n, node)| Member::open(n, node, &shared, inbox.is_some())).collect();
        let mut lane = Self { config, shared, members, inbox, beat: None };
        lane.reach().await?;
        if lane.inbox.is_some() {
            let members = lane.members.clone();
            lane.beat = Some(tokio::spawn(watch_clocks(members)).abort_handle());
        }
        Ok(lane)
    }

    /// Waits for all nodes, but for the slow ones only if the quick ones are too few.
    async fn reach(&self) -> Result<(), StoreError> {
        let dial = |member: &Arc<Member>| {
            let member = Arc::clone(member);
            async move { (member.index, member.node.link.reached().await) }
        };
        let mut dials: FuturesUnordered<_> = self.members.iter().map(dial).collect();
        let grace = tokio::time::sleep(OPENING);
        tokio::pin!(grace);
        let (mut reached, mut late, mut failed) = (0, false, vec![]);
        while !late || reached < self.quorum() {
            tokio::select! {
                dialed = dials.next() => match dialed {
                    Some((_, Ok(()))) => reached += 1,
                    Some((node, Err(error))) => failed.push((node, error)),
                    None => break,
                },
                () = &mut grace, if !late => late = true,
            }
        }
        if reached >= self.quorum() {
            return Ok(());
        }
        // What a person must settle is not hidden behind what may pass.
        let lasting = failed.iter().find(|(_, error)| !error.may_retry());
        let kind = lasting.map_or(ErrorKind::Unavailable, |(_, error)| error.kind());
        let void = failed.iter().map(|(node, error)| (*node, error::words(error)));
        Err(StoreError::new(STORE, kind, Effect::None, self.no_quorum(void)))
    }

    pub(super) fn quorum(&self) -> usize {
        quorum(self.members.len())
    }

    pub(super) fn key(&self, name: &Key) -> String {
        format!("{}{name}", self.config.prefix)
    }

    /// The same key and the same value on every node.
    pub(super) fn lease(&self, hold: &Hold) -> Arc<Lease> {
        Arc::new(Lease { key: self.key(&hold.key), value: hold.id.to_string(), ttl: hold.ttl })
    }

    /// How long a node is waited for: not so long that the lease is spent. A very short lease may be; then the
    /// round finds that too little of it is left.
    pub(super) fn patience(&self, ttl: Duration) -> Duration {
        self.config.node_timeout.min(LEAST.max(ttl / 3))
    }

    /// Why there is no quorum, by name.
    pub(super) fn no_quorum(&self, void: impl IntoIterator<Item = (usize, String)>) -> String {
        let named = |(node, why): (usize, String)| {
            let address = &self.members[node].address;
            if why.contains(address) { why } else { format!("{address}: {why}") }
        };
        let void: Vec<String> = void.into_iter().map(named).collect();
        let (needed, nodes) = (self.quorum(), self.members.len());
        format!("{needed} of {nodes} nodes must agree, and these do not count: {}", void.join("; "))
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let now = SystemClock.now();
        let nodes = self.members.len();
        let mut warnings = vec![];
        if nodes.is_multiple_of(2) {
            let fewer = nodes - 1;
            warnings.push(format!(
                "{nodes} nodes outlive no more losses than {fewer}: use an odd number"
            ));
        }
        for member in &self.members {
            let address = &member.address;
            if let Err(bar) = self.shared.counts(member.index, now) {
                warnings.push(format!("{address} does not count: {}", bar.told(now)));
            }
            let own = self.shared.warnings(member.index);
            warnings.extend(own.into_iter().map(|warning| format!("{address}: {warning}")));
        }
        warnings
    }
}

/// Reads the clocks of all nodes now and then: a jump is only seen by who knows where a clock was.
async fn watch_clocks(members: Vec<Arc<Member>>) {
    loop {
        tokio::time::sleep(BEAT).await;
        // Who does not answer has its connection replaced, and is asked then.
        join_all(members.iter().map(|member| member.read_clock())).await;
    }
}
