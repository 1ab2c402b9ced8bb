//! Who was known to be in the queue before somebody else asked is served first.

use super::Violation;
use super::attempts::Attempts;

pub(super) fn violations(attempts: &Attempts<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, stories) in attempts.by_key() {
        for waiting in stories.iter().filter(|story| !story.gave_up) {
            let Some(queued) = waiting.queued else { continue };
            let served_at = waiting.granted.unwrap_or(u64::MAX);
            let passed = stories.iter().find(|other| {
                other.asked.is_some_and(|asked| asked > queued)
                    && other.granted.is_some_and(|granted| granted < served_at)
            });
            if let Some(other) = passed {
                violations.push(Violation::OutOfTurn {
                    key: key.to_owned(),
                    waiting: waiting.name(),
                    served: other.name(),
                });
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::attempts::build::{event, held};
    use super::super::{Event, Oracle, What};
    use super::*;

    fn waits(client: &str, asked: u64, queued: u64) -> Vec<Event> {
        vec![event(asked, client, What::Asked), event(queued, client, What::Queued)]
    }

    #[test]
    fn who_jumps_the_queue_is_seen() {
        let oracle = Oracle::default()
            .with(waits("a", 1, 5))
            .with(held("a", 50, 60, 3))
            .with(held("b", 30, 40, 2));
        let expected =
            Violation::OutOfTurn { key: "k".into(), waiting: "a#0".into(), served: "b#0".into() };
        assert_eq!(oracle.check().violations, [expected]);
        assert!(oracle.check_unfair().violations.is_empty());
    }

    #[test]
    fn who_is_never_served_is_seen_unless_it_gave_up() {
        let oracle = || Oracle::default().with(waits("a", 1, 5)).with(held("b", 30, 40, 2));
        assert_eq!(oracle().check().violations.len(), 1);
        let gave_up = event(20, "a", What::GaveUp);
        assert!(oracle().with([gave_up]).check().violations.is_empty());
    }

    #[test]
    fn who_asked_before_the_other_was_known_to_queue_may_be_first() {
        let oracle = Oracle::default().with(waits("a", 1, 29)).with(held("b", 30, 40, 2));
        assert!(oracle.check().violations.is_empty());
    }
}
