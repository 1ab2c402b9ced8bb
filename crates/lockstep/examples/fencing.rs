//! A paused holder whose write is refused: the whole story in one file.
//!
//! ```text
//! cargo run -p lockstep-kit --example fencing                                   on SQLite, nothing to set up
//! cargo run -p lockstep-kit --example fencing -- postgres://app@localhost/app   on a PostgreSQL of yours
//! ```
//!
//! Ann takes the lock, reads the balance and is paused: a garbage collection, a laptop lid. Her lease runs
//! out, Bob takes over and books 30. Then Ann wakes up and wants to book what she had worked out before.

use std::error::Error;
use std::time::Duration;

use lockstep::{Guard, Locks, sql};

type Outcome<T> = Result<T, Box<dyn Error>>;

const TTL: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> Outcome<()> {
    match std::env::args().nth(1) {
        None => on_sqlite().await,
        Some(url) => on_postgres(&url).await,
    }
}

async fn on_sqlite() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let mut db = rusqlite::Connection::open(folder.path().join("shop.db"))?;
    db.execute_batch(&sql::schema(sql::Dialect::Sqlite))?;
    db.execute_batch("CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (100)")?;
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let (ann, bob) = ann_is_paused_and_bob_takes_over(&url).await?;

    let mut book = |guard: &Guard, balance: i64| -> Outcome<()> {
        let mut tx = db.transaction()?;
        sql::verify(&mut tx, guard)?;
        tx.execute("UPDATE account SET balance = ?1", [balance])?;
        Ok(tx.commit()?)
    };
    println!("Bob books 30:                 {}", told(book(&bob, 70)));
    println!("Ann wakes up and books 10:    {}", told(book(&ann, 90)));
    let balance: i64 = db.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
    println!("The balance:                  {balance}");
    assert_eq!(balance, 70);
    Ok(bob.release().await?)
}

async fn on_postgres(url: &str) -> Outcome<()> {
    let (mut db, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let connection = tokio::spawn(connection);
    let (ann, bob) = ann_is_paused_and_bob_takes_over(url).await?;
    db.batch_execute(
        "CREATE TEMPORARY TABLE account (balance bigint); INSERT INTO account VALUES (100)",
    )
    .await?;

    let mut book = async |guard: &Guard, balance: i64| -> Outcome<()> {
        let mut tx = db.transaction().await?;
        sql::verify(&mut tx, guard).await?;
        tx.execute("UPDATE account SET balance = $1", &[&balance]).await?;
        Ok(tx.commit().await?)
    };
    // The lock is in the same database: Ann is refused though Bob has not written yet.
    println!("Ann wakes up and books 10:    {}", told(book(&ann, 90).await));
    println!("Bob books 30:                 {}", told(book(&bob, 70).await));
    let balance: i64 = db.query_one("SELECT balance FROM account", &[]).await?.get(0);
    println!("The balance:                  {balance}");
    assert_eq!(balance, 70);
    bob.release().await?;
    drop(db);
    Ok(connection.await??)
}

/// Two guards of one lock. A pause cannot be staged in one process, so Ann's lock is taken from her as
/// an operator would.
async fn ann_is_paused_and_bob_takes_over(url: &str) -> Outcome<(Guard, Guard)> {
    let (here, there): (Locks, Locks) =
        (lockstep::connect(url).await?, lockstep::connect(url).await?);
    let ann = here.lock("fencing-example").ttl(TTL).await?;
    there.break_lock_now("fencing-example", "Ann's machine does not answer").await?;
    let bob = there.lock("fencing-example").await?;
    println!("Ann's token {}, Bob's token {}", number(&ann), number(&bob));
    Ok((ann, bob))
}

fn number(guard: &Guard) -> u64 {
    guard.token().map_or(0, lockstep::Token::get)
}

fn told(outcome: Outcome<()>) -> String {
    outcome.map_or_else(|error| format!("REFUSED: {error}"), |()| "done".to_owned())
}
