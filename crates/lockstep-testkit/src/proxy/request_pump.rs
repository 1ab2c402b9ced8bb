//! From the client to the server.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::Shared;
use super::connection::{Flow, Pending, Plan, Wire};
use super::link::Direction;
use super::log::Reply;
use super::rules::Fault;
use super::session::{Requests, Unit};

pub(super) struct RequestPump<'a> {
    wire: &'a Wire,
    framing: Requests,
    buffer: Vec<u8>,
}

impl<'a> RequestPump<'a> {
    pub(super) fn new(wire: &'a Wire, framing: Requests) -> Self {
        Self { wire, framing, buffer: Vec::new() }
    }

    /// Stays silent while the server is out of reach, losing what the client says. False if the
    /// client hung up meanwhile.
    pub(super) async fn wait_until_reachable(&mut self, client: &mut TcpStream) -> bool {
        while !self.wire.shared.link.is_open(self.wire.id, Direction::Requests) {
            tokio::select! {
                () = self.wire.wait_open(Direction::Requests) => {}
                read = client.read_buf(&mut self.buffer) => {
                    if !matches!(read, Ok(1..)) {
                        return false;
                    }
                    // If the link came back in between, nothing is lost: the pump takes over.
                    if !self.wire.passes(Direction::Requests) {
                        self.lose();
                    }
                }
            }
        }
        true
    }

    /// Moves requests until the client hangs up or a request asks for the end.
    pub(super) async fn run(
        &mut self,
        mut from_client: ReadHalf<'_>,
        mut to_server: WriteHalf<'_>,
    ) {
        let mut raw = self.wire.raw.subscribe();
        loop {
            if self.drain(&mut to_server).await == Flow::Stop {
                return;
            }
            let read = tokio::select! {
                read = from_client.read_buf(&mut self.buffer) => read,
                _ = raw.changed() => continue,
            };
            if !matches!(read, Ok(1..)) {
                break;
            }
        }
        self.wire.wait_open(Direction::Requests).await;
        self.forward_unframed(&mut to_server).await;
        let _ = to_server.shutdown().await;
    }

    async fn drain(&mut self, to_server: &mut WriteHalf<'_>) -> Flow {
        while !self.wire.is_raw() {
            match self.framing.next(&mut self.buffer) {
                Ok(Some(unit)) => {
                    if self.take(unit, to_server).await == Flow::Stop {
                        return Flow::Stop;
                    }
                }
                Ok(None) => return Flow::On,
                Err(unparsable) => self.wire.go_raw(unparsable.0),
            }
        }
        self.forward_unframed(to_server).await;
        Flow::On
    }

    async fn take(&mut self, unit: Unit, to_server: &mut WriteHalf<'_>) -> Flow {
        let Unit { request, bytes, expects } = unit;
        let Some(request) = request else {
            if self.wire.passes(Direction::Requests) {
                let _ = to_server.write_all(&bytes).await;
            }
            return Flow::On;
        };
        let Shared { log, rules, .. } = &*self.wire.shared;
        let ticket = log.request(request.clone(), expects.a_reply());
        // What is lost on the way never comes to the place where rules apply.
        if !self.wire.passes(Direction::Requests) {
            log.reply(ticket, Reply::Lost);
            return Flow::On;
        }
        let plan = match rules.for_request(&request, expects.a_reply()) {
            Some(Fault::CutBefore) => Plan::Cut,
            Some(Fault::ErrorReply(text)) => Plan::Answer(text),
            Some(Fault::DropReply) => Plan::Swallow,
            Some(Fault::Mute) => Plan::Mute,
            Some(Fault::DropReplyAndCut) => Plan::SwallowThenCut,
            Some(Fault::DelayReply(time)) => Plan::Delay(time),
            Some(Fault::HoldReply(gate)) => Plan::Hold(gate),
            Some(Fault::Garbage(bytes)) => Plan::Replace(bytes),
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                Plan::Pass
            }
            Some(Fault::Hold(gate)) => {
                gate.pass().await;
                Plan::Pass
            }
            Some(Fault::DropPush) | None => Plan::Pass,
        };
        // Asked again: the link may have gone while the request was held.
        if !self.wire.passes(Direction::Requests) {
            log.reply(ticket, Reply::Lost);
            return Flow::On;
        }
        let cut = matches!(plan, Plan::Cut);
        let asks_server = !cut && !matches!(plan, Plan::Answer(_));
        if asks_server {
            log.forwarded(ticket);
        }
        // Queued before the server can answer.
        if cut || expects.a_reply() {
            self.wire.queue(Pending { ticket, expects, plan });
        }
        if asks_server {
            // If the server is gone the other pump finds out, and ends the connection.
            let _ = to_server.write_all(&bytes).await;
        }
        if cut { Flow::Stop } else { Flow::On }
    }

    async fn forward_unframed(&mut self, to_server: &mut WriteHalf<'_>) {
        let mut bytes = self.framing.take_rest();
        bytes.append(&mut self.buffer);
        if !bytes.is_empty() && self.wire.passes(Direction::Requests) {
            let _ = to_server.write_all(&bytes).await;
        }
    }

    /// Logs what can be recognised of lost bytes.
    fn lose(&mut self) {
        let log = &self.wire.shared.log;
        while let Ok(Some(unit)) = self.framing.next(&mut self.buffer) {
            if let Some(request) = unit.request {
                let ticket = log.request(request, unit.expects.a_reply());
                log.reply(ticket, Reply::Lost);
            }
        }
    }
}
