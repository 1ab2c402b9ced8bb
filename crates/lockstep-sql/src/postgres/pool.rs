//! The connections of one lane, and one bounded round trip on one of them.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Client, Connect, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts,
};
use futures_util::future::BoxFuture;
use lockstep_core::StoreError;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client as Dialled, Config, Error, Row};

use super::config::{OPERATION, Settings};
use super::error;

pub(super) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

/// One statement with the types of its parameters, so that nobody has to ask the server for them.
pub(super) struct Statement {
    sql: String,
    types: &'static [Type],
}

impl Statement {
    /// Fills the schema and the clock into the text of a file under `sql/`.
    pub(super) fn new(settings: &Settings, sql: &str, types: &'static [Type]) -> Self {
        Self { sql: fill(&settings.schema, sql), types }
    }
}

/// The server's clock as it is now, not as it was when the transaction began.
const NOW_US: &str = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint";

pub(super) fn fill(schema: &str, sql: &str) -> String {
    sql.replace("{schema}", schema).replace("{now_us}", NOW_US)
}

pub(super) struct Connections {
    pool: Pool,
    /// Whether a connection is a session, which keeps statements. Behind a transaction pooler the
    /// next transaction may run in a session that has never heard of them.
    sessions: bool,
}

impl Connections {
    /// Connects to nothing yet. `session` as for [`Settings::connect`].
    pub(super) fn new(
        settings: &Arc<Settings>,
        size: usize,
        session: bool,
    ) -> Result<Self, StoreError> {
        let manager = Manager::from_connect(
            Config::new(),
            Dial { settings: Arc::clone(settings), session },
            // Asking "are you there" before each request would double its round trips.
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(OPERATION),
                create: Some(OPERATION),
                recycle: Some(OPERATION),
            })
            .build()
            .map_err(|error| StoreError::config(error::STORE, error.to_string()))?;
        Ok(Self { pool, sessions: false })
    }

    /// From now on statements are prepared once per connection.
    pub(super) fn keep_statements(&mut self) {
        self.sessions = true;
    }

    /// One round trip, committed when this returns.
    pub(super) async fn ask(
        &self,
        statement: &Statement,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let deadline = Instant::now() + OPERATION;
        let client = timeout_at(deadline, self.pool.get())
            .await
            .map_err(|_| error::no_connection())?
            .map_err(error::from_pool)?;
        let flight = Flight { client: Some(client), since: Instant::now() };
        let answer = timeout_at(deadline, self.send(flight.client(), statement, parameters)).await;
        let answer = answer.map_err(|_| error::no_answer())?;
        flight.land(!answer.as_ref().is_err_and(error::spoils));
        answer.map_err(error::answered)
    }

    async fn send(
        &self,
        client: &Client,
        statement: &Statement,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        if self.sessions {
            let prepared = client.prepare_typed_cached(&statement.sql, statement.types).await?;
            return client.query(&prepared, parameters).await;
        }
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            parameters.iter().copied().zip(statement.types.iter().cloned()).collect();
        client.query_typed(&statement.sql, &typed).await
    }
}

/// How the pool gets a connection. The settings that it passes are not looked at.
struct Dial {
    settings: Arc<Settings>,
    session: bool,
}

impl Connect for Dial {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Dialled, JoinHandle<()>), Error>> {
        Box::pin(async move {
            let (client, line) = self.settings.dial(self.session).await?;
            let drive = tokio::spawn(async move {
                if let Err(error) = line.await {
                    tracing::warn!(store = error::STORE, %error, "lost a connection");
                }
            });
            Ok((client, drive))
        })
    }
}

/// A connection whose answer is still to come. If nobody waits for it any more, the connection
/// goes back to the pool, and the next request queues behind the forgotten one; but one that has
/// been silent for long is closed, or callers with little patience would pass a dead connection
/// round for ever.
struct Flight {
    client: Option<Client>,
    since: Instant,
}

const SILENT: Duration = Duration::from_millis(250);

impl Flight {
    fn client(&self) -> &Client {
        self.client.as_ref().expect("taken only when the flight ends")
    }

    /// The answer came; `keep` says whether the connection is still good.
    fn land(mut self, keep: bool) {
        if let Some(client) = self.client.take()
            && !keep
        {
            drop(Object::take(client));
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && self.since.elapsed() > SILENT
        {
            drop(Object::take(client));
        }
    }
}
