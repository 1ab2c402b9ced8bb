use std::sync::Arc;

use lockstep_core::StoreError;
#[cfg(feature = "etcd")]
use lockstep_etcd::Etcd;
use lockstep_lock::Inbox;
use lockstep_lock::memory::Memory;
use lockstep_lock::store::{Connect, LockStore, Verb};
#[cfg(feature = "redis")]
use lockstep_redis::{Redis, Redlock};
#[cfg(feature = "sql")]
use lockstep_sql::{mysql::MySql, postgres::Postgres, sqlite::Sqlite};
#[cfg(feature = "zookeeper")]
use lockstep_zookeeper::ZooKeeper;

/// A store by its URL.
#[derive(Clone)]
pub struct Store(Kind);

/// The set is closed: a match on the URL's scheme, no registry.
#[derive(Clone)]
enum Kind {
    Memory(Memory),
    #[cfg(feature = "sql")]
    Sqlite(Sqlite),
    #[cfg(feature = "sql")]
    Postgres(Postgres),
    #[cfg(feature = "sql")]
    MySql(MySql),
    #[cfg(feature = "redis")]
    Redis(Redis),
    #[cfg(feature = "redis")]
    Redlock(Redlock),
    #[cfg(feature = "etcd")]
    Etcd(Etcd),
    #[cfg(feature = "zookeeper")]
    ZooKeeper(ZooKeeper),
}

impl Store {
    /// The store that a URL names. Nothing is connected yet.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `memory:` | a new one in this process |
    /// | `sqlite:PATH` | a file, for the processes of this machine |
    /// | `postgres://user@host:port/database` | PostgreSQL |
    /// | `mysql://user@host:port/database`, `mariadb://…` | MariaDB or MySQL |
    /// | `redis://:password@host:port/db`, `rediss://…` | Redis, or with TLS |
    /// | `redis://…?layout=plain` | the Redis lock that other programs use: no tokens, no queue |
    /// | `redlock://host:port,host:port,host:port` | several Redis servers that know nothing of each other |
    /// | `etcd://user:password@host:port,host:port` | etcd, one server or a cluster |
    /// | `zookeeper://host:port,host:port/chroot`, `zookeepers://…` | ZooKeeper, or with TLS |
    ///
    /// `?prefix=` separates tenants of one store; the other options are those of each store.
    ///
    /// # Errors
    /// No store has this scheme, or the store does not understand the rest.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
        let kind = match scheme {
            "memory" => Kind::Memory(Memory::new()),
            #[cfg(feature = "sql")]
            "sqlite" => Kind::Sqlite(Sqlite::from_url(url)?),
            #[cfg(feature = "sql")]
            "postgres" | "postgresql" => Kind::Postgres(Postgres::from_url(url)?),
            #[cfg(feature = "sql")]
            "mysql" | "mariadb" => Kind::MySql(MySql::from_url(url)?),
            #[cfg(feature = "redis")]
            "redlock" => Kind::Redlock(Redlock::from_url(url)?),
            #[cfg(feature = "etcd")]
            "etcd" => Kind::Etcd(Etcd::from_url(url)?),
            // Every other scheme with "redis" in it is Redis's to explain.
            #[cfg(feature = "redis")]
            scheme if scheme.contains("redis") => Kind::Redis(Redis::from_url(url)?),
            #[cfg(feature = "zookeeper")]
            "zookeeper" | "zookeepers" => Kind::ZooKeeper(ZooKeeper::from_url(url)?),
            _ => return Err(StoreError::config("store", unknown(scheme))),
        };
        Ok(Self(kind))
    }

    /// A SQLite file whose folders are created if they are missing.
    ///
    /// # Errors
    /// The folders cannot be created.
    #[cfg(feature = "sql")]
    pub fn embedded(path: impl AsRef<std::path::Path>) -> Result<Self, StoreError> {
        Ok(Self(Kind::Sqlite(Sqlite::open_or_create_dirs(path)?)))
    }

    /// Creates the tables, where the store has some.
    ///
    /// # Errors
    /// The store cannot be reached, or the user lacks the right.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        match &self.0 {
            Kind::Memory(_) => Ok(()),
            // Opening creates them: the file is the user's own.
            #[cfg(feature = "sql")]
            Kind::Sqlite(store) => store.open(None).await.map(drop),
            #[cfg(feature = "sql")]
            Kind::Postgres(store) => store.migrate().await,
            #[cfg(feature = "sql")]
            Kind::MySql(store) => store.migrate().await,
            #[cfg(feature = "redis")]
            Kind::Redis(_) | Kind::Redlock(_) => Ok(()),
            #[cfg(feature = "etcd")]
            Kind::Etcd(_) => Ok(()),
            #[cfg(feature = "zookeeper")]
            Kind::ZooKeeper(_) => Ok(()),
        }
    }

    /// The SQL that [`migrate`](Self::migrate) runs, where the store has tables.
    pub fn schema_sql(&self) -> Option<String> {
        match &self.0 {
            Kind::Memory(_) => None,
            #[cfg(feature = "sql")]
            Kind::Sqlite(_) => Some(Sqlite::schema_sql().to_owned()),
            #[cfg(feature = "sql")]
            Kind::Postgres(store) => Some(store.schema_sql()),
            #[cfg(feature = "sql")]
            Kind::MySql(store) => Some(store.schema_sql()),
            #[cfg(feature = "redis")]
            Kind::Redis(_) | Kind::Redlock(_) => None,
            #[cfg(feature = "etcd")]
            Kind::Etcd(_) => None,
            #[cfg(feature = "zookeeper")]
            Kind::ZooKeeper(_) => None,
        }
    }
}

fn unknown(scheme: &str) -> String {
    format!(
        "no store has the scheme `{scheme}:`; this build knows memory:{}{}{}{}",
        if cfg!(feature = "sql") { ", sqlite:PATH, postgres://…, mysql://…" } else { "" },
        if cfg!(feature = "redis") { ", redis://…, rediss://…, redlock://…" } else { "" },
        if cfg!(feature = "etcd") { ", etcd://…" } else { "" },
        if cfg!(feature = "zookeeper") { ", zookeeper://…" } else { "" },
    )
}

impl Connect for Store {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        match &self.0 {
            Kind::Memory(store) => store.open(inbox),
            #[cfg(feature = "sql")]
            Kind::Sqlite(store) => store.open(inbox),
            #[cfg(feature = "sql")]
            Kind::Postgres(store) => store.open(inbox),
            #[cfg(feature = "sql")]
            Kind::MySql(store) => store.open(inbox),
            #[cfg(feature = "redis")]
            Kind::Redis(store) => store.open(inbox),
            #[cfg(feature = "redis")]
            Kind::Redlock(store) => store.open(inbox),
            #[cfg(feature = "etcd")]
            Kind::Etcd(store) => store.open(inbox),
            #[cfg(feature = "zookeeper")]
            Kind::ZooKeeper(store) => store.open(inbox),
        }
    }
}
