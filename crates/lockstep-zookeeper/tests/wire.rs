//! What the network can do to it; see [`Wire`].

use std::sync::{Arc, LazyLock};

use lockstep_testkit::proxy::{Match, Protocol};
use lockstep_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use lockstep_testkit::wire::Wire;
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
    }
}

lockstep_testkit::wire_tests!(wire());
