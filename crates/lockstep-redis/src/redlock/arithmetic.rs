//! How many nodes are enough, and how long their word is good for.

use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{Drift, Lease};

/// The smallest number of nodes such that two groups of it always have one in common: more than half,
/// for an even number as well.
pub const fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Until when a quorum of nodes certainly has the key, if the request to each node that granted was
/// sent at `granted`; `None` if too few granted.
///
/// Each node alone is good until [`Lease::trusted_until`] of its own request. The last moment at which
/// a quorum still is, is the quorum-th largest of those: what all the others say can only end sooner.
///
/// ```
/// use std::time::Duration;
/// use lockstep_core::{Drift, time::Moment};
/// use lockstep_redis::redlock::arithmetic::safe_end;
///
/// let at = |ms| Moment::ZERO + Duration::from_millis(ms);
/// // Five nodes, four have granted; the third of the latest was asked at 20 ms.
/// let end = safe_end(5, vec![at(0), at(20), at(40), at(60)], Duration::from_secs(1), Drift::default());
/// assert_eq!(end, Some(at(20 + 988)));
/// ```
pub fn safe_end(
    nodes: usize,
    mut granted: Vec<Moment>,
    ttl: Duration,
    drift: Drift,
) -> Option<Moment> {
    granted.sort_unstable_by(|a, b| b.cmp(a));
    let sent = *granted.get(quorum(nodes) - 1)?;
    Some(Lease::new(sent, ttl, drift).trusted_until())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// One node that granted: the request left at `sent`, was carried out `travel` later, and the
    /// node's clock runs `rate_ppm` millionths faster (or slower) than ours, `phase` into a millisecond.
    #[derive(Clone, Copy, Debug)]
    struct Node {
        sent: u64,
        travel: u64,
        rate_ppm: i64,
        phase: u64,
        /// How far its wall clock is stepped forward during the hold.
        step_ms: u64,
    }

    impl Node {
        /// When its key ends, on our clock. It counts in whole milliseconds of its own clock, and
        /// rounds down when it starts to count.
        fn ends(self, ttl_ms: u64) -> u64 {
            let own = ttl_ms.saturating_sub(self.step_ms) * MS - self.phase;
            let rate = u128::from((1_000_000 + self.rate_ppm) as u64);
            self.sent + self.travel + (u128::from(own) * 1_000_000 / rate) as u64
        }
    }

    fn node(step_ms: std::ops::Range<u64>) -> impl Strategy<Value = Node> {
        (0..3_000 * MS, 0..2_000 * MS, -10_000i64..10_000, 0..MS, step_ms).prop_map(
            |(sent, travel, rate_ppm, phase, step_ms)| Node {
                sent,
                travel,
                rate_ppm,
                phase,
                step_ms,
            },
        )
    }

    fn cluster(step_ms: std::ops::Range<u64>) -> impl Strategy<Value = (usize, Vec<Node>)> {
        (1usize..=9).prop_flat_map(move |nodes| {
            (Just(nodes), prop::collection::vec(node(step_ms.clone()), 0..=nodes))
        })
    }

    /// Fewer than a quorum have the key just before the safe end, or at one of the ends before it: in
    /// between nothing changes.
    fn broken(nodes: usize, granted: &[Node], ttl_ms: u64) -> bool {
        let sent = granted.iter().map(|node| Moment::from_nanos(node.sent)).collect();
        let ttl = Duration::from_millis(ttl_ms);
        let Some(end) = safe_end(nodes, sent, ttl, Drift::default()) else { return false };
        let still = granted.iter().filter(|node| node.ends(ttl_ms) >= end.as_nanos()).count();
        still < quorum(nodes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn a_quorum_has_the_key_until_the_safe_end(
            (nodes, granted) in cluster(0..1),
            ttl_ms in 20u64..60_000,
        ) {
            prop_assert!(!broken(nodes, &granted, ttl_ms));
        }

        #[test]
        fn it_is_the_longest_promise_that_is_safe(
            (nodes, granted) in cluster(0..1),
            ttl_ms in 1_000u64..60_000,
        ) {
            // With clocks as fast as they may be, and no delay, a promise 4 ms longer is already broken.
            let fastest = |node: &Node| Node { travel: 0, rate_ppm: 10_000, phase: MS - 1, ..*node };
            let granted: Vec<Node> = granted.iter().map(fastest).collect();
            let sent = granted.iter().map(|node| Moment::from_nanos(node.sent)).collect();
            let ttl = Duration::from_millis(ttl_ms);
            if let Some(end) = safe_end(nodes, sent, ttl, Drift::default()) {
                // What 1 % of the ttl is to a clock that is 1 % fast.
                let later = end + Duration::from_millis(4) + ttl / 10_000;
                let still = granted.iter().filter(|n| n.ends(ttl_ms) >= later.as_nanos()).count();
                prop_assert!(still < quorum(nodes));
            }
        }

        #[test]
        fn two_quorums_have_a_node_in_common(nodes in 1usize..=9, a: u16, b: u16) {
            let all = (1u16 << nodes) - 1;
            let (a, b) = (a & all, b & all);
            let enough = |group: u16| group.count_ones() as usize >= quorum(nodes);
            prop_assert!(!(enough(a) && enough(b)) || a & b != 0);
            prop_assert!(quorum(nodes) <= nodes && 2 * (quorum(nodes) - 1) <= nodes);
        }
    }

    /// Nothing in the arithmetic helps against clocks that are *stepped*: the search for a broken
    /// promise must find one, or the tests above prove nothing about steps either way.
    #[test]
    fn clock_steps_break_it() {
        use proptest::test_runner::{Config, TestError, TestRunner};

        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let found =
            runner.run(&(cluster(0..30_000), 1_000u64..60_000), |((nodes, granted), ttl)| {
                prop_assert!(!broken(nodes, &granted, ttl));
                Ok(())
            });
        assert!(matches!(found, Err(TestError::Fail(..))), "{found:?}");
    }
}
