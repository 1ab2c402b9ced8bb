//! A later grant has a larger token, and no token is given twice.

use super::Violation;
use super::attempts::Attempts;

/// Grants are compared in the order in which they were heard of. That is the order in which they
/// were given: who hears of a grant while it is trusted hears of it before the next is given.
pub(super) fn violations(attempts: &Attempts<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, stories) in attempts.by_key() {
        let mut largest: Option<(String, u64)> = None;
        for story in stories.iter().filter(|story| story.granted.is_some()) {
            let Some(token) = story.token else { continue };
            let second = (story.name(), token);
            if let Some(first) = largest.as_ref().filter(|(_, largest)| token <= *largest) {
                let (key, first) = (key.to_owned(), first.clone());
                violations.push(Violation::TokenNotLarger { key, first, second });
            } else {
                largest = Some(second);
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::Oracle;
    use super::super::attempts::build::held;
    use super::*;

    #[test]
    fn a_token_that_shrinks_or_comes_twice_is_seen() {
        for token in [6, 7] {
            let oracle =
                Oracle::default().with(held("a", 10, 20, 7)).with(held("b", 30, 40, token));
            let first = ("a#0".to_owned(), 7);
            let second = ("b#0".to_owned(), token);
            let expected = Violation::TokenNotLarger { key: "k".into(), first, second };
            assert_eq!(oracle.check().violations, [expected]);
        }
    }

    #[test]
    fn tokens_of_different_locks_have_nothing_to_do_with_each_other() {
        let mut other = held("b", 30, 40, 1);
        other.iter_mut().for_each(|event| event.key = "other".into());
        let oracle = Oracle::default().with(held("a", 10, 20, 7)).with(other);
        assert!(oracle.check().violations.is_empty());
    }
}
