//! Redlock, model-checked: the real [`Round`] and the real [`Standing`] in every client, nodes that
//! restart with nothing in memory, requests and replies that are delayed, reordered and lost (what is never
//! delivered is), and leases that run out. Without the delay after a restart the checker must *find* the two
//! holders that the delay is for.
//!
//! The model is kinder to a second holder than the world: what a client has under way when its round is
//! settled is gone, and what it gives back is gone at once, so that neither is ever in the other's way.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use lockstep_core::Drift;
use lockstep_core::time::Moment;
use lockstep_redis::redlock::round::{Effect, Event, Outcome, Round, Terms, Vote};
use lockstep_redis::redlock::standing::{Fsync, Greeting, Guards, Reading, Rules, Standing};
use stateright::{Checker, HasDiscoveries, Model, Property};

const TICK: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(1);
/// Clocks in the model run alike, and answers take no time within a tick.
const EXACT: Drift = Drift { per_mille: 0, fixed: Duration::ZERO };
/// Before the model's first moment every node has run for so long.
const BEFORE: u64 = 100;

/// How much the checker may try.
#[derive(Clone, Copy)]
struct Bounds {
    nodes: usize,
    ticks: u64,
    restarts: u8,
    guards: Guards,
}

struct Redlock(Bounds);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    tick: u64,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    net: Vec<Message>,
    restarts: u8,
}

/// A server without persistence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    run: u8,
    started: Option<u64>,
    /// Whose key it has, and until which tick.
    key: Option<(usize, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    round: Option<Round>,
    standings: Vec<Standing>,
    asked_at: Moment,
    settled: bool,
    /// Until when it trusts its lock.
    trusts: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    /// Over a connection to this run of the node.
    Ask {
        client: usize,
        node: usize,
        run: u8,
    },
    Reply {
        client: usize,
        node: usize,
        run: u8,
        free: bool,
    },
}

impl Message {
    fn client(&self) -> usize {
        match self {
            Self::Ask { client, .. } | Self::Reply { client, .. } => *client,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Start(usize),
    Deliver(Message),
    Deadline(usize),
    Restart(usize),
    Release(usize),
}

impl World {
    fn now(&self) -> Moment {
        Moment::ZERO + TICK * self.tick as u32
    }

    fn send(&mut self, message: Message) {
        self.net.push(message);
        self.net.sort();
    }

    fn take(&mut self, message: &Message) {
        let at = self.net.iter().position(|other| other == message).expect("it is in the net");
        self.net.remove(at);
    }

    /// The client meets every node, and asks.
    fn start(&mut self, client: usize, bounds: Bounds) {
        let now = self.now();
        for (node, standing) in self.nodes.iter().zip(&mut self.clients[client].standings) {
            let uptime = match node.started {
                None => BEFORE + self.tick,
                Some(tick) => self.tick - tick,
            };
            let micros = self.tick * 1_000_000;
            standing.greeted(&Greeting {
                run_id: node.run.to_string(),
                uptime: TICK * uptime as u32,
                fsync: Fsync::Less,
                replica: false,
                clock: Reading { asked_at: now, answered_at: now, micros },
            });
        }
        let terms =
            Terms { nodes: bounds.nodes, ttl: TTL, drift: EXACT, min_validity: Duration::ZERO };
        let (round, effects) = Round::start(terms, now);
        self.clients[client].round = Some(round);
        self.clients[client].asked_at = now;
        self.act(client, effects);
    }

    fn step(&mut self, client: usize, event: Event) {
        let now = self.now();
        let Some(round) = &mut self.clients[client].round else { return };
        let effects = round.step(now, event);
        self.act(client, effects);
    }

    fn act(&mut self, client: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Ask(node) => {
                    let run = self.nodes[node].run;
                    self.send(Message::Ask { client, node, run });
                }
                Effect::GiveBack(node) => self.give_back(client, node),
                Effect::Settled(outcome) => {
                    self.clients[client].settled = true;
                    self.net.retain(|message| message.client() != client);
                    if let Outcome::Granted { safe_end } = outcome {
                        self.clients[client].trusts = Some(safe_end);
                    }
                }
            }
        }
    }

    fn give_back(&mut self, client: usize, node: usize) {
        let key = &mut self.nodes[node].key;
        *key = key.filter(|(whose, _)| *whose != client);
    }

    fn deliver(&mut self, message: Message) {
        let tick = self.tick;
        match message {
            Message::Ask { client, node, run } => {
                let at = &mut self.nodes[node];
                if at.run != run {
                    // Its connection went with the run it belonged to.
                    let vote = Vote::Void("the connection was lost".into());
                    return self.step(client, Event::Answered { node, vote });
                }
                let free = at.key.is_none();
                if free {
                    at.key = Some((client, tick + TTL.as_secs()));
                }
                self.send(Message::Reply { client, node, run, free });
            }
            Message::Reply { client, node, run, free } => {
                let Client { standings, asked_at, .. } = &self.clients[client];
                let vote = match standings[node].counts(*asked_at) {
                    _ if self.nodes[node].run != run => {
                        Vote::Void("the connection was lost".into())
                    }
                    Err(_) => Vote::Void("it does not count".into()),
                    Ok(()) if free => Vote::Granted,
                    Ok(()) => Vote::Refused { left: TICK, by: 1 },
                };
                self.step(client, Event::Answered { node, vote });
            }
        }
    }

    fn apply(&mut self, action: Action, bounds: Bounds) {
        match action {
            Action::Tick => {
                self.tick += 1;
                // What has run out is as if it had never been.
                let (tick, now) = (self.tick, self.now());
                for node in &mut self.nodes {
                    node.key = node.key.filter(|(_, until)| tick < *until);
                }
                for client in &mut self.clients {
                    client.trusts = client.trusts.filter(|until| now < *until);
                }
            }
            Action::Start(client) => self.start(client, bounds),
            Action::Deliver(message) => {
                self.take(&message);
                self.deliver(message);
            }
            Action::Deadline(client) => self.step(client, Event::Deadline),
            Action::Restart(node) => {
                self.restarts += 1;
                let run = self.nodes[node].run + 1;
                self.nodes[node] = Node { run, started: Some(self.tick), key: None };
            }
            Action::Release(client) => {
                self.clients[client].trusts = None;
                for node in 0..self.nodes.len() {
                    self.give_back(client, node);
                }
            }
        }
    }

    fn holders(&self) -> usize {
        let now = self.now();
        self.clients.iter().filter(|client| client.trusts.is_some_and(|until| now < until)).count()
    }
}

impl Model for Redlock {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let rules = Rules { max_ttl: TTL, drift: EXACT, guards: self.0.guards };
        let client = Client {
            round: None,
            standings: vec![Standing::new(rules); self.0.nodes],
            asked_at: Moment::ZERO,
            settled: false,
            trusts: None,
        };
        vec![World {
            tick: 0,
            nodes: vec![Node { run: 0, started: None, key: None }; self.0.nodes],
            clients: vec![client; 2],
            net: vec![],
            restarts: 0,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // Clients are alike: the first starts first.
        let next = world.clients.iter().position(|client| client.round.is_none());
        actions.extend(next.map(Action::Start));
        if next == Some(0) {
            return;
        }
        if world.tick < self.0.ticks {
            actions.push(Action::Tick);
        }
        for message in &world.net {
            actions.push(Action::Deliver(message.clone()));
        }
        for (id, client) in world.clients.iter().enumerate() {
            if client.trusts.is_some() {
                actions.push(Action::Release(id));
            } else if client.round.is_some() && !client.settled {
                actions.push(Action::Deadline(id));
            }
        }
        if world.restarts < self.0.restarts {
            actions.extend((0..world.nodes.len()).map(Action::Restart));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.apply(action, self.0);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TWO, |_, world: &World| world.holders() < 2),
            Property::sometimes("somebody gets it", |_, world: &World| world.holders() == 1),
            Property::sometimes("the second gets it in the end", |_, world: &World| {
                let second = &world.clients[1];
                second.trusts.is_some_and(|until| world.now() < until)
            }),
            Property::sometimes(
                "somebody is refused by a node that restarted",
                |model: &Self, world: &World| {
                    model.0.restarts == 0
                        || !model.0.guards.delayed_restart
                        || world.clients.iter().any(|client| {
                            let mut standings = client.standings.iter();
                            standings.any(|standing| {
                                standing.run_id() == Some("1")
                                    && standing.counts(client.asked_at).is_err()
                            })
                        })
                },
            ),
        ]
    }
}

const TWO: &str = "never two holders";
const NO_DELAY: Guards = Guards { delayed_restart: false, ..Guards::UP };

fn none_found(bounds: Bounds) {
    let checker = Redlock(bounds).checker().spawn_dfs().join();
    println!("{} states", checker.unique_state_count());
    if let Some(path) = checker.discovery(TWO) {
        panic!("two holders:\n{path}");
    }
    checker.assert_properties();
}

#[test]
fn with_the_delay_a_restart_makes_no_second_holder() {
    none_found(Bounds { nodes: 3, ticks: 2, restarts: 1, guards: Guards::UP });
}

#[test]
fn two_nodes_are_no_better_than_their_quorum_of_two() {
    none_found(Bounds { nodes: 2, ticks: 2, restarts: 2, guards: Guards::UP });
}

/// Five nodes, as in the notes: client 1 locks A, B and C; C restarts and has forgotten; client 2 locks C,
/// D and E.
#[test]
fn without_the_delay_the_double_holder_of_the_notes_is_found() {
    for nodes in [3, 5] {
        let bounds = Bounds { nodes, ticks: 0, restarts: 1, guards: NO_DELAY };
        let wanted = HasDiscoveries::AnyFailures;
        let checker = Redlock(bounds).checker().finish_when(wanted).spawn_dfs().join();
        let path = checker.discovery(TWO).unwrap_or_else(|| panic!("not found with {nodes} nodes"));
        println!("{path}");
        let restarts = |action: &Action| matches!(action, Action::Restart(_));
        let actions = path.into_actions();
        assert!(actions.iter().any(restarts), "a restart is what makes it possible");
    }
}

/// And only a restart: the same freedom without one finds nothing.
#[test]
fn without_a_restart_the_delay_is_not_missed() {
    none_found(Bounds { nodes: 3, ticks: 2, restarts: 0, guards: NO_DELAY });
}
