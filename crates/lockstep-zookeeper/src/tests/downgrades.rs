//! A writer becomes a reader while somebody stands in line: the end of its node is not the end of its hold.

use lockstep_core::{ClaimId, Key, Label, Owner};
use lockstep_lock::store::{Answer, Claim, Connect};
use lockstep_lock::{Inbox, Share};
use lockstep_testkit::proxy::{Fault, Gate, Match, Seen};

use super::replies::through;
use super::*;
use crate::book::Stage;
use crate::park::{self, Look, Place};

/// The waiter has read the line, and its watch is late: the writer's node has changed meanwhile, or is gone.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_the_line_meanwhile_goes_on_waiting() {
    for gone in [false, true] {
        let proxies = [(); 2].map(|()| Proxy::start(SERVER.addr(), Protocol::ZooKeeper));
        let [ours, theirs] = &proxies;
        let prefix = format!("becoming-{gone}");
        let holder = locks(&through(ours, &prefix)).await;
        let waiter = locks(&through(theirs, &prefix)).await;
        let mut guard = holder.lock("x").ttl(LONG).await.unwrap();
        let (watching, going) = (Gate::new(), Gate::new());
        theirs.rule(Match::command("SETWATCHES"), Fault::Hold(watching.clone()));
        ours.rule(Match::command("DELETE"), Fault::Hold(going.clone()));
        let asking = tokio::spawn(waiter.lock("x").ttl(LONG).into_future());
        soon("its watch", watching.wait_until_reached()).await;
        let becoming = tokio::spawn(async move {
            guard.downgrade().await.unwrap();
            guard
        });
        soon("the end of the node", going.wait_until_reached()).await;
        if gone {
            going.open();
        }
        let is_watching = |seen: &Seen| seen.request.name == "SETWATCHES" && seen.reply_passed();
        let guard = if gone {
            let guard = soon("the reader", becoming).await.unwrap();
            watching.open();
            guard
        } else {
            watching.open();
            theirs.wait_until(|log| log.iter().any(is_watching)).await;
            going.open();
            soon("the reader", becoming).await.unwrap()
        };
        theirs.wait_until(|log| log.iter().any(is_watching)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!asking.is_finished(), "there is a reader; its writer was gone: {gone}");
        ours.clear_rules();
        guard.release().await.unwrap();
        soon("its turn", asking).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A list that was asked for before the writer became a reader is read late: the line has been read again
/// meanwhile, with everything in it watched, and what is older must not take its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_older_than_the_last_notice_is_not_kept() {
    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let mut guard = locks(&through(&proxy, "older")).await.lock("x").ttl(LONG).await.unwrap();
    let store = ZooKeeper::from_url(&url("older")).unwrap();
    let lane = store.open(Some(Inbox::new())).await.unwrap();
    let claim = Claim {
        id: ClaimId::new(),
        key: Key::new("x").unwrap(),
        owner: Owner::new(),
        label: Label::new("who waits"),
        share: Share::Exclusive,
        ttl: LONG,
        wait: true,
    };
    let answer = lane.acquire(&claim).await.unwrap();
    assert!(matches!(answer, Answer::Queued { .. }), "{answer:?}");
    let engine = store.engine.get().unwrap();
    let record = engine.book.lock().get(claim.id).cloned().unwrap();
    let [list] = record.session.send([Op::Children { path: record.directory.clone() }]);
    // Answered in the order they were sent: the list is older than what follows.
    let behind = Op::Exists { path: record.directory.clone(), watch: false };
    record.session.call(behind).await.unwrap();

    let going = Gate::new();
    proxy.rule(Match::command("DELETE"), Fault::Hold(going.clone()));
    let becoming = tokio::spawn(async move {
        guard.downgrade().await.unwrap();
        guard
    });
    until("the line with both", async || {
        let record = engine.book.lock().get(claim.id).cloned().unwrap();
        matches!(record.stage, Stage::Waits(Some(line)) if line.entries().len() == 3)
    })
    .await;
    let place = park::settle(engine, claim.id, Some(Look { record, list }), true).await;
    assert!(matches!(place, Ok(Place::Waits { ahead: 0 })), "{place:?}");
    going.open();
    let guard = soon("the reader", becoming).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let holds = || engine.book.lock().get(claim.id).unwrap().stage == Stage::Holds;
    assert!(!holds(), "there is a reader");
    guard.release().await.unwrap();
    until("its turn", async || holds()).await;

    // What has lapsed meanwhile holds nothing, whatever an older list says: its node is about to go.
    let record = engine.book.lock().remove(claim.id).unwrap();
    let [list] = record.session.send([Op::Children { path: record.directory.clone() }]);
    let place = park::settle(engine, claim.id, Some(Look { record, list }), true).await;
    assert!(matches!(place, Ok(Place::Gone)), "{place:?}");
}

/// Whoever becomes a reader and gives up waiting for it has given back both nodes when it gives back one.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_that_is_given_up_leaves_nothing_behind() {
    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let (locks, raw) = (locks(&through(&proxy, "given-up")).await, Raw::to(&SERVER.url()));
    for (number, command) in ["MULTI", "DELETE"].into_iter().enumerate() {
        let mut guard = locks.lock("x").ttl(LONG).await.unwrap();
        let late = Gate::new();
        proxy.rule(Match::command(command), Fault::HoldReply(late.clone()));
        {
            let mut becoming = std::pin::pin!(guard.downgrade());
            tokio::select! {
                done = &mut becoming => panic!("{done:?}"),
                () = late.wait_until_reached() => {}
            }
        }
        drop(guard);
        late.open();
        proxy.clear_rules();
        let nothing = async || raw.children("/given-up/x").await.is_empty();
        until(&format!("the end of both nodes, {number}"), nothing).await;
    }
}
