//! Looking at locks: what a quorum of nodes has.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use lockstep_core::{Effect, ErrorKind, Key, StoreError};
use lockstep_lock::store::{HolderView, LockView, Page};

use super::config::STORE;
use super::lane::Lane;
use crate::error;
use crate::plain::view as plain;

/// How many locks are looked at with one round trip.
const BATCH: usize = 100;

impl Lane {
    pub(super) async fn see_one(&self, key: &Key) -> Result<Page, StoreError> {
        let lock = self.see(key).await?;
        Ok(Page { locks: lock.into_iter().collect(), more: false })
    }

    pub(super) async fn see_all(&self, start: &str, limit: usize) -> Result<Page, StoreError> {
        if self.config.prefix.is_empty() && start.is_empty() {
            return Err(StoreError::config(
                STORE,
                "every string on the nodes may be a lock: say how the names of yours start, or give them a \
                 ?prefix=",
            ));
        }
        let listed = self.of_quorum(
            join_all(
                self.members
                    .iter()
                    .map(|member| plain::names(&member.node, &self.config.prefix, start)),
            )
            .await,
        )?;
        let names: BTreeSet<Key> = listed.into_iter().flatten().collect();
        let names: Vec<Key> = names.into_iter().collect();
        let mut locks: Vec<LockView> = vec![];
        for batch in names.chunks(BATCH) {
            for lock in join_all(batch.iter().map(|key| self.see(key))).await {
                locks.extend(lock?);
            }
            if locks.len() > limit {
                break;
            }
        }
        let more = locks.len() > limit;
        locks.truncate(limit);
        Ok(Page { locks, more })
    }

    /// The lock, if a quorum of nodes has it for the same holder.
    async fn see(&self, key: &Key) -> Result<Option<LockView>, StoreError> {
        let name = self.key(key);
        let looks = self.members.iter().map(|member| member.node.look(&name));
        let seen = self.of_quorum(join_all(looks).await)?;
        let views = seen.into_iter().flatten().map(|seen| plain::view(key.clone(), &seen));
        Ok(agreed(views.collect(), self.quorum()))
    }

    /// What the nodes say, if those that say something are a quorum.
    fn of_quorum<T>(&self, answers: Vec<Result<T, StoreError>>) -> Result<Vec<T>, StoreError> {
        let (mut said, mut void) = (vec![], vec![]);
        for (node, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(answer) => said.push(answer),
                // What is no lock on one node is none.
                Err(error) if error.kind() == ErrorKind::Foreign => return Err(error),
                Err(error) => void.push((node, error::words(&error))),
            }
        }
        if said.len() < self.quorum() {
            let message = self.no_quorum(void);
            return Err(StoreError::new(STORE, ErrorKind::Unavailable, Effect::None, message));
        }
        Ok(said)
    }
}

/// The view in which a quorum agrees; its lease ends when it stops being one.
fn agreed(mut views: Vec<LockView>, quorum: usize) -> Option<LockView> {
    let holder = |view: &LockView| view.holders[0].label.clone();
    views.sort_by_key(|view| std::cmp::Reverse(view.holders[0].left));
    let of = |label| views.iter().filter(|view| holder(view) == label).collect::<Vec<_>>();
    let agreed = views.iter().map(|view| of(holder(view))).find(|same| same.len() >= quorum)?;
    let left: Duration = agreed[quorum - 1].holders[0].left;
    let broken = agreed.iter().find_map(|view| view.holders[0].broken.clone());
    let mut view = agreed[0].clone();
    view.holders[0] = HolderView { left, broken, ..view.holders[0].clone() };
    Some(view)
}
