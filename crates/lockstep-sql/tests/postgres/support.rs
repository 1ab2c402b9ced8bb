//! Lanes, claims and a look at the server from outside.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner, Token};
use lockstep_lock::store::{Answer, Claim, Connect, LockStore, Release, Released};
use lockstep_lock::{Inbox, Signal};
use lockstep_sql::postgres::Postgres;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{Client, NoTls};

/// Long enough for any signal on a busy machine; reached only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// One test's part of the server.
pub struct Place {
    base: String,
    pub name: String,
}

impl Place {
    pub fn new() -> Self {
        Self::at("LOCKSTEP_TEST_POSTGRES")
    }

    pub fn at(variable: &str) -> Self {
        let url = std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} must hold the URL of a PostgreSQL server for these tests")
        });
        let base = url.split('?').next().unwrap_or_default().to_owned();
        Self { base, name: format!("t{}", ClaimId::new()) }
    }

    /// The same place, reached another way.
    pub fn through(&self, variable: &str) -> Self {
        Self { name: self.name.clone(), ..Self::at(variable) }
    }

    pub fn url(&self, more: &str) -> String {
        self.url_named(&self.name, more)
    }

    /// The same place under another `application_name`.
    pub fn url_named(&self, application: &str, more: &str) -> String {
        format!("{}?prefix={}&application_name={application}{more}", self.base, self.name)
    }

    /// The same place in a URL with these ports of this machine before its own.
    pub fn url_after(&self, ports: &[u16], more: &str) -> String {
        let others: String = ports.iter().map(|port| format!("127.0.0.1:{port},")).collect();
        self.url(more).replacen('@', &format!("@{others}"), 1)
    }

    /// Its server.
    pub fn address(&self) -> SocketAddr {
        let (_, address) = self.base.split_once('@').expect("the URL names a role");
        let (address, _) = address.split_once('/').expect("the URL names a database");
        address.parse().expect("the server is one of this machine")
    }

    pub fn store(&self) -> Postgres {
        Postgres::from_url(&self.url("")).unwrap()
    }

    /// A place in another schema, as another role.
    pub fn url_as(&self, role: &str, more: &str) -> String {
        let (_, address) = self.base.split_once('@').expect("the URL names a role");
        format!("postgres://{role}@{address}?prefix={}{more}", self.name)
    }

    pub async fn lane(&self) -> Lane {
        open(&self.store()).await
    }

    /// A connection of our own.
    pub async fn admin(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.base, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

pub struct Lane {
    pub store: Arc<dyn LockStore>,
    pub signals: UnboundedReceiver<Signal>,
}

pub async fn open(store: &Postgres) -> Lane {
    let (send, signals) = unbounded_channel();
    let inbox = Inbox::tapped(move |signal| {
        let _ = send.send(signal);
    });
    Lane { store: store.open(Some(inbox)).await.unwrap(), signals }
}

impl Lane {
    pub async fn ask(&self, claim: &Claim) -> Answer {
        self.store.acquire(claim).await.unwrap()
    }

    pub async fn grant(&self, claim: &Claim) -> Token {
        match self.ask(claim).await {
            Answer::Granted { token } => token.expect("PostgreSQL counts"),
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

    /// No signal has come: whatever was sent before is here once our own word has come round.
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
pub async fn let_time_pass(admin: &Client, place: &Place, by: Duration) {
    let by = i64::try_from(by.as_micros()).unwrap();
    for table in ["lockstep_lock", "lockstep_holder", "lockstep_waiter"] {
        let sql = format!("UPDATE {table} SET until_us = until_us - $1 WHERE starts_with(key, $2)");
        admin.execute(&sql, &[&by, &format!("{}/", place.name)]).await.unwrap();
    }
}
