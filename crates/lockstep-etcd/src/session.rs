//! A lease of this handle at etcd, and until when etcd has promised it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockstep_core::time::Moment;

/// A lease is kept alive at this part of its time.
const KEEP_ALIVE_PART: u32 = 8;

/// How long etcd shall keep a claim of this ttl whose process says nothing, in seconds: half as
/// much again, so that trust ends at two thirds of it.
pub(crate) fn seconds_for(ttl: Duration) -> u64 {
    let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX / 4);
    (millis + millis / 2).div_ceil(1_000).max(1)
}

/// How long a lease must be promised from now on for a claim of this ttl: a quarter longer than its
/// holder trusts it, so that a clock at etcd that runs a little faster than ours does no harm.
pub(crate) fn promised_for(ttl: Duration) -> Duration {
    ttl + ttl / 4
}

/// One lease.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) lease: i64,
    /// What was asked for, in seconds; etcd may have granted more.
    pub(crate) seconds: u64,
    /// What etcd has granted.
    pub(crate) time: Duration,
    confirmed_until: AtomicU64,
    dead: AtomicBool,
}

impl Session {
    pub(crate) fn new(lease: i64, seconds: u64, granted: Duration, asked_at: Moment) -> Self {
        Self {
            lease,
            seconds,
            time: granted,
            confirmed_until: (asked_at + granted).as_nanos().into(),
            dead: false.into(),
        }
    }

    /// etcd has confirmed it, in answer to what was *sent* at this moment. From the answer's moment it
    /// would be too long: the lease counts from when the request arrived.
    pub(crate) fn confirmed(&self, sent_at: Moment, time: Duration) {
        self.confirmed_until.fetch_max((sent_at + time).as_nanos(), Ordering::AcqRel);
    }

    /// Whether etcd has promised to keep it until then. Never again once it was gone: its keys are.
    pub(crate) fn lives_until(&self, until: Moment) -> bool {
        !self.is_dead() && until.as_nanos() <= self.confirmed_until.load(Ordering::Acquire)
    }

    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Release);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    pub(crate) fn keep_alive_every(&self) -> Duration {
        self.time / KEEP_ALIVE_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_lease_outlasts_the_ttl_by_half_and_is_of_whole_seconds() {
        for (ttl_ms, seconds) in [(1, 1), (600, 1), (700, 2), (2_000, 3), (30_000, 45)] {
            assert_eq!(seconds_for(Duration::from_millis(ttl_ms)), seconds, "{ttl_ms} ms");
        }
    }

    #[test]
    fn a_lease_counts_from_what_was_sent_and_never_comes_back() {
        let session = Session::new(1, 2, Duration::from_secs(2), at(0));
        assert!(session.lives_until(at(2_000)) && !session.lives_until(at(2_001)));
        session.confirmed(at(500), Duration::from_secs(2));
        session.confirmed(at(100), Duration::from_secs(2));
        assert!(session.lives_until(at(2_500)) && !session.lives_until(at(2_501)));
        session.die();
        session.confirmed(at(900), Duration::from_secs(2));
        assert!(!session.lives_until(at(0)));
    }
}
