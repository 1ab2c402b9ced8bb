//! Replies that are lost, and nodes that answer nonsense: nothing is granted because of them, and nothing
//! stays.

use std::time::Duration;

use lockstep_redis::redlock::standing::Guards;
use lockstep_testkit::proxy::{Fault, Gate, Match, Proxy};

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

/// A round is over as soon as it cannot be won, and one of its asks is still under way. What that one is
/// granted will be given back: the claim must not ask again before, or it would lose what it has then.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_again_before_the_last_round_has_ended_everywhere() {
    let cluster = Cluster::durable();
    // From now on all know the script that gives back.
    let before = Client::open("before", &cluster.url(""), Guards::UP, TTL).await;
    let (_, guard) = before.takes().await.unwrap().expect("it is free");
    guard.release().await.unwrap();
    cluster.nothing_is_left().await;
    for node in &cluster.nodes {
        let taken = node.ask(&["SET", KEY, "somebody else", "PX", "50000"]).unwrap();
        assert_eq!(taken, "+OK\r\n");
    }
    let ways = cluster.ways();
    let client = Client::open("one", &ways.url("node_timeout=10s"), Guards::UP, TTL).await;
    // A node first answers that the key is not free, and then whose it is.
    let slow = &ways.0[4];
    let (answer, second_ask) = (Gate::new(), Gate::new());
    let first = || Match::command("SET").with_arg(KEY);
    slow.rule(first(), Fault::HoldReply(answer.clone()));
    let second = Match::when(|call| call.name == "EVALSHA" && call.args.len() == 5);
    slow.rule(second.with_arg(KEY), Fault::Hold(second_ask.clone()));

    let waits = async {
        let (_attempt, guard) = client.waits().await;
        guard.release().await.unwrap();
    };
    let watch = async {
        let gives_back = Match::when(|call| call.name == "EVALSHA" && call.args.len() == 4);
        slow.wait_for(gives_back.with_arg(KEY), 1).await;
        answer.open();
        second_ask.wait_until_reached().await;
        for node in &cluster.nodes[1..] {
            node.ask(&["DEL", KEY]).unwrap();
        }
        // Long enough for who would ask; who does not is not hurried.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let asked: Vec<usize> = ways.0.iter().map(|way| way.count(first())).collect();
        assert_eq!(asked, [1; 5], "it asks while a node may still grant what it gives back");
        second_ask.open();
    };
    tokio::join!(waits, watch);
    assert_eq!(cluster.nodes[0].ask(&["DEL", KEY]).unwrap(), ":1\r\n");
    cluster.nothing_is_left().await;
}
