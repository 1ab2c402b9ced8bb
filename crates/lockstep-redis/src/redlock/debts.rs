//! What a node has not confirmed to have given back.
//!
//! As long as it is owed, the node's vote for the same claim does not count, nor does its renewal: a request to give back that
//! is still on its way, perhaps through a connection that is lost to us, would take away what is granted
//! now. So would the one that follows the answer to an ask of a round that is over; that is owed, too,
//! from the end of the round on.
//!
//! A request to give back that was not answered is sent again over the next connection. The answer to that
//! one pays the debt only if the first can no longer come, which is so where the server has closed the
//! earlier connections ([`Earlier`](super::earlier::Earlier)). Where it would not, the debt lasts as long as the lease would have.

use std::collections::HashMap;
use std::time::Duration;

use lockstep_core::Effect;
use lockstep_core::retry::Backoff;
use lockstep_core::time::{Clock, Moment};
use lockstep_lock::clock::SystemClock;
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

use super::nodes::Member;
use crate::plain::node::Lease;

/// More than this at once are left to their ttl: the node is gone, and memory is ours.
const MOST: usize = 1_000;

const AGAIN: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };

/// Why the vote of a node that owes does not count.
pub(super) const OWES: &str = "it has not answered an earlier request to give back";

/// The debts of one node, by value.
#[derive(Default)]
pub(super) struct Debts {
    owed: Mutex<HashMap<String, u32>>,
    paid: Notify,
}

impl Debts {
    /// Notes that `value` is to be given back; `false` if there are too many already.
    pub(super) fn owe(&self, value: &str) -> bool {
        let few = self.owed.lock().len() < MOST;
        if few {
            self.will_owe(value);
        }
        few
    }

    /// Notes that `value` may have to be given back, when an answer that is still to come says so.
    pub(super) fn will_owe(&self, value: &str) {
        *self.owed.lock().entry(value.to_owned()).or_default() += 1;
    }

    /// Takes back what was noted, once.
    pub(super) fn cross_out(&self, value: &str) {
        {
            let mut owed = self.owed.lock();
            if let Some(count) = owed.get_mut(value) {
                *count -= 1;
                if *count == 0 {
                    owed.remove(value);
                }
            }
        }
        self.paid.notify_waiters();
    }

    pub(super) fn owes(&self, value: &str) -> bool {
        let owed = self.owed.lock();
        !owed.is_empty() && owed.contains_key(value)
    }

    /// Returns when `value` is not owed any more. Cancel safe.
    pub(super) async fn settled(&self, value: &str) {
        loop {
            let paid = self.paid.notified();
            if !self.owes(value) {
                return;
            }
            paid.await;
        }
    }

    /// Gives back what [was owed](Self::owe) until the node has answered or `until` has come, when it has
    /// ended by itself.
    pub(super) async fn pay(&self, member: &Member, lease: &Lease, until: Moment) {
        let (mut tries, mut one_may_come) = (0, false);
        while let Err(error) = member.give_back(lease).await {
            one_may_come |= error.effect() == Effect::Unknown;
            if !error.may_retry() || SystemClock.now() >= until {
                tracing::debug!(%error, key = lease.key, "left to its ttl");
                break;
            }
            tracing::debug!(%error, key = lease.key, "not given back yet");
            tries += 1;
            tokio::time::sleep(AGAIN.delay(tries, Uuid::new_v4().as_u128() as u64)).await;
        }
        if one_may_come && !member.earlier.are_closed() {
            tokio::time::sleep(until.since(SystemClock.now())).await;
        }
        self.cross_out(&lease.value);
    }
}
