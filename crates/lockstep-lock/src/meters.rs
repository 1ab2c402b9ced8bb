//! What is counted for every lock. Its names are made once for a handle: to make one is to allocate and
//! to hash, and a free lock would do both three times.

use std::time::Duration;

use metrics::{Gauge, Key, Label, Level, Metadata, with_recorder};

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

pub(crate) struct Meters {
    wait: Key,
    hand_over: Key,
    hold: Key,
    grants: Key,
    queue: Key,
}

/// Somebody who waits, for as long as this lives: counted twice by the same gauge, also if the program's
/// recorder is another one by then.
pub(crate) struct Waits(Gauge);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Meters {
    pub(crate) fn of(store: &'static str) -> Self {
        let key = |name| Key::from_parts(name, vec![Label::from_static_parts("store", store)]);
        Self {
            wait: key("lockstep_wait_seconds"),
            hand_over: key("lockstep_hand_over_seconds"),
            hold: key("lockstep_hold_seconds"),
            grants: key("lockstep_grants_total"),
            queue: key("lockstep_queue_length"),
        }
    }

    /// A lock was granted after this long.
    pub(crate) fn granted(&self, waited: Duration) {
        record(&self.wait, waited);
        with_recorder(|recorder| recorder.register_counter(&self.grants, &METADATA)).increment(1);
    }

    /// Somebody begins to wait.
    pub(crate) fn waits(&self) -> Waits {
        let queue = with_recorder(|recorder| recorder.register_gauge(&self.queue, &METADATA));
        queue.increment(1.0);
        Waits(queue)
    }

    /// The store had said so this long before.
    pub(crate) fn handed_over(&self, ago: Duration) {
        record(&self.hand_over, ago);
    }

    /// It was held this long.
    pub(crate) fn held(&self, time: Duration) {
        record(&self.hold, time);
    }
}

// The recorder is asked each time: a program may install it after it has opened a handle.
fn record(key: &Key, time: Duration) {
    let histogram = with_recorder(|recorder| recorder.register_histogram(key, &METADATA));
    histogram.record(time.as_secs_f64());
}
