//! Holds that are being renewed, so that one that is released meanwhile is not brought back.
//!
//! A renewal brings the key back to a node that has forgotten it. It travels through another connection than
//! the release, and may arrive after it: then it is taken back.

use std::collections::HashMap;

use lockstep_core::ClaimId;
use parking_lot::Mutex;

/// The renewals of one handle that are under way.
#[derive(Default)]
pub(super) struct Renewing(Mutex<HashMap<ClaimId, Entry>>);

#[derive(Default)]
struct Entry {
    renewals: u32,
    released: bool,
}

impl Renewing {
    /// A renewal of it starts; it ends with [`end`](Self::end).
    pub(super) fn start(&self, claim: ClaimId) {
        self.0.lock().entry(claim).or_default().renewals += 1;
    }

    /// It is about to be given back.
    pub(super) fn released(&self, claim: ClaimId) {
        if let Some(entry) = self.0.lock().get_mut(&claim) {
            entry.released = true;
        }
    }

    /// Whether it has been given back since the renewal started.
    pub(super) fn is_released(&self, claim: ClaimId) -> bool {
        self.0.lock().get(&claim).is_some_and(|entry| entry.released)
    }

    pub(super) fn end(&self, claim: ClaimId) {
        let mut renewing = self.0.lock();
        if let Some(entry) = renewing.get_mut(&claim) {
            entry.renewals -= 1;
            if entry.renewals == 0 {
                renewing.remove(&claim);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_during_a_renewal_is_remembered_for_as_long_as_it_matters() {
        let (renewing, claim) = (Renewing::default(), ClaimId::from_u128(1));
        renewing.released(claim);
        renewing.start(claim);
        assert!(!renewing.is_released(claim), "that was another time");
        renewing.start(claim);
        renewing.released(claim);
        renewing.end(claim);
        assert!(renewing.is_released(claim));
        renewing.end(claim);
        assert!(renewing.0.lock().is_empty());
    }
}
