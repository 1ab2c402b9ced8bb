use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockstep_core::time::{Clock, Moment};
use lockstep_lock::clock::SystemClock;

/// The machine's clock plus what the test has added: a machine that was suspended.
#[derive(Debug, Default)]
pub struct JumpingClock {
    ahead_ns: AtomicU64,
}

impl JumpingClock {
    /// Goes on as if the machine had slept this long.
    pub fn jump(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.ahead_ns.fetch_add(by, Ordering::AcqRel);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Moment {
        SystemClock.now() + Duration::from_nanos(self.ahead_ns.load(Ordering::Acquire))
    }
}
