//! The fair queue, model-checked: the real [`Table`] as the store and the real [`Acquisition`] in
//! every client, with requests, replies and pushes that are delayed, reordered and lost, clients
//! that cancel and crash, and leases that run out.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{
    ClaimId, Drift, Effect, ErrorKind, Key, Label, Lease, Owner, StoreError, Token,
};
use lockstep_lock::Share;
use lockstep_lock::acquisition::{Acquisition, Event, Step, Terms};
use lockstep_lock::queue::{Now, Table, Told};
use lockstep_lock::store::{Answer, Claim, Release};
use stateright::{Checker, Model, Property};

const TICK: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(3);

/// How much the checker may try.
#[derive(Clone, Copy)]
struct Bounds {
    /// What each client asks for.
    clients: &'static [Share],
    ticks: u64,
    losses: u8,
    leavers: u8,
    /// How many writers may become readers.
    downgrades: u8,
}

struct Queue(Bounds);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    tick: u64,
    table: Table,
    clients: Vec<Client>,
    net: Vec<Message>,
    losses: u8,
    leavers: u8,
    downgrades: u8,
    /// The largest token that any client was told it holds.
    newest: u64,
    disorder: bool,
    /// Who waits, in the order in which their first asks came to the store, and until when each
    /// keeps its place. Kept here, so that the table is not its own judge.
    line: Vec<(usize, Moment)>,
    /// Who was served, and until when each has the lock unless it gives it back.
    served: Vec<(usize, Moment)>,
    overtaken: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    share: Share,
    machine: Acquisition,
    phase: Phase,
    /// Replies to older requests are ignored, as a dropped future ignores them.
    request: u8,
    /// It got the lock by a push, or gave it back: what the sometimes-properties look for.
    pushed: bool,
    released: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asking,
    Waiting(Moment),
    Holding { lease: Lease, token: u64 },
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Ask { client: usize, request: u8 },
    Reply { client: usize, request: u8, answer: Reply },
    Push { client: usize, token: u64 },
    GiveBack { client: usize },
    Downgrade { client: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Reply {
    Granted(u64),
    Queued { ahead: u64, left: Duration, behind: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Start(usize),
    Deliver(Message),
    Lose(Message),
    GiveUpOnReply(usize),
    Wake(usize),
    Release(usize),
    Downgrade(usize),
    Cancel(usize),
    Crash(usize),
}

impl Client {
    fn trusts(&self, now: Moment) -> bool {
        matches!(&self.phase, Phase::Holding { lease, .. } if lease.is_trusted(now))
    }
}

impl World {
    fn now(&self) -> Moment {
        Moment::ZERO + TICK * self.tick as u32
    }

    fn send(&mut self, message: Message) {
        self.net.push(message);
        self.net.sort();
    }

    fn step(&mut self, client: usize, event: Event) {
        let now = self.now();
        let phase = match self.clients[client].machine.step(now, event, 0) {
            Step::Ask => {
                self.clients[client].request += 1;
                let request = self.clients[client].request;
                self.send(Message::Ask { client, request });
                Phase::Asking
            }
            Step::Wait(until) => Phase::Waiting(until),
            Step::Held { token, lease } => {
                let token = token.expect("the table counts").get();
                // Those who hold together may learn of it in any order, and readers share a token.
                self.disorder |= match self.clients[client].share {
                    Share::Exclusive => token <= self.newest,
                    Share::Read => token < self.newest,
                    Share::Permits { .. } => false,
                };
                self.newest = self.newest.max(token);
                Phase::Holding { lease, token }
            }
            Step::Failed(_) | Step::TimedOut { .. } => {
                self.send(Message::GiveBack { client });
                Phase::Gone
            }
            step => unreachable!("{step:?}"),
        };
        self.clients[client].phase = phase;
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Ask { client, request } => {
                let (answer, told) = self.table.acquire(self.table_now(), &self.claim(client));
                let answer = match answer {
                    Answer::Granted { token } => Reply::Granted(token.unwrap().get()),
                    Answer::Queued { ahead, holder_left: left, behind } => {
                        Reply::Queued { ahead, left, behind: behind.unwrap().get() }
                    }
                    answer => unreachable!("{answer:?}"),
                };
                let granted = match &answer {
                    Reply::Granted(token) => Some((*token, client)),
                    Reply::Queued { .. } => None,
                };
                self.told(told, granted);
                if granted.is_none() {
                    self.queued(client);
                }
                self.send(Message::Reply { client, request, answer });
            }
            Message::GiveBack { client } => {
                self.line.retain(|(other, _)| *other != client);
                self.served.retain(|(other, _)| *other != client);
                let what = Release::Mine(self.claim(client).hold());
                let (_, told) = self.table.release(self.table_now(), &what);
                self.told(told, None);
            }
            Message::Downgrade { client } => {
                let what = Release::Downgrade(self.claim(client).hold());
                let (_, told) = self.table.release(self.table_now(), &what);
                self.told(told, None);
            }
            Message::Reply { client, request, answer } => {
                let listening = self.clients[client].phase == Phase::Asking;
                if listening && self.clients[client].request == request {
                    let answer = match answer {
                        Reply::Granted(token) => Answer::Granted { token: Some(Token::new(token)) },
                        Reply::Queued { ahead, left, behind } => Answer::Queued {
                            ahead,
                            holder_left: left,
                            behind: Some(Token::new(behind)),
                        },
                    };
                    self.step(client, Event::Answered(Ok(answer)));
                }
            }
            Message::Push { client, token } => {
                if matches!(self.clients[client].phase, Phase::Waiting(_)) {
                    self.step(client, Event::Pushed(Some(Token::new(token))));
                    self.clients[client].pushed = self.clients[client].trusts(self.now());
                }
            }
        }
    }

    /// The store has granted this in one step: to those it tells, and to who asked, as it is answered.
    fn told(&mut self, told: Vec<Told>, answered: Option<(u64, usize)>) {
        let mut granted: Vec<(u64, usize)> = answered.into_iter().collect();
        for told in told {
            if let Told::Granted(claim, token) = told {
                let (client, token) = (claim.id.as_u128() as usize, token.get());
                granted.push((token, client));
                self.send(Message::Push { client, token });
            }
        }
        let now = self.now();
        self.line.retain(|(_, until)| *until > now);
        // The tokens say in which order. Readers who come in together share one, those in line first.
        let place = |of: usize| self.line.iter().position(|(client, _)| *client == of);
        granted.sort_by_key(|(token, client)| (*token, place(*client).unwrap_or(usize::MAX)));
        granted.into_iter().for_each(|(_, client)| self.served(client));
    }

    /// The store has put this client into the queue, or left it there.
    fn queued(&mut self, client: usize) {
        let (now, until) = (self.now(), self.now() + TTL);
        self.line.retain(|(_, until)| *until > now);
        match self.line.iter_mut().find(|(other, _)| *other == client) {
            Some(place) => place.1 = until,
            None => self.line.push((client, until)),
        }
    }

    /// The store has granted the lock to this client, or told it that it has it.
    fn served(&mut self, client: usize) {
        let (now, until) = (self.now(), self.now() + TTL);
        self.served.retain(|(_, until)| *until > now);
        let has_it = self.served.iter().any(|(other, _)| *other == client);
        let first = self.line.first().is_none_or(|(first, _)| *first == client);
        self.overtaken |= !has_it && !first;
        self.line.retain(|(other, _)| *other != client);
        self.served.retain(|(other, _)| *other != client);
        self.served.push((client, until));
    }

    fn claim(&self, client: usize) -> Claim {
        Claim {
            id: ClaimId::from_u128(client as u128),
            key: Key::new("k").unwrap(),
            owner: Owner::from_u128(client as u128),
            label: Label::default(),
            share: self.clients[client].share,
            ttl: TTL,
            wait: true,
        }
    }

    /// What those who trust their locks take together.
    fn trusted(&self) -> u64 {
        let trusting = self.clients.iter().filter(|client| client.trusts(self.now()));
        trusting.map(|client| u64::from(client.share.weight())).sum()
    }

    fn table_now(&self) -> Now {
        Now { moment: self.now(), wall_ms: 0 }
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Tick => self.tick += 1,
            Action::Start(client) => self.step(client, Event::Start),
            Action::Deliver(message) => {
                self.take(&message);
                self.deliver(message);
            }
            Action::Lose(message) => {
                self.take(&message);
                self.losses += 1;
            }
            Action::GiveUpOnReply(client) => {
                let error =
                    StoreError::new("model", ErrorKind::Unavailable, Effect::Unknown, "lost");
                self.step(client, Event::Answered(Err(error)));
            }
            Action::Wake(client) => self.step(client, Event::Woke),
            Action::Release(client) | Action::Cancel(client) => {
                if let Action::Cancel(_) = action {
                    self.leavers += 1;
                }
                self.clients[client].released = true;
                self.clients[client].phase = Phase::Gone;
                self.send(Message::GiveBack { client });
            }
            Action::Downgrade(client) => {
                self.downgrades += 1;
                self.clients[client].share = Share::Read;
                self.send(Message::Downgrade { client });
            }
            Action::Crash(client) => {
                self.leavers += 1;
                self.clients[client].phase = Phase::Gone;
            }
        }
    }

    fn take(&mut self, message: &Message) {
        let at = self.net.iter().position(|other| other == message).expect("it is in the net");
        self.net.remove(at);
    }

    /// From here on nothing is lost, nobody leaves, and every holder releases: does everybody who
    /// asks or waits get the lock?
    fn everybody_is_served(&self) -> bool {
        let mut world = self.clone();
        for _ in 0..(8 * world.clients.len() + 8) {
            while let Some(message) = world.net.first().cloned() {
                world.apply(Action::Deliver(message));
            }
            let mut moved = false;
            for client in 0..world.clients.len() {
                match world.clients[client].phase {
                    Phase::Holding { .. } => world.apply(Action::Release(client)),
                    Phase::Asking => world.apply(Action::GiveUpOnReply(client)),
                    Phase::Waiting(until) if until <= world.now() => {
                        world.apply(Action::Wake(client));
                    }
                    Phase::Waiting(_) => continue,
                    Phase::Idle | Phase::Gone => continue,
                }
                moved = true;
            }
            if !moved {
                if !world.clients.iter().any(|c| matches!(c.phase, Phase::Waiting(_))) {
                    return true;
                }
                world.apply(Action::Tick);
            }
        }
        false
    }
}

impl Model for Queue {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let drift = Drift { per_mille: 0, fixed: Duration::ZERO };
        let terms = Terms { ttl: TTL, drift, deadline: None, push: true };
        let client = |share: &Share| Client {
            share: *share,
            machine: Acquisition::new(terms),
            phase: Phase::Idle,
            request: 0,
            pushed: false,
            released: false,
        };
        vec![World {
            tick: 0,
            table: Table::default(),
            clients: self.0.clients.iter().map(client).collect(),
            net: vec![],
            losses: 0,
            leavers: 0,
            downgrades: 0,
            newest: 0,
            disorder: false,
            line: vec![],
            served: vec![],
            overtaken: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // Nothing can happen before somebody asks, and clients are alike: the first starts first.
        let next = world.clients.iter().position(|client| client.phase == Phase::Idle);
        actions.extend(next.map(Action::Start));
        if next != Some(0) && world.tick < self.0.ticks {
            actions.push(Action::Tick);
        }
        for message in &world.net {
            actions.push(Action::Deliver(message.clone()));
            if world.losses < self.0.losses {
                actions.push(Action::Lose(message.clone()));
            }
        }
        for (id, client) in world.clients.iter().enumerate() {
            let may_leave = world.leavers < self.0.leavers;
            match client.phase {
                Phase::Idle => continue,
                Phase::Asking => {
                    let unanswered = !world.net.iter().any(|m| concerns(m, id, client.request));
                    if unanswered {
                        actions.push(Action::GiveUpOnReply(id));
                    }
                }
                Phase::Waiting(until) if until <= world.now() => actions.push(Action::Wake(id)),
                Phase::Waiting(_) => {}
                Phase::Holding { .. } => {
                    actions.push(Action::Release(id));
                    if world.downgrades < self.0.downgrades && client.share == Share::Exclusive {
                        actions.push(Action::Downgrade(id));
                    }
                }
                Phase::Gone => continue,
            }
            if may_leave {
                actions.push(Action::Crash(id));
                if !matches!(client.phase, Phase::Holding { .. }) {
                    actions.push(Action::Cancel(id));
                }
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.apply(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(
                "those who trust a lock never take more of it than there is",
                |_, world: &World| world.trusted() <= u64::from(world.clients[0].share.of()),
            ),
            Property::always("tokens only grow", |_, world: &World| !world.disorder),
            Property::always("who came first is served first", |_, world: &World| !world.overtaken),
            Property::always("nobody who waits is forgotten", |_, world: &World| {
                world.everybody_is_served()
            }),
            Property::sometimes("a lock passes on by push", |_, world: &World| {
                world.clients.iter().any(|client| client.pushed)
            }),
        ];
        if TICK * self.0.ticks as u32 >= TTL {
            let what = "a lock is taken over when its lease ends";
            properties.push(Property::sometimes(what, |_, world: &World| {
                world.newest == 2 && !world.clients.iter().any(|client| client.released)
            }));
        }
        properties
    }
}

fn concerns(message: &Message, id: usize, number: u8) -> bool {
    match message {
        Message::Ask { client, request } | Message::Reply { client, request, .. } => {
            *client == id && *request == number
        }
        Message::Push { .. } | Message::GiveBack { .. } | Message::Downgrade { .. } => false,
    }
}

fn check(bounds: Bounds) {
    let checker = Queue(bounds).checker().spawn_dfs().join();
    println!("{} states", checker.unique_state_count());
    let found: BTreeMap<_, _> =
        checker.discoveries().into_iter().map(|(name, path)| (name, path.to_string())).collect();
    for (name, path) in &found {
        println!("{name}:\n{path}");
    }
    checker.assert_properties();
}

const X: Share = Share::Exclusive;
const R: Share = Share::Read;

#[test]
fn two_clients_with_faults() {
    check(Bounds { clients: &[X, X], ticks: 5, losses: 1, leavers: 1, downgrades: 0 });
}

#[test]
fn three_clients() {
    check(Bounds { clients: &[X, X, X], ticks: 3, losses: 0, leavers: 0, downgrades: 0 });
}

#[test]
fn three_clients_of_which_one_leaves() {
    check(Bounds { clients: &[X, X, X], ticks: 2, losses: 0, leavers: 1, downgrades: 0 });
}

#[test]
fn a_reader_and_a_writer_with_faults() {
    check(Bounds { clients: &[X, R], ticks: 4, losses: 1, leavers: 1, downgrades: 1 });
}

#[test]
fn a_writer_between_readers() {
    check(Bounds { clients: &[R, X, R], ticks: 3, losses: 0, leavers: 0, downgrades: 1 });
}

#[test]
fn permits() {
    const ONE: Share = Share::Permits { count: 1, of: 2 };
    const TWO: Share = Share::Permits { count: 2, of: 2 };
    check(Bounds { clients: &[ONE, TWO, ONE], ticks: 3, losses: 0, leavers: 0, downgrades: 0 });
}
