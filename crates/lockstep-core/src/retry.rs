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
        let grown = self.first.saturating_mul(2u32.saturating_pow(tries.saturating_sub(1)));
        let full = grown.min(self.longest);
        let half = full / 2;
        half + half.mul_f64(random as f64 / u64::MAX as f64)
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
}
