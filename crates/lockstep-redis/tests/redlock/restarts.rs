//! The sequence of the notes: A, B and C are locked and D and E missed; C restarts and has forgotten; a
//! second client asks.

use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner};
use lockstep_lock::store::{Answer, Claim, Connect, Renewal};
use lockstep_lock::{Guard, Share};
use lockstep_redis::Redlock;
use lockstep_redis::redlock::standing::Guards;
use lockstep_testkit::oracle::Attempt;
use lockstep_testkit::servers::{Persistence, RedisOptions, RedisServer};

use super::cluster::{Client, Cluster, KEY, Ways, eventually, overlaps, told};

const TTL: Duration = Duration::from_secs(3);
const RULE: &str = "max_ttl=3s";
const NO_DELAY: Guards = Guards { delayed_restart: false, ..Guards::UP };

/// Waits until the nodes have run for so long that their votes count.
async fn until_they_count(url: &str) {
    for _ in 0..100 {
        let lane = Redlock::from_url(url).unwrap().open(None).await.unwrap();
        if lane.facts().warnings.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("they never count");
}

struct Scene {
    cluster: Cluster,
    first: Client,
    /// Dropping them would heal what is cut.
    _ways: Ways,
    attempt: Attempt,
    guard: Guard,
}

/// Client 1 has A, B and C, and cannot reach C any more to renew there.
async fn first_has_three(cluster: Cluster) -> Scene {
    let ways = cluster.ways();
    let first = Client::open("client 1", &ways.url(RULE), Guards::UP, TTL).await;
    ways.0[3].partition();
    ways.0[4].partition();
    let (attempt, guard) = first.takes().await.unwrap().expect("three of five are enough");
    ways.0[2].partition();
    let holders = cluster.holders();
    assert!(holders[0].is_some() && holders[0] == holders[1] && holders[1] == holders[2]);
    assert_eq!(holders[3..], [None, None]);
    Scene { cluster, first, _ways: ways, attempt, guard }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_forgot_does_not_vote_for_who_meets_it_first() {
    let cluster = Cluster::forgetful();
    until_they_count(&cluster.url(RULE)).await;
    let mut scene = first_has_three(cluster).await;
    scene.cluster.nodes[2].restart().unwrap();
    let second = Client::open("client 2", &scene.cluster.url(RULE), Guards::UP, TTL).await;
    let c = format!("127.0.0.1:{} does not count", scene.cluster.nodes[2].port());
    let warnings = second.locks.facts().warnings.join("\n");
    assert!(warnings.contains(&c) && warnings.contains("started lately"), "{warnings}");

    assert!(second.takes().await.unwrap().is_none(), "A and B have it, and C does not count");
    assert!(scene.guard.is_trusted(), "or this proves nothing");
    // And it does not stay so: when client 1 has stopped to trust its lock, client 2 gets it.
    let lost = scene.guard.lost().await;
    scene.attempt.lost();
    let (mut attempt, guard) = second.waits().await;
    attempt.releases(&guard);
    guard.release().await.unwrap();
    assert_eq!(overlaps(&[&scene.first, &second]), 0, "{lost}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_forgot_does_not_vote_for_who_knew_it_before() {
    let cluster = Cluster::forgetful();
    until_they_count(&cluster.url(RULE)).await;
    let second = Client::open("client 2", &cluster.url(RULE), Guards::UP, TTL).await;
    let mut scene = first_has_three(cluster).await;
    scene.cluster.nodes[2].restart().unwrap();
    assert!(second.takes().await.unwrap().is_none(), "A and B have it, and C does not count");
    assert!(scene.guard.is_trusted(), "or this proves nothing");
    assert_eq!(overlaps(&[&scene.first, &second]), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_delay_there_are_two_holders() {
    let cluster = Cluster::forgetful();
    until_they_count(&cluster.url(RULE)).await;
    let mut scene = first_has_three(cluster).await;
    scene.cluster.nodes[2].restart().unwrap();
    let second = Client::open("client 2", &scene.cluster.url(RULE), NO_DELAY, TTL).await;
    let (_attempt, guard) = second.takes().await.unwrap().expect("C, D and E are three");
    assert!(scene.guard.is_trusted() && guard.is_trusted());
    assert_eq!(overlaps(&[&scene.first, &second]), 1, "the oracle must see it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_syncs_every_write_votes_at_once_and_has_not_forgotten() {
    let mut scene = first_has_three(Cluster::durable()).await;
    scene.cluster.nodes[2].restart().unwrap();
    let second = Client::open("client 2", &scene.cluster.url(RULE), Guards::UP, TTL).await;
    assert_eq!(second.locks.facts().warnings, Vec::<String>::new());
    assert!(second.takes().await.unwrap().is_none(), "C remembers");
    assert!(scene.guard.is_trusted(), "or this proves nothing");
}

/// Only what the server says itself waives the delay, and only if it says all of it.
#[tokio::test(flavor = "multi_thread")]
async fn less_than_every_write_and_silence_waive_nothing() {
    let args = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (args, says) in [
        (args(&["--appendfsync", "everysec"]), "does not fsync every write"),
        (args(&["--no-appendfsync-on-rewrite", "yes"]), "does not fsync every write"),
        (args(&["--rename-command", "CONFIG", ""]), "does not tell"),
    ] {
        let persistence = Persistence::AppendOnly;
        let options = RedisOptions { persistence, args, ..RedisOptions::default() };
        let server = RedisServer::start(options).unwrap();
        let url = format!("redlock://127.0.0.1:{}", server.port());
        let client = Client::open("one", &url, Guards::UP, TTL).await;
        let told = told(client.takes().await);
        assert!(told.contains(says) && told.contains(&server.port().to_string()), "{told}");
    }
}

/// A renewal brings the key back, and does not count what it brought.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_had_to_be_brought_back_counts_only_when_it_is_renewed_again() {
    let mut cluster = Cluster::durable();
    let ways = cluster.ways();
    let lane = Redlock::from_url(&ways.url(RULE)).unwrap().open(None).await.unwrap();
    ways.0[3].partition();
    ways.0[4].partition();
    let claim = Claim {
        id: ClaimId::new(),
        key: Key::new(KEY).unwrap(),
        owner: Owner::new(),
        label: Label::default(),
        share: Share::Exclusive,
        ttl: TTL,
        wait: false,
    };
    assert_eq!(lane.acquire(&claim).await.unwrap(), Answer::Granted { token: None });
    cluster.nodes[2].ask(&["DEL", KEY]).unwrap();
    let renew = async || lane.renew(&[claim.hold()]).await.unwrap().remove(0);
    let first = renew().await;
    assert!(
        matches!(first, Renewal::Unsure { .. }),
        "two have it, one forgot, two are away: {first:?}"
    );

    // With a fourth node it is renewed, and C gets it back.
    ways.0[3].heal();
    let set = [KEY, &claim.id.to_string(), "PX", "3000"];
    cluster.nodes[3].ask(&[&["SET"], &set[..]].concat()).unwrap();
    eventually("D is reached again", || ways.0[3].connections() > 0).await;
    let mut last = renew().await;
    for _ in 0..50 {
        if last == Renewal::Renewed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        last = renew().await;
    }
    assert_eq!(last, Renewal::Renewed);
    let id = claim.id.to_string();
    eventually("C has it again", || cluster.holders()[2].as_deref() == Some(&*id)).await;
    cluster.nodes[1].kill().unwrap();
    let last = renew().await;
    assert_eq!(last, Renewal::Renewed, "A, C and D: now what was brought back counts");
}

/// A long hold outlives its nodes, if they restart one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_comes_back_to_a_node_that_forgot_it_and_goes_when_it_is_released() {
    let mut cluster = Cluster::forgetful();
    until_they_count(&cluster.url(RULE)).await;
    let client = Client::open("one", &cluster.url(RULE), Guards::UP, TTL).await;
    let (_attempt, guard) = client.takes().await.unwrap().unwrap();
    cluster.all_have_it().await;
    cluster.nodes[2].restart().unwrap();
    assert_eq!(cluster.holders()[2], None);
    eventually("C has it again", || cluster.holders()[2].is_some()).await;
    assert!(guard.is_trusted());
    guard.release().await.unwrap();
    cluster.nothing_is_left().await;
}
