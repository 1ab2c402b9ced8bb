//! MariaDB: a durable insert and delete, and a durable baton written by hand.

use std::time::Duration;

use anyhow::{Result, ensure};
use lockstep_testkit::servers::MariaDbServer;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Statement, TxOpts};

use super::{many, ours};
use crate::measure::{self, Options, Rate, Work};
use crate::table::{Goal, Table};
use crate::turns::{Client, in_turns};

pub(crate) fn rows(options: &Options, table: &mut Table) -> Result<()> {
    let server = MariaDbServer::start()?;
    let url = server.url();
    let time = options.time;
    measure::runtime()?.block_on(prepare(&url))?;
    table.row_of_both(
        options,
        "mariadb, free, 1 client / raw durable pair",
        Goal::AtLeast(0.9),
        |_| in_turns(time, RawPair::open(&url), ours::Free::open(&url)),
    )?;
    table.row(
        options,
        "mariadb, 8 on one lock / durable baton",
        Goal::AtLeast(0.6),
        || baton(&url, 8, time),
        || ours::contended(&url, 8, time),
    )?;
    ours::readers(options, table, "mariadb", &url)?;
    // The waits of a listener, interrupted and begun anew, are requests as well.
    many::waiters(options, table, "mariadb", &url, 4.0, async || requests(&url).await)?;
    many::guards(options, table, "mariadb", &url)
}

async fn prepare(url: &str) -> Result<()> {
    let mut client = connect(url).await?;
    for statement in [
        "CREATE TABLE IF NOT EXISTS raw_held
             (name VARCHAR(255) PRIMARY KEY, owner VARCHAR(255), until BIGINT)",
        "CREATE TABLE IF NOT EXISTS raw_baton (id INT PRIMARY KEY, passed BIGINT)",
        "CREATE TABLE IF NOT EXISTS raw_queue (seq BIGINT AUTO_INCREMENT PRIMARY KEY, who INT)",
        "INSERT IGNORE INTO raw_baton VALUES (1, 0)",
    ] {
        client.query_drop(statement).await?;
    }
    Ok(())
}

async fn connect(url: &str) -> Result<Conn> {
    let options = OptsBuilder::from_opts(Opts::from_url(url)?).prefer_socket(false);
    Ok(Conn::new(options).await?)
}

/// How many requests of clients the server has served; what procedures do inside does not count.
async fn requests(url: &str) -> Result<Option<u64>> {
    let counted: Option<(String, u64)> =
        connect(url).await?.query_first("SHOW GLOBAL STATUS LIKE 'Questions'").await?;
    Ok(counted.map(|(_, calls)| calls))
}

struct RawPair {
    client: Conn,
    insert: Statement,
    delete: Statement,
}

impl RawPair {
    async fn open(url: &str) -> Result<Self> {
        let mut client = connect(url).await?;
        let insert = client.prep("INSERT INTO raw_held VALUES (?, ?, ?)").await?;
        let delete = client.prep("DELETE FROM raw_held WHERE name = ? AND owner = ?").await?;
        Ok(Self { client, insert, delete })
    }
}

impl Client for RawPair {
    async fn pair(&mut self) -> Result<()> {
        self.client.exec_drop(&self.insert, ("order:42", "me", 10_000)).await?;
        self.client.exec_drop(&self.delete, ("order:42", "me")).await?;
        Ok(())
    }
}

/// What somebody would write by hand for a durable lock: stand in a queue table that can be looked at,
/// wait for one's turn in `GET_LOCK`, work, and take oneself out and count the turn in one
/// transaction. Two durable commits per hand-over; the turn itself dies with its connection and
/// has no lease.
fn baton(url: &str, clients: usize, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let mut workers: Vec<Work> = vec![];
        for number in 0..clients {
            workers.push(baton_client(url, number).await?);
        }
        measure::tasks(time, workers).await
    })
}

async fn baton_client(url: &str, number: usize) -> Result<Work> {
    let mut client = connect(url).await?;
    Ok(Box::new(move |laps| {
        Box::pin(async move {
            while laps.go_on() {
                client.exec_drop("INSERT INTO raw_queue (who) VALUES (?)", (number,)).await?;
                let place = client.last_insert_id();
                let turn: Option<i64> =
                    client.exec_first("SELECT GET_LOCK('raw_baton', 10)", ()).await?;
                ensure!(turn == Some(1), "no turn in ten seconds");
                let mut pass_on = client.start_transaction(TxOpts::default()).await?;
                let count = "UPDATE raw_baton SET passed = passed + 1 WHERE id = 1";
                pass_on.exec_drop(count, ()).await?;
                pass_on.exec_drop("DELETE FROM raw_queue WHERE seq = ?", (place,)).await?;
                pass_on.commit().await?;
                client.exec_drop("DO RELEASE_LOCK('raw_baton')", ()).await?;
                laps.lap();
            }
            Ok(())
        })
    }))
}
