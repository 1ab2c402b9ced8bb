//! One waiter's watch over the line, pure: it is told what was heard and says what to do.
//!
//! What it guards: a grant is only pushed when the line, as it was read and minus what has left since,
//! has the waiter in front; and nothing that happens between reading the line and listening is missed:
//! a watch that began later than the line was read is a reason to read it again.
//!
//! Near the front it listens to the whole line: then it knows of everybody who leaves and needs not look
//! again. Further back it listens to one key, so that a departure is told to few, however long the line.

use std::collections::BTreeMap;

use lockstep_lock::Share;
use lockstep_lock::line::{Line, Standing};

/// With at most so many ahead a waiter listens to the whole line. So many hear of each departure.
const NEAR: usize = 8;

/// What is listened to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// Every departure from the line.
    Line,
    /// Whatever happens to this key.
    Key(Vec<u8>),
}

/// A waiter.
#[derive(Debug)]
pub(crate) struct Waiter {
    me: Vec<u8>,
    line: Line<Vec<u8>>,
    /// At which revision the line was read.
    read_at: i64,
    /// The last revision of which something was heard.
    heard_at: i64,
    /// What it listens to, and since which revision; `None` until etcd has said so.
    watched: BTreeMap<Target, Option<i64>>,
    looking: bool,
    /// Something happened while it looked that the look may have missed.
    again: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Listen to this.
    Watch(Target),
    /// Do not listen any more.
    Unwatch(Target),
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

    /// etcd tells everything about this after this revision.
    pub(crate) fn listening(&mut self, target: &Target, since: i64) -> Vec<Step> {
        let Some(watch) = self.watched.get_mut(target) else { return vec![] };
        *watch = Some(since);
        if since > self.read_at { self.look().into_iter().collect() } else { vec![] }
    }

    /// Whoever this key stood for has left.
    pub(crate) fn left(&mut self, key: &[u8], at: i64) -> Vec<Step> {
        // A claim's key can go and come back at the end of the line.
        if at <= self.read_at {
            return vec![];
        }
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

    /// The revision at which the line was read.
    pub(crate) fn read_at(&self) -> i64 {
        self.read_at
    }

    /// Whether it listens to the whole line, its own key included.
    pub(crate) fn listens_to_the_line(&self) -> bool {
        self.watched.contains_key(&Target::Line)
    }

    /// What it listened to.
    pub(crate) fn into_watched(self) -> impl Iterator<Item = Target> {
        self.watched.into_keys()
    }

    fn heard(&mut self, at: i64) -> Vec<Step> {
        self.heard_at = self.heard_at.max(at);
        match self.line.standing(&self.me) {
            Some(Standing::Holds) => vec![Step::Grant],
            _ if self.hears_everybody() => vec![],
            // Others may have left of whom it was not told.
            _ => self.look().into_iter().collect(),
        }
    }

    fn hears_everybody(&self) -> bool {
        let since = self.watched.get(&Target::Line).copied().flatten();
        since.is_some_and(|since| since <= self.read_at)
    }

    fn look(&mut self) -> Option<Step> {
        if std::mem::replace(&mut self.looking, true) {
            self.again = true;
            return None;
        }
        Some(Step::Look)
    }

    /// Listens to what the line says, and to nothing else.
    fn settle(&mut self) -> Vec<Step> {
        let watch: Vec<Target> = match self.line.standing(&self.me) {
            Some(Standing::Holds) => return vec![Step::Grant],
            Some(Standing::Waits { watch, .. }) => match self.departures_to_hear() {
                Some(target) => vec![target],
                None => watch.into_iter().map(Target::Key).collect(),
            },
            Some(Standing::Differs { .. }) | None => vec![],
        };
        if watch.is_empty() {
            return vec![Step::Ask];
        }
        let mut steps = vec![];
        let idle: Vec<_> =
            self.watched.keys().filter(|target| !watch.contains(target)).cloned().collect();
        for target in idle {
            self.watched.remove(&target);
            steps.push(Step::Unwatch(target));
        }
        // A line from before what was heard shows somebody who will not be heard of again.
        let mut late = self.heard_at > self.read_at;
        for target in watch {
            match self.watched.get(&target) {
                None => {
                    self.watched.insert(target.clone(), None);
                    steps.push(Step::Watch(target));
                }
                Some(since) => late |= since.is_some_and(|since| since > self.read_at),
            }
        }
        if late {
            steps.extend(self.look());
        }
        steps
    }

    /// For who wants all of the lock nothing but departures matter. Near the front it hears of all of
    /// them; further back of the one that brings it there.
    fn departures_to_hear(&self) -> Option<Target> {
        let ahead = self.line.ahead_of(&self.me)?;
        let share = self.line.entries().get(ahead.len())?.share;
        match ahead.len().checked_sub(NEAR + 1) {
            _ if share.weight() < share.of() => None,
            None => Some(Target::Line),
            Some(place) => Some(Target::Key(ahead[place].id.clone())),
        }
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

    fn key(key: &str) -> Target {
        Target::Key(key.into())
    }

    fn watch(of: &str) -> Step {
        Step::Watch(key(of))
    }

    /// A line of `a`, so many others, and `me`.
    fn long_line(others: usize) -> Line<Vec<u8>> {
        let others: Vec<String> = (0..others).map(|n| format!("o{n}")).collect();
        let keys = std::iter::once("a").chain(others.iter().map(String::as_str)).chain(["me"]);
        line(&keys.collect::<Vec<_>>())
    }

    #[test]
    fn near_the_front_it_hears_everybody_and_needs_not_look() {
        let (mut waiter, steps) = Waiter::new(b"me".to_vec(), line(&["a", "b", "me"]), 10);
        assert_eq!(steps, [Step::Watch(Target::Line)]);
        assert_eq!(waiter.listening(&Target::Line, 10), []);
        assert_eq!(waiter.left(b"b", 13), [], "b gave up while a holds");
        assert_eq!(waiter.left(b"x", 14), [], "somebody behind it");
        assert_eq!(waiter.left(b"a", 20), [Step::Grant]);
    }

    #[test]
    fn who_left_before_the_line_was_read_may_stand_in_it_again() {
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), line(&["a", "me"]), 10);
        waiter.listening(&Target::Line, 5);
        assert_eq!(waiter.left(b"a", 9), [], "it came back before 10 and holds");
        assert_eq!(waiter.left(b"a", 11), [Step::Grant]);
    }

    #[test]
    fn further_behind_it_waits_for_one_and_looks_again_before_it_believes() {
        let (mut waiter, steps) = Waiter::new(b"me".to_vec(), long_line(NEAR + 1), 10);
        assert_eq!(steps, [watch("o0")], "after which as many are ahead as it listens to");
        waiter.listening(&key("o0"), 10);
        assert_eq!(waiter.left(b"o0", 13), [Step::Look], "o0 may have given up while a holds");
        let steps = waiter.read(line(&["a", "o8", "me"]), 14);
        assert_eq!(steps, [Step::Unwatch(key("o0")), Step::Watch(Target::Line)]);
        assert_eq!(waiter.listening(&Target::Line, 15), [Step::Look], "a may have left at 15");
        assert_eq!(waiter.read(line(&["a", "o8", "me"]), 15), []);
        assert_eq!(waiter.left(b"a", 16), []);
        assert_eq!(waiter.left(b"o8", 17), [Step::Grant]);
    }

    #[test]
    fn a_watch_that_began_late_is_a_reason_to_look() {
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), line(&["a", "me"]), 10);
        assert_eq!(waiter.listening(&Target::Line, 11), [Step::Look], "it may have left at 11");
        assert_eq!(
            waiter.read(line(&["a", "me"]), 11),
            [],
            "it had not, and from here on it is heard"
        );
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), line(&["a", "me"]), 10);
        waiter.listening(&Target::Line, 12);
        assert_eq!(waiter.read(line(&["a", "me"]), 11), [Step::Look], "still too early");
        assert_eq!(waiter.read(line(&["me"]), 12), [Step::Grant]);
    }

    #[test]
    fn what_is_heard_while_it_looks_is_not_forgotten() {
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), long_line(NEAR + 1), 10);
        waiter.listening(&key("o0"), 10);
        assert_eq!(waiter.left(b"o0", 13), [Step::Look]);
        assert_eq!(waiter.left(b"x", 13), [], "one look at a time");
        let steps = waiter.read(line(&["a", "me"]), 14);
        assert_eq!(steps.last(), Some(&Step::Look));
    }

    #[test]
    fn an_old_line_does_not_bring_back_who_has_left() {
        let (mut waiter, _) = Waiter::new(b"me".to_vec(), long_line(NEAR + 1), 10);
        waiter.listening(&key("o0"), 10);
        assert_eq!(waiter.left(b"o0", 13), [Step::Look]);
        let steps = waiter.read(long_line(NEAR + 1), 12);
        assert_eq!(steps, [Step::Look], "o0 left at 13 and would be waited for for ever");
    }

    #[test]
    fn a_reader_waits_for_the_writer() {
        let share = |key: &str| if key == "w" { Share::Exclusive } else { Share::Read };
        let entry = |key: &&str| Entry { id: key.as_bytes().to_vec(), share: share(key) };
        let line = Line::new(["r", "w", "s", "me"].iter().map(entry).collect());
        let (_, steps) = Waiter::new(b"me".to_vec(), line, 10);
        assert_eq!(steps, [watch("w")], "which may become a reader without leaving");
    }

    #[test]
    fn without_its_own_key_it_has_to_ask() {
        let (_, steps) = Waiter::new(b"me".to_vec(), line(&["a"]), 10);
        assert_eq!(steps, [Step::Ask]);
    }
}
