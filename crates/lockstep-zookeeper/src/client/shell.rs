//! Runs the [`Machine`] of one session: one task that reads, writes and sleeps.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockstep_core::time::{Clock, Moment};
use lockstep_lock::clock::SystemClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};

use super::machine::{Effect, Event, Hello, Machine};
use super::stream::{self, Duplex, Server, Tls};
use super::wire::{self, Change, Code, Greeting, Op, Reply, XID_AUTH, XID_PING, XID_WATCH};

/// No frame of a sound server is longer: a list of a hundred thousand nodes fits.
const FRAME_MAX: usize = 16 << 20;

/// How long the end of a session is waited for when its owner is gone.
const PARTING: Duration = Duration::from_millis(500);

/// Timers stop while the machine sleeps, and sessions do not.
const SLICE: Duration = Duration::from_millis(500);

/// Why a request has no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server says no.
    Refused(Code),
    /// The connection is gone, or there is none; `written`: it may have been carried out.
    Lost { written: bool, why: String },
    /// The session is over, and everything that belonged to it.
    Expired,
    /// The servers do not take our name and password.
    Denied,
}

impl Failure {
    /// There is no answer yet, and whoever asked does not wait any longer.
    pub(crate) fn silent() -> Self {
        Self::Lost { written: true, why: "there is no answer yet".to_owned() }
    }
}

/// What a session says by itself.
#[derive(Debug)]
pub(crate) enum News {
    /// A watched node has changed.
    Changed(Change, String),
    /// Connected again: notices may have been missed.
    Back,
    /// Over: what was its is nobody's.
    Over,
}

/// Who hears a session's news, on its own thread and in the order of its replies.
pub(crate) trait Ears: Send + Sync + 'static {
    fn hear(&self, session: u64, news: News);
}

/// How a session is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) servers: Arc<[Server]>,
    pub(crate) tls: Tls,
    /// `user:password`, read anew for each connection.
    pub(crate) login: Arc<dyn Fn() -> io::Result<Option<String>> + Send + Sync>,
    pub(crate) timeout: Duration,
}

/// Our side of a session. The session ends when the last of these is dropped.
#[derive(Clone)]
pub(crate) struct Session {
    /// Never used twice in this process; the server's own number may be.
    pub(crate) serial: u64,
    orders: mpsc::UnboundedSender<Vec<Order>>,
    state: watch::Receiver<State>,
    /// How many requests have no answer yet.
    under_way: Arc<AtomicUsize>,
    /// Whether there is a connection.
    up: Arc<AtomicBool>,
}

/// What is known of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Dialing,
    /// It has been up; its number, and its time-out as the servers want it.
    Known {
        id: i64,
        timeout: Duration,
    },
    Over(Failure),
}

struct Order {
    op: Op,
    reply: oneshot::Sender<Result<Reply, Failure>>,
    _counted: Counted,
}

/// A request that is under way.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(under_way: &Arc<AtomicUsize>) -> Self {
        under_way.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(under_way))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reply on its way.
pub(crate) struct Pending(oneshot::Receiver<Result<Reply, Failure>>);

impl Pending {
    pub(crate) async fn get(self) -> Result<Reply, Failure> {
        self.0.await.unwrap_or(Err(Failure::Expired))
    }
}

impl Session {
    /// A session, and the task that has to run for it.
    pub(crate) fn new(
        setup: Setup,
        serial: u64,
        random: u64,
        ears: Arc<dyn Ears>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (known, state) = watch::channel(State::Dialing);
        let machine = Machine::new(setup.servers.len(), setup.timeout, random);
        let why = "not connected yet".to_owned();
        let (queue, up) = (VecDeque::new(), Arc::<AtomicBool>::default());
        let session =
            Self { serial, orders, state, under_way: Arc::default(), up: Arc::clone(&up) };
        let shell = Shell { setup, serial, machine, ears, known, up, inbox, queue, why };
        (session, shell.run())
    }

    /// Sends requests back to back; their replies come in the same order.
    pub(crate) fn send<const N: usize>(&self, ops: [Op; N]) -> [Pending; N] {
        let mut orders = Vec::with_capacity(N);
        let pending = ops.map(|op| self.order(&mut orders, op));
        self.give(orders);
        pending
    }

    /// The same for any number.
    pub(crate) fn send_all(&self, ops: impl IntoIterator<Item = Op>) -> Vec<Pending> {
        let mut orders = Vec::new();
        let pending = ops.into_iter().map(|op| self.order(&mut orders, op)).collect();
        self.give(orders);
        pending
    }

    fn order(&self, orders: &mut Vec<Order>, op: Op) -> Pending {
        let (reply, pending) = oneshot::channel();
        orders.push(Order { op, reply, _counted: Counted::new(&self.under_way) });
        Pending(pending)
    }

    fn give(&self, orders: Vec<Order>) {
        // A session that is over drops the orders, and every reply is then "expired".
        let _ = self.orders.send(orders);
    }

    pub(crate) async fn call(&self, op: Op) -> Result<Reply, Failure> {
        let [pending] = self.send([op]);
        pending.get().await
    }

    /// Whether there is a connection, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// How many requests have no answer yet.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Whether nothing will ever come of it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.state.borrow(), State::Over(_))
    }

    /// The server's number and the time-out, as soon as there is a session.
    pub(crate) async fn known(&self) -> Result<(i64, Duration), Failure> {
        let mut state = self.state.clone();
        match state.wait_for(|state| *state != State::Dialing).await.as_deref() {
            Ok(State::Known { id, timeout }) => Ok((*id, *timeout)),
            Ok(State::Over(failure)) => Err(failure.clone()),
            Ok(State::Dialing) | Err(_) => Err(Failure::Expired),
        }
    }
}

struct Shell {
    setup: Setup,
    serial: u64,
    machine: Machine,
    ears: Arc<dyn Ears>,
    known: watch::Sender<State>,
    up: Arc<AtomicBool>,
    inbox: mpsc::UnboundedReceiver<Vec<Order>>,
    /// What was asked for while there was no connection.
    queue: VecDeque<Order>,
    /// Why there is none.
    why: String,
}

/// A connection that stands.
struct Line {
    reads: ReadHalf<Box<dyn Duplex>>,
    writes: WriteHalf<Box<dyn Duplex>>,
    input: Vec<u8>,
    output: Vec<u8>,
    waiting: VecDeque<(i32, Order)>,
    xid: i32,
}

/// How the shell goes on.
enum Next {
    Dial(usize),
    Pause,
    Up(Line),
    End,
}

impl Shell {
    async fn run(mut self) {
        let mut next = match &self.machine.step(SystemClock.now(), Event::Start)[..] {
            [Effect::Dial(server)] => Next::Dial(*server),
            _ => Next::End,
        };
        loop {
            next = match next {
                Next::Dial(server) => self.dial(server).await,
                Next::Pause => self.pause().await,
                Next::Up(line) => {
                    self.up.store(true, Ordering::Relaxed);
                    let next = self.talk(line).await;
                    self.up.store(false, Ordering::Relaxed);
                    next
                }
                Next::End => return,
            }
        }
    }

    /// Does what the machine says when there is no connection any more.
    fn follow(&mut self, effects: Vec<Effect>) -> Next {
        let mut next = Next::Pause;
        for effect in effects {
            match effect {
                Effect::Dial(server) => next = Next::Dial(server),
                Effect::Nobody => {
                    let why = self.why.clone();
                    self.fail_queue(&Failure::Lost { written: false, why });
                }
                Effect::Expired => {
                    self.end(Failure::Expired);
                    next = Next::End;
                }
                Effect::HangUp | Effect::Up { .. } | Effect::Ping => {}
            }
        }
        next
    }

    async fn dial(&mut self, server: usize) -> Next {
        let give_up = self.machine.wake_at();
        let (setup, hello) = (self.setup.clone(), self.machine.hello());
        let made = tokio::select! {
            made = greet(&setup, server, hello) => made,
            () = sleep_until(give_up) => Err("it does not answer".to_owned()),
            () = self.gather() => return Next::End,
        };
        match made {
            Ok((line, greeting)) => self.greeted(line, greeting),
            Err(why) => {
                self.why = format!("{}: {why}", setup.servers[server]);
                tracing::debug!(why = self.why, "no session through this server");
                let effects = self.machine.step(SystemClock.now(), Event::Broken);
                self.follow(effects)
            }
        }
    }

    fn greeted(&mut self, line: Line, greeting: Greeting) -> Next {
        let effects = self.machine.step(SystemClock.now(), Event::Greeted(greeting));
        let [Effect::Up { fresh }] = effects[..] else { return self.follow(effects) };
        if let Some((id, timeout)) = self.machine.session() {
            self.known.send_replace(State::Known { id, timeout });
        }
        if !fresh {
            self.ears.hear(self.serial, News::Back);
        }
        Next::Up(line)
    }

    async fn pause(&mut self) -> Next {
        let until = self.machine.wake_at();
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.gather() => return Next::End,
        }
        let effects = self.machine.step(SystemClock.now(), Event::Woke);
        self.follow(effects)
    }

    /// Takes orders in; resolves when nobody is left to give any.
    async fn gather(&mut self) {
        while let Some(orders) = self.inbox.recv().await {
            self.queue.extend(orders);
        }
    }

    async fn talk(&mut self, mut line: Line) -> Next {
        let queued: Vec<Order> = self.queue.drain(..).collect();
        self.write(&mut line, queued);
        loop {
            let wake_at = self.machine.wake_at();
            let broken = tokio::select! {
                orders = self.inbox.recv() => match orders {
                    Some(orders) => {
                        self.write(&mut line, orders);
                        while let Ok(orders) = self.inbox.try_recv() {
                            self.write(&mut line, orders);
                        }
                        None
                    }
                    None => {
                        part(line).await;
                        return Next::End;
                    }
                },
                sent = line.writes.write(&line.output), if !line.output.is_empty() => match sent {
                    Ok(0) => Some("the connection was closed".to_owned()),
                    Ok(count) => {
                        line.output.drain(..count);
                        None
                    }
                    Err(error) => Some(error.to_string()),
                },
                read = line.reads.read_buf(&mut line.input) => match read {
                    Ok(0) => Some("the server has closed the connection".to_owned()),
                    Ok(_) => match self.read(&mut line) {
                        Ok(()) => None,
                        Err(End::Broken(why)) => Some(why),
                        Err(End::Denied) => {
                            line.fail(&Failure::Denied);
                            self.end(Failure::Denied);
                            return Next::End;
                        }
                    },
                    Err(error) => Some(error.to_string()),
                },
                () = sleep_until(wake_at) => {
                    let effects = self.machine.step(SystemClock.now(), Event::Woke);
                    if effects.contains(&Effect::HangUp) {
                        self.why = "the server has fallen silent".to_owned();
                        line.fail(&Failure::Lost { written: true, why: self.why.clone() });
                        return self.follow(effects);
                    }
                    if effects.contains(&Effect::Ping) {
                        line.output.extend(wire::ping());
                        self.machine.step(SystemClock.now(), Event::Sent);
                    }
                    None
                }
            };
            if let Some(why) = broken {
                line.fail(&Failure::Lost { written: true, why: why.clone() });
                self.why = why;
                let effects = self.machine.step(SystemClock.now(), Event::Broken);
                return self.follow(effects);
            }
        }
    }

    /// Orders that nobody waits for any more are not sent: their owner has given up.
    fn write(&mut self, line: &mut Line, orders: Vec<Order>) {
        for order in orders.into_iter().filter(|order| !order.reply.is_closed()) {
            line.xid = line.xid.checked_add(1).unwrap_or(1);
            line.output.extend(order.op.frame(line.xid));
            line.waiting.push_back((line.xid, order));
            self.machine.step(SystemClock.now(), Event::Asked);
        }
    }

    fn read(&mut self, line: &mut Line) -> Result<(), End> {
        while let Some(body) = line.take_frame().map_err(End::Broken)? {
            let (header, rest) = wire::header(&body).map_err(malformed)?;
            self.machine.step(SystemClock.now(), Event::Heard(header.zxid));
            match header.xid {
                XID_WATCH => {
                    if let Some((change, path)) = wire::notice(rest).map_err(malformed)? {
                        self.ears.hear(self.serial, News::Changed(change, path));
                    }
                }
                XID_AUTH if header.code == Code::AUTH_FAILED => return Err(End::Denied),
                XID_PING | XID_AUTH => {}
                xid => {
                    let Some((asked, order)) = line.waiting.pop_front() else {
                        return Err(End::Broken("an answer that nobody asked for".into()));
                    };
                    if asked != xid {
                        return Err(End::Broken("an answer out of turn".into()));
                    }
                    let all = line.waiting.is_empty();
                    self.machine.step(SystemClock.now(), Event::Answered { all });
                    let answer = match header.code {
                        Code::OK => Ok(order.op.reply(rest).map_err(malformed)?),
                        Code::SESSION_EXPIRED | Code::SESSION_MOVED => {
                            // Whoever it has moved to, it is not ours to act upon; a new
                            // connection says whether it is still there.
                            let why = "the session is over or elsewhere".to_owned();
                            Err(Failure::Lost { written: true, why })
                        }
                        code => Err(Failure::Refused(code)),
                    };
                    let gone = matches!(header.code, Code::SESSION_EXPIRED | Code::SESSION_MOVED);
                    // Whoever asked may have given up.
                    let _ = order.reply.send(answer);
                    if gone {
                        return Err(End::Broken("the session is over or elsewhere".into()));
                    }
                }
            }
        }
        Ok(())
    }

    fn fail_queue(&mut self, failure: &Failure) {
        while let Ok(orders) = self.inbox.try_recv() {
            self.queue.extend(orders);
        }
        for order in self.queue.drain(..) {
            let _ = order.reply.send(Err(failure.clone()));
        }
    }

    fn end(&mut self, failure: Failure) {
        self.known.send_replace(State::Over(failure.clone()));
        self.ears.hear(self.serial, News::Over);
        self.inbox.close();
        self.fail_queue(&failure);
    }
}

enum End {
    Broken(String),
    Denied,
}

fn malformed(error: impl std::fmt::Display) -> End {
    End::Broken(error.to_string())
}

impl Line {
    /// Takes a whole frame off the input.
    fn take_frame(&mut self) -> Result<Option<Vec<u8>>, String> {
        let Some(head) = self.input.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > FRAME_MAX {
            return Err("a frame that is too long to be ZooKeeper's".into());
        }
        if self.input.len() < 4 + length {
            return Ok(None);
        }
        let body = self.input[4..4 + length].to_vec();
        self.input.drain(..4 + length);
        Ok(Some(body))
    }

    /// Waits for a whole frame.
    async fn frame(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(body) = self.take_frame().map_err(io::Error::other)? {
                return Ok(body);
            }
            if self.reads.read_buf(&mut self.input).await? == 0 {
                return Err(io::Error::other(
                    "the server closed the connection; it may have no quorum",
                ));
            }
        }
    }

    fn fail(&mut self, failure: &Failure) {
        for (_, order) in self.waiting.drain(..) {
            let _ = order.reply.send(Err(failure.clone()));
        }
    }
}

/// Makes a connection and waits until its server has taken the session.
async fn greet(setup: &Setup, server: usize, hello: Hello) -> Result<(Line, Greeting), String> {
    let said = |error: io::Error| error.to_string();
    let made = stream::dial(&setup.servers[server], &setup.tls).await.map_err(said)?;
    let (reads, writes) = tokio::io::split(made);
    let mut line =
        Line { reads, writes, input: vec![], output: vec![], waiting: VecDeque::new(), xid: 0 };
    let Hello { last_zxid, timeout_ms, session, password } = hello;
    let mut words = wire::connect(last_zxid, timeout_ms, session, &password);
    if let Some(login) = (setup.login)().map_err(said)? {
        words.extend(wire::digest(&login));
    }
    line.writes.write_all(&words).await.map_err(said)?;
    let body = line.frame().await.map_err(said)?;
    let greeting = wire::greeting(&body).map_err(|error| error.to_string())?;
    Ok((line, greeting))
}

/// Ends the session, so that what it holds is free at once.
async fn part(mut line: Line) {
    let goodbye = async {
        line.output.extend(Op::Close.frame(0));
        line.writes.write_all(&line.output).await?;
        while line.reads.read_buf(&mut line.input).await? > 0 {}
        io::Result::Ok(())
    };
    // What cannot be said is left to the time-out.
    let _ = tokio::time::timeout(PARTING, goodbye).await;
}

async fn sleep_until(until: Moment) {
    loop {
        let left = until.since(SystemClock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}
