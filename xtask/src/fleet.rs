//! The servers that all tests share.

use std::path::Path;

use anyhow::Result;
use lockstep_testkit::servers::{
    ETCD_ENV, EtcdOptions, EtcdServer, Home, MARIADB_ENV, MariaDbOptions, MariaDbServer,
    PGBOUNCER_ENV, POSTGRES_ENV, PgBouncer, PgBouncerOptions, PostgresOptions, PostgresServer,
    REDIS_ENV, RedisOptions, RedisServer, Running,
};

/// One Redis, one PostgreSQL and one PgBouncer in front of it, one MariaDB, one etcd. Dropping it ends
/// them.
#[derive(Debug)]
pub(crate) struct Fleet {
    redis: RedisServer,
    pgbouncer: PgBouncer,
    postgres: PostgresServer,
    mariadb: MariaDbServer,
    etcd: EtcdServer,
}

/// The folders a fleet makes in the folder it is given.
pub(crate) const FOLDERS: [&str; 5] = ["redis", "postgres", "pgbouncer", "mariadb", "etcd"];

impl Fleet {
    /// Starts them with their data below this folder; `life` says whether they are detached.
    pub(crate) fn start(folder: &Path, life: fn(Home) -> Home) -> Result<Fleet> {
        let [redis, postgres, pgbouncer, mariadb, etcd] =
            FOLDERS.map(|name| life(Home::at(folder.join(name))));
        let redis = RedisServer::start(RedisOptions { home: redis, ..RedisOptions::default() })?;
        let options = PostgresOptions { home: postgres, ..PostgresOptions::default() };
        let postgres = PostgresServer::start_with(options)?;
        let options = PgBouncerOptions { home: pgbouncer, ..PgBouncerOptions::default() };
        let pgbouncer = PgBouncer::start_with(&postgres, options)?;
        let options = MariaDbOptions { home: mariadb, ..MariaDbOptions::default() };
        let mariadb = MariaDbServer::start_with(options)?;
        let etcd = EtcdServer::start(EtcdOptions { home: etcd, ..EtcdOptions::default() })?;
        Ok(Fleet { redis, pgbouncer, postgres, mariadb, etcd })
    }

    /// The variables through which tests find them.
    pub(crate) fn env(&self) -> [(&'static str, String); 5] {
        [
            (REDIS_ENV, self.redis.url()),
            (POSTGRES_ENV, self.postgres.url()),
            (PGBOUNCER_ENV, self.pgbouncer.url()),
            (MARIADB_ENV, self.mariadb.url()),
            (ETCD_ENV, self.etcd.url()),
        ]
    }

    /// Leaves them running, in the order of [`env`](Self::env).
    pub(crate) fn leave_running(self) -> Result<[Running; 5]> {
        Ok([
            self.redis.leave_running()?,
            self.postgres.leave_running()?,
            self.pgbouncer.leave_running()?,
            self.mariadb.leave_running()?,
            self.etcd.leave_running()?,
        ])
    }
}
