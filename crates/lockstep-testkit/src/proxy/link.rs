//! The switches of the whole proxy, and the connections they act on.
//!
//! One lock covers both: whether bytes pass is decided, and their loss noted, in the same moment,
//! so that a connection which lost bytes cannot slip through a simultaneous `heal`.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A direction of traffic through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client, pushes included.
    Replies,
}

#[derive(Default)]
pub(super) struct Link {
    state: Mutex<State>,
    changes: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    requests_blocked: bool,
    replies_blocked: bool,
    refuses: bool,
    drops_pushes: bool,
    opened: u64,
    connections: HashMap<u64, Connection>,
}

#[derive(Default)]
struct Connection {
    /// Not known for a moment after the connection was admitted.
    task: Option<AbortHandle>,
    cut: bool,
    lost_requests: bool,
    lost_replies: bool,
}

impl Link {
    /// Starts a connection under its number, unless connections are refused.
    pub(super) fn admit(&self, start: impl FnOnce(u64) -> AbortHandle) {
        let mut state = self.state.lock();
        if state.refuses {
            return;
        }
        state.opened += 1;
        let id = state.opened;
        state.connections.insert(id, Connection::default());
        // Not under the lock: a runtime that is going down drops the task instead of starting it,
        // and the task's end takes the lock to `forget`.
        drop(state);
        let task = start(id);
        let mut state = self.state.lock();
        if let Some(connection) = state.connections.get_mut(&id) {
            connection.task = Some(task);
        }
        // It may have been cut before there was a task to abort.
        state.cut_if(|connection| connection.cut);
    }

    pub(super) fn forget(&self, id: u64) {
        self.state.lock().connections.remove(&id);
    }

    pub(super) fn block(&self, requests: bool, replies: bool) {
        let mut state = self.state.lock();
        state.requests_blocked = requests;
        state.replies_blocked = replies;
        drop(state);
        self.changes.send_replace(());
    }

    pub(super) fn heal(&self) {
        let mut state = self.state.lock();
        state.requests_blocked = false;
        state.replies_blocked = false;
        state.cut_if(|connection| connection.lost_requests || connection.lost_replies);
        drop(state);
        self.changes.send_replace(());
    }

    pub(super) fn cut_all(&self) {
        self.state.lock().cut_if(|_| true);
    }

    pub(super) fn refuse(&self, refuses: bool) {
        self.state.lock().refuses = refuses;
    }

    pub(super) fn drop_pushes(&self, drops: bool) {
        self.state.lock().drops_pushes = drops;
    }

    pub(super) fn drops_pushes(&self) -> bool {
        self.state.lock().drops_pushes
    }

    pub(super) fn connections(&self) -> usize {
        self.state.lock().connections.len()
    }

    /// Whether bytes of this connection may pass now. If not they are lost, and with them all that
    /// follow in this direction: a stream without its middle would be no stream.
    pub(super) fn passes(&self, id: u64, direction: Direction) -> bool {
        let mut state = self.state.lock();
        let passes = state.is_open(id, direction);
        if !passes && let Some(connection) = state.connections.get_mut(&id) {
            match direction {
                Direction::Requests => connection.lost_requests = true,
                Direction::Replies => connection.lost_replies = true,
            }
        }
        passes
    }

    /// Whether bytes would pass, without having any.
    pub(super) fn is_open(&self, id: u64, direction: Direction) -> bool {
        self.state.lock().is_open(id, direction)
    }

    /// Waits until the direction is open: the end of a stream is not lost but late.
    pub(super) async fn wait_open(&self, id: u64, direction: Direction) {
        let mut changes = self.changes.subscribe();
        while !self.is_open(id, direction) {
            // The sender lives in `self`, so the channel cannot close under us.
            let _ = changes.changed().await;
        }
    }
}

impl State {
    fn cut_if(&mut self, chosen: impl Fn(&Connection) -> bool) {
        for connection in self.connections.values_mut().filter(|connection| chosen(connection)) {
            connection.cut = true;
            if let Some(task) = &connection.task {
                task.abort();
            }
        }
    }

    fn is_open(&self, id: u64, direction: Direction) -> bool {
        let connection = self.connections.get(&id);
        !match direction {
            Direction::Requests => {
                self.requests_blocked || connection.is_some_and(|c| c.lost_requests)
            }
            Direction::Replies => {
                self.replies_blocked || connection.is_some_and(|c| c.lost_replies)
            }
        }
    }
}
