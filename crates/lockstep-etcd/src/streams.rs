//! The two standing conversations with etcd: one that keeps leases alive, one that watches keys.
//! Each ends with its connection and is opened again when there is something to say.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use lockstep_core::ClaimId;
use lockstep_core::time::Moment;
use prost::Message;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::hub::{Heard, Shared};
use crate::proto::{
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, WatchCancelRequest, WatchCreateRequest,
    WatchOrder, WatchRequest, WatchResponse,
};

const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// One direction of an open stream; the other one arrives as [`Heard`].
struct Stream<Q> {
    requests: mpsc::UnboundedSender<Q>,
    task: AbortHandle,
}

impl<Q> Drop for Stream<Q> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn open<Q, A>(
    shared: &Arc<Shared>,
    path: &'static str,
    heard: mpsc::UnboundedSender<Heard>,
    generation: u64,
    wrap: fn(u64, Option<A>) -> Heard,
) -> Stream<Q>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let (requests, mut orders) = mpsc::unbounded_channel();
    let shared = Arc::clone(shared);
    let task = tokio::spawn(async move {
        if let Ok(line) = shared.link.line().await {
            let orders = stream::poll_fn(move |context| orders.poll_recv(context));
            let error = match line.stream::<Q, A>(path, orders).await {
                Err(status) => Some(status),
                Ok(mut answers) => loop {
                    match answers.message().await {
                        Ok(Some(answer)) => drop(heard.send(wrap(generation, Some(answer)))),
                        Ok(None) => break None,
                        Err(status) => break Some(status),
                    }
                },
            };
            tracing::debug!(address = &*line.address, ?error, path, "stream ended");
            shared.link.give_up(&line);
        }
        let _ = heard.send(wrap(generation, None));
    });
    Stream { requests, task: task.abort_handle() }
}

/// Keeps leases alive.
pub(crate) struct KeepAlives {
    /// Tells what comes from this stream from what an earlier one left behind: an old answer taken for a
    /// new one would make a lease too long.
    generation: u64,
    stream: Option<Stream<LeaseKeepAliveRequest>>,
    /// When what has not been answered yet was sent, oldest first.
    sent: HashMap<i64, VecDeque<Moment>>,
}

impl KeepAlives {
    pub(crate) fn new() -> Self {
        Self { generation: 0, stream: None, sent: HashMap::new() }
    }

    pub(crate) fn send(
        &mut self,
        shared: &Arc<Shared>,
        heard: &mpsc::UnboundedSender<Heard>,
        lease: i64,
    ) {
        let stream = self.stream.get_or_insert_with(|| {
            open(shared, KEEP_ALIVE, heard.clone(), self.generation, Heard::KeptAlive)
        });
        // Before it goes out: the lease counts from when it arrives, which is later.
        self.sent.entry(lease).or_default().push_back(shared.clock.now());
        let _ = stream.requests.send(LeaseKeepAliveRequest { id: lease });
    }

    /// When the question that this answers was sent; answers come in order.
    pub(crate) fn answered(&mut self, answer: &LeaseKeepAliveResponse) -> Option<Moment> {
        self.sent.get_mut(&answer.id)?.pop_front()
    }

    /// Whether something has been waiting for its answer for so long.
    pub(crate) fn is_silent(&self, now: Moment, limit: Duration) -> bool {
        let oldest = self.sent.values().filter_map(|sent| sent.front()).min();
        oldest.is_some_and(|sent| now.since(*sent) > limit)
    }

    pub(crate) fn awaits(&self, lease: i64) -> bool {
        self.sent.get(&lease).is_some_and(|sent| !sent.is_empty())
    }

    pub(crate) fn forget(&mut self, lease: i64) {
        self.sent.remove(&lease);
    }

    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.generation == generation
    }

    pub(crate) fn close(&mut self) {
        *self = Self { generation: self.generation + 1, ..Self::new() };
    }
}

/// Who listens to a key, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watcher {
    pub(crate) claim: ClaimId,
    pub(crate) key: Vec<u8>,
    pub(crate) whose: Whose,
}

/// Whose key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Somebody's who is ahead.
    Ahead,
    /// The claim's own, from now on.
    Own,
    /// The claim's own, with all that has happened to it from this revision on.
    OwnSince(i64),
}

/// Watches keys.
pub(crate) struct Watches {
    generation: u64,
    stream: Option<Stream<WatchRequest>>,
    watchers: HashMap<i64, Watcher>,
    ids: HashMap<(ClaimId, Vec<u8>), i64>,
    last_id: i64,
}

impl Watches {
    pub(crate) fn new() -> Self {
        let (watchers, ids) = (HashMap::new(), HashMap::new());
        Self { generation: 0, stream: None, watchers, ids, last_id: 0 }
    }

    /// From now on, unless it is in no hurry: etcd serves watches that begin in the past ten times a
    /// second, and those that begin now at once.
    pub(crate) fn add(
        &mut self,
        shared: &Arc<Shared>,
        heard: &mpsc::UnboundedSender<Heard>,
        watcher: Watcher,
    ) {
        if self.ids.contains_key(&(watcher.claim, watcher.key.clone())) {
            return;
        }
        let stream = self.stream.get_or_insert_with(|| {
            open(shared, WATCH, heard.clone(), self.generation, Heard::Watched)
        });
        self.last_id += 1;
        let start_revision = match watcher.whose {
            Whose::OwnSince(revision) => revision,
            Whose::Ahead | Whose::Own => 0,
        };
        let (key, watch_id) = (watcher.key.clone(), self.last_id);
        let create = WatchCreateRequest { key, start_revision, watch_id };
        let _ = stream.requests.send(WatchRequest { order: Some(WatchOrder::Create(create)) });
        self.ids.insert((watcher.claim, watcher.key.clone()), self.last_id);
        self.watchers.insert(self.last_id, watcher);
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Watcher> {
        self.watchers.get(&id)
    }

    pub(crate) fn remove(&mut self, claim: ClaimId, key: &[u8]) {
        let Some(watch_id) = self.ids.remove(&(claim, key.to_vec())) else { return };
        self.watchers.remove(&watch_id);
        if let Some(stream) = &self.stream {
            let cancel = WatchOrder::Cancel(WatchCancelRequest { watch_id });
            let _ = stream.requests.send(WatchRequest { order: Some(cancel) });
        }
    }

    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.generation == generation
    }

    pub(crate) fn len(&self) -> usize {
        self.watchers.len()
    }

    pub(crate) fn close(&mut self) {
        self.generation += 1;
        self.stream = None;
        self.watchers.clear();
        self.ids.clear();
    }
}

impl WatchResponse {
    /// etcd has given a watch up by itself: what it watched may have changed unheard.
    pub(crate) fn is_given_up(&self) -> bool {
        self.canceled && !self.created
    }
}
