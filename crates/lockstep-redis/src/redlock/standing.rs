//! Whether a node's vote counts: pure, told what the node said and when.
//!
//! A quorum only excludes another if the nodes they share *remember*. Three things make a node forget
//! that it has given its word, and each keeps it out for `max_ttl`, the longest time for which anybody
//! may still rely on that word:
//!
//! - it was started not long ago, with nothing that shows that it kept every write;
//! - it is another server than the one that answered here before (a replica took over);
//! - its wall clock jumped, which ended keys too early.
//!
//! What this cannot know: who meets a node for the first time has no older reading of its clock.

use std::fmt;
use std::time::Duration;

use lockstep_core::Drift;
use lockstep_core::time::Moment;

/// What votes are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The longest ttl that any client of these nodes uses.
    pub max_ttl: Duration,
    /// How much faster or slower than ours a clock may run.
    pub drift: Drift,
    /// Which of the guards are up. All, outside of tests.
    pub guards: Guards,
}

/// What can be switched off to see what it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guards {
    /// A node that was started lately does not count.
    pub delayed_restart: bool,
    /// A node whose clock jumped does not count.
    pub clock_watch: bool,
}

impl Guards {
    /// As users have them.
    pub const UP: Self = Self { delayed_restart: true, clock_watch: true };
}

/// What a node says when a connection to it is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Greeting {
    /// The name of this run of the server.
    pub run_id: String,
    /// How long it runs, in whole seconds of its own wall clock.
    pub uptime: Duration,
    /// How much of what it has answered it keeps when it dies.
    pub fsync: Fsync,
    /// Whether it follows another server, and takes what that one has.
    pub replica: bool,
    /// Its clock.
    pub clock: Reading,
}

/// How a node keeps its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fsync {
    /// On disk before it answers.
    EveryWrite,
    /// Not so.
    Less,
    /// It does not tell.
    Unknown,
}

/// What a node's clock said, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    /// When it was asked.
    pub asked_at: Moment,
    /// When the answer was here.
    pub answered_at: Moment,
    /// Microseconds of its wall clock, at some moment in between.
    pub micros: u64,
}

/// Why a vote does not count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Bar {
    /// It has not been asked who it is yet.
    Unknown,
    /// It was started lately, and may have forgotten what it granted before.
    Restarted {
        /// From when on it counts.
        until: Moment,
        /// Whether it does not even tell how it keeps its writes.
        fsync: Fsync,
    },
    /// It is another server than the one that answered here before.
    Replaced {
        /// From when on it counts.
        until: Moment,
    },
    /// Its clock jumped.
    Jumped {
        /// How far, in microseconds; forward if positive.
        by: i64,
        /// From when on it counts.
        until: Moment,
    },
    /// It is a replica: what it is told is overwritten by what its master has.
    Replica,
    /// It is the same server as another node of the list.
    Twin,
}

/// What is known of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    rules: Rules,
    run: Option<Run>,
    clock: Option<Reading>,
    /// An older reading, so that many small steps are seen as well as one large one.
    anchor: Option<Reading>,
    jump: Option<(i64, Moment)>,
    twin: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    id: String,
    last_heard: Moment,
    counts_from: Moment,
    replaced: bool,
    fsync: Fsync,
    replica: bool,
}

impl Standing {
    /// Of a node that nobody has asked yet.
    pub fn new(rules: Rules) -> Self {
        Self { rules, run: None, clock: None, anchor: None, jump: None, twin: false }
    }

    /// Takes in what the node says on a new connection.
    pub fn greeted(&mut self, greeting: &Greeting) {
        self.clock_read(greeting.clock);
        let Greeting { run_id, uptime, fsync, replica, clock } = greeting;
        if let Some(run) = self.run.as_mut().filter(|run| run.id == *run_id) {
            // The same run: what was known from it holds. A later word about its uptime is no better
            // than the first, and worse if its clock was stepped.
            run.fsync = *fsync;
            run.replica = *replica;
            run.last_heard = clock.answered_at;
            return;
        }
        // Both ends of the uptime are whole seconds, so that it may be one too many.
        let certain = uptime.saturating_sub(Duration::from_secs(1));
        // Who ran while another server answered here is not that one started again: however long it
        // runs, and whatever it keeps, it need not know what the other one granted.
        let replaced = self.run.as_ref().is_some_and(|old| {
            certain > clock.answered_at.since(old.last_heard) + Duration::from_secs(1)
        });
        let wait = match replaced {
            true => self.rules.max_ttl,
            false => self.rules.max_ttl.saturating_sub(certain),
        };
        self.run = Some(Run {
            id: run_id.clone(),
            last_heard: clock.answered_at,
            counts_from: clock.answered_at + wait,
            replaced,
            fsync: *fsync,
            replica: *replica,
        });
    }

    /// Takes in what the node's clock says now; answers how far it jumped, if it did.
    pub fn clock_read(&mut self, reading: Reading) -> Option<i64> {
        let Rules { max_ttl, drift, .. } = self.rules;
        let jump = [self.clock, self.anchor]
            .into_iter()
            .flatten()
            .find_map(|earlier| reading.jumped_since(earlier, drift));
        match jump {
            Some(by) => {
                self.jump = Some((by, reading.answered_at + max_ttl));
                self.anchor = None;
            }
            // No lease reaches back further than this.
            None if self
                .anchor
                .is_none_or(|anchor| reading.asked_at.since(anchor.answered_at) > max_ttl) =>
            {
                self.anchor = self.clock;
            }
            None => {}
        }
        if self.clock.is_none_or(|clock| clock.answered_at < reading.answered_at) || jump.is_some()
        {
            self.clock = Some(reading);
        }
        if let Some(run) = &mut self.run {
            run.last_heard = reading.answered_at;
        }
        jump
    }

    /// Whether another node of the list is this very server, and votes for both.
    pub fn set_twin(&mut self, twin: bool) {
        self.twin = twin;
    }

    /// When its clock was last read.
    pub fn clock_read_at(&self) -> Option<Moment> {
        self.clock.map(|clock| clock.answered_at)
    }

    /// The run that was last greeted.
    pub fn run_id(&self) -> Option<&str> {
        self.run.as_ref().map(|run| &*run.id)
    }

    /// Whether its answer to a request that was sent at `sent_at` counts.
    ///
    /// # Errors
    /// Why it does not.
    pub fn counts(&self, sent_at: Moment) -> Result<(), Bar> {
        let Some(run) = &self.run else { return Err(Bar::Unknown) };
        if run.replica {
            return Err(Bar::Replica);
        }
        if self.twin {
            return Err(Bar::Twin);
        }
        let Guards { delayed_restart, clock_watch } = self.rules.guards;
        let until = run.counts_from;
        if delayed_restart && sent_at < until {
            if run.replaced {
                return Err(Bar::Replaced { until });
            }
            if run.fsync != Fsync::EveryWrite {
                return Err(Bar::Restarted { until, fsync: run.fsync });
            }
        }
        match self.jump {
            Some((by, until)) if clock_watch && sent_at < until => Err(Bar::Jumped { by, until }),
            _ => Ok(()),
        }
    }
}

impl Reading {
    /// How far the clock jumped between `earlier` and this, in microseconds, if a clock that runs at
    /// an allowed rate cannot show both.
    fn jumped_since(self, earlier: Self, drift: Drift) -> Option<i64> {
        // Signed, because answers to several requests are taken in in any order.
        let between = |from: Moment, to: Moment| {
            (to.as_nanos() / 1000).cast_signed() - (from.as_nanos() / 1000).cast_signed()
        };
        let least = between(earlier.answered_at, self.asked_at);
        let most = between(earlier.asked_at, self.answered_at);
        let allowed = |span: i64| span.abs() / 1000 * i64::from(drift.per_mille);
        let fixed = i64::try_from(drift.fixed.as_micros()).unwrap_or(i64::MAX);
        let passed = self.micros.cast_signed().saturating_sub(earlier.micros.cast_signed());
        if passed < least - allowed(least) - fixed {
            return Some(passed - least);
        }
        (passed > most + allowed(most) + fixed).then_some(passed - most)
    }
}

impl Bar {
    /// In words; `now` turns moments into how long.
    pub fn told(&self, now: Moment) -> String {
        let left = |until: &Moment| Seconds(until.since(now));
        match self {
            Self::Unknown => "it has not said yet who it is".into(),
            Self::Restarted { until, fsync } => {
                let why = match fsync {
                    Fsync::EveryWrite => "",
                    Fsync::Less => ", does not fsync every write",
                    Fsync::Unknown => ", does not tell whether it fsyncs every write (CONFIG GET)",
                };
                format!("it was started lately{why}: its vote counts in {}", left(until))
            }
            Self::Replaced { until } => format!(
                "another server answers there than before: its vote counts in {}",
                left(until)
            ),
            Self::Jumped { by, until } => format!(
                "its clock jumped by {:+.1} s: its vote counts in {}",
                *by as f64 / 1e6,
                left(until)
            ),
            Self::Replica => "it is a replica, not a server of its own".into(),
            Self::Twin => "it is the same server as another node of the URL".into(),
        }
    }
}

/// A duration for people: seconds, rounded up.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_millis().div_ceil(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules { max_ttl: Duration::from_secs(60), drift: Drift::default(), guards: Guards::UP }
    }

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    /// A reading that took `trip_ms`, of a clock that is `ahead_ms` ahead of ours.
    fn reading(ms: u64, trip_ms: u64, ahead_ms: i64) -> Reading {
        let micros = ((ms + trip_ms / 2) as i64 + ahead_ms + 1_000_000_000) as u64 * 1000;
        Reading { asked_at: at(ms), answered_at: at(ms + trip_ms), micros }
    }

    fn greeting(run_id: &str, uptime: u64, fsync: Fsync, ms: u64) -> Greeting {
        let (run_id, uptime) = (run_id.to_owned(), Duration::from_secs(uptime));
        Greeting { run_id, uptime, fsync, replica: false, clock: reading(ms, 2, 0) }
    }

    fn greeted(greetings: &[Greeting]) -> Standing {
        let mut standing = Standing::new(rules());
        for greeting in greetings {
            standing.greeted(greeting);
        }
        standing
    }

    #[test]
    fn nobody_counts_unasked() {
        assert_eq!(Standing::new(rules()).counts(at(0)), Err(Bar::Unknown));
    }

    #[test]
    fn a_node_counts_once_it_has_run_for_the_longest_ttl() {
        let young = greeted(&[greeting("a", 10, Fsync::Less, 0)]);
        // Ten seconds may be nine and a little.
        let until = at(51_002);
        assert_eq!(young.counts(at(51_001)), Err(Bar::Restarted { until, fsync: Fsync::Less }));
        assert_eq!(young.counts(until), Ok(()));
        assert_eq!(greeted(&[greeting("a", 61, Fsync::Less, 0)]).counts(at(2)), Ok(()));
        assert!(greeted(&[greeting("a", 60, Fsync::Less, 0)]).counts(at(2)).is_err());
    }

    #[test]
    fn only_a_node_that_provably_keeps_every_write_need_not_wait() {
        let counts = |fsync| greeted(&[greeting("a", 0, fsync, 0)]).counts(at(5));
        assert_eq!(counts(Fsync::EveryWrite), Ok(()));
        assert!(counts(Fsync::Less).is_err());
        assert!(counts(Fsync::Unknown).is_err());
    }

    #[test]
    fn the_first_word_about_an_uptime_is_the_one_that_counts() {
        // Its clock was stepped forward, and it says that it runs for an hour.
        let standing =
            greeted(&[greeting("a", 1, Fsync::Less, 0), greeting("a", 3_600, Fsync::Less, 1_000)]);
        assert!(standing.counts(at(59_000)).is_err());
        assert!(standing.counts(at(61_000)).is_ok());
    }

    #[test]
    fn another_run_waits_by_its_own_uptime() {
        let standing =
            greeted(&[greeting("a", 3_600, Fsync::Less, 0), greeting("b", 2, Fsync::Less, 30_000)]);
        assert!(matches!(standing.counts(at(40_000)), Err(Bar::Restarted { .. })));
        assert!(standing.counts(at(90_000)).is_ok());
    }

    #[test]
    fn a_replica_that_takes_over_waits_however_long_it_has_run_and_whatever_it_keeps() {
        let standing = greeted(&[
            greeting("a", 3_600, Fsync::EveryWrite, 0),
            greeting("b", 3_000, Fsync::EveryWrite, 1_000),
        ]);
        assert_eq!(standing.counts(at(2_000)), Err(Bar::Replaced { until: at(61_002) }));
        assert!(standing.counts(at(61_002)).is_ok());
        let replica = Greeting { replica: true, ..greeting("a", 99, Fsync::EveryWrite, 0) };
        assert_eq!(greeted(&[replica]).counts(at(5)), Err(Bar::Replica));
    }

    #[test]
    fn a_clock_that_jumps_keeps_its_node_out_for_the_longest_ttl() {
        for (jump, direction) in [(500, 1), (-500, -1)] {
            let mut standing = greeted(&[greeting("a", 600, Fsync::EveryWrite, 0)]);
            assert_eq!(standing.clock_read(reading(1_000, 2, 0)), None);
            let by = standing.clock_read(reading(2_000, 2, jump)).unwrap();
            assert_eq!(by.signum(), direction);
            assert!((by.abs() - 500_000).abs() < 5_000, "{by}");
            assert_eq!(standing.clock_read(reading(3_000, 2, jump)), None, "it stays there");
            assert!(matches!(standing.counts(at(10_000)), Err(Bar::Jumped { .. })));
            assert!(standing.counts(at(62_002)).is_ok());
        }
    }

    #[test]
    fn rates_that_are_allowed_and_slow_answers_are_no_jumps() {
        let mut standing = greeted(&[greeting("a", 600, Fsync::Less, 0)]);
        for second in 1..100u64 {
            // 0.9 % fast, and every third answer takes 400 ms.
            let trip = if second % 3 == 0 { 400 } else { 2 };
            let ahead = (second * 9) as i64;
            assert_eq!(standing.clock_read(reading(second * 1_000, trip, ahead)), None, "{second}");
        }
        assert!(standing.counts(at(100_000)).is_ok());
    }

    #[test]
    fn answers_that_overtake_each_other_are_no_jumps() {
        let mut standing = greeted(&[greeting("a", 600, Fsync::Less, 0)]);
        assert_eq!(standing.clock_read(reading(1_030, 20, 0)), None);
        assert_eq!(standing.clock_read(reading(1_000, 60, 0)), None);
        assert_eq!(standing.clock_read(reading(1_000, 10, 0)), None);
        assert_eq!(standing.clock_read_at(), Some(at(1_060)));
        assert!(standing.counts(at(2_000)).is_ok());
    }

    #[test]
    fn many_small_steps_are_a_jump() {
        let mut standing = greeted(&[greeting("a", 600, Fsync::Less, 0)]);
        // 3 ms each time are within what two round trips and the fixed part of the drift allow.
        let steps = (1..60).find_map(|n| standing.clock_read(reading(n * 100, 2, 3 * n as i64)));
        assert!(steps.is_some());
    }

    #[test]
    fn reasons_are_told_in_words() {
        let told = |bar: Bar| bar.told(at(1_000));
        let until = at(43_500);
        assert_eq!(
            told(Bar::Restarted { until, fsync: Fsync::Less }),
            "it was started lately, does not fsync every write: its vote counts in 43 s"
        );
        assert_eq!(
            told(Bar::Jumped { by: -20_000_000, until }),
            "its clock jumped by -20.0 s: its vote counts in 43 s"
        );
    }
}
