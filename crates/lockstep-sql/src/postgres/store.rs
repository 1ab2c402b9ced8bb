//! One lane: the verbs, each one statement.

use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{Key, StoreError};
use lockstep_lock::queue::{TTL_MAX, TTL_MIN};
use lockstep_lock::store::{
    Answer, Claim, Hold, LockStore, Page, Query, Release, Released, Renewal, Verb,
};
use lockstep_lock::{Fencing, Inbox, Origin, Scope, StoreFacts};
use tokio_postgres::types::{ToSql, Type};

use super::config::Settings;
use super::listen::{HELLO, Listener};
use super::pool::{Connections, Statement};
use super::{Postgres, Route, error, migrate, rows};

/// How long a lane waits to hear itself. Directly this takes a millisecond.
const SELF_TEST: Duration = Duration::from_secs(1);

/// Enough for what dropped guards leave behind and for three renewals of one lease: each of them keeps its
/// connection until it is answered or given up, and only another connection can do better.
const KEEPER_POOL: usize = 4;

const TWO_HOLDERS_IF: &str = "a failover goes to a standby that lacks the last commits \
    (asynchronous replication), or the server's clock steps forward";
const TWO_HOLDERS_IF_BOUND: &str = "the connection of the holder's handle is lost while its work \
    goes on (as asked for), a failover goes to a standby that lacks the last commits (asynchronous \
    replication), or the server's clock steps forward";

pub(super) struct Lane {
    connections: Connections,
    statements: Statements,
    tenant: String,
    origin: Origin,
    /// Kept only if notifications arrive and somebody wants them.
    listener: Option<Listener>,
    push: bool,
    /// Whether what is held through it ends with the connection that listens.
    bound: bool,
    warnings: Vec<String>,
}

struct Statements {
    acquire: Statement,
    renew: Statement,
    release: Statement,
    downgrade: Statement,
    break_lock: Statement,
    inspect_one: Statement,
    inspect_waited_for: Statement,
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
        if settings.bound && !push {
            return Err(StoreError::config(
                error::STORE,
                "on_disconnect=release needs a direct connection; behind a transaction pooler \
                 nobody sees whose connection is lost",
            ));
        }
        if push {
            connections.keep_statements();
        } else {
            warnings.push(
                "notifications do not arrive, probably because of a transaction pooler: waiters \
                 ask at intervals; a direct connection serves them at once"
                    .to_owned(),
            );
        }
        Ok(Self {
            connections,
            statements: Statements::new(settings),
            tenant: settings.tenant.clone(),
            origin: Origin { id, prefix: settings.tenant.trim_end_matches('/').to_owned() },
            listener,
            push,
            bound: settings.bound,
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
        let (ask, statements) = (&self.connections, &self.statements);
        let limit = match query {
            Query::All { limit, .. } => *limit,
            Query::One(_) | Query::WaitedForBy(_) => usize::MAX,
        };
        let rows = match query {
            Query::One(key) => ask.ask(&statements.inspect_one, &[&self.key(key)]).await?,
            Query::WaitedForBy(owner) => {
                let (start, owner) = (&self.tenant, rows::uuid(owner.as_u128()));
                let range: [&(dyn ToSql + Sync); 3] = [start, &rows::end_of(start), &owner];
                ask.ask(&statements.inspect_waited_for, &range).await?
            }
            Query::All { prefix, limit } => {
                let start = format!("{}{prefix}", self.tenant);
                let one_more = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
                let range: [&(dyn ToSql + Sync); 3] = [&start, &rows::end_of(&start), &one_more];
                ask.ask(&statements.inspect_all, &range).await?
            }
        };
        let mut locks = rows::locks(&rows, &self.tenant)?;
        let more = locks.len() > limit;
        locks.truncate(limit);
        Ok(Page { locks, more })
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
            shared: true,
            deadlocks: true,
            push: self.push,
            ends_with_connection: self.bound,
            hands_over: true,
            clock: "the PostgreSQL server's",
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
            two_holders_if: if self.bound { TWO_HOLDERS_IF_BOUND } else { TWO_HOLDERS_IF },
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
                        &rows::integer(claim.share.weight()),
                        &rows::integer(claim.share.of()),
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
                Release::Downgrade(hold) => {
                    let claim = rows::uuid(hold.id.as_u128());
                    let key = self.key(&hold.key);
                    self.connections.ask(&self.statements.downgrade, &[&key, &claim]).await?
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
                        Type::INT4,
                        Type::INT4,
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
            downgrade: statement(
                "SELECT {schema}.lockstep_release_v1($1, $2, true) AS done",
                const { &[Type::TEXT, Type::UUID] },
            ),
            break_lock: statement(
                "SELECT {schema}.lockstep_break_v1($1, $2, $3) AS done",
                const { &[Type::TEXT, Type::TEXT, Type::BOOL] },
            ),
            inspect_one: statement(
                concat!(
                    include_str!("sql/chosen_one.sql"),
                    include_str!("sql/view.sql"),
                    include_str!("sql/view_waiters.sql"),
                    "ORDER BY key, kind, seq"
                ),
                const { &[Type::TEXT] },
            ),
            inspect_waited_for: statement(
                concat!(
                    include_str!("sql/chosen_waited_for.sql"),
                    include_str!("sql/view.sql"),
                    include_str!("sql/view_waiters.sql"),
                    "ORDER BY key, kind, seq"
                ),
                const { &[Type::TEXT, Type::TEXT, Type::UUID] },
            ),
            inspect_all: statement(
                concat!(
                    include_str!("sql/chosen_all.sql"),
                    include_str!("sql/view.sql"),
                    "ORDER BY key, kind, seq"
                ),
                const { &[Type::TEXT, Type::TEXT, Type::INT8] },
            ),
        }
    }
}
