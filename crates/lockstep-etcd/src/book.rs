//! What this handle has at etcd: every claim that holds or waits, and until when.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::ClaimId;
use lockstep_core::time::Moment;
use lockstep_lock::Inbox;
use lockstep_lock::deadlines::Deadlines;
use lockstep_lock::store::Claim;

use crate::layout::entry;
use crate::session::Session;

/// The claims of one handle.
#[derive(Default)]
pub(crate) struct Book {
    claims: HashMap<ClaimId, Claimed>,
    /// Which numbers the keys of this handle have, by line and lease.
    numbers: HashMap<Names, Numbers>,
    deadlines: Deadlines<ClaimId>,
    /// Grants in the order they came, until they are old enough to be worth a watch.
    fresh: VecDeque<(Moment, ClaimId)>,
    /// When the thread looks by itself.
    pub(crate) wakes_at: Option<Moment>,
}

/// Keys of this handle that differ only in their number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Names {
    line: Arc<[u8]>,
    lease: i64,
}

/// Numbers are used again: etcd remembers every key that ever was until it is compacted, and who reads a
/// line walks over all of them.
#[derive(Default)]
struct Numbers {
    free: BTreeSet<u32>,
    next: u32,
}

/// One claim.
#[derive(Clone)]
pub(crate) struct Claimed {
    pub(crate) entry: Arc<[u8]>,
    /// Where the name of its key comes from, if it is this handle's.
    number: Option<(Names, u32)>,
    pub(crate) session: Arc<Session>,
    /// The revision of its key's creation, once etcd has said it.
    pub(crate) create: Option<i64>,
    /// Up to which revision it is known what has happened to its key.
    pub(crate) known_to: i64,
    pub(crate) held: bool,
    /// Whether the thread listens for it.
    pub(crate) heeded: bool,
    /// Whether it is being deleted because its time is over.
    pub(crate) ending: bool,
    /// Whether its owner is giving it back.
    pub(crate) releasing: bool,
    pub(crate) inbox: Option<Inbox>,
    pub(crate) broken: Option<String>,
}

/// Whether a claim may be asked for, or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Fine,
    /// Its time was over before; what is left of it must go first.
    Lapsed,
}

impl Claimed {
    fn new(entry: Arc<[u8]>, number: Option<(Names, u32)>, session: &Arc<Session>) -> Self {
        Self {
            entry,
            number,
            session: Arc::clone(session),
            create: None,
            known_to: 0,
            held: false,
            heeded: false,
            ending: false,
            releasing: false,
            inbox: None,
            broken: None,
        }
    }
}

impl Book {
    /// A request for this claim is about to be sent; says for which key. A claim that is known keeps its own.
    pub(crate) fn begin(
        &mut self,
        now: Moment,
        claim: &Claim,
        line: &[u8],
        session: &Arc<Session>,
        inbox: Option<&Inbox>,
    ) -> (Begun, Arc<[u8]>) {
        let lapsed = self.has_lapsed(now, claim.id);
        if lapsed {
            self.remove(claim.id);
        }
        if !self.claims.contains_key(&claim.id) {
            let (number, entry) = self.name(line, session.lease);
            self.claims.insert(claim.id, Claimed::new(entry, Some(number), session));
        }
        let entry = self.goes_on(now, claim, session, inbox);
        (if lapsed { Begun::Lapsed } else { Begun::Fine }, entry)
    }

    /// A hold with this key is taken over.
    pub(crate) fn adopt(
        &mut self,
        now: Moment,
        claim: &Claim,
        entry: &[u8],
        session: &Arc<Session>,
        inbox: Option<&Inbox>,
    ) {
        self.remove(claim.id);
        self.claims.insert(claim.id, Claimed::new(entry.into(), None, session));
        self.goes_on(now, claim, session, inbox);
    }

    /// Somebody else's key has the name that this claim was about to use; here is another.
    pub(crate) fn rename(&mut self, claim: ClaimId, line: &[u8], lease: i64) -> Option<Arc<[u8]>> {
        let (number, entry) = self.name(line, lease);
        let old = {
            let claimed = self.claims.get_mut(&claim)?;
            (claimed.entry, claimed.create) = (entry.clone(), None);
            claimed.number.replace(number)
        };
        self.give_back(old);
        Some(entry)
    }

    fn goes_on(
        &mut self,
        now: Moment,
        claim: &Claim,
        session: &Arc<Session>,
        inbox: Option<&Inbox>,
    ) -> Arc<[u8]> {
        // If the answer is lost and nobody asks again, what etcd may have written ends here.
        self.deadlines.extend(claim.id, now + claim.ttl);
        let claimed = self.claims.get_mut(&claim.id).expect("it was put there");
        claimed.session = Arc::clone(session);
        if let Some(inbox) = inbox {
            claimed.inbox = Some(inbox.clone());
        }
        Arc::clone(&claimed.entry)
    }

    fn name(&mut self, line: &[u8], lease: i64) -> ((Names, u32), Arc<[u8]>) {
        let names = Names { line: line.into(), lease };
        let numbers = self.numbers.entry(names.clone()).or_default();
        let number = numbers.free.pop_first().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        });
        ((names, number), entry(line, lease, number).into())
    }

    fn give_back(&mut self, number: Option<(Names, u32)>) {
        let Some((names, number)) = number else { return };
        if let Entry::Occupied(mut numbers) = self.numbers.entry(names) {
            numbers.get_mut().free.insert(number);
            if numbers.get().free.len() == numbers.get().next as usize {
                numbers.remove();
            }
        }
    }

    fn has_lapsed(&self, now: Moment, claim: ClaimId) -> bool {
        self.claims.get(&claim).is_some_and(|claimed| claimed.ending)
            || self.deadlines.end(claim).is_some_and(|end| end <= now)
    }

    /// etcd has confirmed the claim, as a holder or as a waiter: it lives for another ttl.
    pub(crate) fn confirmed(&mut self, now: Moment, claim: &Claim, create: i64, held: bool) {
        let Some(claimed) = self.claims.get_mut(&claim.id).filter(|claimed| !claimed.ending) else {
            return;
        };
        if claimed.create != Some(create) {
            // What was known of a key of the same name is not true of this one.
            (claimed.held, claimed.broken) = (false, None);
        }
        let first = held && !claimed.held;
        claimed.create = Some(create);
        claimed.known_to = claimed.known_to.max(create);
        claimed.held |= held;
        self.deadlines.extend(claim.id, now + claim.ttl);
        if first {
            self.fresh.push_back((now, claim.id));
        }
    }

    /// A waiter is told that it holds. `heeded`: its own key is listened to already.
    pub(crate) fn pushed(&mut self, now: Moment, claim: ClaimId, heeded: bool) {
        let Some(claimed) = self.claims.get_mut(&claim) else { return };
        (claimed.held, claimed.heeded) = (true, heeded);
        if !heeded {
            self.fresh.push_back((now, claim));
        }
    }

    /// A renewal has confirmed a hold; `false` if its time was over.
    pub(crate) fn renewed(&mut self, now: Moment, claim: ClaimId, ttl: Duration) -> bool {
        if self.has_lapsed(now, claim) || !self.claims.contains_key(&claim) {
            return false;
        }
        self.deadlines.extend(claim, now + ttl);
        true
    }

    pub(crate) fn get(&self, claim: ClaimId) -> Option<&Claimed> {
        self.claims.get(&claim)
    }

    pub(crate) fn get_mut(&mut self, claim: ClaimId) -> Option<&mut Claimed> {
        self.claims.get_mut(&claim)
    }

    pub(crate) fn remove(&mut self, claim: ClaimId) -> Option<Claimed> {
        self.deadlines.remove(claim);
        let mut gone = self.claims.remove(&claim)?;
        self.give_back(gone.number.take());
        Some(gone)
    }

    /// What is left of a claim of ours.
    pub(crate) fn left(&self, now: Moment, claim: ClaimId) -> Option<Duration> {
        self.deadlines.end(claim).map(|end| end.since(now))
    }

    /// When something ends next.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.deadlines.next()
    }

    /// The next claim whose time is over: it must be deleted, and cannot be renewed any more.
    pub(crate) fn take_ended(&mut self, now: Moment) -> Option<(ClaimId, Claimed)> {
        loop {
            let claim = self.deadlines.take_ended(now)?;
            if let Some(claimed) = self.claims.get_mut(&claim) {
                claimed.ending = true;
                return Some((claim, claimed.clone()));
            }
        }
    }

    /// The next hold that is at least so old and that nobody listens for.
    pub(crate) fn take_settled(&mut self, now: Moment, age: Duration) -> Option<ClaimId> {
        while let Some((since, claim)) = self.fresh.front().copied()
            && since + age <= now
        {
            self.fresh.pop_front();
            if self.claims.get(&claim).is_some_and(|claimed| claimed.held && !claimed.heeded) {
                return Some(claim);
            }
        }
        None
    }

    /// Nobody listens any more; holds are listened for again soon.
    pub(crate) fn heed_nobody(&mut self, now: Moment) {
        for (claim, claimed) in &mut self.claims {
            if std::mem::take(&mut claimed.heeded) && claimed.held {
                self.fresh.push_back((now, *claim));
            }
        }
    }

    /// The claims that live with this lease.
    pub(crate) fn with_lease(&self, lease: i64) -> Vec<ClaimId> {
        let with = self.claims.iter().filter(|(_, claimed)| claimed.session.lease == lease);
        with.map(|(claim, _)| *claim).collect()
    }

    pub(crate) fn uses(&self, lease: i64) -> bool {
        self.claims.values().any(|claimed| claimed.session.lease == lease)
    }
}

#[cfg(test)]
mod tests {
    use lockstep_core::{Key, Label, Owner};
    use lockstep_lock::Share;

    use super::*;

    fn claim(id: u128) -> Claim {
        Claim {
            id: ClaimId::from_u128(id),
            key: Key::new("k").expect("a good name"),
            owner: Owner::from_u128(1),
            label: Label::default(),
            share: Share::Exclusive,
            ttl: Duration::from_secs(1),
            wait: true,
        }
    }

    #[test]
    fn names_are_used_again_and_never_by_two() {
        let session = Arc::new(Session::new(0x5c, 2, Duration::from_secs(2), Moment::ZERO));
        let mut book = Book::default();
        let begin = |book: &mut Book, id| {
            let (_, name) = book.begin(Moment::ZERO, &claim(id), b"k/", &session, None);
            String::from_utf8(name.to_vec()).expect("text")
        };
        assert_eq!(begin(&mut book, 1), "k/5c", "as etcd's own locks would name it");
        assert_eq!(begin(&mut book, 2), "k/5c-1");
        assert_eq!(begin(&mut book, 3), "k/5c-2");
        assert_eq!(begin(&mut book, 2), "k/5c-1", "who asks again asks for the same");
        book.remove(ClaimId::from_u128(1));
        assert_eq!(begin(&mut book, 4), "k/5c");
        let renamed = book.rename(ClaimId::from_u128(4), b"k/", 0x5c).expect("it is known");
        assert_eq!(&*renamed, b"k/5c-3", "not the one that was found taken");
        for id in 2..=4 {
            book.remove(ClaimId::from_u128(id));
        }
        assert!(book.numbers.is_empty(), "nothing is kept of what is gone");
    }
}
