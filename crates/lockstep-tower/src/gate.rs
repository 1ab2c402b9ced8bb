//! Who decides whether a token is out of date.

use futures_util::future::BoxFuture;
use lockstep_core::{Key, Token};

/// Remembers the highest token of each lock.
pub trait Gate: Send + Sync + 'static {
    /// Lets a request in, or not. As long as its [`Admission`] lives, no higher token of the same lock
    /// should be let in.
    fn admit<'a>(
        &'a self,
        lock: &'a Key,
        token: Token,
    ) -> BoxFuture<'a, Result<Admission, Refusal>>;
}

/// A request is being served; dropped when the answer is there.
pub struct Admission(
    #[expect(dead_code, reason = "it is there to be dropped")] Option<Box<dyn Send + Sync>>,
);

impl Admission {
    /// An admission that keeps something until it ends.
    pub fn keeping(what: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(what)))
    }

    /// An admission that keeps nobody out meanwhile.
    pub const fn open() -> Self {
        Self(None)
    }
}

/// Why a request is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A higher token has been seen.
    Stale {
        /// Which.
        seen: Token,
    },
    /// It cannot be said now, and the reason.
    Unknown(String),
}
