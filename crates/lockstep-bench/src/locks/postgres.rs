//! PostgreSQL: a durable insert and delete, and a durable baton written by hand.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use lockstep_testkit::servers::{PostgresOptions, PostgresServer};
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use super::{many, ours};
use crate::measure::{self, Options, Rate, Work};
use crate::table::{Goal, Table};
use crate::turns::{self, in_turns};

pub(crate) fn rows(options: &Options, table: &mut Table) -> Result<()> {
    let server = PostgresServer::start()?;
    let url = server.url();
    let time = options.time;
    measure::runtime()?.block_on(prepare(&url))?;
    table.row_of_both(
        options,
        "postgres, free, 1 client / raw durable pair",
        Goal::AtLeast(0.9),
        |_| in_turns(time, RawPair::open(&url), ours::Free::open(&url)),
    )?;
    table.row(
        options,
        "postgres, 8 on one lock / durable baton",
        Goal::AtLeast(0.6),
        || baton(&url, 8, time),
        || ours::contended(&url, 8, time),
    )?;
    ours::readers(options, table, "postgres", &url)?;
    many::guards(options, table, "postgres", &url)?;
    // A server of its own: to count takes time.
    let server = PostgresServer::start_with(PostgresOptions {
        settings: vec![("shared_preload_libraries".into(), "pg_stat_statements".into())],
        ..PostgresOptions::default()
    })?;
    let url = server.url();
    measure::runtime()?.block_on(async {
        let (client, _) = connect(&url).await?;
        Ok::<_, anyhow::Error>(client.batch_execute("CREATE EXTENSION pg_stat_statements").await?)
    })?;
    // A release and an ask.
    many::waiters(options, table, "postgres", &url, 2.0, async || requests(&url).await)
}

/// How many requests of clients the server has served; what functions do inside does not count.
async fn requests(url: &str) -> Result<Option<u64>> {
    let (client, _) = connect(url).await?;
    let sum = "SELECT sum(calls)::bigint FROM pg_stat_statements";
    let calls: Option<i64> = client.query_one(sum, &[]).await?.get(0);
    Ok(Some(calls.unwrap_or(0).try_into()?))
}

async fn prepare(url: &str) -> Result<()> {
    let (client, _) = connect(url).await?;
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS raw_held (name text PRIMARY KEY, owner text, until bigint);
             CREATE TABLE IF NOT EXISTS raw_baton (id int PRIMARY KEY, passed bigint);
             CREATE TABLE IF NOT EXISTS raw_queue (seq bigserial PRIMARY KEY, who text);
             INSERT INTO raw_baton VALUES (1, 0) ON CONFLICT DO NOTHING;",
        )
        .await?;
    Ok(())
}

type Notes = tokio::sync::mpsc::UnboundedReceiver<()>;

async fn connect(url: &str) -> Result<(Client, Notes)> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    let (tell, notes) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages =
            futures_util::stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(_) = message {
                let _ = tell.send(());
            }
        }
    });
    Ok((client, notes))
}

struct RawPair {
    client: Client,
    insert: Statement,
    delete: Statement,
}

impl RawPair {
    async fn open(url: &str) -> Result<Self> {
        let (client, _) = connect(url).await?;
        let insert = client.prepare("INSERT INTO raw_held VALUES ($1, $2, $3)").await?;
        let delete = client.prepare("DELETE FROM raw_held WHERE name = $1 AND owner = $2").await?;
        Ok(Self { client, insert, delete })
    }
}

impl turns::Client for RawPair {
    async fn pair(&mut self) -> Result<()> {
        self.client.execute(&self.insert, &[&"order:42", &"me", &10_000i64]).await?;
        self.client.execute(&self.delete, &[&"order:42", &"me"]).await?;
        Ok(())
    }
}

/// What somebody would write by hand for a fair, durable lock: stand in a queue table, wait to be
/// notified, work, and pass the turn on in one transaction that also notifies the next. Two
/// durable commits and a notification per hand-over.
fn baton(url: &str, clients: usize, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let (starter, _) = connect(url).await?;
        starter.batch_execute("TRUNCATE raw_queue").await?;
        let mut workers: Vec<Work> = vec![];
        for number in 0..clients {
            workers.push(baton_client(url, number).await?);
        }
        // The turn is nobody's until the first in the queue is told.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let _ = starter.execute(PASS_ON, &[]).await;
        });
        measure::tasks(time, workers).await
    })
}

const PASS_ON: &str = "WITH next AS (
    DELETE FROM raw_queue WHERE seq = (SELECT min(seq) FROM raw_queue) RETURNING who
), passed AS (
    UPDATE raw_baton SET passed = passed + 1 WHERE id = 1 RETURNING id
)
SELECT pg_notify(who, '') FROM next, passed";

async fn baton_client(url: &str, number: usize) -> Result<Work> {
    let (client, mut notes) = connect(url).await?;
    let channel = format!("raw_{number}");
    client.batch_execute(&format!("LISTEN {channel}")).await?;
    let stand = client.prepare("INSERT INTO raw_queue (who) VALUES ($1)").await?;
    let pass_on = client.prepare(PASS_ON).await?;
    client.execute(&stand, &[&channel]).await?;
    Ok(Box::new(move |laps| {
        Box::pin(async move {
            while laps.go_on() {
                let told = tokio::time::timeout(Duration::from_secs(1), notes.recv()).await;
                let Ok(told) = told else { continue };
                told.context("the connection is gone")?;
                // Stand again before passing on, so that the queue is never empty: a turn that
                // nobody takes would be lost.
                client.execute(&stand, &[&channel]).await?;
                client.execute(&pass_on, &[]).await?;
                laps.lap();
            }
            Ok(())
        })
    }))
}
