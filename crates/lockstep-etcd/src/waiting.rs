//! One waiter's watch over the line, pure: it is told what was heard and says what to do.
//!
//! What it guards: a grant is only pushed when the line, as it was read and minus what has left since,
//! has the waiter in front; and nothing that happens between reading the line and listening is missed:
//! a watch that began later than the line was read is a reason to read it again.

use std::collections::BTreeMap;

use lockstep_lock::Share;
use lockstep_lock::line::{Line, Standing};

/// A waiter.
#[derive(Debug)]
pub(crate) struct Waiter {
    me: Vec<u8>,
    line: Line<Vec<u8>>,
    /// At which revision the line was read.
    read_at: i64,
    /// The last revision of which something was heard.
    heard_at: i64,
    /// Whom it watches, and since which revision; `None` until etcd has said so.
    watched: BTreeMap<Vec<u8>, Option<i64>>,
    looking: bool,
    /// Something happened while it looked that the look may have missed.
    again: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Listen to what happens to this key.
    Watch(Vec<u8>),
    /// Do not listen any more.
    Unwatch(Vec<u8>),
    /// Read the line again.
    Look,
    /// It is its turn.
    Grant,
    /// Somebody asks differently, or its own key is gone: whoever waits has to ask again.
    Ask,
}

impl Waiter {
    /// A waiter that stands in this line.
    pub(crate) fn new(me: Vec<u8>, line: Line<Vec<u8>>, read_at: i64) -> (Self, Vec<Step>) {
        let (watched, looking) = (BTreeMap::new(), false);
        let mut waiter = Self { me, line, read_at, heard_at: 0, watched, looking, again: false };
        let steps = waiter.settle();
        (waiter, steps)
    }

    /// The line was read again.
    pub(crate) fn read(&mut self, line: Line<Vec<u8>>, read_at: i64) -> Vec<Step> {
        self.looking = false;
        // Of two that overtook each other the older one knows nothing.
        if read_at >= self.read_at {
            (self.line, self.read_at) = (line, read_at);
        }
        let mut steps = self.settle();
        if std::mem::take(&mut self.again) && !steps.contains(&Step::Grant) {
            steps.extend(self.look());
        }
        steps
    }

    /// etcd tells of this key everything after this revision.
    pub(crate) fn listening(&mut self, key: &[u8], since: i64) -> Vec<Step> {
        let Some(watch) = self.watched.get_mut(key) else { return vec![] };
        *watch = Some(since);
        if since > self.read_at { self.look().into_iter().collect() } else { vec![] }
    }

    /// Whoever this key stood for has left.
    pub(crate) fn left(&mut self, key: &[u8], at: i64) -> Vec<Step> {
        self.line.leave(&key.to_vec());
        self.heard(at)
    }

    /// Whoever this key stands for wants less now.
    pub(crate) fn weakened(&mut self, key: &[u8], share: Share, at: i64) -> Vec<Step> {
        self.line.weaken(&key.to_vec(), share);
        self.heard(at)
    }

    /// The revision that a look must know of at least.
    pub(crate) fn must_know(&self) -> i64 {
        let since = self.watched.values().flatten().copied().max().unwrap_or(0);
        since.max(self.heard_at).max(self.read_at)
    }

    /// Whom it watched.
    pub(crate) fn into_watched(self) -> impl Iterator<Item = Vec<u8>> {
        self.watched.into_keys()
    }

    fn heard(&mut self, at: i64) -> Vec<Step> {
        self.heard_at = self.heard_at.max(at);
        match self.line.standing(&self.me) {
            Some(Standing::Holds) => vec![Step::Grant],
            // Others may have left of whom it was not told.
            _ => self.look().into_iter().collect(),
        }
    }

    fn look(&mut self) -> Option<Step> {
        if std::mem::replace(&mut self.looking, true) {
            self.again = true;
            return None;
        }
        Some(Step::Look)
    }

    /// Watches whom the line says, and nobody else.
    fn settle(&mut self) -> Vec<Step> {
        let watch = match self.line.standing(&self.me) {
            Some(Standing::Holds) => return vec![Step::Grant],
            Some(Standing::Waits { watch, .. }) if !watch.is_empty() => watch,
            _ => return vec![Step::Ask],
        };
        let mut steps = vec![];
        let idle: Vec<_> =
            self.watched.keys().filter(|key| !watch.contains(key)).cloned().collect();
        for key in idle {
            self.watched.remove(&key);
            steps.push(Step::Unwatch(key));
        }
        // A line from before what was heard shows somebody who will not be heard of again.
        let mut late = self.heard_at > self.read_at;
        for key in watch {
            match self.watched.get(&key) {
                None => {
                    self.watched.insert(key.clone(), None);
                    steps.push(Step::Watch(key));
                }
                Some(since) => late |= since.is_some_and(|since| since > self.read_at),
            }
        }
        if late {
            steps.extend(self.look());
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use lockstep_lock::line::Entry;

    use super::*;

    fn line(keys: &[&str]) -> Line<Vec<u8>> {
        let entry = |key: &&str| Entry { id: key.as_bytes().to_vec(), share: Share::Exclusive };
        Line::new(keys.iter().map(entry).collect())
    }

    fn watch(key: &str) -> Step {
        Step::Watch(key.into())
    }

    #[test]
    fn the_one_behind_the_holder_is_granted_by_one_event() {
        let (mut waiter, steps) = Waiter::new(b"me".to_vec(), line(&["a", "me"]), 10);
        assert_eq!(steps, [watch("a")]);
        assert_eq!(waiter.listening(b"a", 10), []);
        assert_eq!(waiter.left(b"a", 20), [Step::Grant]);
    }

    #[test]
    fn further_behind_it_looks_again_before_it_believes() {
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), line(&["a", "b", "me"]), 10);
        waiter.listening(b"b", 10);
        assert_eq!(waiter.left(b"b", 13), [Step::Look], "b may have given up while a holds");
        let steps = waiter.read(line(&["a", "me"]), 14);
        assert_eq!(steps, [Step::Unwatch(b"b".into()), watch("a")]);
        assert_eq!(waiter.listening(b"a", 14), []);
        assert_eq!(waiter.left(b"a", 20), [Step::Grant]);
    }

    #[test]
    fn a_watch_that_began_late_is_a_reason_to_look() {
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), line(&["a", "me"]), 10);
        assert_eq!(waiter.listening(b"a", 11), [Step::Look], "it may have left at 11");
        assert_eq!(
            waiter.read(line(&["a", "me"]), 11),
            [],
            "it had not, and from here on it is heard"
        );
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), line(&["a", "me"]), 10);
        waiter.listening(b"a", 12);
        assert_eq!(waiter.read(line(&["a", "me"]), 11), [Step::Look], "still too early");
        assert_eq!(waiter.read(line(&["me"]), 12), [Step::Grant]);
    }

    #[test]
    fn what_is_heard_while_it_looks_is_not_forgotten() {
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), line(&["a", "b", "me"]), 10);
        waiter.listening(b"b", 10);
        assert_eq!(waiter.left(b"b", 13), [Step::Look]);
        assert_eq!(waiter.left(b"x", 13), [], "one look at a time");
        let steps = waiter.read(line(&["a", "me"]), 14);
        assert_eq!(steps.last(), Some(&Step::Look));
    }

    #[test]
    fn an_old_line_does_not_bring_back_who_has_left() {
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), line(&["a", "b", "me"]), 10);
        waiter.listening(b"b", 10);
        assert_eq!(waiter.left(b"b", 13), [Step::Look]);
        let steps = waiter.read(line(&["a", "b", "me"]), 12);
        assert_eq!(steps, [Step::Look], "b left at 13 and would be waited for for ever");
    }

    #[test]
    fn without_its_own_key_it_has_to_ask() {
        let (_, steps) = Waiter::new(b"me".to_vec(), line(&["a"]), 10);
        assert_eq!(steps, [Step::Ask]);
    }
}
