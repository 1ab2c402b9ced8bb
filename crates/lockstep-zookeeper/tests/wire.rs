//! What the network can do to it; see [`Wire`].

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use lockstep_testkit::proxy::{Match, Protocol};
use lockstep_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use lockstep_testkit::wire::{Costs, Wire};
use lockstep_zookeeper::ZooKeeper;

/// Ends with the process.
static SERVER: LazyLock<ZooKeeperServer> = LazyLock::new(|| {
    ZooKeeperServer::start(ZooKeeperOptions::default()).expect("a private ZooKeeper")
});

fn wire() -> Wire {
    Wire {
        upstream: SERVER.addr(),
        protocol: Protocol::ZooKeeper,
        connect: |port| {
            let url = format!("zookeeper://127.0.0.1:{port}");
            Arc::new(ZooKeeper::from_url(&url).expect("a good URL"))
        },
        // A first ask makes a node, a later one proves it. So does a renewal, but none is due so soon.
        acquire: || {
            Match::when(|ask| ask.name == "MULTI" || ask.name == "CREATE" && ask.has_arg(b"-lock-"))
        },
        release: || Match::command("DELETE"),
        renew: || Match::command("MULTI"),
        outlives_silence: Duration::from_secs(20),
        // An ask makes a node, or proves it, and looks who else has one.
        costs: Costs { lock: 2, again: 2, ..Costs::ONE_EACH },
    }
}

// A session is one stream, which whoever gives back shares with whoever asked: no ask comes late.
lockstep_testkit::wire_tests! { wire();
    reply_lost_on_acquire
    reply_lost_while_queueing
    reply_lost_on_release
    pushes_lost
    partition_ends_trust_first
    cut_connections_cost_no_lock
    an_unanswered_renewal_costs_no_lock
    operations_cost_what_is_said
    a_hand_over_is_one_request
}
