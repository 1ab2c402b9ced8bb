//! A lock as a line of entries in the order in which they came, pure: for stores that keep one node
//! per claim and no table of who holds what. Whoever reads the line can tell who holds.
//!
//! The rule is the one of [`queue`](crate::queue) (docs/decisions/0007): walk from the front; who
//! fits holds; the first that does not fit waits, and so does everybody behind it. Entries only come
//! at the end and go anywhere, and a share only shrinks. So whoever holds goes on holding until it
//! goes, and *what was seen ahead of an entry can only become less*: a line that was read once and
//! from which the known departures are taken never shows a hold too early.

use crate::share::Share;

/// A claim in the line. What somebody else's program put there counts as what its form says, and
/// as exclusive if it says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<I> {
    /// Which node it is.
    pub id: I,
    /// How much of the lock it takes or wants.
    pub share: Share,
}

/// The entries of one lock, as they were when somebody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<I> {
    entries: Vec<Entry<I>>,
    /// So many more stand before the entry at this place.
    gap: Option<(usize, u64)>,
}

/// How one entry stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing<I> {
    /// It holds its share.
    Holds,
    /// It waits.
    Waits {
        /// How many wait before it.
        ahead: u64,
        /// Whose departure, or smaller share, to watch for: as long as nothing happens to these, it
        /// goes on waiting. Empty if the line has a gap where they would have to be looked for.
        watch: Vec<I>,
    },
    /// The lock is in use with another total.
    Differs {
        /// The total it is in use with.
        of: u32,
    },
}

impl<I: Clone + PartialEq> Line<I> {
    /// A line of which all entries are known, up to the one that is asked about at least.
    pub fn new(entries: Vec<Entry<I>>) -> Self {
        Self { entries, gap: None }
    }

    /// A long line of which only both ends are known, with so many between them. It is enough for
    /// who wants all of the lock, as long as the entry before it is known.
    pub fn with_gap(front: Vec<Entry<I>>, hidden: u64, back: Vec<Entry<I>>) -> Self {
        let gap = (hidden > 0).then_some((front.len(), hidden));
        Self { entries: [front, back].concat(), gap }
    }

    /// The known entries, from the front.
    pub fn entries(&self) -> &[Entry<I>] {
        &self.entries
    }

    /// How many of the known entries, from the front, hold the lock.
    pub fn holders(&self) -> usize {
        let Some(first) = self.entries.first() else { return 0 };
        let of = first.share.of();
        let known = self.gap.map_or(self.entries.len(), |(at, _)| at);
        let mut used = 0;
        self.entries[..known]
            .iter()
            .take_while(|entry| {
                used += u64::from(entry.share.weight());
                // Another total is somebody who is about to be told so, and will go.
                entry.share.of() == of && used <= u64::from(of)
            })
            .count()
    }

    /// How this entry stands; `None` if it is not in the line.
    ///
    /// Who wants all of the lock holds when nobody is ahead, so it watches the entry right before
    /// it: nobody else can be the last to go, and one departure wakes one waiter. A reader holds
    /// when no writer is ahead, so it watches the last of those. For part of the permits no single
    /// entry will do: whoever is ahead may make room by going, and one that waited before may begin to
    /// hold without anything happening to its own entry; so all of them are watched.
    pub fn standing(&self, id: &I) -> Option<Standing<I>> {
        let place = self.entries.iter().position(|entry| entry.id == *id)?;
        let (before, share) = (&self.entries[..place], self.entries[place].share);
        let of = before.first().map_or(share.of(), |first| first.share.of());
        if of != share.of() {
            return Some(Standing::Differs { of });
        }
        let holders = self.holders();
        if place < holders {
            return Some(Standing::Holds);
        }
        let hidden = self.gap.filter(|(at, _)| *at <= place);
        let ahead = (place - holders) as u64 + hidden.map_or(0, |(_, hidden)| hidden);
        // What lies before the gap says nothing about what is in it.
        let known = &before[hidden.map_or(0, |(at, _)| at)..];
        let watch: Vec<I> = if share.weight() == share.of() {
            known.last().map(|entry| entry.id.clone()).into_iter().collect()
        } else if share == Share::Read {
            let writer = known.iter().rfind(|entry| entry.share != Share::Read);
            writer.map(|entry| entry.id.clone()).into_iter().collect()
        } else if hidden.is_none() {
            known.iter().map(|entry| entry.id.clone()).collect()
        } else {
            vec![]
        };
        Some(Standing::Waits { ahead, watch })
    }

    /// Everybody ahead of this entry, if it is in the line and all of them are known.
    pub fn ahead_of(&self, id: &I) -> Option<&[Entry<I>]> {
        let place = self.entries.iter().position(|entry| entry.id == *id)?;
        let all = self.gap.is_none_or(|(at, _)| at > place);
        all.then_some(&self.entries[..place])
    }

    /// An entry has gone. If [`standing`](Self::standing) says *holds* after that, it is true without
    /// looking again, because what is ahead can only have become less.
    pub fn leave(&mut self, id: &I) {
        let Some(place) = self.entries.iter().position(|entry| entry.id == *id) else { return };
        self.entries.remove(place);
        if let Some((at, _)) = &mut self.gap
            && place < *at
        {
            *at -= 1;
        }
    }

    /// An entry has given back a part of its share. The same holds as for [`leave`](Self::leave).
    pub fn weaken(&mut self, id: &I, share: Share) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == *id) {
            entry.share = share;
        }
    }
}
