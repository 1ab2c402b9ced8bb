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
use crate::layout::range_end;
use crate::proto::{
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, WatchCancelRequest, WatchCreateRequest,
    WatchFilter, WatchOrder, WatchRequest, WatchResponse,
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
            let error = match line.wire.stream::<Q, A>(path, orders).await {
                Err(status) => Some(status),
                Ok(mut answers) => loop {
                    match answers.message().await {
                        Ok(Some(answer)) => drop(heard.send(wrap(generation, Some(answer)))),
                        Ok(None) => break None,
                        Err(status) => break Some(status),
                    }
                },
            };
            tracing::debug!(address = &*line.wire.address, ?error, path, "stream ended");
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

/// Why something is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The key of somebody who is ahead of this claim.
    Ahead(ClaimId),
    /// The claim's own key, from now on.
    Own(ClaimId),
    /// The claim's own key, with all that has happened to it from this revision on.
    OwnSince(ClaimId, i64),
    /// Everybody who leaves this line.
    Line,
}

impl Why {
    fn claim(self) -> Option<ClaimId> {
        match self {
            Self::Ahead(claim) | Self::Own(claim) | Self::OwnSince(claim, _) => Some(claim),
            Self::Line => None,
        }
    }
}

/// Watches keys.
pub(crate) struct Watches {
    generation: u64,
    stream: Option<Stream<WatchRequest>>,
    watchers: HashMap<i64, (Why, Vec<u8>)>,
    ids: HashMap<(Option<ClaimId>, Vec<u8>), i64>,
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
        why: Why,
        key: &[u8],
    ) {
        let id = (why.claim(), key.to_vec());
        if self.ids.contains_key(&id) {
            return;
        }
        let stream = self.stream.get_or_insert_with(|| {
            open(shared, WATCH, heard.clone(), self.generation, Heard::Watched)
        });
        self.last_id += 1;
        let mut create =
            WatchCreateRequest { key: key.to_vec(), watch_id: self.last_id, ..Default::default() };
        match why {
            Why::Ahead(_) | Why::Own(_) => {}
            Why::OwnSince(_, revision) => create.start_revision = revision,
            Why::Line => {
                create.range_end = range_end(key);
                create.filters = vec![WatchFilter::NoPut.into()];
            }
        }
        let _ = stream.requests.send(WatchRequest { order: Some(WatchOrder::Create(create)) });
        self.ids.insert(id, self.last_id);
        self.watchers.insert(self.last_id, (why, key.to_vec()));
    }

    pub(crate) fn get(&self, id: i64) -> Option<&(Why, Vec<u8>)> {
        self.watchers.get(&id)
    }

    pub(crate) fn has(&self, claim: ClaimId, key: &[u8]) -> bool {
        self.ids.contains_key(&(Some(claim), key.to_vec()))
    }

    /// `claim`: whose it is; nobody's for a line.
    pub(crate) fn remove(&mut self, claim: Option<ClaimId>, key: &[u8]) {
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
