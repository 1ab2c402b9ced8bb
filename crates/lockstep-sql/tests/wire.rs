//! What the network can do to PostgreSQL; see [`Wire`].

use std::sync::Arc;

use lockstep_sql::postgres::Postgres;
use lockstep_testkit::proxy::{Match, Protocol};
use lockstep_testkit::servers;
use lockstep_testkit::wire::Wire;

fn wire() -> Wire {
    let url = servers::postgres_url();
    let (_, address) = url.split_once('@').expect("user@host");
    let (address, _) = address.split_once('/').expect("host/database");
    Wire {
        upstream: address.parse().expect("an address"),
        protocol: Protocol::Postgres,
        connect: |port| {
            let tenant = std::process::id();
            let url = format!("postgres://lockstep@127.0.0.1:{port}/lockstep?prefix=wire-{tenant}");
            Arc::new(Postgres::from_url(&url).expect("a good URL"))
        },
        acquire: || Match::sql("lockstep_acquire_v1"),
        release: || Match::sql("lockstep_release_v1"),
    }
}

lockstep_testkit::wire_tests!(wire());
