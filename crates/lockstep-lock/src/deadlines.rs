//! When to give back what nobody has asked about any more, pure: for stores whose own leases are
//! sessions and belong to a whole handle (docs/decisions/0013). A claim whose ttl has run out must go
//! although its session lives; the adapter keeps one of these and deletes what it names.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use lockstep_core::time::Moment;

/// The deadlines of all claims of one handle, holders and waiters alike.
#[derive(Clone, Debug)]
pub struct Deadlines<K> {
    ends: HashMap<K, Moment>,
    order: BTreeSet<(Moment, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { ends: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Copy + Eq + Ord + Hash> Deadlines<K> {
    /// The claim lives at least until then. Never makes its life shorter: what was promised stays
    /// promised, whatever order answers come in.
    pub fn extend(&mut self, claim: K, until: Moment) {
        let before = self.ends.get(&claim).copied();
        if before.is_some_and(|before| before >= until) {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, claim));
        }
        self.ends.insert(claim, until);
        self.order.insert((until, claim));
    }

    /// The claim is gone, or somebody else's.
    pub fn remove(&mut self, claim: K) {
        if let Some(end) = self.ends.remove(&claim) {
            self.order.remove(&(end, claim));
        }
    }

    /// Until when the claim lives.
    pub fn end(&self, claim: K) -> Option<Moment> {
        self.ends.get(&claim).copied()
    }

    /// When something ends next.
    pub fn next(&self) -> Option<Moment> {
        self.order.first().map(|(at, _)| *at)
    }

    /// A claim whose time is over, if there is one; it is removed.
    pub fn take_ended(&mut self, now: Moment) -> Option<K> {
        let (at, claim) = self.order.first().copied()?;
        if now < at {
            return None;
        }
        self.remove(claim);
        Some(claim)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn they_end_in_order_and_only_when_their_time_has_come() {
        let mut deadlines = Deadlines::default();
        deadlines.extend('b', at(20));
        deadlines.extend('a', at(10));
        deadlines.extend('c', at(30));
        assert_eq!(deadlines.next(), Some(at(10)));
        assert_eq!(deadlines.take_ended(at(9)), None);
        deadlines.remove('b');
        assert_eq!(deadlines.take_ended(at(30)), Some('a'));
        assert_eq!(deadlines.take_ended(at(30)), Some('c'));
        assert_eq!((deadlines.take_ended(at(30)), deadlines.is_empty()), (None, true));
    }

    #[test]
    fn what_was_promised_is_never_taken_back() {
        let mut deadlines = Deadlines::default();
        deadlines.extend('a', at(20));
        deadlines.extend('a', at(10));
        assert_eq!((deadlines.end('a'), deadlines.next()), (Some(at(20)), Some(at(20))));
        deadlines.extend('a', at(40));
        assert_eq!(deadlines.take_ended(at(39)), None);
        assert_eq!(deadlines.take_ended(at(40)), Some('a'));
    }
}
