//! Real servers on which nothing can be locked.

use lockstep_core::{Effect, ErrorKind};
use lockstep_lock::Inbox;
use lockstep_lock::store::Connect;
use lockstep_redis::Redis;
use lockstep_testkit::servers::{RedisOptions, RedisServer};

/// Both lanes, in both layouts, say what it is and what to do.
async fn refused(options: RedisOptions, what: &str) {
    let server = RedisServer::start(options).unwrap();
    for url in [server.url(), format!("{}?layout=plain", server.url())] {
        for inbox in [None, Some(Inbox::new())] {
            let opened = Redis::from_url(&url).unwrap().open(inbox).await;
            let error = opened.err().expect("it should not open");
            assert_eq!(
                (error.kind(), error.effect()),
                (ErrorKind::Config, Effect::None),
                "{error}"
            );
            let message = error.to_string();
            assert!(message.contains(what) && message.contains("single server"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_part_of_a_cluster_is_refused() {
    let args = vec!["--cluster-enabled".to_owned(), "yes".to_owned()];
    refused(RedisOptions { args, ..RedisOptions::default() }, "Cluster").await;
}

#[tokio::test]
async fn a_sentinel_is_refused() {
    refused(RedisOptions { sentinel: true, ..RedisOptions::default() }, "Sentinel").await;
}
