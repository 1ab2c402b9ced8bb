//! Who has left one line, pure: what a standing watch over the whole line has told, kept for those who
//! read the line a moment ago and begin to wait now.

use std::collections::VecDeque;

use lockstep_core::ClaimId;
use lockstep_core::time::Moment;

/// So many departures are kept. Whoever read the line before the first of them reads it again.
const KEPT: usize = 64;
/// With nobody waiting, a watch is given up when it has told so many.
const IDLE_DEPARTURES: usize = 16;

/// A standing watch over one line.
#[derive(Debug)]
pub(crate) struct Departures {
    /// Everybody is known who left after this revision; `None` until etcd listens.
    since: Option<i64>,
    gone: VecDeque<(i64, Vec<u8>)>,
    waiters: Vec<ClaimId>,
    /// Since when nobody has waited, and how many have left since.
    idle: (Moment, usize),
}

impl Departures {
    pub(crate) fn new(now: Moment) -> Self {
        Self { since: None, gone: VecDeque::new(), waiters: vec![], idle: (now, 0) }
    }

    /// etcd tells everything after this revision.
    pub(crate) fn listening(&mut self, since: i64) {
        self.since = Some(since);
    }

    /// The revision after which it knows everybody who left.
    pub(crate) fn since(&self) -> Option<i64> {
        self.since
    }

    /// Somebody has left.
    pub(crate) fn left(&mut self, key: &[u8], at: i64) {
        self.gone.push_back((at, key.to_vec()));
        self.idle.1 += 1;
        if self.gone.len() > KEPT {
            self.since = self.gone.pop_front().map(|(at, _)| at);
        }
    }

    /// Everybody that is known to have left after this revision.
    pub(crate) fn after(&self, revision: i64) -> impl Iterator<Item = &(i64, Vec<u8>)> {
        self.gone.iter().filter(move |(at, _)| *at > revision)
    }

    pub(crate) fn waiters(&self) -> &[ClaimId] {
        &self.waiters
    }

    pub(crate) fn joins(&mut self, claim: ClaimId) {
        if !self.waiters.contains(&claim) {
            self.waiters.push(claim);
        }
    }

    pub(crate) fn leaves(&mut self, claim: ClaimId, now: Moment) {
        self.waiters.retain(|waiter| *waiter != claim);
        self.idle = (now, 0);
    }

    /// Until when it is kept for whoever may wait next.
    pub(crate) fn kept_until(&self, linger: std::time::Duration) -> Option<Moment> {
        match self.waiters.is_empty() {
            false => None,
            true if self.idle.1 >= IDLE_DEPARTURES => Some(Moment::ZERO),
            true => Some(self.idle.0 + linger),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LINGER: Duration = Duration::from_secs(1);

    #[test]
    fn it_knows_from_when_on_it_knows_everybody() {
        let mut line = Departures::new(Moment::ZERO);
        assert_eq!(line.since(), None);
        line.listening(10);
        for at in 11..=10 + KEPT as i64 {
            line.left(b"k", at);
        }
        assert_eq!(line.since(), Some(10));
        line.left(b"k", 100);
        assert_eq!(line.since(), Some(11), "the first one is forgotten");
        assert_eq!(line.after(11).count(), KEPT);
        assert_eq!(line.after(99).next(), Some(&(100, b"k".to_vec())));
    }

    #[test]
    fn it_is_not_kept_for_long_when_nobody_waits() {
        let mut line = Departures::new(Moment::ZERO);
        let claim = ClaimId::from_u128(1);
        line.joins(claim);
        assert_eq!(line.kept_until(LINGER), None);
        let now = Moment::ZERO + LINGER;
        line.leaves(claim, now);
        assert_eq!(line.kept_until(LINGER), Some(now + LINGER));
        for at in 0..IDLE_DEPARTURES as i64 {
            assert_eq!(line.kept_until(LINGER), Some(now + LINGER));
            line.left(b"k", at);
        }
        assert_eq!(line.kept_until(LINGER), Some(Moment::ZERO), "others use it a lot");
    }
}
