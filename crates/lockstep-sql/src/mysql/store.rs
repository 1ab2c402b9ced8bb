//! One lane: the verbs, each one statement, or two where the first finds that it was not enough.

use std::sync::Arc;

use lockstep_core::{StoreError, Token};
use lockstep_lock::queue::{TTL_MAX, TTL_MIN};
use lockstep_lock::store::{
    Answer, Claim, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Fencing, Inbox, Origin, Scope, StoreFacts};

use super::hints::Hints;
use super::listen::{self, Listener};
use super::pool::{Connections, Reply};
use super::{MySql, Route, error, migrate, rows};
use crate::answer::{end_of, integer, micros};

/// Enough for what dropped guards leave behind and for three renewals of one lease: each of them keeps its
/// connection until it is answered or given up, and only another connection can do better.
const KEEPER_POOL: usize = 4;

/// A reason is shown to people, and its column takes no more than 65,535 bytes.
const REASON_CHARACTERS: usize = 10_000;

const ACQUIRE: &str = "CALL lockstep_acquire_v1(?, ?, ?, ?, ?, ?, ?, ?, ?)";
const RELEASE: &str = "CALL lockstep_release_v1(?, ?, ?)";
const BREAK: &str = "CALL lockstep_break_v1(?, ?, ?)";
const RENEW: &str = "CALL lockstep_renew_v1(?)";

pub(super) struct Lane {
    connections: Arc<Connections>,
    statements: Statements,
    hints: Hints,
    tenant: String,
    /// Only where interruptions arrive and somebody wants to hear.
    listener: Option<Listener>,
    push: bool,
    warnings: Vec<String>,
    origin: Origin,
}

/// Those with pieces to fill in.
struct Statements {
    /// Takes a lock that is free: to enter a procedure, and to begin and end a transaction, costs more
    /// than the rest. The lease counts from when the statement began, which is after it was sent.
    ask: String,
    /// Frees a lock that nobody waits for. Who joins the queue says so in this very row first, so
    /// that a release which had to wait for the row cannot miss it.
    give_back: String,
    inspect_one: String,
    inspect_waited_for: String,
    inspect_all: String,
}

impl Lane {
    pub(super) async fn open(store: &MySql, inbox: Option<Inbox>) -> Result<Self, StoreError> {
        let settings = &store.settings;
        let size = if inbox.is_some() { settings.pool } else { KEEPER_POOL };
        let connections = Arc::new(Connections::new(Arc::clone(settings), size));
        let mut warnings = migrate::check(settings, &connections).await?;
        let id = migrate::identity(&connections).await?;
        let origin = Origin { id, prefix: settings.tenant.trim_end_matches('/').to_owned() };

        let mut route = store.route();
        if route == Route::Unknown {
            let heard = listen::hears_itself(settings, &connections).await?;
            route = if heard { Route::Direct } else { Route::Deaf };
            store.set_route(route);
        }
        let push = route == Route::Direct;
        if !push {
            warnings.push(
                "a waiting statement cannot be interrupted, probably because of a proxy: waiters \
                 ask at intervals; a direct connection serves them at once"
                    .to_owned(),
            );
        }
        let listener = inbox
            .filter(|_| push)
            .map(|inbox| Listener::start(Arc::clone(settings), Arc::clone(&connections), inbox));
        Ok(Self {
            connections,
            statements: Statements::new(),
            hints: Hints::new(),
            tenant: settings.tenant.clone(),
            listener,
            push,
            warnings,
            origin,
        })
    }

    /// `again`: it may have a place already.
    async fn try_acquire(
        &self,
        claim: &Claim,
        key: &str,
        again: bool,
    ) -> Result<Answer, StoreError> {
        let (id, owner) = (rows::bytes(claim.id.as_u128()), rows::bytes(claim.owner.as_u128()));
        let (label, ttl_us) = (claim.label.as_str(), micros(claim.ttl));
        let (weight, total) = (integer(claim.share.weight()), integer(claim.share.of()));
        if !self.hints.is_contended(key) {
            let parameters = (&id, &owner, label, weight, total, ttl_us, key);
            let reply = self.connections.ask(&self.statements.ask, parameters).await?;
            if let Reply { changed: 1, number: Some(token), .. } = reply {
                return Ok(Answer::Granted { token: Some(Token::new(token)) });
            }
        }
        let inbox = self.listener.as_ref().map(Listener::mark);
        let wait = if claim.wait { 1 + i8::from(again) } else { 0 };
        let parameters = (key, id, owner, label, inbox, ttl_us, wait, weight, total);
        let answer = rows::answer(self.connections.ask(ACQUIRE, parameters).await?)?;
        if matches!(answer, Answer::Queued { .. } | Answer::Busy) {
            self.hints.set(key, true);
        }
        Ok(answer)
    }

    async fn try_renew(&self, holds: &[Hold]) -> Result<Vec<Renewal>, StoreError> {
        // Sorted, so that two batches take the rows in the same order; each hold once.
        let mut sorted: Vec<&Hold> = holds.iter().collect();
        sorted.sort_unstable_by_key(|hold| (&hold.key, hold.id));
        sorted.dedup_by_key(|hold| (&hold.key, hold.id));
        let batch: String = sorted.iter().map(|hold| rows::packed(&self.tenant, hold)).collect();

        let reply = self.connections.ask(RENEW, (batch,)).await?;
        let answers = rows::renewals(&rows::get::<String>(&rows::only(reply)?, "answers")?)?;
        holds
            .iter()
            .map(|hold| {
                let place =
                    sorted.binary_search_by_key(&(&hold.key, hold.id), |hold| (&hold.key, hold.id));
                let answer = place.ok().and_then(|place| answers.get(place));
                answer.cloned().ok_or_else(|| error::foreign("a renewal was not answered"))
            })
            .collect()
    }

    async fn give_back(&self, hold: &Hold, downgrade: bool) -> Result<bool, StoreError> {
        let (key, id) = (rows::key(&self.tenant, &hold.key), rows::bytes(hold.id.as_u128()));
        if !downgrade && !self.hints.is_contended(&key) {
            let freed = self.connections.ask(&self.statements.give_back, (&key, &id)).await?;
            if freed.changed == 1 {
                return Ok(true);
            }
        }
        let reply = self.connections.ask(RELEASE, (&key, id, downgrade)).await?;
        let row = rows::only(reply)?;
        self.hints.set(&key, rows::get(&row, "taken")?);
        rows::get(&row, "done")
    }

    async fn look_at(&self, query: &Query) -> Result<Page, StoreError> {
        let (ask, statements, tenant) = (&self.connections, &self.statements, &self.tenant);
        let limit = match query {
            Query::All { limit, .. } => *limit,
            Query::One(_) | Query::WaitedForBy(_) => usize::MAX,
        };
        let reply = match query {
            Query::One(key) => ask.ask(&statements.inspect_one, (rows::key(tenant, key),)).await?,
            Query::WaitedForBy(owner) => {
                let range = (tenant, end_of(tenant), rows::bytes(owner.as_u128()));
                ask.ask(&statements.inspect_waited_for, range).await?
            }
            Query::All { prefix, limit } => {
                let start = format!("{tenant}{prefix}");
                let one_more = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
                let end = end_of(&start);
                ask.ask(&statements.inspect_all, (start, end, one_more)).await?
            }
        };
        let mut locks = rows::locks(&reply.rows, tenant)?;
        let more = locks.len() > limit;
        locks.truncate(limit);
        Ok(Page { locks, more })
    }
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            store: error::STORE,
            fencing: Fencing::Strong,
            scope: Scope::Network,
            fair: true,
            shared: true,
            deadlocks: true,
            push: self.push,
            ends_with_connection: false,
            hands_over: true,
            clock: "the MySQL or MariaDB server's",
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
            two_holders_if: "a failover goes to a replica that lacks the last commits \
                             (asynchronous replication), or the server's clock steps forward",
            warnings: self.warnings.clone(),
            origin: self.origin.clone(),
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async move {
            let key = rows::key(&self.tenant, &claim.key);
            let Some(listener) = &self.listener else {
                return self.try_acquire(claim, &key, true).await;
            };
            let again = claim.wait && listener.expect(claim, &key);
            let answer = self.try_acquire(claim, &key, again).await;
            match &answer {
                // After an error perhaps; it is forgotten when that place would be lost.
                Ok(Answer::Queued { .. }) | Err(_) => listener.queued(claim.id),
                // Who does not want to wait may still have a place from before.
                Ok(Answer::Busy) => {}
                Ok(_) => listener.forget(claim.id),
            }
            answer
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        Box::pin(
            async move { if holds.is_empty() { Ok(vec![]) } else { self.try_renew(holds).await } },
        )
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            let done = match what {
                Release::Mine(hold) => {
                    if let Some(listener) = &self.listener {
                        listener.forget(hold.id);
                    }
                    self.give_back(hold, false).await?
                }
                Release::Downgrade(hold) => self.give_back(hold, true).await?,
                Release::Break { key, reason, now } => {
                    let key = rows::key(&self.tenant, key);
                    let reason: String = reason.chars().take(REASON_CHARACTERS).collect();
                    let reply = self.connections.ask(BREAK, (key, reason, *now)).await?;
                    rows::get(&rows::only(reply)?, "done")?
                }
            };
            Ok(if done { Released::Done } else { Released::NotHeld })
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        Box::pin(self.look_at(query))
    }
}

impl Statements {
    fn new() -> Self {
        Self {
            ask: migrate::fill(include_str!("sql/ask.sql")),
            give_back: migrate::fill(include_str!("sql/give_back.sql")),
            inspect_one: migrate::fill(concat!(
                include_str!("sql/chosen_one.sql"),
                include_str!("sql/view.sql"),
                include_str!("sql/view_waiters.sql"),
                "ORDER BY lock_key, kind, seq"
            )),
            inspect_waited_for: migrate::fill(concat!(
                include_str!("sql/chosen_waited_for.sql"),
                include_str!("sql/view.sql"),
                include_str!("sql/view_waiters.sql"),
                "ORDER BY lock_key, kind, seq"
            )),
            inspect_all: migrate::fill(concat!(
                include_str!("sql/chosen_all.sql"),
                include_str!("sql/view.sql"),
                "ORDER BY lock_key, kind, seq"
            )),
        }
    }
}
