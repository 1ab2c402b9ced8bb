//! The verbs of the lock store: each one call of one script.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{StoreError, Token};
use lockstep_lock::queue::{TTL_MAX, TTL_MIN};
use lockstep_lock::store::{
    Answer, Claim, Connect, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Fencing, Inbox, Origin, Scope, Share, StoreFacts};
use redis::Value;

use crate::config::{Form, Redis};
use crate::error::{self, STORE};
use crate::inspect;
use crate::keys::Layout;
use crate::link::{Dialer, Link};
use crate::plain;
use crate::probe;
use crate::push::Ear;
use crate::scripts::{ACQUIRE, BREAK, DOWNGRADE, RELEASE, RENEW};
use crate::words::Call;

/// What stands for no inbox in the scripts.
const NO_INBOX: &str = "-";

const TWO_HOLDERS_IF: &str = "a failover promotes a replica that had not received the lock, a \
    restart without persistence forgets it, memory pressure evicts it, or the server's clock is stepped";
const TWO_HOLDERS_IF_BOUND: &str = "the connection of the holder's handle is lost while its work \
    goes on (as asked for), a failover promotes a replica that had not received the lock, a restart \
    without persistence forgets it, memory pressure evicts it, or the server's clock is stepped";

impl Connect for Redis {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async move {
            match &self.config.form {
                Form::Lockstep(layout) => Lane::open(self, layout.clone(), inbox).await,
                Form::Plain => plain::open(self, inbox).await,
            }
        })
    }
}

struct Lane {
    link: Link,
    layout: Layout,
    channel: String,
    bound: bool,
    warnings: Vec<String>,
    origin: Origin,
}

impl Lane {
    async fn open(
        store: &Redis,
        layout: Layout,
        inbox: Option<Inbox>,
    ) -> Result<Arc<dyn LockStore>, StoreError> {
        let bound = store.config.bound;
        let (channel, ear) = match inbox {
            None => (NO_INBOX.to_owned(), Ear::Deaf),
            Some(inbox) => {
                let channel = layout.inbox(bound);
                (channel.clone(), Ear::Channel { inbox, channel })
            }
        };
        let link =
            Link::open(Dialer { config: Arc::clone(&store.config), ear, greet: None }).await?;
        let warnings = probe::warnings(&link, &store.config.address()).await?;
        let origin = Origin { id: None, prefix: store.config.prefix.clone() };
        Ok(Arc::new(Self { link, layout, channel, bound, warnings, origin }))
    }

    /// What `row.lua` calls the terms of a claim.
    fn terms(&self, claim: &Claim) -> String {
        let mut ttl = itoa::Buffer::new();
        let share = match claim.share {
            Share::Exclusive => Cow::Borrowed("exclusive"),
            share => Cow::Owned(share.to_string()),
        };
        let (ttl, mut owner) = (ttl.format(millis(claim.ttl)), [0; 32]);
        let owner = claim.owner.encode(&mut owner);
        [ttl, &share, &self.channel, owner, claim.label.as_str()].join(" ")
    }
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            store: STORE,
            fencing: Fencing::ClockBound,
            scope: Scope::Network,
            fair: true,
            shared: true,
            deadlocks: true,
            push: true,
            ends_with_connection: self.bound,
            hands_over: true,
            clock: "the Redis server's",
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
            two_holders_if: if self.bound { TWO_HOLDERS_IF_BOUND } else { TWO_HOLDERS_IF },
            warnings: self.warnings.clone(),
            origin: self.origin.clone(),
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async move {
            let lock = [self.layout.lock(&claim.key)];
            let mut call = Call::on(&lock);
            call.arg(claim.id.encode(&mut [0; 32]))
                .arg(self.terms(claim))
                .number(millis(claim.ttl));
            if !claim.wait {
                call.arg("try");
            }
            match ACQUIRE.run(&self.link, &call, &lock[0]).await? {
                Value::Int(token) => Ok(Answer::Granted { token: Some(Token::new(token as u64)) }),
                Value::Nil => Ok(Answer::Busy),
                Value::BulkString(reason) => Ok(Answer::Broken { reason: text(reason) }),
                Value::Array(parts) => match &parts[..] {
                    [Value::Int(of)] => Ok(Answer::Differs { of: *of as u32 }),
                    [Value::Int(ahead), Value::Int(left_us), Value::Int(behind)] => {
                        Ok(Answer::Queued {
                            ahead: *ahead as u64,
                            holder_left: Duration::from_micros((*left_us).max(0) as u64),
                            behind: Some(Token::new(*behind as u64)),
                        })
                    }
                    _ => Err(error::baffled(&lock[0], parts)),
                },
                other => Err(error::baffled(&lock[0], other)),
            }
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        Box::pin(async move {
            let locks: Vec<String> = holds.iter().map(|hold| self.layout.lock(&hold.key)).collect();
            let Some(first) = locks.first() else { return Ok(vec![]) };
            let mut call = Call::on(&locks);
            for hold in holds {
                call.arg(hold.id.encode(&mut [0; 32])).number(millis(hold.ttl));
            }
            match RENEW.run(&self.link, &call, first).await? {
                Value::Array(answers) if answers.len() == holds.len() => {
                    let read = |(answer, lock): (Value, &String)| match answer {
                        Value::Int(1) => Ok(Renewal::Renewed),
                        Value::Int(0) => Ok(Renewal::Lost),
                        Value::BulkString(reason) => Ok(Renewal::Broken { reason: text(reason) }),
                        other => Err(error::baffled(lock, other)),
                    };
                    answers.into_iter().zip(&locks).map(read).collect()
                }
                other => Err(error::baffled(first, other)),
            }
        })
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            let script = match what {
                Release::Mine(_) => &*RELEASE,
                Release::Downgrade(_) => &*DOWNGRADE,
                Release::Break { .. } => &*BREAK,
            };
            let lock = [self.layout.lock(what.key())];
            let mut call = Call::on(&lock);
            match what {
                Release::Mine(hold) => {
                    call.arg(hold.id.encode(&mut [0; 32])).number(millis(hold.ttl))
                }
                Release::Downgrade(hold) => call.arg(hold.id.encode(&mut [0; 32])),
                Release::Break { reason, now, .. } => call.arg(reason).number(u64::from(*now)),
            };
            match script.run(&self.link, &call, &lock[0]).await? {
                Value::Int(1) => Ok(Released::Done),
                Value::Int(0) => Ok(Released::NotHeld),
                other => Err(error::baffled(&lock[0], other)),
            }
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        Box::pin(async move {
            match query {
                Query::One(key) => inspect::one(&self.link, &self.layout, key).await,
                Query::WaitedForBy(owner) => {
                    inspect::waited_for_by(&self.link, &self.layout, *owner).await
                }
                Query::All { prefix, limit } => {
                    inspect::all(&self.link, &self.layout, prefix, *limit).await
                }
            }
        })
    }
}

/// Rounded up: a lease must never be shorter at the server than its holder believes.
pub(crate) fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

pub(crate) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}
