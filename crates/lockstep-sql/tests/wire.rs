//! What the network can do to PostgreSQL and MariaDB; see [`Wire`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lockstep_sql::mysql::MySql;
use lockstep_sql::postgres::Postgres;
use lockstep_testkit::proxy::{Match, Protocol};
use lockstep_testkit::servers;
use lockstep_testkit::wire::{Costs, Wire};

fn address(url: &str) -> SocketAddr {
    let (_, address) = url.split_once('@').expect("user@host");
    let (address, _) = address.split_once('/').expect("host/database");
    address.parse().expect("an address")
}

fn postgres() -> Wire {
    Wire {
        upstream: address(&servers::postgres_url()),
        protocol: Protocol::Postgres,
        connect: |port| {
            let tenant = std::process::id();
            let url = format!("postgres://lockstep@127.0.0.1:{port}/lockstep?prefix=wire-{tenant}");
            Arc::new(Postgres::from_url(&url).expect("a good URL"))
        },
        acquire: || Match::sql("lockstep_acquire_v1"),
        release: || Match::sql("lockstep_release_v1"),
        renew: || Match::sql("lockstep_renew_v1"),
        outlives_silence: Duration::from_secs(6),
        costs: Costs::ONE_EACH,
    }
}

/// The statements that take and free a lock without a procedure: `SET claim = x'ff` is how a release
/// begins. That an answer to the first is lost has a test of its own.
fn mariadb() -> Wire {
    Wire {
        upstream: address(&servers::mariadb_url()),
        protocol: Protocol::MySql,
        connect: |port| {
            let tenant = std::process::id();
            let server = format!("mysql://lockstep:lockstep@127.0.0.1:{port}/lockstep");
            let store = MySql::from_url(&format!("{server}?prefix=wire-{tenant}"));
            Arc::new(store.expect("a good URL"))
        },
        acquire: || Match::sql("CALL lockstep_acquire_v1"),
        release: || Match::sql("SET claim = x'ff"),
        renew: || Match::sql("CALL lockstep_renew_v1"),
        outlives_silence: Duration::from_secs(6),
        costs: Costs::ONE_EACH,
    }
}

mod on_postgres {
    lockstep_testkit::wire_tests!(super::postgres());
}

mod on_mariadb {
    lockstep_testkit::wire_tests!(super::mariadb());
}
