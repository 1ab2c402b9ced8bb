//! What the answers of all nodes to a release or a break come to, as a pure machine.

use lockstep_core::{ErrorKind, StoreError};

use super::arithmetic::quorum;
use crate::error;

/// The answers so far.
#[derive(Debug)]
pub(super) struct Count {
    had: usize,
    had_not: usize,
    void: Vec<Option<String>>,
    /// What a person must settle.
    lasting: Option<StoreError>,
}

/// How it ends.
#[derive(Debug)]
pub(super) enum Verdict {
    /// There was something, and it is gone.
    Done,
    /// There was nothing.
    NotHeld,
    /// Too few nodes answer: which do not, and why.
    NoQuorum(Vec<(usize, String)>),
    /// A node refuses, and will until a person has settled it.
    Refused(StoreError),
}

impl Count {
    /// No answers of `nodes` yet.
    pub(super) fn of(nodes: usize) -> Self {
        let silent = || Some("it did not answer in time".to_owned());
        let void = std::iter::repeat_with(silent).take(nodes).collect();
        Self { had: 0, had_not: 0, void, lasting: None }
    }

    /// A node says whether it had what was asked for, or why it cannot say.
    pub(super) fn take(&mut self, node: usize, answer: Result<bool, StoreError>) {
        self.void[node] = match answer {
            Ok(had) => {
                self.had += usize::from(had);
                self.had_not += usize::from(!had);
                None
            }
            Err(error) => {
                let why = error::words(&error);
                if error.kind() == ErrorKind::Foreign {
                    self.lasting = Some(error);
                }
                Some(why)
            }
        };
    }

    /// Whether a quorum had it, as soon as no further answer can change that. On a node or two it may
    /// have lived on when somebody else had taken the others.
    pub(super) fn quorum_had_it(&self) -> Option<bool> {
        let nodes = self.void.len();
        if self.had >= quorum(nodes) {
            Some(true)
        } else if self.had_not > nodes - quorum(nodes) {
            Some(false)
        } else {
            None
        }
    }

    /// What comes of a release if nobody else is waited for: what a quorum says, whatever the others do.
    pub(super) fn released(self) -> Verdict {
        match self.quorum_had_it() {
            Some(true) => Verdict::Done,
            Some(false) => Verdict::NotHeld,
            None => self.verdict(),
        }
    }

    /// The same where anything that a node had counts.
    pub(super) fn verdict(self) -> Verdict {
        let nodes = self.void.len();
        match self.lasting {
            Some(error) => Verdict::Refused(error),
            None if self.had + self.had_not < quorum(nodes) => {
                let void = self.void.into_iter().enumerate();
                Verdict::NoQuorum(void.filter_map(|(node, why)| Some((node, why?))).collect())
            }
            None if self.had > 0 => Verdict::Done,
            None => Verdict::NotHeld,
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_core::Effect;
    use proptest::prelude::*;

    use super::*;

    /// h: had it; n: had not; v: no answer; f: one that nobody understands.
    fn answer(letter: char) -> Result<bool, StoreError> {
        let error = |kind| Err(StoreError::new("redlock", kind, Effect::Unknown, "so"));
        match letter {
            'h' => Ok(true),
            'n' => Ok(false),
            'v' => error(ErrorKind::Unavailable),
            'f' => error(ErrorKind::Foreign),
            other => panic!("no answer is called {other}"),
        }
    }

    /// A count of nodes that answer in this order; a dot has not answered.
    fn count(letters: &str) -> Count {
        let mut count = Count::of(letters.len());
        for (node, letter) in letters.chars().enumerate().filter(|(_, letter)| *letter != '.') {
            count.take(node, answer(letter));
        }
        count
    }

    #[test]
    fn it_is_known_as_soon_as_nothing_can_change_it() {
        for (letters, known) in [
            ("hh.", Some(true)),
            ("h..", None),
            ("hv.", None),
            ("nn.", Some(false)),
            ("nv.", None),
            ("hnv", None),
            ("hhnnn", Some(false)),
            ("hhnn.", None),
            ("hhnnh", Some(true)),
            // Of four nodes three are a quorum, so two that had nothing are enough.
            ("nn..", Some(false)),
            ("hhn.", None),
            ("h", Some(true)),
            ("n", Some(false)),
        ] {
            assert_eq!(count(letters).quorum_had_it(), known, "{letters}");
        }
    }

    #[test]
    fn who_does_not_answer_is_named() {
        let Verdict::NoQuorum(void) = count("h.v").verdict() else { panic!("one is no quorum") };
        let nodes: Vec<usize> = void.iter().map(|(node, _)| *node).collect();
        assert_eq!(nodes, [1, 2]);
        assert!(void[0].1.contains("in time") && void[1].1.contains("so"), "{void:?}");
    }

    #[test]
    fn what_is_left_undecided_is_done_if_anybody_had_it() {
        assert!(matches!(count("hnv").verdict(), Verdict::Done));
        assert!(matches!(count("nnv").verdict(), Verdict::NotHeld));
        assert!(matches!(count("hnf").verdict(), Verdict::Refused(_)));
    }

    #[test]
    fn a_release_is_what_the_quorum_says_whoever_answers_first() {
        for letters in ["fhh", "hfh", "hhf", "vhh"] {
            assert!(matches!(count(letters).released(), Verdict::Done), "{letters}");
        }
        for letters in ["fnn", "nfn", "nnf", "vnn", "hnn"] {
            assert!(matches!(count(letters).released(), Verdict::NotHeld), "{letters}");
        }
        assert!(matches!(count("hfv").released(), Verdict::Refused(_)));
    }

    proptest! {
        /// Nobody waits for the slow ones, so what they say must not matter.
        #[test]
        fn later_answers_change_nothing(letters in "[hnvf]{1,7}") {
            let nodes = letters.chars().count();
            let mut count = Count::of(nodes);
            let mut known = None;
            for (node, letter) in letters.chars().enumerate() {
                count.take(node, answer(letter));
                let now = count.quorum_had_it();
                prop_assert!(known.is_none() || known == now, "{letters}: {known:?}, then {now:?}");
                known = now;
            }
            let had = letters.matches('h').count();
            prop_assert_eq!(known == Some(true), had > nodes / 2);
        }
    }
}
