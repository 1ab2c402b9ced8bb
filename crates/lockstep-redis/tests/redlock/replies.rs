//! Replies that are lost, and nodes that answer nonsense: nothing is granted because of them, and nothing
//! stays.

use std::time::Duration;

use lockstep_redis::redlock::standing::Guards;
use lockstep_testkit::proxy::{Fault, Match, Proxy};

use super::cluster::{Client, Cluster, KEY, told};

const TTL: Duration = Duration::from_secs(50);

/// The request arrives, the reply does not: what was carried out is given back, on every node.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_lost_leaves_nothing_behind() {
    let cluster = Cluster::durable();
    for lost in 1..=5 {
        let ways = cluster.ways();
        let client = Client::open("one", &ways.url("node_timeout=500ms"), Guards::UP, TTL).await;
        for way in &ways.0[..lost] {
            // A first ask that fails quickly is sent once more.
            way.rule(Match::command("SET").with_arg(KEY), Fault::DropReplyAndCut).times(2);
        }
        let got = client.takes().await;
        if lost <= 2 {
            let (_, guard) = got.unwrap().expect("three of five are enough");
            guard.release().await.unwrap();
        } else {
            let got = told(got);
            // Of any: when it asks once more, a sound one may still owe an answer from the first time.
            let is_named = |way: &&Proxy| got.contains(&format!("127.0.0.1:{}", way.port()));
            assert!(ways.0.iter().filter(is_named).count() >= 3, "{lost}: {got}");
        }
        cluster.nothing_is_left().await;
        let other = Client::open("other", &cluster.url(""), Guards::UP, TTL).await;
        let (_, guard) = other.takes().await.unwrap().expect("it is free");
        guard.release().await.unwrap();
        cluster.nothing_is_left().await;
    }
}

/// A connection that falls silent after the ask: the way back is cut, and stays open.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_pass_without_replies_are_given_back_when_the_line_is_back() {
    let cluster = Cluster::durable();
    let ways = cluster.ways();
    let client = Client::open("one", &ways.url(""), Guards::UP, TTL).await;
    for way in &ways.0[..2] {
        way.rule(Match::command("SET").with_arg(KEY), Fault::Mute);
    }
    let (_, guard) = client.takes().await.unwrap().expect("three of five are enough");
    guard.release().await.unwrap();
    cluster.nothing_is_left().await;
}

/// Whatever a node answers instead of a vote, it is no vote, and the others are asked all the same.
#[tokio::test(flavor = "multi_thread")]
async fn errors_are_no_votes() {
    let cluster = Cluster::durable();
    for words in [
        "LOADING Redis is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOAUTH Authentication required.",
        "MOVED 1 127.0.0.1:7001",
        "ERR nobody has ever seen this",
    ] {
        let ways = cluster.ways();
        let client = Client::open("one", &ways.url(""), Guards::UP, TTL).await;
        let fault = || Fault::ErrorReply(words.into());
        for way in &ways.0[..2] {
            way.rule(Match::command("SET"), fault()).always();
        }
        let (_, guard) = client.takes().await.unwrap().expect("three of five are enough");
        guard.release().await.unwrap();
        ways.0[2].rule(Match::command("SET"), fault()).always();
        let told = told(client.takes().await);
        assert!(told.contains(&ways.0[2].port().to_string()), "{words}: {told}");
        cluster.nothing_is_left().await;
    }
}
