//! Re-entry by explicit owner: counted here, in the handle. The store sees one claim, so the token
//! stays the same and the first release does not free the lock.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use lockstep_core::{Key, Owner};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::guard::{Guard, Held};

type Slots = Mutex<HashMap<(Key, Owner), Arc<AsyncMutex<Weak<Held>>>>>;

/// The owners that hold, or ask for, something through this handle.
#[derive(Default)]
pub(crate) struct Reentry {
    slots: Arc<Slots>,
}

/// One owner's business with one key.
pub(crate) struct Entry {
    slots: Arc<Slots>,
    name: (Key, Owner),
    slot: Option<Arc<AsyncMutex<Weak<Held>>>>,
}

/// The right to ask for the key as that owner: its own requests come one after another, so that
/// the second finds what the first has got.
pub(crate) struct Turn<'a> {
    _entry: &'a Entry,
    held: OwnedMutexGuard<Weak<Held>>,
}

impl Reentry {
    pub(crate) fn entry(&self, key: &Key, owner: Owner) -> Entry {
        let name = (key.clone(), owner);
        let slot = Arc::clone(self.slots.lock().entry(name.clone()).or_default());
        Entry { slots: Arc::clone(&self.slots), name, slot: Some(slot) }
    }

    /// Called when an owner's last guard is gone: an owner per request must not fill the memory.
    pub(crate) fn left(&self, key: &Key, owner: Owner) {
        forget_if_idle(&self.slots, &(key.clone(), owner));
    }
}

/// Forgets the owner if nobody asks as it any more and nothing is held.
fn forget_if_idle(slots: &Slots, name: &(Key, Owner)) {
    let mut slots = slots.lock();
    let idle = slots.get(name).is_some_and(|slot| {
        Arc::strong_count(slot) == 1 && slot.try_lock().is_ok_and(|held| held.strong_count() == 0)
    });
    if idle {
        slots.remove(name);
    }
}

impl Entry {
    fn slot(&self) -> Arc<AsyncMutex<Weak<Held>>> {
        Arc::clone(self.slot.as_ref().expect("invariant: only taken by drop"))
    }

    pub(crate) async fn turn(&self) -> Turn<'_> {
        Turn { _entry: self, held: self.slot().lock_owned().await }
    }

    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        Some(Turn { _entry: self, held: self.slot().try_lock_owned().ok()? })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.slot = None;
        forget_if_idle(&self.slots, &self.name);
    }
}

impl Turn<'_> {
    /// Another guard of what this owner already holds, if it can still be trusted.
    pub(crate) fn enter_again(&self) -> Option<Guard> {
        self.held.upgrade().filter(|held| held.is_trusted()).map(Guard::again)
    }

    pub(crate) fn entered(mut self, guard: &Guard) {
        *self.held = Arc::downgrade(guard.held());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::Locks;
    use crate::memory::Memory;

    #[tokio::test]
    async fn owners_that_have_left_are_forgotten() {
        let locks = Locks::open(Memory::new()).await.unwrap();
        let owners = || locks.inner.reentry.slots.lock().len();
        let owner = Owner::new();
        let outer = locks.lock("k").owner(&owner).await.unwrap();
        let inner = locks.lock("k").owner(&owner).await.unwrap();
        assert!(locks.try_lock("k").owner(&Owner::new()).await.unwrap().is_none());
        outer.release().await.unwrap();
        assert_eq!(owners(), 1);
        drop(inner);
        assert_eq!(owners(), 0);
        let leaked = locks.lock("l").owner(&owner).await.unwrap().leak().unwrap();
        assert_eq!(owners(), 0);
        let guard = locks.adopt(leaked).await.unwrap();
        assert_eq!(owners(), 1);
        guard.release().await.unwrap();
        assert_eq!(owners(), 0);
    }
}
