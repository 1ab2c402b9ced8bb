//! One connection: two pumps, one for each direction, and what they share.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

use super::Shared;
use super::gate::Gate;
use super::link::Direction;
use super::log::{Reply, Ticket};
use super::reply_pump::ReplyPump;
use super::request_pump::RequestPump;
use super::session::{self, Expects};

/// What both directions of a connection share. Its end is the end of the connection.
pub(super) struct Wire {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u64,
    /// Requests that wait for their reply, oldest first.
    pending: Mutex<VecDeque<Pending>>,
    pub(super) queued: Notify,
    pub(super) raw: watch::Sender<bool>,
    pub(super) client_left: Notify,
}

/// A request that waits for its reply.
#[derive(Clone)]
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) expects: Expects,
    pub(super) plan: Plan,
}

/// What is to be done when a request's turn for a reply comes.
#[derive(Clone)]
pub(super) enum Plan {
    Pass,
    Swallow,
    Mute,
    SwallowThenCut,
    Delay(Duration),
    Hold(Gate),
    Replace(Vec<u8>),
    /// The server was not asked: answer this error in its place.
    Answer(String),
    /// The server was not asked: close.
    Cut,
}

/// Whether a pump goes on.
#[derive(PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Stop,
}

impl Wire {
    pub(super) fn new(shared: Arc<Shared>, id: u64) -> Self {
        Self {
            shared,
            id,
            pending: Mutex::default(),
            queued: Notify::new(),
            raw: watch::Sender::new(false),
            client_left: Notify::new(),
        }
    }

    /// Serves the client until the server has hung up or a fault ends the connection.
    pub(super) async fn serve(self, mut client: TcpStream) {
        let (requests, replies) = session::pair(self.shared.protocol, self.id);
        let mut requests = RequestPump::new(&self, requests);
        if !requests.wait_until_reachable(&mut client).await {
            return;
        }
        let Ok(mut server) = TcpStream::connect(self.shared.upstream).await else { return };
        // Without this a fault proxy would add its own delays to those it was asked for.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let mut replies = ReplyPump::new(&self, replies, to_client);
        tokio::select! {
            () = replies.run(from_server) => {}
            // A client that has hung up may have replies under way and a session to end.
            () = async {
                requests.run(from_client, to_server).await;
                self.client_left.notify_one();
                pending().await
            } => {}
        }
    }

    pub(super) fn queue(&self, pending: Pending) {
        self.pending.lock().push_back(pending);
        self.queued.notify_one();
    }

    pub(super) fn head(&self) -> Option<Pending> {
        self.pending.lock().front().cloned()
    }

    pub(super) fn pop(&self) -> Option<Ticket> {
        self.pending.lock().pop_front().map(|pending| pending.ticket)
    }

    pub(super) fn is_raw(&self) -> bool {
        *self.raw.borrow()
    }

    /// Gives up framing, in both directions.
    pub(super) fn go_raw(&self, why: &str) {
        if !self.raw.send_replace(true) {
            self.shared.log.raw(self.id, why);
        }
        self.abandon(Reply::Untracked);
    }

    pub(super) fn passes(&self, direction: Direction) -> bool {
        self.shared.link.passes(self.id, direction)
    }

    pub(super) async fn wait_open(&self, direction: Direction) {
        self.shared.link.wait_open(self.id, direction).await;
    }

    fn abandon(&self, reply: Reply) {
        for pending in self.pending.lock().drain(..) {
            self.shared.log.reply(pending.ticket, reply);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.abandon(Reply::Lost);
        self.shared.link.forget(self.id);
    }
}
