//! No two clients trust one lock at the same time.

use super::Violation;
use super::attempts::Attempts;

pub(super) fn violations(attempts: &Attempts<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, stories) in attempts.by_key() {
        // Sorted by start, so only the one that has lasted longest so far can reach into the next.
        let mut longest: Option<(u64, String)> = None;
        for story in stories {
            let Some((start, end)) = story.held() else { continue };
            if let Some((until, first)) = &longest
                && start < *until
                && start < end
            {
                violations.push(Violation::Overlap {
                    key: key.to_owned(),
                    first: first.clone(),
                    second: story.name(),
                    both_ns: end.min(*until) - start,
                });
            }
            if longest.as_ref().is_none_or(|(until, _)| *until < end) {
                longest = Some((end, story.name()));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::attempts::build::{event, held};
    use super::super::{Oracle, What};
    use super::*;

    #[test]
    fn one_after_the_other_is_fine() {
        let oracle = Oracle::default().with(held("a", 10, 20, 1)).with(held("b", 20, 30, 2));
        assert_eq!(oracle.check().into_result().unwrap(), 2);
    }

    #[test]
    fn two_at_once_are_seen() {
        let oracle = Oracle::default().with(held("a", 10, 20, 1)).with(held("b", 17, 30, 2));
        let overlap = Violation::Overlap {
            key: "k".into(),
            first: "a#0".into(),
            second: "b#0".into(),
            both_ns: 3,
        };
        assert_eq!(oracle.check().violations, [overlap]);
    }

    #[test]
    fn two_at_once_are_seen_also_behind_a_third() {
        let oracle = Oracle::default()
            .with(held("a", 10, 100, 1))
            .with(held("b", 20, 20, 2))
            .with(held("c", 50, 60, 3));
        assert_eq!(oracle.check().violations.len(), 1);
    }

    /// A late release is no crime if trust had ended before.
    #[test]
    fn trust_that_ended_in_time_is_fine_and_trust_that_did_not_is_seen() {
        let late = |until_ns| {
            let mut events = held("a", 10, 90, 1);
            events.push(event(90, "a", What::TrustEnded { until_ns }));
            Oracle::default().with(events).with(held("b", 40, 50, 2))
        };
        assert!(late(40).check().violations.is_empty());
        assert_eq!(late(41).check().violations.len(), 1);
    }

    #[test]
    fn the_dead_are_judged_by_their_last_look() {
        let dead = |until_ns| {
            let events = [
                event(10, "a", What::Granted { token: Some(1) }),
                event(12, "a", What::Trusted { until_ns: 20 }),
                event(18, "a", What::Trusted { until_ns }),
            ];
            Oracle::default().with(events).with(held("b", 30, 40, 2))
        };
        assert!(dead(30).check().violations.is_empty());
        assert_eq!(dead(31).check().violations.len(), 1);
    }

    #[test]
    fn a_history_without_grants_proves_nothing() {
        assert!(Oracle::default().check().into_result().is_err());
    }
}
