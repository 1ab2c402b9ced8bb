//! The checking side for plain Redis writes: what a replaced holder sends is refused by the server.
//!
//! Beside the key that is written stands another, `{key}:fence`, with the highest token that a write
//! has come with. Both are looked at and changed in one script, so nothing can come between. It works on
//! any connection of the `redis` crate, also on another server than the one that keeps the lock,
//! and with the guards of any store that counts.
//!
//! ```no_run
//! # async fn example(connection: &mut redis::aio::MultiplexedConnection, guard: &lockstep_lock::Guard)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use lockstep_redis::fence::{Fence, GuardedScript};
//!
//! let fence = Fence::of(guard).ok_or("this store has no tokens")?;
//! fence.set(connection, "stock:7", 41).await?;
//!
//! let take = GuardedScript::new("return redis.call('DECRBY', KEYS[1], ARGV[1])");
//! let left: i64 = fence.run(connection, &take, &["stock:7"], &["5"]).await?;
//! # Ok(()) }
//! ```
//!
//! The fence has no ttl: it must live as long as a late write can come. Delete it together with what it protects,
//! and not sooner.

use lockstep_core::{Effect, ErrorKind, StoreError, Token};
use lockstep_lock::Guard;
use redis::aio::ConnectionLike;
use redis::{FromRedisValue, RedisError, Script, ToRedisArgs, ToSingleRedisArg};

use crate::error::STORE;

/// Stands before what a guarded script does. Keys and arguments of its own come last, so that those of
/// the script keep their numbers. Tokens are compared as text: a number of Lua has only 53 bits.
const GUARD: &str = include_str!("scripts/fence.lua");
const STALE: &str = "LOCKSTEPSTALE";

/// A token that goes with every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence(Token);

/// A script of yours that runs only for who has not been replaced.
#[derive(Debug)]
pub struct GuardedScript(Script);

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A later holder has written already.
    #[error("`{key}` has been written with token {seen}; {token} is out of date")]
    Stale {
        /// What was to be written.
        key: String,
        /// The token that came with it.
        token: Token,
        /// The highest that was seen.
        seen: Token,
    },
    /// Redis could not be asked, or said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Fence {
    /// The fence of a guard; `None` if its store does not count.
    pub fn of(guard: &impl AsRef<Guard>) -> Option<Self> {
        guard.as_ref().token().map(Self)
    }

    /// The same with a token that came another way.
    pub const fn new(token: Token) -> Self {
        Self(token)
    }

    /// `SET key value`, unless a later holder has written to the key before.
    ///
    /// # Errors
    /// [`FenceError::Stale`] is the one that matters.
    pub async fn set(
        &self,
        connection: &mut impl ConnectionLike,
        key: &str,
        value: impl ToSingleRedisArg,
    ) -> Result<(), FenceError> {
        let set = GuardedScript::new("redis.call('SET', KEYS[1], ARGV[1])");
        self.run(connection, &set, &[key], value).await
    }

    /// Runs a script of yours with these keys, of which the first says what is protected, and these
    /// arguments.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub async fn run<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        script: &GuardedScript,
        keys: &[&str],
        arguments: impl ToRedisArgs,
    ) -> Result<T, FenceError> {
        let Some(&first) = keys.first() else {
            return Err(StoreError::config(STORE, "a guarded script needs a key").into());
        };
        let mut call = script.0.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        call.key(beside(first)).arg(arguments).arg(self.0.get());
        call.invoke_async(connection).await.map_err(|error| self.judge(first, error))
    }

    fn judge(&self, key: &str, error: RedisError) -> FenceError {
        let seen = error.detail().and_then(|detail| detail.parse().ok());
        if let (Some(STALE), Some(seen)) = (error.code(), seen) {
            return FenceError::Stale {
                key: key.to_owned(),
                token: self.0,
                seen: Token::new(seen),
            };
        }
        let (kind, effect) = match error.code() {
            None => (ErrorKind::Unavailable, Effect::Unknown),
            Some("NOPERM" | "NOAUTH") => (ErrorKind::Denied, Effect::None),
            Some("LOADING" | "BUSY" | "READONLY" | "TRYAGAIN") => (ErrorKind::Busy, Effect::None),
            // A script of yours may have come half-way.
            Some(_) => (ErrorKind::Foreign, Effect::Unknown),
        };
        StoreError::new(STORE, kind, effect, error.to_string()).with_source(error).into()
    }
}

impl GuardedScript {
    /// A script in Lua; `KEYS` and `ARGV` are as it is called with, and one of ours behind them.
    pub fn new(text: &str) -> Self {
        Self(Script::new(&format!("{GUARD}\n{text}")))
    }
}

/// In a cluster it belongs to the same slot: a key with a hash tag keeps it, any other becomes one.
fn beside(key: &str) -> String {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    match tag {
        Some((tag, _)) if !tag.is_empty() => format!("{key}:fence"),
        _ => format!("{{{key}}}:fence"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_in_the_slot_of_what_it_protects() {
        assert_eq!(beside("stock:7"), "{stock:7}:fence");
        assert_eq!(beside("{shop}:stock"), "{shop}:stock:fence");
        assert_eq!(beside("a{}b"), "{a{}b}:fence");
    }
}
