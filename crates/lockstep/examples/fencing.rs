//! A paused holder whose write is refused: the whole story in one file.
//!
//! ```text
//! cargo run -p lockstep-kit --example fencing                                   on SQLite, nothing to set up
//! cargo run -p lockstep-kit --example fencing -- postgres://app@localhost/app   on a PostgreSQL of yours
//! ```
//!
//! Ann, a process of her own, takes the lock, reads the balance and is stopped (SIGSTOP; a garbage
//! collection or a laptop lid does the same). Her lease runs out, Bob takes over and books 30. Then Ann
//! wakes up and books what she had worked out before.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockstep::{Guard, sql};
use rustix::process::{Pid, Signal, kill_process};

type Outcome<T> = Result<T, Box<dyn Error>>;

const LOCK: &str = "fencing-example";
const TTL: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next(), args.next()) {
        (Some("ann"), Some(locks), Some(shop)) => ann(&locks, &shop).await,
        (None, ..) => {
            let folder = tempfile::tempdir()?;
            let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
            bob(&file("locks.db"), &file("shop.db")).await
        }
        (Some(url), ..) => bob(url, url).await,
    }
}

/// Says when she holds the lock and knows the balance, and books when she is told to go on.
async fn ann(locks: &str, shop: &str) -> Outcome<()> {
    let guard = lockstep::connect(locks).await?.lock(LOCK).ttl(TTL).await?;
    let mut shop = Shop::open(shop).await?;
    let balance = shop.balance().await?;
    println!("{}", guard.token().ok_or("no tokens here")?);
    std::io::stdin().lines().next();
    println!("{}", told(shop.book(&guard, balance - 10).await));
    Ok(())
}

async fn bob(locks: &str, shop: &str) -> Outcome<()> {
    let mut here = Shop::open(shop).await?;
    here.prepare().await?;
    let (mut ann, mut words) = start_ann(locks, shop)?;
    let mut says = || words.next().ok_or("Ann is gone")?;
    println!("Ann has the lock, token       {}", says()?);
    let pid = Pid::from_child(&ann);
    kill_process(pid, Signal::STOP)?;

    let locks = lockstep::connect(locks).await?;
    let guard = locks.lock(LOCK).await?;
    println!("She is stopped. Bob has it    {}", guard.token().ok_or("no tokens here")?);
    let balance = here.balance().await?;
    println!("Bob books 30:                 {}", told(here.book(&guard, balance - 30).await));

    // The word waits in the pipe: booking is the first thing she does when she wakes up.
    ann.stdin.take().ok_or("no pipe")?.write_all(b"go on\n")?;
    kill_process(pid, Signal::CONT)?;
    println!("Ann wakes up and books 10:    {}", says()?);
    ann.wait()?;
    println!("The balance:                  {}", here.balance().await?);
    assert_eq!(here.balance().await?, 70);
    here.clean_up().await?;
    guard.release().await?;
    locks.close().await;
    Ok(())
}

type Words = Box<dyn Iterator<Item = Outcome<String>>>;

fn start_ann(locks: &str, shop: &str) -> Outcome<(Child, Words)> {
    let mut ann = Command::new(std::env::current_exe()?)
        .args(["ann", locks, shop])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(ann.stdout.take().ok_or("no pipe")?).lines();
    Ok((ann, Box::new(lines.map(|line| Ok(line?)))))
}

/// Where the money is.
enum Shop {
    Sqlite(rusqlite::Connection),
    Postgres(tokio_postgres::Client),
}

impl Shop {
    async fn open(url: &str) -> Outcome<Self> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            return Ok(Self::Sqlite(rusqlite::Connection::open(path)?));
        }
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        Ok(Self::Postgres(client))
    }

    /// The one line that matters is `verify`.
    async fn book(&mut self, guard: &Guard, balance: i64) -> Outcome<()> {
        match self {
            Self::Sqlite(db) => {
                let mut tx = db.transaction()?;
                sql::verify(&mut tx, guard)?;
                tx.execute("UPDATE fencing_example SET balance = ?1", [balance])?;
                Ok(tx.commit()?)
            }
            Self::Postgres(db) => {
                let mut tx = db.transaction().await?;
                sql::verify(&mut tx, guard).await?;
                tx.execute("UPDATE fencing_example SET balance = $1", &[&balance]).await?;
                Ok(tx.commit().await?)
            }
        }
    }

    async fn balance(&self) -> Outcome<i64> {
        let select = "SELECT balance FROM fencing_example";
        Ok(match self {
            Self::Sqlite(db) => db.query_row(select, [], |row| row.get(0))?,
            Self::Postgres(db) => db.query_one(select, &[]).await?.get(0),
        })
    }

    async fn prepare(&self) -> Outcome<()> {
        let account = "DROP TABLE IF EXISTS fencing_example;
            CREATE TABLE fencing_example (balance bigint); INSERT INTO fencing_example VALUES (100)";
        match self {
            Self::Sqlite(db) => {
                db.execute_batch(&sql::schema(sql::Dialect::Sqlite))?;
                db.execute_batch(account)?;
            }
            // The rest is there since the locks are.
            Self::Postgres(db) => db.batch_execute(account).await?,
        }
        Ok(())
    }

    async fn clean_up(&self) -> Outcome<()> {
        if let Self::Postgres(db) = self {
            db.batch_execute("DROP TABLE fencing_example").await?;
        }
        Ok(())
    }
}

fn told(outcome: Outcome<()>) -> String {
    outcome.map_or_else(|error| format!("REFUSED: {error}"), |()| "done".to_owned())
}
