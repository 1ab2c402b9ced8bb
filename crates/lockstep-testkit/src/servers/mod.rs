//! Private servers for tests: Redis, PostgreSQL, PgBouncer, MariaDB, etcd and ZooKeeper on loopback ports of
//! their own, with their data in a folder of their own, gone when their owner is gone.
//!
//! Two ways to use them. A test that only needs *a* server asks [`redis_url`], [`postgres_url`],
//! [`pgbouncer_url`], [`mariadb_url`] or [`etcd_url`], which name the servers `cargo xtask test` has started for
//! the whole run. A test that hurts its server (kills, pauses, restarts it, shifts its clock)
//! starts its own:
//!
//! ```no_run
//! use lockstep_testkit::servers::{RedisOptions, RedisServer};
//!
//! let mut redis = RedisServer::start(RedisOptions::default())?;
//! redis.pause()?; // connected clients now wait, as behind a network that swallows packets
//! redis.resume()?;
//! redis.kill()?;
//! redis.restart()?; // same port; without persistence it comes back empty
//! # anyhow::Ok(())
//! ```
//!
//! What is absent: no server here ever uses a default port, touches a server of the machine, or is
//! skipped because it is not installed. A missing server is a failed test.

mod account;
mod clock_shim;
mod etcd;
mod java;
mod mariadb;
mod namespace;
mod peers;
mod pgbouncer;
mod ports;
mod postgres;
mod process;
mod procfs;
mod programs;
mod redis;
mod sweep;
mod tls;
mod zookeeper;

pub use clock_shim::{ClockShim, SkewedClock};
pub use etcd::{EtcdOptions, EtcdServer};
pub use java::JavaProgram;
pub use mariadb::{MariaDbOptions, MariaDbServer};
pub use namespace::{after_a_sleep, can_sleep};
pub use pgbouncer::{PgBouncer, PgBouncerOptions};
pub use ports::free_port;
pub use postgres::{PostgresOptions, PostgresServer};
pub use process::{Home, Running};
pub use programs::{PROGRAMS, Program, missing};
pub use redis::{Persistence, RedisOptions, RedisServer};
pub use sweep::sweep;
pub use tls::TlsFiles;
pub use zookeeper::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer, class_path};

/// Names the Redis server that every test may share.
pub const REDIS_ENV: &str = "LOCKSTEP_TEST_REDIS";
/// Names the PostgreSQL server that every test may share.
pub const POSTGRES_ENV: &str = "LOCKSTEP_TEST_POSTGRES";
/// Names the PgBouncer, pooling transactions, that every test may share.
pub const PGBOUNCER_ENV: &str = "LOCKSTEP_TEST_PGBOUNCER";
/// Names the MariaDB server that every test may share.
pub const MARIADB_ENV: &str = "LOCKSTEP_TEST_MARIADB";

/// Names the etcd server that every test may share.
pub const ETCD_ENV: &str = "LOCKSTEP_TEST_ETCD";

/// The URL of the Redis server shared by all tests of this run.
///
/// # Panics
/// When `LOCKSTEP_TEST_REDIS` is not set: a test without its server has not passed.
pub fn redis_url() -> String {
    shared_server(REDIS_ENV, "Redis")
}

/// The URL of the PostgreSQL server shared by all tests of this run.
///
/// # Panics
/// When `LOCKSTEP_TEST_POSTGRES` is not set: a test without its server has not passed.
pub fn postgres_url() -> String {
    shared_server(POSTGRES_ENV, "PostgreSQL")
}

/// The URL of the PgBouncer (transaction pooling) shared by all tests of this run.
///
/// # Panics
/// When `LOCKSTEP_TEST_PGBOUNCER` is not set: a test without its server has not passed.
pub fn pgbouncer_url() -> String {
    shared_server(PGBOUNCER_ENV, "PgBouncer")
}

/// The URL of the MariaDB server shared by all tests of this run, for its ordinary user.
///
/// # Panics
/// When `LOCKSTEP_TEST_MARIADB` is not set: a test without its server has not passed.
pub fn mariadb_url() -> String {
    shared_server(MARIADB_ENV, "MariaDB")
}

/// The URL of the etcd server shared by all tests of this run.
///
/// # Panics
/// When `LOCKSTEP_TEST_ETCD` is not set: a test without its server has not passed.
pub fn etcd_url() -> String {
    shared_server(ETCD_ENV, "etcd")
}

fn shared_server(variable: &str, server: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set, so this test has no {server} to run against. Run \
             `cargo xtask test`, which starts one, or keep servers up while you work: \
             `cargo xtask servers up`, then paste the `export` lines it prints."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "cargo xtask test")]
    fn a_missing_server_is_a_failure_that_says_what_to_do() {
        shared_server("LOCKSTEP_TEST_NO_SUCH_SERVER", "imaginary server");
    }
}
