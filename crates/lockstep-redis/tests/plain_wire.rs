//! What the network can do to plain locks; see [`Wire`]. Without a queue nothing is handed over, so that
//! a hand-over is one request is not among it.

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
            let prefix = format!("plain-wire-{}:", std::process::id());
            let url = format!("redis://127.0.0.1:{port}/?layout=plain&prefix={prefix}");
            Arc::new(Redis::from_url(&url).expect("a good URL"))
        },
        // An ask says digest, `1`, key, value, ttl. So does a renewal, but none is due so soon.
        acquire: || Match::when(|call| call.name == "EVALSHA" && call.args.len() == 5),
        // A release says digest, `1`, key, value.
        release: || Match::when(|call| call.name == "EVALSHA" && call.args.len() == 4),
        renew: || Match::when(|call| call.name == "EVALSHA" && call.args.len() == 5),
        // All that a lane asks goes over one connection, which is given up after two seconds of silence.
        outlives_silence: Duration::from_secs(10),
        // Who hears of a release asks.
        costs: Costs { hand_over: 2, ..Costs::ONE_EACH },
    }
}

lockstep_testkit::wire_tests! { wire();
    reply_lost_on_acquire
    reply_lost_while_queueing
    reply_lost_on_release
    pushes_lost
    partition_ends_trust_first
    cut_connections_cost_no_lock
    a_late_ask_is_given_back
    an_unanswered_renewal_costs_no_lock
    operations_cost_what_is_said
}
