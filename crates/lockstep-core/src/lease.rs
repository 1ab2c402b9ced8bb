use std::time::Duration;

use crate::time::Moment;

/// How much a lease is shortened on our side, because the store's clock may run a little faster
/// than ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Drift {
    /// Parts per thousand of the ttl.
    pub per_mille: u32,
    /// And this much whatever the ttl.
    pub fixed: Duration,
}

impl Default for Drift {
    /// 1 % + 2 ms, the figures of the Redlock reference libraries.
    fn default() -> Self {
        Self { per_mille: 10, fixed: Duration::from_millis(2) }
    }
}

impl Drift {
    /// What a lease of `ttl` is worth on our clock.
    pub fn shorten(self, ttl: Duration) -> Duration {
        ttl.saturating_sub(ttl * self.per_mille / 1000).saturating_sub(self.fixed)
    }
}

/// The right to act until a moment on *my* monotonic clock.
///
/// It counts from the moment the request was **sent**, not from when the answer came: the store
/// granted somewhere in between, so this end comes before the store's.
///
/// ```
/// use std::time::Duration;
/// use lockstep_core::{Drift, Lease, time::Moment};
///
/// let asked_at = Moment::ZERO + Duration::from_secs(5);
/// let lease = Lease::new(asked_at, Duration::from_secs(10), Drift::default());
/// assert_eq!(lease.trusted_until(), asked_at + Duration::from_millis(9_898));
/// assert!(!lease.is_trusted(lease.trusted_until()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    asked_at: Moment,
    ttl: Duration,
    trusted_until: Moment,
}

impl Lease {
    /// The lease that a request sent at `asked_at` for `ttl` was granted.
    pub fn new(asked_at: Moment, ttl: Duration, drift: Drift) -> Self {
        Self { asked_at, ttl, trusted_until: asked_at + drift.shorten(ttl) }
    }

    /// When the request was sent that was granted it.
    pub const fn asked_at(self) -> Moment {
        self.asked_at
    }

    /// The first moment at which it must not be acted upon any more.
    pub const fn trusted_until(self) -> Moment {
        self.trusted_until
    }

    /// Whether it may be acted upon.
    pub fn is_trusted(self, now: Moment) -> bool {
        now < self.trusted_until
    }

    /// When to renew: a third of the ttl after it was asked for, so that two renewals may fail and a third
    /// still comes in time.
    pub fn renew_at(self) -> Moment {
        self.asked_at + self.ttl / 3
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// G2, as arithmetic: whatever the delays, and with a store clock up to 1 % fast, trust
        /// has ended when the store's lease ends.
        #[test]
        fn trust_ends_before_the_store_can_grant_again(
            asked_ns in 0u64..1 << 50,
            ttl_ms in 20u64..86_400_000,
            travel_ns in 0u64..1 << 40,
            fast_ppm in 0u64..10_000,
        ) {
            let ttl = Duration::from_millis(ttl_ms);
            let lease = Lease::new(Moment::from_nanos(asked_ns), ttl, Drift::default());
            let granted_ns = asked_ns + travel_ns;
            let ttl_ns = ttl_ms * 1_000_000;
            let store_end_ns = granted_ns + (u128::from(ttl_ns) * 1_000_000 / u128::from(1_000_000 + fast_ppm)) as u64;
            prop_assert!(lease.trusted_until() < Moment::from_nanos(store_end_ns));
        }
    }

    #[test]
    fn a_ttl_shorter_than_the_drift_is_never_trusted() {
        let lease = Lease::new(Moment::ZERO, Duration::from_millis(2), Drift::default());
        assert!(!lease.is_trusted(Moment::ZERO));
    }
}
