//! What the network can do to it; see [`Wire`].

use std::sync::Arc;
use std::time::Duration;

use lockstep_redis::Redis;
use lockstep_testkit::proxy::{Match, Protocol};
use lockstep_testkit::servers;
use lockstep_testkit::wire::{Costs, Wire};

fn wire() -> Wire {
    let url = servers::redis_url();
    let upstream = url.trim_start_matches("redis://").parse().expect("an address");
    Wire {
        upstream,
        protocol: Protocol::Resp,
        connect: |port| {
            let url = format!("redis://127.0.0.1:{port}/?prefix=wire-{}", std::process::id());
            Arc::new(Redis::from_url(&url).expect("a good URL"))
        },
        // An ask says where its asker listens.
        acquire: || Match::command("EVALSHA").with_arg(":1:in:"),
        // A release says digest, `1`, lock, claim, ttl. So does a renewal, but none is due so soon.
        release: || Match::when(|call| call.name == "EVALSHA" && call.args.len() == 5),
        renew: || Match::when(|call| call.name == "EVALSHA" && call.args.len() == 5),
        // All that a lane asks goes over one connection, which is given up after two seconds of silence.
        outlives_silence: Duration::from_secs(10),
        costs: Costs::ONE_EACH,
    }
}

lockstep_testkit::wire_tests!(wire());
