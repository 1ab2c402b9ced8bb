//! From the server to the client.

use std::mem;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::connection::{Flow, Pending, Plan, Wire};
use super::link::Direction;
use super::log::{Reply, Ticket};
use super::request::Request;
use super::session::{Replies, Role};

pub(super) struct ReplyPump<'a> {
    wire: &'a Wire,
    framing: Replies,
    buffer: Vec<u8>,
    /// The pieces so far of a reply that is not passed as it comes.
    withheld: Vec<u8>,
    muted: bool,
    to_client: WriteHalf<'a>,
    client_gone: bool,
}

impl<'a> ReplyPump<'a> {
    pub(super) fn new(wire: &'a Wire, framing: Replies, to_client: WriteHalf<'a>) -> Self {
        Self {
            wire,
            framing,
            buffer: Vec::new(),
            withheld: Vec::new(),
            muted: false,
            to_client,
            client_gone: false,
        }
    }

    /// Moves replies until the connection is to be closed.
    pub(super) async fn run(&mut self, mut from_server: ReadHalf<'_>) {
        let mut raw = self.wire.raw.subscribe();
        while self.drain().await == Flow::On {
            let read = tokio::select! {
                read = from_server.read_buf(&mut self.buffer) => read,
                () = self.wire.queued.notified() => continue,
                _ = raw.changed() => continue,
            };
            if !matches!(read, Ok(1..)) {
                break;
            }
        }
        // The end of the stream is news as well: it stays out where replies do.
        if self.muted {
            self.wire.client_left.notified().await;
        }
        self.wire.wait_open(Direction::Replies).await;
    }

    async fn drain(&mut self) -> Flow {
        while !self.wire.is_raw() {
            let head = self.wire.head();
            if let Some(Pending { plan: Plan::Cut, .. }) = head {
                return Flow::Stop;
            }
            if let Some(Pending { plan: Plan::Answer(text), expects, .. }) = &head {
                let (bytes, ends) = self.framing.error(text, expects);
                self.finish(&bytes, Reply::Replaced, None).await;
                if ends {
                    return Flow::Stop;
                }
                continue;
            }
            let expects = head.as_ref().map(|head| &head.expects);
            let piece = match self.framing.next(&mut self.buffer, expects) {
                Ok(Some(piece)) => piece,
                Ok(None) => return Flow::On,
                Err(unparsable) => {
                    self.wire.go_raw(unparsable.0);
                    break;
                }
            };
            let plan = head.map_or(Plan::Pass, |head| head.plan);
            let raw = match piece.role {
                Role::Push(push) => {
                    self.push(push, &piece.bytes).await;
                    continue;
                }
                Role::Loose => {
                    self.pass(&piece.bytes).await;
                    continue;
                }
                Role::Part if matches!(plan, Plan::Pass) => {
                    self.pass(&piece.bytes).await;
                    continue;
                }
                Role::Part => {
                    self.withheld.extend_from_slice(&piece.bytes);
                    continue;
                }
                Role::Last => None,
                Role::LastThenRaw(why) => Some(why),
            };
            let mut reply = mem::take(&mut self.withheld);
            reply.extend_from_slice(&piece.bytes);
            if self.carry_out(plan, &reply, raw).await == Flow::Stop {
                return Flow::Stop;
            }
        }
        let mut bytes = mem::take(&mut self.withheld);
        bytes.append(&mut self.buffer);
        if !bytes.is_empty() {
            self.pass(&bytes).await;
        }
        Flow::On
    }

    /// Does with a complete reply (or with the end of one passed so far) what was planned.
    async fn carry_out(&mut self, plan: Plan, reply: &[u8], raw: Option<&str>) -> Flow {
        let (bytes, fate) = match &plan {
            Plan::Swallow | Plan::SwallowThenCut => (&[][..], Reply::Swallowed),
            Plan::Replace(bytes) => (bytes.as_slice(), Reply::Replaced),
            _ => (reply, Reply::Passed),
        };
        match &plan {
            Plan::Delay(time) => tokio::time::sleep(*time).await,
            Plan::Hold(gate) => gate.pass().await,
            Plan::Mute => self.muted = true,
            _ => {}
        }
        self.finish(bytes, fate, raw).await;
        if matches!(plan, Plan::SwallowThenCut) { Flow::Stop } else { Flow::On }
    }

    /// Takes the request at the head off the line and sends what ends its reply.
    async fn finish(&mut self, bytes: &[u8], fate: Reply, raw: Option<&str>) {
        let ticket = self.wire.pop();
        let passes = !bytes.is_empty() && self.may_pass();
        // Noted before it is sent: who has the reply finds it in the log.
        self.note(ticket, if passes { fate } else { Reply::Swallowed });
        // And framing ends before the client can know, lest its next bytes be taken for a request.
        if let Some(why) = raw {
            self.wire.go_raw(why);
        }
        if passes && !self.send(bytes).await {
            self.note(ticket, Reply::Lost);
        }
    }

    async fn push(&mut self, push: Request, bytes: &[u8]) {
        let shared = &self.wire.shared;
        let dropped = shared.link.drops_pushes() || shared.rules.drops_push(&push);
        let passes = !dropped && self.may_pass();
        shared.log.push(push, passes);
        if passes {
            self.send(bytes).await;
        }
    }

    async fn pass(&mut self, bytes: &[u8]) {
        if self.may_pass() {
            self.send(bytes).await;
        }
    }

    fn may_pass(&self) -> bool {
        !self.muted && self.wire.passes(Direction::Replies)
    }

    /// False if the client has hung up; the server is heard out all the same.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        self.client_gone = self.client_gone || self.to_client.write_all(bytes).await.is_err();
        !self.client_gone
    }

    fn note(&self, ticket: Option<Ticket>, fate: Reply) {
        if let Some(ticket) = ticket {
            self.wire.shared.log.reply(ticket, fate);
        }
    }
}
