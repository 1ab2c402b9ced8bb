//! Lanes, claims and a look at the server from outside.

use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner, StoreError, Token};
use lockstep_lock::store::{Answer, Claim, Connect, LockStore, Release, Released};
use lockstep_lock::{Inbox, Signal};
use lockstep_sql::mysql::MySql;
use lockstep_testkit::servers;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Long enough for any signal on a busy machine; reached only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One test's part of the server.
pub struct Place {
    base: String,
    pub name: String,
}

impl Place {
    pub fn new() -> Self {
        Self::at(&servers::mariadb_url())
    }

    pub fn at(url: &str) -> Self {
        let base = url.split('?').next().unwrap_or_default().to_owned();
        Self { base, name: format!("t{}", ClaimId::new()) }
    }

    pub fn url(&self, more: &str) -> String {
        format!("{}?prefix={}{more}", self.base, self.name)
    }

    pub fn store(&self) -> MySql {
        MySql::from_url(&self.url("")).unwrap()
    }

    pub async fn lane(&self) -> Lane {
        open(&self.store()).await
    }

    /// A connection of our own.
    pub async fn admin(&self) -> Conn {
        connect(&self.base).await
    }
}

pub async fn connect(url: &str) -> Conn {
    let mut conn = Conn::new(Opts::from_url(url).unwrap()).await.unwrap();
    // Without it a change of many rows would also lock what is between them.
    conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.unwrap();
    conn
}

pub struct Lane {
    pub store: Arc<dyn LockStore>,
    pub signals: UnboundedReceiver<Signal>,
}

pub async fn open(store: &MySql) -> Lane {
    let (send, signals) = unbounded_channel();
    let inbox = Inbox::tapped(move |signal| {
        let _ = send.send(signal);
    });
    Lane { store: store.open(Some(inbox)).await.unwrap(), signals }
}

pub async fn refused(url: &str) -> StoreError {
    match MySql::from_url(url).unwrap().open(None).await {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

impl Lane {
    pub async fn ask(&self, claim: &Claim) -> Answer {
        self.store.acquire(claim).await.unwrap()
    }

    pub async fn grant(&self, claim: &Claim) -> Token {
        match self.ask(claim).await {
            Answer::Granted { token } => token.expect("MariaDB counts"),
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    pub async fn give_back(&self, claim: &Claim) -> Released {
        self.store.release(&Release::Mine(claim.hold())).await.unwrap()
    }

    pub async fn signal(&mut self) -> Signal {
        let signal = tokio::time::timeout(PATIENCE, self.signals.recv()).await;
        signal.expect("a signal was expected").expect("the lane lives")
    }

    pub async fn granted(&mut self, claim: &Claim) -> Token {
        match self.signal().await {
            Signal::Granted { claim: id, token } if id == claim.id => token.unwrap(),
            other => panic!("expected the grant of {:?}, got {other:?}", claim.id),
        }
    }

    /// No signal has come: whatever was to be heard before is here once our own word has come round.
    pub async fn assert_silent(&mut self, place: &Place, key: &str) {
        let word = claim(&format!("{key}-silence"));
        let next = claim(&format!("{key}-silence"));
        let other = place.lane().await;
        other.grant(&word).await;
        self.ask(&next).await;
        other.give_back(&word).await;
        self.granted(&next).await;
        self.give_back(&next).await;
    }
}

pub fn claim(name: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        key: Key::new(name).unwrap(),
        owner: Owner::new(),
        label: Label::new("test"),
        share: lockstep_lock::Share::Exclusive,
        ttl: Duration::from_secs(60),
        wait: true,
    }
}

pub fn queued(answer: &Answer) -> u64 {
    match answer {
        Answer::Queued { ahead, .. } => *ahead,
        other => panic!("expected a place in the queue, got {other:?}"),
    }
}

/// Lets the server's clock run on by `by` for one tenant: every lease ends that much earlier.
pub async fn let_time_pass(admin: &mut Conn, place: &Place, by: Duration) {
    let by = i64::try_from(by.as_micros()).unwrap();
    for table in ["lockstep_lock", "lockstep_holder", "lockstep_waiter"] {
        let sql = format!(
            "UPDATE {table} SET until_us = until_us - ? WHERE lock_key >= ? AND lock_key < ?"
        );
        let range = (by, format!("{}/", place.name), format!("{}0", place.name));
        loop {
            match admin.exec_drop(&sql, &range).await {
                Ok(()) => break,
                // Undone to end a circle with a verb: nothing has happened.
                Err(mysql_async::Error::Server(error)) if error.code == 1213 => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Ends the lease of one lock's holder, and of nobody else.
pub async fn end_lease(admin: &mut Conn, place: &Place, name: &str) {
    let sql = "UPDATE lockstep_lock SET until_us = 0 WHERE lock_key = ?";
    admin.exec_drop(sql, (format!("{}/{name}", place.name),)).await.unwrap();
}
