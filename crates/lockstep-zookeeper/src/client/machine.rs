//! One session as a pure machine: which server to dial, what to say first, when to ping, when to
//! give a connection up. It knows no clock, no task and no socket.
//!
//! Nothing here says that a session lives: a server that has lost its leader goes on answering
//! pings. Pings keep the session, and only an answer that came through the leader proves it.

use std::time::Duration;

use lockstep_core::retry::Backoff;
use lockstep_core::time::Moment;

use super::wire::Greeting;

const PAUSE: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };

/// How long a server may take to be reached and to greet.
const DIAL_MIN: Duration = Duration::from_millis(250);
const DIAL_MAX: Duration = Duration::from_secs(2);

/// No connection is given up for a shorter silence.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    Start,
    Greeted(Greeting),
    /// A frame came, and says how far its server is.
    Heard(i64),
    /// A frame went out.
    Sent,
    /// A request went out.
    Asked,
    /// A request was answered; are there others?
    Answered {
        all: bool,
    },
    /// The connection could not be made, or is gone.
    Broken,
    /// The moment waited for has come.
    Woke,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Dial this server.
    Dial(usize),
    Ping,
    HangUp,
    /// Requests can be sent; `fresh`: the session is new.
    Up {
        fresh: bool,
    },
    /// Every server has been tried, and none took us.
    Nobody,
    /// The session is over for good.
    Expired,
}

/// What is said first on every connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) last_zxid: i64,
    pub(crate) timeout_ms: i32,
    /// Zero for a new one.
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Credentials {
    id: i64,
    password: Vec<u8>,
    timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Dialing {
        give_up: Moment,
    },
    Up {
        sent: Moment,
        /// Since when something has been said and nothing heard.
        unheard: Option<Moment>,
        /// Since when a request has been waiting for its answer, if one has.
        asked: Option<Moment>,
    },
    Pausing {
        until: Moment,
    },
    Over,
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    servers: usize,
    /// Where the next dial goes.
    next: usize,
    wished: Duration,
    session: Option<Credentials>,
    last_zxid: i64,
    phase: Phase,
    /// How many servers in a row did not take us.
    failures: u32,
    random: u64,
}

impl Machine {
    /// A session that would live for `wished` without its client; `random` chooses the first server.
    pub(crate) fn new(servers: usize, wished: Duration, random: u64) -> Self {
        let next = (random % servers as u64) as usize;
        let (session, phase) = (None, Phase::Idle);
        Self { servers, next, wished, session, last_zxid: 0, phase, failures: 0, random }
    }

    /// The session's number, once it has one.
    pub(crate) fn session(&self) -> Option<(i64, Duration)> {
        self.session.as_ref().map(|session| (session.id, session.timeout))
    }

    /// When to be woken.
    pub(crate) fn wake_at(&self) -> Moment {
        match self.phase {
            Phase::Idle | Phase::Over => Moment::MAX,
            Phase::Dialing { give_up: at } | Phase::Pausing { until: at } => at,
            Phase::Up { sent, unheard, asked } => {
                let oldest = unheard.into_iter().chain(asked).min();
                let leave = oldest.map_or(Moment::MAX, |oldest| oldest + self.silence());
                leave.min(sent + self.ping_after())
            }
        }
    }

    /// A server that is behind what we have seen refuses us, so that nothing we saw is unseen.
    pub(crate) fn hello(&self) -> Hello {
        let none = Credentials { id: 0, password: vec![0; 16], timeout: self.wished };
        let Credentials { id, password, timeout } = self.session.clone().unwrap_or(none);
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        Hello { last_zxid: self.last_zxid, timeout_ms, session: id, password }
    }

    pub(crate) fn step(&mut self, now: Moment, event: Event) -> Vec<Effect> {
        match (self.phase, event) {
            (Phase::Idle, _) => self.dial(now),
            (Phase::Dialing { .. }, Event::Greeted(greeting)) => self.greeted(now, greeting),
            (Phase::Dialing { .. }, Event::Broken | Event::Woke) => self.failed(now),
            (Phase::Up { sent, asked, .. }, Event::Heard(zxid)) => {
                self.last_zxid = self.last_zxid.max(zxid);
                self.phase = Phase::Up { sent, unheard: None, asked };
                vec![]
            }
            (Phase::Up { unheard, asked, .. }, Event::Sent) => {
                self.phase = Phase::Up { sent: now, unheard: unheard.or(Some(now)), asked };
                vec![]
            }
            (Phase::Up { unheard, asked, .. }, Event::Asked) => {
                let (unheard, asked) = (unheard.or(Some(now)), asked.or(Some(now)));
                self.phase = Phase::Up { sent: now, unheard, asked };
                vec![]
            }
            (Phase::Up { sent, unheard, .. }, Event::Answered { all }) => {
                let asked = if all { None } else { Some(now) };
                self.phase = Phase::Up { sent, unheard, asked };
                vec![]
            }
            (Phase::Up { .. }, Event::Broken) => self.redial(now),
            (Phase::Up { sent, unheard, asked }, Event::Woke) => {
                let silent = |since: Moment| since + self.silence() <= now;
                if unheard.into_iter().chain(asked).any(silent) {
                    self.redial(now)
                } else if sent + self.ping_after() <= now {
                    vec![Effect::Ping]
                } else {
                    vec![]
                }
            }
            (Phase::Pausing { until }, Event::Woke) if until <= now => self.dial(now),
            (Phase::Pausing { .. } | Phase::Over | Phase::Dialing { .. }, _) => vec![],
            (Phase::Up { .. }, Event::Start | Event::Greeted(_)) => vec![],
        }
    }

    fn greeted(&mut self, now: Moment, greeting: Greeting) -> Vec<Effect> {
        if greeting.timeout_ms <= 0 {
            self.phase = Phase::Over;
            return vec![Effect::HangUp, Effect::Expired];
        }
        let fresh = self.session.is_none();
        self.session = Some(Credentials {
            id: greeting.session,
            password: greeting.password,
            timeout: Duration::from_millis(greeting.timeout_ms as u64),
        });
        self.failures = 0;
        self.phase = Phase::Up { sent: now, unheard: None, asked: None };
        vec![Effect::Up { fresh }]
    }

    fn dial(&mut self, now: Moment) -> Vec<Effect> {
        let part = self.timeout() / (self.servers as u32 + 1);
        self.phase = Phase::Dialing { give_up: now + part.clamp(DIAL_MIN, DIAL_MAX) };
        vec![Effect::Dial(self.next)]
    }

    /// The next server is tried at once: the session does not wait.
    fn redial(&mut self, now: Moment) -> Vec<Effect> {
        self.next = (self.next + 1) % self.servers;
        let mut effects = vec![Effect::HangUp];
        effects.extend(self.dial(now));
        effects
    }

    fn failed(&mut self, now: Moment) -> Vec<Effect> {
        self.failures += 1;
        if !self.failures.is_multiple_of(self.servers as u32) {
            return self.redial(now);
        }
        self.next = (self.next + 1) % self.servers;
        let round = self.failures / self.servers as u32;
        self.random = self.random.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
        let until = now + PAUSE.delay(round, self.random);
        self.phase = Phase::Pausing { until };
        vec![Effect::HangUp, Effect::Nobody]
    }

    fn timeout(&self) -> Duration {
        self.session.as_ref().map_or(self.wished, |session| session.timeout)
    }

    /// Often enough that what the leader last heard of us is never much older than what we last
    /// proved to it: decision 15.
    fn ping_after(&self) -> Duration {
        self.timeout() / 6
    }

    /// A server that is silent for so long, or answers pings and nothing else because it has lost
    /// its leader, is not worth waiting for, and there is still time to prove the session through
    /// another.
    fn silence(&self) -> Duration {
        (self.timeout() / 4).max(SILENCE_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Moment {
        Moment::ZERO + SECOND * seconds
    }

    fn greeting() -> Greeting {
        Greeting { timeout_ms: 12_000, session: 5, password: vec![7; 16] }
    }

    fn up() -> Machine {
        let mut machine = Machine::new(3, SECOND * 12, 0);
        assert_eq!(machine.step(at(0), Event::Start), [Effect::Dial(0)]);
        assert_eq!((machine.hello().session, machine.hello().last_zxid), (0, 0));
        assert_eq!(machine.step(at(0), Event::Greeted(greeting())), [Effect::Up { fresh: true }]);
        machine
    }

    #[test]
    fn a_session_goes_on_at_the_next_server_and_says_what_it_has_seen() {
        let mut machine = up();
        machine.step(at(1), Event::Heard(44));
        machine.step(at(1), Event::Heard(43));
        assert_eq!(machine.step(at(1), Event::Broken), [Effect::HangUp, Effect::Dial(1)]);
        let hello = Hello { last_zxid: 44, timeout_ms: 12_000, session: 5, password: vec![7; 16] };
        assert_eq!(machine.hello(), hello);
        assert_eq!(machine.step(at(1), Event::Greeted(greeting())), [Effect::Up { fresh: false }]);
    }

    #[test]
    fn it_pings_when_it_has_said_nothing_and_leaves_who_says_nothing() {
        let mut machine = up();
        assert_eq!(machine.wake_at(), at(2));
        assert_eq!(machine.step(at(2), Event::Woke), [Effect::Ping]);
        machine.step(at(2), Event::Sent);
        assert_eq!(machine.wake_at(), at(4));
        assert_eq!(machine.step(at(4), Event::Woke), [Effect::Ping]);
        machine.step(at(4), Event::Sent);
        assert_eq!(machine.wake_at(), at(5), "three seconds after the first that was not answered");
        assert_eq!(machine.step(at(5), Event::Woke), [Effect::HangUp, Effect::Dial(1)]);
    }

    #[test]
    fn it_leaves_who_only_answers_pings() {
        let mut machine = up();
        machine.step(at(1), Event::Asked);
        assert_eq!(machine.step(at(3), Event::Woke), [Effect::Ping]);
        machine.step(at(3), Event::Sent);
        machine.step(at(3), Event::Heard(0));
        assert_eq!(machine.wake_at(), at(4));
        assert_eq!(machine.step(at(4), Event::Woke), [Effect::HangUp, Effect::Dial(1)]);

        let mut machine = up();
        machine.step(at(1), Event::Asked);
        machine.step(at(2), Event::Heard(0));
        machine.step(at(2), Event::Answered { all: true });
        machine.step(at(3), Event::Sent);
        assert_eq!(machine.step(at(4), Event::Woke), [], "it has nothing to answer");
    }

    #[test]
    fn after_a_round_of_refusals_it_says_so_and_pauses() {
        let mut machine = Machine::new(2, SECOND * 12, 1);
        assert_eq!(machine.step(at(0), Event::Start), [Effect::Dial(1)]);
        assert_eq!(machine.step(at(0), Event::Broken), [Effect::HangUp, Effect::Dial(0)]);
        assert_eq!(machine.step(at(0), Event::Broken), [Effect::HangUp, Effect::Nobody]);
        let until = machine.wake_at();
        assert!(at(0) < until && until <= at(1));
        assert_eq!(machine.step(until, Event::Woke), [Effect::Dial(1)]);
        // A server that takes the connection and never greets is left as well.
        let give_up = machine.wake_at();
        assert_eq!(machine.step(give_up, Event::Woke), [Effect::HangUp, Effect::Dial(0)]);
    }

    #[test]
    fn a_session_that_is_over_stays_over() {
        let mut machine = up();
        machine.step(at(1), Event::Broken);
        let over = Greeting { timeout_ms: 0, session: 0, password: vec![0; 16] };
        let effects = machine.step(at(1), Event::Greeted(over));
        assert_eq!(effects, [Effect::HangUp, Effect::Expired]);
        assert_eq!(machine.wake_at(), Moment::MAX);
        assert_eq!(machine.step(at(2), Event::Woke), []);
    }
}
