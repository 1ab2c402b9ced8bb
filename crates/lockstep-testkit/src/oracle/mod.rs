//! Judges that know nothing of how locks work: clients write down what they saw and when, and
//! the [`Oracle`] says afterwards whether that can be.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use lockstep_lock::{Locks, memory::Memory};
//! use lockstep_testkit::oracle::{Oracle, Recorder};
//!
//! let recorder = Recorder::in_memory("one");
//! let locks = Locks::open(Memory::new()).await?;
//! let mut attempt = recorder.asks("order:42");
//! let guard = locks.lock("order:42").await?;
//! attempt.granted(&guard);
//! attempt.releases(&guard);
//! guard.release().await?;
//!
//! let verdict = Oracle::default().with(recorder.events()).check();
//! assert_eq!((verdict.grants, verdict.violations.len()), (1, 0));
//! # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
//! ```
//!
//! All times are nanoseconds of one machine's CLOCK_BOOTTIME, which its processes share: *who held
//! what when* is checked against true time, which a test over several machines could not do.
//! Logs are lines of JSON, so those of several processes can be put together.

mod attempts;
mod counter;
mod fence;
mod fifo;
mod log;
mod overlap;
mod tokens;

use std::fmt;
use std::path::Path;

use attempts::Attempts;
pub use counter::{Counter, LostUpdates};
pub use fence::{Fence, Stale};
pub use log::{Attempt, Event, Recorder, What};

/// Collects what was seen and judges it.
#[derive(Debug, Default)]
pub struct Oracle {
    events: Vec<Event>,
}

/// What the oracle found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How many grants were judged; a history without any proves nothing.
    pub grants: usize,
    /// What cannot be.
    pub violations: Vec<Violation>,
}

/// Something that must never be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Two clients trusted the same lock at the same time.
    Overlap {
        /// The lock.
        key: String,
        /// Who had it.
        first: String,
        /// Who had it too.
        second: String,
        /// For how long both did.
        both_ns: u64,
    },
    /// A later grant has a token that is not larger.
    TokenNotLarger {
        /// The lock.
        key: String,
        /// The earlier grant and its token.
        first: (String, u64),
        /// The later grant and its token.
        second: (String, u64),
    },
    /// Somebody who asked later was served earlier.
    OutOfTurn {
        /// The lock.
        key: String,
        /// Who was in the queue.
        waiting: String,
        /// Who asked after that and was served before.
        served: String,
    },
}

impl Oracle {
    /// Adds what a client saw.
    #[must_use]
    pub fn with(mut self, events: impl IntoIterator<Item = Event>) -> Self {
        self.events.extend(events);
        self
    }

    /// Adds a log that a process has left. A last line that was cut off by its death is left out.
    ///
    /// # Errors
    /// The file cannot be read, or has something else in it.
    pub fn with_log(self, path: &Path) -> anyhow::Result<Self> {
        Ok(self.with(log::read(path)?))
    }

    /// Judges the history: exclusion by true time, tokens, and order of arrival.
    pub fn check(&self) -> Verdict {
        self.judge(true)
    }

    /// The same for a store that does not promise to serve in the order of arrival.
    pub fn check_unfair(&self) -> Verdict {
        self.judge(false)
    }

    fn judge(&self, fair: bool) -> Verdict {
        let attempts = Attempts::of(&self.events);
        let mut violations = overlap::violations(&attempts);
        violations.extend(tokens::violations(&attempts));
        if fair {
            violations.extend(fifo::violations(&attempts));
        }
        Verdict { grants: attempts.grants(), violations }
    }
}

impl Verdict {
    /// The number of grants, if nothing is wrong with them.
    ///
    /// # Errors
    /// Everything that is.
    pub fn into_result(self) -> anyhow::Result<usize> {
        let Self { grants, violations } = self;
        let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        anyhow::ensure!(lines.is_empty(), "{} violations:\n{}", lines.len(), lines.join("\n"));
        anyhow::ensure!(grants > 0, "nothing was granted, so nothing is proved");
        Ok(grants)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { key, first, second, both_ns } => {
                let both = std::time::Duration::from_nanos(*both_ns);
                write!(f, "`{key}`: {first} and {second} both trusted it for {both:?}")
            }
            Self::TokenNotLarger { key, first, second } => write!(
                f,
                "`{key}`: {} had the token {} and after it {} the token {}",
                first.0, first.1, second.0, second.1
            ),
            Self::OutOfTurn { key, waiting, served } => {
                write!(
                    f,
                    "`{key}`: {served} asked after {waiting} was queued, and was served first"
                )
            }
        }
    }
}
