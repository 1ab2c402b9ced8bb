use lockstep_core::StoreError;

use crate::keeper::Keeper;
use crate::store::{Answer, Hold};

/// What the store may have for one claim: a hold, a place in the queue, or a request on its way.
/// Dropping it gives that back in the background, which is what makes every await of an
/// acquisition and of a guard a safe place to stop.
pub(crate) struct Stake {
    keeper: Keeper,
    hold: Hold,
    known: Known,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The store has nothing of ours.
    Nothing,
    /// It has, or had, something of ours.
    Something,
    /// A request is on its way, or its answer was lost.
    Unsure,
}

impl Stake {
    pub(crate) fn new(keeper: Keeper, hold: Hold) -> Self {
        Self { keeper, hold, known: Known::Nothing }
    }

    /// A stake in something that is known to be held.
    pub(crate) fn held(keeper: Keeper, hold: Hold) -> Self {
        Self { keeper, hold, known: Known::Something }
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    pub(crate) fn asking(&mut self) {
        self.known = Known::Unsure;
    }

    pub(crate) fn answered(&mut self, answer: &Result<Answer, StoreError>) {
        if answer.is_ok() {
            self.known = Known::Something;
        }
    }

    /// The store has nothing of ours any more, or somebody else looks after it now.
    pub(crate) fn settled(&mut self) {
        self.known = Known::Nothing;
    }
}

impl Drop for Stake {
    fn drop(&mut self) {
        if self.known != Known::Nothing {
            self.keeper.give_back(self.hold.clone(), self.known == Known::Unsure);
        }
    }
}
