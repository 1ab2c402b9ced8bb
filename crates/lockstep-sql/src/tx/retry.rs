//! The whole tx once more, a few times, after a while that nobody else waits exactly as long.

use std::collections::hash_map::RandomState;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use lockstep_core::retry::Backoff;

/// How often, and how long between.
///
/// ```
/// use lockstep_sql::tx::Retry;
/// use std::time::Duration;
///
/// let policy = Retry::times(5).between(Duration::from_millis(2), Duration::from_millis(200));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    attempts: u32,
    backoff: Backoff,
    random: fn() -> u64,
}

impl Retry {
    /// At most so many attempts, the first included, and at least one; 5 ms to half a second apart.
    pub const fn times(attempts: u32) -> Self {
        let backoff =
            Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(500) };
        Self { attempts, backoff, random }
    }

    /// The pause before the second attempt is anything up to `first`; the limit doubles each time
    /// and ends at `longest`.
    #[must_use]
    pub const fn between(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = Backoff { first, longest };
        self
    }

    /// Where chance comes from, for tests.
    #[must_use]
    pub const fn random(mut self, random: fn() -> u64) -> Self {
        self.random = random;
        self
    }

    /// The pause after so many failed attempts, or `None` if they were enough.
    fn pause(&self, failed: u32) -> Option<Duration> {
        (failed < self.attempts).then(|| self.backoff.full_jitter(failed, (self.random)()))
    }
}

/// Runs `tx`, which opens, fills and commits a tx, until it succeeds, fails with something that is no
/// conflict, or has been tried often enough. Pauses are on tokio's clock.
///
/// ```
/// use lockstep_sql::tx as sql;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mut failures = 2;
/// let done = sql::retry(sql::Retry::times(5), |error| sql::is_conflict(error), async || {
///     // BEGIN … UPDATE … WHERE version = … COMMIT
///     let changed = if failures > 0 { failures -= 1; 0 } else { 1 };
///     sql::expect_one(changed)
/// });
/// done.await?;
/// # Ok::<(), sql::Failed<sql::NotOneRow>>(()) }).unwrap();
/// ```
///
/// # Errors
/// The last error, with the number of attempts.
///
/// # Cancel safety
/// As safe as `tx` is: dropping it drops the attempt under way.
pub async fn retry<T, E>(
    policy: Retry,
    is_conflict: impl Fn(&E) -> bool,
    mut tx: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, Failed<E>> {
    let mut attempts = 0;
    loop {
        let error = match tx().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        attempts += 1;
        match policy.pause(attempts) {
            Some(pause) if is_conflict(&error) => tokio::time::sleep(pause).await,
            _ => return Err(Failed { attempts, error }),
        }
    }
}

/// The last error of a [`retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed<E> {
    /// How many attempts were made.
    pub attempts: u32,
    /// What the last one said.
    pub error: E,
}

impl<E: fmt::Display> fmt::Display for Failed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempts, error } = self;
        let plural = if *attempts == 1 { "" } else { "s" };
        write!(f, "{error} ({attempts} attempt{plural})")
    }
}

impl<E: Error + 'static> Error for Failed<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// Every state of this hasher has keys of its own.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::super::{Conflict, NotOneRow, expect_one, is_conflict};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn conflicts_are_tried_again_with_growing_pauses_and_only_so_often() {
        let policy = Retry::times(4)
            .between(Duration::from_millis(10), Duration::from_millis(25))
            .random(|| u64::MAX);
        let begun = tokio::time::Instant::now();
        let mut at = vec![];
        let failed = retry(
            policy,
            |error| is_conflict(error),
            async || {
                at.push(begun.elapsed().as_millis());
                expect_one(0)
            },
        );
        let failed = failed.await.unwrap_err();
        assert_eq!(failed, Failed { attempts: 4, error: NotOneRow::Conflict(Conflict) });
        assert_eq!(at, [0, 10, 30, 55], "10, 20, and then no longer than 25");
        assert!(failed.to_string().ends_with("(4 attempts)"), "{failed}");
        assert!(is_conflict(&failed), "what is below counts");
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_starts_at_nothing() {
        let begun = tokio::time::Instant::now();
        let policy = Retry::times(100).random(|| 0);
        let failed = retry(policy, |_| true, async || Err::<(), _>(Conflict)).await.unwrap_err();
        assert_eq!((failed.attempts, begun.elapsed()), (100, Duration::ZERO));
        assert_ne!(random(), random());
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_is_not_tried_again() {
        let several = retry(Retry::times(9), |error| is_conflict(error), async || expect_one(2));
        let failed = several.await.unwrap_err();
        assert_eq!(failed, Failed { attempts: 1, error: NotOneRow::Several { rows: 2 } });
        let never = retry(Retry::times(0), |_| true, async || Err::<(), _>(Conflict)).await;
        assert_eq!(never.unwrap_err().attempts, 1, "at least one");
    }
}
