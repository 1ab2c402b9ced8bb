//! What a test and its puppets say to each other, one line of JSON each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What every line from a puppet starts with; a test runner writes lines of its own between them.
pub(super) const MARK: &str = "@puppet ";
/// Set in a process that is a puppet; anything else is a test run by a person.
pub(super) const ROLE_ENV: &str = "LOCKSTEP_STORY_ROLE";
/// Where the puppet finds the store.
pub(super) const URL_ENV: &str = "LOCKSTEP_STORY_URL";

/// What the test tells a puppet to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Ask once, answer [`Word::Held`] or [`Word::Busy`].
    Try { name: String, ttl_ms: u64 },
    /// Wait for this share of the lock, answer [`Word::Asked`] and then [`Word::Held`].
    Lock { name: String, share: String, ttl_ms: u64 },
    /// Ask for the lock and stop for ever when the store has granted it and before the answer is
    /// heard; answer [`Word::AtPoint`].
    LockUnheard { name: String, ttl_ms: u64 },
    /// Answer [`Word::State`].
    Look,
    /// Release, answer [`Word::Released`] or [`Word::NotHeld`].
    Release,
    /// Read the counter, answer [`Word::Read`].
    Read { counter: PathBuf },
    /// Write one more than was read, without asking anybody; answer [`Word::Written`].
    Write { counter: PathBuf },
    /// Increment the counter under the lock so many times, answer [`Word::Worked`].
    Work { name: String, rounds: u64, counter: PathBuf, log: PathBuf, client: String },
    /// End in order.
    End,
}

/// What a puppet answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    Ready,
    /// The store has answered the first ask.
    Asked,
    Held {
        token: Option<u64>,
        trusted_until_ns: u64,
    },
    Busy,
    AtPoint,
    State {
        trusted: bool,
    },
    Released,
    NotHeld,
    Read,
    Written,
    Worked {
        acknowledged: u64,
    },
    Failed {
        error: String,
    },
}
