//! The lock store: every verb goes to all nodes at once, and leaves at a quorum of answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockstep_core::retry::Backoff;
use lockstep_core::{Effect, ErrorKind, Key, StoreError};
use lockstep_lock::queue::TTL_MIN;
use lockstep_lock::store::{
    Answer, Claim, Connect, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Fencing, Inbox, Origin, Scope, Share, StoreFacts};
use uuid::Uuid;

use super::ask::Asked;
use super::config::{Redlock, STORE};
use super::count::{Count, Verdict};
use super::lane::Lane;
use super::nodes::Member;
use super::round::Outcome;

const TWO_HOLDERS_IF: &str = "a holder works on after its lease (there is no token to refuse its late \
    writes), the clocks of a quorum of nodes are stepped during a hold or before a client meets them for the \
    first time, a client uses a longer ttl than the ?max_ttl= of others, or nodes forget keys without being \
    restarted (eviction, FLUSHALL, a replica that takes over where nobody watches)";

/// How often somebody who does not want to wait asks when the votes are split.
const ROUNDS: u32 = 4;

impl Connect for Redlock {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async move {
            let lane = Lane::open(self, inbox).await?;
            Ok(Arc::new(lane) as Arc<dyn LockStore>)
        })
    }
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        let telling = self.members.iter().filter(|member| member.tells()).count();
        StoreFacts {
            store: STORE,
            fencing: Fencing::None,
            scope: Scope::Network,
            fair: false,
            shared: false,
            deadlocks: false,
            hands_over: true,
            push: telling >= self.quorum(),
            ends_with_connection: false,
            clock: "each node's own",
            ttl_min: TTL_MIN,
            ttl_max: self.config.rules.max_ttl,
            two_holders_if: TWO_HOLDERS_IF,
            warnings: self.warnings(),
            origin: Origin { id: None, prefix: self.config.prefix.clone() },
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async move {
            if claim.share != Share::Exclusive {
                return Err(cannot_share());
            }
            let lease = self.lease(&claim.hold());
            let inbox = self.inbox.as_ref().filter(|_| claim.wait);
            let mut round = 1;
            loop {
                // What is told from now on is kept: the answers may be old when they arrive.
                let asking =
                    inbox.map(|inbox| self.shared.waiters.asks(&lease.key, claim.id, inbox));
                let Asked { outcome, blocking, void, took } = self.ask(&lease).await;
                return match outcome {
                    Outcome::Granted { .. } => {
                        if let Some(asking) = asking {
                            asking.granted();
                        }
                        Ok(Answer::Granted { token: None })
                    }
                    Outcome::Refused { held_for: Some(holder_left) } if claim.wait => {
                        if let Some(asking) = asking {
                            asking.queued(blocking, void);
                        }
                        Ok(Answer::Queued { ahead: 0, holder_left, behind: None })
                    }
                    // Nobody has a quorum: there is nothing to be told of.
                    Outcome::Refused { held_for: None } if claim.wait => {
                        let holder_left = apart(round, took);
                        Ok(Answer::Queued { ahead: 0, holder_left, behind: None })
                    }
                    Outcome::Refused { held_for: None } if round < ROUNDS => {
                        tokio::time::sleep(apart(round, took)).await;
                        round += 1;
                        continue;
                    }
                    Outcome::Refused { .. } => Ok(Answer::Busy),
                    Outcome::Broken(reason) => Ok(Answer::Broken { reason }),
                    Outcome::TooLate => Err(unavailable(format!(
                        "the nodes took {took:?} to grant a lease of {:?}, so that too little of it is left",
                        claim.ttl
                    ))),
                    Outcome::NoQuorum(void) => Err(unavailable(self.no_quorum(void))),
                };
            }
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        Box::pin(async move { Ok(self.renew_all(holds).await) })
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            match what {
                Release::Mine(hold) => self.give_back(hold).await,
                Release::Downgrade(_) => Err(cannot_share()),
                Release::Break { key, reason, now } => self.take_away(key, reason, *now).await,
            }
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        Box::pin(async move {
            match query {
                Query::One(key) => self.see_one(key).await,
                Query::All { prefix, limit } => self.see_all(prefix, *limit).await,
                // Not asked, because the facts say that nobody knows.
                Query::WaitedForBy(_) => Ok(Page::default()),
            }
        })
    }
}

impl Lane {
    /// Sent to every node, whatever is known of it: an ask that failed or was not answered may have been
    /// carried out. Not more is waited for than says whether a quorum had it.
    async fn give_back(&self, hold: &Hold) -> Result<Released, StoreError> {
        let lease = self.lease(hold);
        self.shared.waiters.gone(&lease.key, hold.id);
        self.shared.renewing.released(hold.id);
        let ask = |member: &Arc<Member>| {
            let (member, lease) = (Arc::clone(member), Arc::clone(&lease));
            async move {
                let done = member.give_back(&lease).await;
                match &done {
                    Ok(_) => {}
                    Err(error) if error.may_retry() => member.give_back_later(&lease),
                    Err(error) => {
                        let (node, key) = (&member.address, &lease.key);
                        tracing::warn!(%error, node, key, "left to its ttl on this node");
                    }
                }
                (member.index, done)
            }
        };
        let mut asks: FuturesUnordered<_> = self.members.iter().map(ask).collect();
        let deadline = tokio::time::sleep(self.patience(hold.ttl));
        tokio::pin!(deadline);
        let mut count = Count::of(self.members.len());
        while count.quorum_had_it().is_none() {
            tokio::select! {
                biased;
                answer = asks.next() => match answer {
                    Some((node, answer)) => count.take(node, answer),
                    None => break,
                },
                () = &mut deadline => break,
            }
        }
        if !asks.is_empty() {
            tokio::spawn(async move { while asks.next().await.is_some() {} });
        }
        self.told(count.released())
    }

    async fn take_away(&self, key: &Key, reason: &str, now: bool) -> Result<Released, StoreError> {
        let key = self.key(key);
        let asks = self
            .members
            .iter()
            .map(|member| async { (member.index, member.node.take_away(&key, reason, now).await) });
        let mut count = Count::of(self.members.len());
        for (node, answer) in futures_util::future::join_all(asks).await {
            count.take(node, answer);
        }
        self.told(count.verdict())
    }

    fn told(&self, verdict: Verdict) -> Result<Released, StoreError> {
        match verdict {
            Verdict::Done => Ok(Released::Done),
            Verdict::NotHeld => Ok(Released::NotHeld),
            Verdict::NoQuorum(void) => Err(unavailable(self.no_quorum(void))),
            Verdict::Refused(error) => Err(error),
        }
    }
}

/// How long to stay away after a split: several times what a round takes, by chance, so that those who
/// collided do not again.
fn apart(round: u32, took: Duration) -> Duration {
    let first = Duration::from_millis(10) + took * 4;
    let backoff = Backoff { first, longest: first * 4 };
    backoff.full_jitter(round, Uuid::new_v4().as_u128() as u64)
}

/// Nothing was granted; what single nodes may have is being given back.
fn unavailable(message: String) -> StoreError {
    StoreError::new(STORE, ErrorKind::Unavailable, Effect::None, message)
}

fn cannot_share() -> StoreError {
    StoreError::config(
        STORE,
        "Redlock has one holder at a time: for readers and permits use a single redis://",
    )
}
