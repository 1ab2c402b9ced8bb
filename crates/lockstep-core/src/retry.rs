//! Retry as data: how long to wait before the next try.

use std::time::Duration;

/// Growing, jittered delays. Pure: the caller brings the randomness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The first delay.
    pub first: Duration,
    /// No delay is longer.
    pub longest: Duration,
}

impl Backoff {
    /// The delay before try number `tries + 1` after `tries` failures; `random` spreads it over
    /// the upper half, so that clients that failed together do not come back together.
    pub fn delay(self, tries: u32, random: u64) -> Duration {
        let half = self.grown(tries) / 2;
        half + half.mul_f64(random as f64 / u64::MAX as f64)
    }

    /// The same spread over the whole of it, from nothing: for those who collided with each other,
    /// and collide the less the further apart they come back.
    pub fn full_jitter(self, tries: u32, random: u64) -> Duration {
        self.grown(tries).mul_f64(random as f64 / u64::MAX as f64)
    }

    fn grown(self, tries: u32) -> Duration {
        let grown = self.first.saturating_mul(2u32.saturating_pow(tries.saturating_sub(1)));
        grown.min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_longest_and_stay_in_the_upper_half() {
        let backoff =
            Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(100) };
        assert_eq!(backoff.delay(1, 0), Duration::from_millis(5));
        assert_eq!(backoff.delay(1, u64::MAX), Duration::from_millis(10));
        assert_eq!(backoff.delay(3, u64::MAX), Duration::from_millis(40));
        assert_eq!(backoff.delay(99, u64::MAX), Duration::from_millis(100));
        assert_eq!(backoff.delay(u32::MAX, 0), Duration::from_millis(50));
    }

    #[test]
    fn full_jitter_starts_at_nothing_and_has_the_same_end() {
        let backoff =
            Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(100) };
        assert_eq!(backoff.full_jitter(1, 0), Duration::ZERO);
        assert_eq!(backoff.full_jitter(3, u64::MAX), Duration::from_millis(40));
        assert_eq!(backoff.full_jitter(99, u64::MAX), Duration::from_millis(100));
    }
}
