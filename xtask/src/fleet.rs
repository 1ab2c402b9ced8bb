//! The servers that all tests share.

use std::path::Path;

use anyhow::Result;
use lockstep_testkit::servers::{
    Home, PGBOUNCER_ENV, POSTGRES_ENV, PgBouncer, PgBouncerOptions, PostgresOptions,
    PostgresServer, REDIS_ENV, RedisOptions, RedisServer, Running,
};

/// One Redis, one PostgreSQL and one PgBouncer in front of it. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Fleet {
    redis: RedisServer,
    pgbouncer: PgBouncer,
    postgres: PostgresServer,
}

/// The folders a fleet makes in the folder it is given.
pub(crate) const FOLDERS: [&str; 3] = ["redis", "postgres", "pgbouncer"];

impl Fleet {
    /// Starts them with their data below this folder; `life` says whether they are detached.
    pub(crate) fn start(folder: &Path, life: fn(Home) -> Home) -> Result<Fleet> {
        let [redis, postgres, pgbouncer] = FOLDERS.map(|name| life(Home::at(folder.join(name))));
        let redis = RedisServer::start(RedisOptions { home: redis, ..RedisOptions::default() })?;
        let options = PostgresOptions { home: postgres, ..PostgresOptions::default() };
        let postgres = PostgresServer::start_with(options)?;
        let options = PgBouncerOptions { home: pgbouncer, ..PgBouncerOptions::default() };
        let pgbouncer = PgBouncer::start_with(&postgres, options)?;
        Ok(Fleet { redis, pgbouncer, postgres })
    }

    /// The variables through which tests find them.
    pub(crate) fn env(&self) -> [(&'static str, String); 3] {
        [
            (REDIS_ENV, self.redis.url()),
            (POSTGRES_ENV, self.postgres.url()),
            (PGBOUNCER_ENV, self.pgbouncer.url()),
        ]
    }

    /// Leaves them running, in the order of [`env`](Self::env).
    pub(crate) fn leave_running(self) -> Result<[Running; 3]> {
        Ok([
            self.redis.leave_running()?,
            self.postgres.leave_running()?,
            self.pgbouncer.leave_running()?,
        ])
    }
}
