//! Replies that are lost, and nodes that answer nonsense: nothing is granted because of them, and nothing
//! stays.

use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner};
use lockstep_lock::store::{Answer, Claim, Connect, LockStore, Renewal};
use lockstep_lock::{Inbox, Share};
use lockstep_redis::Redlock;
use lockstep_redis::redlock::standing::Guards;
use lockstep_testkit::proxy::{Fault, Gate, Match, Proxy, Request};

use super::cluster::{Client, Cluster, KEY, Ways, eventually, told};

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
    let cluster = somebody_else_has_it().await;
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
        slow.wait_for(gives_back(), 1).await;
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

/// A hold that a node is about to give back, because an earlier round had asked for it, is not renewed there:
/// when that has happened, the node may grant it to somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_yet_to_give_it_back_does_not_renew_it() {
    let cluster = somebody_else_has_it().await;
    let ways = cluster.ways();
    let (asks, renews) = lanes(&ways).await;
    let claim = claim();
    let answer = Gate::new();
    ways.0[4].rule(gives_back(), Fault::HoldReply(answer.clone()));
    assert!(matches!(asks.acquire(&claim).await.unwrap(), Answer::Queued { .. }));
    answer.wait_until_reached().await;

    // It has three nodes then, and the fifth, which has yet to say that it has given back.
    for node in [0, 1, 2, 4] {
        cluster.nodes[node].ask(&["DEL", KEY]).unwrap();
    }
    assert_eq!(asks.acquire(&claim).await.unwrap(), Answer::Granted { token: None });
    eventually("the fifth has it", || fifth_has_it(&cluster, &claim)).await;
    cluster.nodes[2].ask(&["DEL", KEY]).unwrap();
    let renewed = renew(&*renews, &claim).await;
    assert!(
        matches!(&renewed, Renewal::Unsure { why } if why.contains("give back")),
        "{renewed:?}"
    );
    answer.open();
    let in_the_end = async {
        while renew(&*renews, &claim).await != Renewal::Renewed {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TTL / 2, in_the_end).await.expect("it has given back, and counts again");
}

/// A request to give back is delayed for so long that its connection is given up, and is sent again over the
/// next. When the claim has the key once more, the first one arrives: it must not take that away.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_late_over_a_connection_that_was_given_up_takes_nothing_away() {
    let cluster = somebody_else_has_it().await;
    let ways = cluster.ways();
    let (asks, renews) = lanes(&ways).await;
    let claim = claim();
    let late = sent_again(&cluster, &ways, &*asks, &claim).await;
    let granted = async {
        while asks.acquire(&claim).await.unwrap() != (Answer::Granted { token: None })
            || !fifth_has_it(&cluster, &claim)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TTL / 2, granted).await.expect("it is free");
    late.open();
    // Long enough for what would arrive; who never reads it is not hurried.
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(fifth_has_it(&cluster, &claim), "it was taken away");
    }
    for node in [2, 3] {
        cluster.nodes[node].ask(&["DEL", KEY]).unwrap();
    }
    assert_eq!(renew(&*renews, &claim).await, Renewal::Renewed, "the fifth counts");
}

/// Who may not tell a server to close what it gave up does not count that server's vote meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_may_still_read_what_was_given_up_does_not_count() {
    let cluster = somebody_else_has_it().await;
    let forbidden = cluster.nodes[4].ask(&["ACL", "SETUSER", "default", "-client|kill"]);
    assert_eq!(forbidden.unwrap(), "+OK\r\n");
    let ways = cluster.ways();
    let (asks, renews) = lanes(&ways).await;
    let claim = claim();
    let _late = sent_again(&cluster, &ways, &*asks, &claim).await;
    assert_eq!(asks.acquire(&claim).await.unwrap(), Answer::Granted { token: None });
    eventually("the fifth has it", || fifth_has_it(&cluster, &claim)).await;
    for node in [2, 3] {
        cluster.nodes[node].ask(&["DEL", KEY]).unwrap();
    }
    let renewed = renew(&*renews, &claim).await;
    assert!(
        matches!(&renewed, Renewal::Unsure { why } if why.contains("give back")),
        "{renewed:?}"
    );
}

/// A claim is refused, and what the fifth node is asked to give back is held until it has been sent once more
/// and answered. Then the key is free everywhere, and only the late request is still to come.
async fn sent_again(cluster: &Cluster, ways: &Ways, asks: &dyn LockStore, claim: &Claim) -> Gate {
    let late = Gate::new();
    ways.0[4].rule(gives_back(), Fault::Hold(late.clone()));
    assert!(matches!(asks.acquire(claim).await.unwrap(), Answer::Queued { .. }));
    late.wait_until_reached().await;
    let is_answered = || {
        let log = ways.0[4].log();
        log.iter().any(|seen| is_give_back(&seen.request) && seen.reply_passed())
    };
    eventually("it is sent again, and answered", is_answered).await;
    for node in &cluster.nodes {
        node.ask(&["DEL", KEY]).unwrap();
    }
    late
}

/// The two lanes of one handle.
async fn lanes(ways: &Ways) -> (Arc<dyn LockStore>, Arc<dyn LockStore>) {
    let store = Redlock::from_url(&ways.url("node_timeout=1500ms")).unwrap();
    (store.open(Some(Inbox::new())).await.unwrap(), store.open(None).await.unwrap())
}

fn claim() -> Claim {
    let (id, key) = (ClaimId::new(), Key::new(KEY).unwrap());
    let owner = Owner::from_u128(id.as_u128());
    let (label, share) = (Label::new("one"), Share::Exclusive);
    Claim { id, key, owner, label, share, ttl: TTL, wait: true }
}

fn fifth_has_it(cluster: &Cluster, claim: &Claim) -> bool {
    cluster.holders()[4] == Some(claim.id.to_string())
}

async fn renew(lane: &dyn LockStore, claim: &Claim) -> Renewal {
    lane.renew(&[claim.hold()]).await.unwrap().remove(0)
}

/// Five nodes that know the script that gives back, and have the key for somebody else.
async fn somebody_else_has_it() -> Cluster {
    let cluster = Cluster::durable();
    let before = Client::open("before", &cluster.url(""), Guards::UP, TTL).await;
    let (_, guard) = before.takes().await.unwrap().expect("it is free");
    guard.release().await.unwrap();
    cluster.nothing_is_left().await;
    for node in &cluster.nodes {
        let taken = node.ask(&["SET", KEY, "somebody else", "PX", "50000"]).unwrap();
        assert_eq!(taken, "+OK\r\n");
    }
    cluster
}

fn gives_back() -> Match {
    Match::when(is_give_back).with_arg(KEY)
}

fn is_give_back(call: &Request) -> bool {
    call.name == "EVALSHA" && call.args.len() == 4
}
