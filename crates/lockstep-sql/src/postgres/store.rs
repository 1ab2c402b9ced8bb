//! One lane: the verbs, each one statement.

use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{Key, StoreError};
use lockstep_lock::queue::{TTL_MAX, TTL_MIN};
use lockstep_lock::store::{
    Answer, Claim, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Fencing, Inbox, Origin, Scope, StoreFacts};
use tokio_postgres::types::Type;

use super::config::Settings;
use super::listen::{HELLO, Listener};
use super::pool::{Connections, Statement};
use super::{Postgres, Route, error, migrate, rows};

/// How long a lane waits to hear itself. Directly this takes a millisecond.
const SELF_TEST: Duration = Duration::from_secs(1);

/// Enough for renewals and for what dropped guards leave behind.
const KEEPER_POOL: usize = 2;

pub(super) struct Lane {
    connections: Connections,
    statements: Statements,
    tenant: String,
    origin: Origin,
    /// Kept only if notifications arrive and somebody wants them.
    listener: Option<Listener>,
    push: bool,
    warnings: Vec<String>,
}

struct Statements {
    acquire: Statement,
    renew: Statement,
    release: Statement,
    break_lock: Statement,
    inspect_one: Statement,
    inspect_all: Statement,
}

impl Lane {
    pub(super) async fn open(store: &Postgres, inbox: Option<Inbox>) -> Result<Self, StoreError> {
        let settings = &store.settings;
        let size = if inbox.is_some() { settings.pool } else { KEEPER_POOL };
        let mut session = true;
        let mut connections = Connections::new(settings, size, session)?;
        let mut looked = migrate::check(settings, &connections).await;
        if looked.as_ref().is_err_and(error::refuses_settings) {
            session = false;
            connections = Connections::new(settings, size, session)?;
            looked = migrate::check(settings, &connections).await;
        }
        let mut warnings = looked?;
        let id = migrate::identity(settings, &connections).await?;

        let mut listener = None;
        let wanted = inbox.is_some();
        let mut route = store.route();
        // A lane without inbox finds out as well, if no other lane has: whether statements can be
        // kept depends on it.
        if route == Route::Unknown || wanted && route == Route::Session {
            let inbox = inbox.unwrap_or_default();
            let ear = Listener::start(Arc::clone(settings), session, inbox).await?;
            let heard = hears_itself(settings, &connections, &ear).await?;
            route = if heard { Route::Session } else { Route::Pooled };
            store.set_route(route);
            listener = (heard && wanted).then_some(ear);
        }
        let push = route == Route::Session;
        if push {
            connections.keep_statements();
        } else {
            warnings.push(
                "notifications do not arrive, probably because of a transaction pooler: waiters \
                 ask at intervals; a direct connection serves them at once"
                    .to_owned(),
            );
        }
        // The other lane of a handle would only say the same.
        for warning in warnings.iter().filter(|_| wanted) {
            tracing::warn!(store = error::STORE, "{warning}");
        }
        Ok(Self {
            connections,
            statements: Statements::new(settings),
            tenant: settings.tenant.clone(),
            origin: Origin { id, prefix: settings.tenant.trim_end_matches('/').to_owned() },
            listener,
            push,
            warnings,
        })
    }

    fn key(&self, key: &Key) -> String {
        format!("{}{key}", self.tenant)
    }

    async fn try_renew(&self, holds: &[Hold]) -> Result<Vec<Renewal>, StoreError> {
        // Sorted, so that two batches take the rows in the same order; each hold once, because
        // the server changes a row once per statement.
        let mut sorted: Vec<&Hold> = holds.iter().collect();
        sorted.sort_unstable_by_key(|hold| (&hold.key, hold.id));
        sorted.dedup_by_key(|hold| (&hold.key, hold.id));
        let keys: Vec<String> = sorted.iter().map(|hold| self.key(&hold.key)).collect();
        let claims: Vec<_> = sorted.iter().map(|hold| rows::uuid(hold.id.as_u128())).collect();
        let ttls_us: Vec<i64> = sorted.iter().map(|hold| rows::micros(hold.ttl)).collect();

        let answer =
            self.connections.ask(&self.statements.renew, &[&keys, &claims, &ttls_us]).await?;
        let answers: Vec<Option<String>> = rows::get(&rows::only(answer)?, "answers")?;
        let answers =
            answers.into_iter().map(rows::renewal).collect::<Result<Vec<Renewal>, _>>()?;
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

    async fn look_at(&self, query: &Query) -> Result<Page, StoreError> {
        match query {
            Query::One(key) => {
                let rows =
                    self.connections.ask(&self.statements.inspect_one, &[&self.key(key)]).await?;
                let Some(first) = rows.first() else { return Ok(Page::default()) };
                let mut lock = rows::lock(first, &self.tenant, 0)?;
                for row in &rows {
                    lock.waiters.extend(rows::waiter(row)?);
                }
                lock.waiting = lock.waiters.len() as u64;
                let anybody = lock.holder.is_some() || lock.waiting > 0;
                Ok(Page { locks: anybody.then_some(lock).into_iter().collect(), more: false })
            }
            Query::All { prefix, limit } => {
                let start = format!("{}{prefix}", self.tenant);
                let one_more = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
                let all = self
                    .connections
                    .ask(&self.statements.inspect_all, &[&start, &rows::end_of(&start), &one_more])
                    .await?;
                let mut locks = Vec::with_capacity(all.len());
                for row in all.iter().take(*limit) {
                    locks.push(rows::lock(row, &self.tenant, rows::number(row, "waiting")?)?);
                }
                Ok(Page { locks, more: all.len() > *limit })
            }
        }
    }
}

/// Sends a notification through the pool and waits for it where the lane listens.
async fn hears_itself(
    settings: &Settings,
    connections: &Connections,
    listener: &Listener,
) -> Result<bool, StoreError> {
    let hello = Statement::new(settings, "SELECT pg_notify($1, $2)", &[Type::TEXT, Type::TEXT]);
    connections.ask(&hello, &[&listener.channel(), &HELLO]).await?;
    let heard = listener.hears(SELF_TEST).await;
    if !heard {
        // The session that listens belongs to the pooler; with luck this reaches the same one.
        let hush = format!("UNLISTEN {}", listener.channel());
        let _ = connections.ask(&Statement::new(settings, &hush, &[]), &[]).await;
    }
    Ok(heard)
}

impl LockStore for Lane {
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            store: error::STORE,
            fencing: Fencing::Strong,
            scope: Scope::Network,
            fair: true,
            push: self.push,
            clock: "the PostgreSQL server's",
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
            two_holders_if: "a failover goes to a standby that lacks the last commits \
                             (asynchronous replication), or the server's clock steps forward",
            warnings: self.warnings.clone(),
            origin: self.origin.clone(),
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Verb<'a, Answer> {
        Box::pin(async move {
            let answer = self
                .connections
                .ask(
                    &self.statements.acquire,
                    &[
                        &self.key(&claim.key),
                        &rows::uuid(claim.id.as_u128()),
                        &rows::uuid(claim.owner.as_u128()),
                        &claim.label.as_str(),
                        &self.listener.as_ref().map(Listener::channel),
                        &rows::micros(claim.ttl),
                        &claim.wait,
                    ],
                )
                .await?;
            rows::answer(rows::get(&rows::only(answer)?, "answer")?)
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Verb<'a, Vec<Renewal>> {
        Box::pin(
            async move { if holds.is_empty() { Ok(vec![]) } else { self.try_renew(holds).await } },
        )
    }

    fn release<'a>(&'a self, what: &'a Release) -> Verb<'a, Released> {
        Box::pin(async move {
            let answer = match what {
                Release::Mine(hold) => {
                    let claim = rows::uuid(hold.id.as_u128());
                    let key = self.key(&hold.key);
                    self.connections.ask(&self.statements.release, &[&key, &claim]).await?
                }
                Release::Break { key, reason, now } => {
                    // The one character that PostgreSQL's text cannot hold.
                    let reason = reason.replace('\0', " ");
                    let key = self.key(key);
                    self.connections.ask(&self.statements.break_lock, &[&key, &reason, now]).await?
                }
            };
            let done = rows::get(&rows::only(answer)?, "done")?;
            Ok(if done { Released::Done } else { Released::NotHeld })
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> Verb<'a, Page> {
        Box::pin(self.look_at(query))
    }
}

impl Statements {
    fn new(settings: &Settings) -> Self {
        let statement = |sql, types| Statement::new(settings, sql, types);
        Self {
            acquire: statement(
                include_str!("sql/ask.sql"),
                const {
                    &[
                        Type::TEXT,
                        Type::UUID,
                        Type::UUID,
                        Type::TEXT,
                        Type::TEXT,
                        Type::INT8,
                        Type::BOOL,
                    ]
                },
            ),
            renew: statement(
                "SELECT {schema}.lockstep_renew_v1($1, $2, $3) AS answers",
                const { &[Type::TEXT_ARRAY, Type::UUID_ARRAY, Type::INT8_ARRAY] },
            ),
            release: statement(
                include_str!("sql/give_back.sql"),
                const { &[Type::TEXT, Type::UUID] },
            ),
            break_lock: statement(
                "SELECT {schema}.lockstep_break_v1($1, $2, $3) AS done",
                const { &[Type::TEXT, Type::TEXT, Type::BOOL] },
            ),
            inspect_one: statement(include_str!("sql/inspect_one.sql"), const { &[Type::TEXT] }),
            inspect_all: statement(
                include_str!("sql/inspect_all.sql"),
                const { &[Type::TEXT, Type::TEXT, Type::INT8] },
            ),
        }
    }
}
