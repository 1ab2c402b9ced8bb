//! The lock store: claims become values, keys become names.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lockstep_core::{Key, StoreError};
use lockstep_lock::queue::{TTL_MAX, TTL_MIN};
use lockstep_lock::store::{
    Answer, Claim, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Fencing, Inbox, Origin, Scope, Share, StoreFacts};

use super::node::{Extended, Lease, Node, Taken};
use super::view;
use super::waiters::{self, Waiters};
use crate::config::Redis;
use crate::error::STORE;
use crate::link::Dialer;
use crate::probe;
use crate::push::{Changes, Ear};

const TWO_HOLDERS_IF: &str = "a holder works on after its lease (there is no token to refuse its late \
    writes), anybody deletes or overwrites the key without comparing its value, a failover promotes a \
    replica that had not received the lock, a restart without persistence forgets it, memory pressure \
    evicts it, or the server's clock is stepped";

/// Opens a lane.
pub(crate) async fn open(
    store: &Redis,
    inbox: Option<Inbox>,
) -> Result<Arc<dyn LockStore>, StoreError> {
    let waiters = Arc::clone(&store.waiters);
    let lane = waiters.lane();
    let changes = Changes {
        hear: waiters::hear(&waiters, lane),
        told: Arc::new(AtomicBool::new(false)),
        own: true,
    };
    let ear = match &inbox {
        Some(_) => Ear::Changes(changes.clone()),
        None => Ear::Deaf,
    };
    let node = Node::open(Dialer { config: Arc::clone(&store.config), ear, greet: None }).await?;
    let warnings = probe::warnings(&node.link, &store.config.address()).await?;
    let push = match &inbox {
        Some(_) => changes.are_told(),
        None => node.would_tell().await?,
    };
    let prefix = store.config.prefix.clone();
    Ok(Arc::new(Lane { node, prefix, inbox, lane, waiters, push, warnings }))
}

struct Lane {
    node: Node,
    prefix: String,
    inbox: Option<Inbox>,
    lane: u64,
    waiters: Arc<Waiters>,
    push: bool,
    warnings: Vec<String>,
}

impl Lane {
    fn key(&self, name: &Key) -> String {
        format!("{}{name}", self.prefix)
    }

    fn lease(&self, hold: &Hold) -> Lease {
        Lease { key: self.key(&hold.key), value: hold.id.to_string(), ttl: hold.ttl }
    }
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            store: "redis-plain",
            fencing: Fencing::None,
            scope: Scope::Network,
            fair: false,
            shared: false,
            deadlocks: false,
            push: self.push,
            ends_with_connection: false,
            hands_over: true,
            clock: "the Redis server's",
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
            two_holders_if: TWO_HOLDERS_IF,
            warnings: self.warnings.clone(),
            origin: Origin { id: None, prefix: self.prefix.clone() },
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async move {
            if claim.share != Share::Exclusive {
                return Err(cannot_share());
            }
            let lease = self.lease(&claim.hold());
            let asking = self.inbox.clone().filter(|_| claim.wait).map(|inbox| {
                // What is told from now on is kept: the answer may be old when it arrives.
                self.waiters.asks(self.lane, &lease.key, claim.id, inbox)
            });
            match self.node.set(&lease).await? {
                Taken::Mine => Ok(Answer::Granted { token: None }),
                Taken::Broken { reason } => Ok(Answer::Broken { reason }),
                Taken::Others { .. } if !claim.wait => Ok(Answer::Busy),
                Taken::Others { left, .. } => {
                    if let Some(asking) = asking {
                        asking.queued();
                    }
                    // Without a ttl only its holder can end it, and that is told.
                    let holder_left = left.unwrap_or(Duration::MAX);
                    Ok(Answer::Queued { ahead: 0, holder_left, behind: None })
                }
            }
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        Box::pin(async move {
            let leases: Vec<Lease> = holds.iter().map(|hold| self.lease(hold)).collect();
            let extended = self.node.extend(&leases).await?;
            let read = |extended| match extended {
                Extended::Mine => Renewal::Renewed,
                Extended::Gone => Renewal::Lost,
                Extended::Broken { reason } => Renewal::Broken { reason },
            };
            Ok(extended.into_iter().map(read).collect())
        })
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            let done = match what {
                Release::Mine(hold) => {
                    let Lease { key, value, .. } = self.lease(hold);
                    self.waiters.gone(&key, hold.id);
                    self.node.give_back(&key, &value).await?
                }
                Release::Downgrade(_) => return Err(cannot_share()),
                Release::Break { key, reason, now } => {
                    self.node.take_away(&self.key(key), reason, *now).await?
                }
            };
            Ok(if done { Released::Done } else { Released::NotHeld })
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        Box::pin(async move {
            match query {
                Query::One(key) => view::one(&self.node, &self.prefix, key).await,
                Query::All { prefix, limit } => {
                    view::all(&self.node, &self.prefix, prefix, *limit).await
                }
                // Not asked, because the facts say that nobody knows.
                Query::WaitedForBy(_) => Ok(Page::default()),
            }
        })
    }
}

fn cannot_share() -> StoreError {
    StoreError::config(
        STORE,
        "a plain lock has one holder at a time: for readers and permits use ?layout=lockstep",
    )
}
