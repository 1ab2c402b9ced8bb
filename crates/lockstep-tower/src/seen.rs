//! The highest tokens seen, in this process's memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockstep_core::time::{Clock, Moment};
use lockstep_core::{Key, Token};
use lockstep_lock::clock::SystemClock;
use parking_lot::Mutex;
use tokio::sync::RwLock;

use crate::gate::{Admission, Gate, Refusal};

/// The default [`Gate`]: a bounded memory. A lock that nothing has come for in an hour may be
/// forgotten when there is no room; when all are younger, requests for further locks are refused,
/// because to forget one would let its late writes in.
pub struct HighestSeen {
    locks: Mutex<HashMap<Key, Entry>>,
    capacity: usize,
    keep: Duration,
    clock: Arc<dyn Clock>,
}

struct Entry {
    /// Read by who is being served with it, written by who raises it.
    highest: Arc<RwLock<Token>>,
    last: Moment,
}

impl HighestSeen {
    /// Room for 65 536 locks.
    #[expect(clippy::new_without_default, reason = "two defaults would be two different memories")]
    pub fn new() -> Self {
        Self::with_room_for(65_536, Duration::from_secs(3600))
    }

    /// Room for so many locks, of which those may be forgotten that were not asked for in `keep`.
    pub fn with_room_for(capacity: usize, keep: Duration) -> Self {
        Self { locks: Mutex::default(), capacity, keep, clock: Arc::new(SystemClock) }
    }

    /// The same with another clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    fn entry(&self, lock: &Key) -> Option<Arc<RwLock<Token>>> {
        let now = self.clock.now();
        let mut locks = self.locks.lock();
        if let Some(entry) = locks.get_mut(lock) {
            entry.last = now;
            return Some(Arc::clone(&entry.highest));
        }
        if locks.len() >= self.capacity {
            // In use means that somebody beside the map has it.
            locks.retain(|_, entry| {
                Arc::strong_count(&entry.highest) > 1 || now.since(entry.last) < self.keep
            });
        }
        if locks.len() >= self.capacity {
            return None;
        }
        let highest = Arc::new(RwLock::new(Token::new(0)));
        locks.insert(lock.clone(), Entry { highest: Arc::clone(&highest), last: now });
        Some(highest)
    }
}

impl Gate for HighestSeen {
    fn admit<'a>(
        &'a self,
        lock: &'a Key,
        token: Token,
    ) -> BoxFuture<'a, Result<Admission, Refusal>> {
        Box::pin(async move {
            let Some(highest) = self.entry(lock) else {
                return Err(Refusal::Unknown("too many locks to remember their tokens".to_owned()));
            };
            let mut seen = Arc::clone(&highest).read_owned().await;
            if *seen < token {
                // Waits for who is being served with a smaller one; those who come later wait behind.
                drop(seen);
                let mut raised = highest.write_owned().await;
                *raised = token.max(*raised);
                seen = raised.downgrade();
            }
            if *seen > token {
                return Err(Refusal::Stale { seen: *seen });
            }
            Ok(Admission::keeping(seen))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Hands(AtomicU64);

    impl Clock for Hands {
        fn now(&self) -> Moment {
            Moment::from_nanos(self.0.load(Ordering::Relaxed))
        }
    }

    #[tokio::test]
    async fn a_full_memory_forgets_only_what_is_old_and_at_rest() {
        let hands = Arc::new(Hands::default());
        let keep = Duration::from_nanos(10);
        let seen = HighestSeen::with_room_for(2, keep).clock(hands.clone());
        let [a, b, c] = ["a", "b", "c"].map(|name| Key::new(name).unwrap());
        let busy = seen.admit(&a, Token::new(1)).await.ok();
        assert!(busy.is_some() && seen.admit(&b, Token::new(7)).await.is_ok());
        assert!(matches!(seen.admit(&c, Token::new(1)).await, Err(Refusal::Unknown(_))));
        assert!(matches!(
            seen.admit(&b, Token::new(6)).await,
            Err(Refusal::Stale { seen }) if seen == Token::new(7)
        ));
        hands.0.store(20, Ordering::Relaxed);
        assert!(seen.admit(&c, Token::new(1)).await.is_ok(), "b is old");
        assert!(matches!(seen.admit(&b, Token::new(6)).await, Err(Refusal::Unknown(_))));
    }
}
