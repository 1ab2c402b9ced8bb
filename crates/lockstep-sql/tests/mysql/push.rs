//! Being told: by an interrupted sleep, and what happens where that cannot be.

use std::sync::Arc;
use std::time::Duration;

use lockstep_lock::store::{Connect, Release, Released};
use lockstep_lock::{Locks, Need, Options, Share, Signal};
use lockstep_testkit::proxy::{Fault, Match, Protocol, Proxy};
use lockstep_testkit::servers::{self, MariaDbOptions, MariaDbServer};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::support::{PATIENCE, Place, claim, connect, queued};

/// Long enough for what must not happen to happen.
const QUIET: Duration = Duration::from_millis(300);

const ASLEEP: &str = "SELECT id FROM information_schema.processlist \
    WHERE info LIKE 'SELECT /* lockstep_listen %' AND state = 'User lock'";

async fn sleepers(admin: &mut Conn, count: usize) -> Vec<u64> {
    found(admin, ASLEEP, count).await
}

/// What a look finds once it finds that many.
async fn found(admin: &mut Conn, look: &str, count: usize) -> Vec<u64> {
    let looking = async {
        loop {
            let found: Vec<u64> = admin.query(look).await.unwrap();
            if found.len() == count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let patient = tokio::time::timeout(PATIENCE, looking).await;
    patient.unwrap_or_else(|_| panic!("not {count} of {look}"))
}

fn behind_a_proxy(url: &str) -> (Proxy, Place) {
    let address = url.split(['@', '/']).nth(3).unwrap();
    let proxy = Proxy::start(address.parse().unwrap(), Protocol::MySql);
    let place = Place::at(&url.replace(address, &proxy.addr().to_string()));
    (proxy, place)
}

#[tokio::test]
async fn a_listener_is_there_while_somebody_waits_and_no_longer() {
    let server = MariaDbServer::start().unwrap();
    let place = Place::at(&server.url());
    let mut admin = connect(&server.admin_url()).await;
    let mut lane = place.lane().await;
    let (held, waiter) = (claim("job"), claim("job"));
    lane.grant(&held).await;
    sleepers(&mut admin, 0).await;
    queued(&lane.ask(&waiter).await);
    sleepers(&mut admin, 1).await;
    assert_eq!(lane.give_back(&held).await, Released::Done);
    lane.granted(&waiter).await;
    sleepers(&mut admin, 0).await;
}

#[tokio::test]
async fn a_listener_that_is_cut_says_so_and_hears_again() {
    let server = MariaDbServer::start().unwrap();
    let place = Place::at(&server.url());
    let mut admin = connect(&server.admin_url()).await;
    let (holder, mut lane) = (place.lane().await, place.lane().await);
    let (held, waiter) = (claim("job"), claim("job"));
    holder.grant(&held).await;
    queued(&lane.ask(&waiter).await);
    let thread = sleepers(&mut admin, 1).await[0];
    admin.query_drop(format!("KILL CONNECTION {thread}")).await.unwrap();
    assert_eq!(lane.signal().await, Signal::AskAllAgain);
    sleepers(&mut admin, 1).await;
    assert_eq!(holder.give_back(&held).await, Released::Done);
    assert_eq!(lane.granted(&waiter).await.get(), 2);
}

/// The connection of the pool that keeps the door may die at any time: the listener is let in, notices,
/// and has the door closed again.
#[tokio::test]
async fn a_door_that_nobody_keeps_is_closed_again() {
    let server = MariaDbServer::start().unwrap();
    let place = Place::at(&server.url());
    let mut admin = connect(&server.admin_url()).await;
    let mut lane = place.lane().await;
    let (held, waiter) = (claim("job"), claim("job"));
    lane.grant(&held).await;
    queued(&lane.ask(&waiter).await);
    let listener = sleepers(&mut admin, 1).await[0];
    let keepers = "SELECT id FROM information_schema.processlist WHERE user = 'lockstep'";
    let threads: Vec<u64> = admin.query(keepers).await.unwrap();
    for thread in threads.into_iter().filter(|thread| *thread != listener) {
        admin.query_drop(format!("KILL CONNECTION {thread}")).await.unwrap();
    }
    loop {
        match lane.store.release(&Release::Mine(held.hold())).await {
            Ok(_) => break,
            Err(error) => assert!(error.may_retry(), "{error}"),
        }
    }
    loop {
        match lane.signal().await {
            Signal::Granted { claim, .. } if claim == waiter.id => break,
            Signal::AskAllAgain => {}
            unexpected => panic!("{unexpected:?}"),
        }
    }
    // And it is closed for good: the next wait does not return at once.
    let next = claim("job");
    queued(&lane.ask(&next).await);
    sleepers(&mut admin, 1).await;
}

/// What makes sure that a grant is on the disk.
fn made_sure() -> Match {
    Match::sql("until_us = until_us + 1")
}

#[tokio::test]
async fn a_grant_that_its_giver_vouches_for_is_heard_without_a_write() {
    let server = MariaDbServer::start().unwrap();
    let (proxy, place) = behind_a_proxy(&server.url());
    let mut admin = connect(&server.admin_url()).await;
    let (holder, mut lane) = (place.lane().await, place.lane().await);
    let (held, waiter) = (claim("job"), claim("job"));
    holder.grant(&held).await;
    queued(&lane.ask(&waiter).await);
    // Who looks while the giver is about to vouch makes sure by itself.
    sleepers(&mut admin, 1).await;
    assert_eq!(holder.give_back(&held).await, Released::Done);
    lane.granted(&waiter).await;
    assert_eq!(proxy.count(made_sure()), 0);
}

/// A grant that is seen may not be on the disk yet: somebody else could be given its token.
#[tokio::test]
async fn a_grant_that_nobody_vouches_for_is_made_sure_of_first() {
    let (proxy, place) = behind_a_proxy(&servers::mariadb_url());
    let (holder, mut lane) = (place.lane().await, place.lane().await);
    let (held, waiter) = (claim("job"), claim("job"));
    holder.grant(&held).await;
    queued(&lane.ask(&waiter).await);
    let mut admin = place.admin().await;
    let grant = "UPDATE lockstep_lock SET claim = ?, token = token + 1 WHERE lock_key = ?";
    let row = (waiter.id.as_u128().to_be_bytes().to_vec(), format!("{}/job", place.name));
    admin.exec_drop(grant, row).await.unwrap();
    assert_eq!(lane.granted(&waiter).await.get(), 2);
    assert_eq!(proxy.count(made_sure()), 1);
}

/// Others can see a commit before it is on the disk, and a procedure may go on behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_vouches_for_a_grant_before_it_is_on_the_disk() {
    // The server's own statistics would stop with the disk, and everybody with them.
    let settings = vec![("innodb-stats-persistent".to_owned(), "OFF".to_owned())];
    let options = MariaDbOptions { stoppable_disk: true, settings, ..MariaDbOptions::default() };
    let server = MariaDbServer::start_with(options).unwrap();
    let place = Place::at(&server.url());
    let mut admin = connect(&server.admin_url()).await;
    admin.query_drop("CREATE TABLE forced (n INT)").await.unwrap();
    let (holder, mut lane) = (place.lane().await, place.lane().await);
    let (held, waiter) = (claim("job"), claim("job"));
    holder.grant(&held).await;
    queued(&lane.ask(&waiter).await);
    sleepers(&mut admin, 1).await;
    server.stop_disk().unwrap();
    // One waits for the disk and one for its turn; whoever commits then need not wait at all.
    let mut forcing = vec![];
    for number in 0..2 {
        let mut other = place.admin().await;
        let force = format!("INSERT INTO forced VALUES ({number})");
        forcing.push(tokio::spawn(async move { other.query_drop(force).await }));
        let stuck = "SELECT id FROM information_schema.processlist \
            WHERE info LIKE 'INSERT INTO forced%' AND state = 'Commit'";
        found(&mut admin, stuck, number + 1).await;
    }
    let giving = tokio::spawn(async move { holder.give_back(&held).await });
    let granted = format!("{:032X}", waiter.id.as_u128());
    let seen = format!("SELECT token FROM lockstep_lock WHERE claim = x'{granted}'");
    found(&mut admin, &seen, 1).await;
    tokio::time::sleep(QUIET).await;
    let vouched = format!("SELECT IS_USED_LOCK('lockstep-told-{granted}-2')");
    assert_eq!(admin.query_first::<Option<u64>, _>(&vouched).await.unwrap(), Some(None));
    assert!(lane.signals.try_recv().is_err(), "nobody is told");
    assert!(!forcing.iter().any(|task| task.is_finished()), "the disk stands still");

    server.resume_disk().unwrap();
    assert_eq!(giving.await.unwrap(), Released::Done);
    assert_eq!(lane.granted(&waiter).await.get(), 2);
    for task in forcing {
        task.await.unwrap().unwrap();
    }
}

/// Nothing that the listener is told arrives: the waiter asks by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_listener_is_deaf_is_served_all_the_same() {
    let (proxy, place) = behind_a_proxy(&servers::mariadb_url());
    let locks = Locks::open_with(Arc::new(place.store()), Options::default()).await.unwrap();
    assert!(locks.facts().push);
    let rule = proxy.rule(Match::sql("lockstep_listen"), Fault::Mute).times(1000);
    let held = locks.lock("job").await.unwrap();
    let waiting = locks.lock("job").ttl(Duration::from_millis(1500));
    let waiter = tokio::spawn(waiting.into_future());
    proxy.wait_for(Match::sql("lockstep_listen"), 2).await;
    held.release().await.unwrap();
    let served = tokio::time::timeout(PATIENCE, waiter).await.expect("its turn").unwrap().unwrap();
    assert!(rule.fired() > 0);
    served.release().await.unwrap();
}

/// A claim that waits while the listener sleeps for another is heard as well.
#[tokio::test]
async fn who_comes_while_the_listener_sleeps_is_heard() {
    let place = Place::new();
    let (holder, mut lane) = (place.lane().await, place.lane().await);
    let (a, b) = (claim("a"), claim("b"));
    holder.grant(&a).await;
    holder.grant(&b).await;
    let (waits_a, waits_b) = (claim("a"), claim("b"));
    queued(&lane.ask(&waits_a).await);
    queued(&lane.ask(&waits_b).await);
    assert_eq!(holder.give_back(&b).await, Released::Done);
    lane.granted(&waits_b).await;
    assert_eq!(holder.give_back(&a).await, Released::Done);
    lane.granted(&waits_a).await;
}

#[tokio::test]
async fn all_readers_that_are_let_in_together_are_told() {
    let place = Place::new();
    let (holder, mut one, mut other) = (place.lane().await, place.lane().await, place.lane().await);
    let writer = claim("job");
    holder.grant(&writer).await;
    let reader = || lockstep_lock::store::Claim { share: Share::Read, ..claim("job") };
    let (a, b, c) = (reader(), reader(), reader());
    for (lane, claim) in [(&one, &a), (&other, &b), (&one, &c)] {
        queued(&lane.ask(claim).await);
    }
    assert_eq!(holder.give_back(&writer).await, Released::Done);
    let mut heard = vec![];
    for _ in 0..2 {
        match one.signal().await {
            Signal::Granted { claim, token } => heard.push((claim, token.unwrap().get())),
            unexpected => panic!("{unexpected:?}"),
        }
    }
    heard.sort_unstable();
    let mut expected = vec![(a.id, 2), (c.id, 2)];
    expected.sort_unstable();
    assert_eq!(heard, expected);
    assert_eq!(other.granted(&b).await.get(), 2);
}

/// As behind a proxy that sends the sleep to another server: nobody finds it here.
#[tokio::test]
async fn where_nobody_can_be_woken_the_facts_say_so() {
    let (proxy, place) = behind_a_proxy(&servers::mariadb_url());
    let rule = proxy.rule(Match::sql("lockstep_listen"), Fault::Mute);
    let lane = place.lane().await;
    assert!(rule.fired() > 0);
    let facts = lane.store.facts();
    assert!(!facts.meets(Need::Push));
    assert!(facts.warnings.iter().any(|text| text.contains("proxy")), "{:?}", facts.warnings);
    let keeper = Place::new().store().open(None).await.unwrap();
    assert!(keeper.facts().meets(Need::Push));

    // Locks work, and nobody listens.
    let (held, waiter) = (claim("job"), claim("job"));
    lane.grant(&held).await;
    queued(&lane.ask(&waiter).await);
    assert_eq!(lane.give_back(&held).await, Released::Done);
    assert_eq!(lane.grant(&waiter).await.get(), 2);
    assert_eq!(proxy.count(Match::sql("lockstep_listen")), rule.fired());
}
