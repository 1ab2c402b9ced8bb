//! Replies that are lost on the way, and how many requests things take.

use lockstep_testkit::proxy::{Fault, Gate, Match, Seen};

use super::*;

pub(super) fn through(proxy: &Proxy, prefix: &str) -> String {
    format!("zookeeper://127.0.0.1:{}?prefix={prefix}", proxy.port())
}

fn creates() -> Match {
    Match::command("CREATE").with_arg("-lock-")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_lost_replies_leave_no_orphan() {
    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let (locks, raw) = (locks(&through(&proxy, "orphans")).await, Raw::to(&SERVER.url()));
    let mut last = None;
    for round in 0..100 {
        let rule = proxy.rule(creates(), Fault::DropReplyAndCut);
        let guard = soon("the lock", locks.lock("x")).await.unwrap();
        assert_eq!(rule.fired(), 1, "round {round}");
        assert!(guard.token() > last, "round {round}");
        last = guard.token();
        assert_eq!(raw.children("/orphans/x").await.len(), 1, "round {round}: one node per claim");
        guard.release().await.unwrap();
        assert_eq!(raw.children("/orphans/x").await, [""; 0], "round {round}");
    }
    // The server has counted: no claim has ever made a second node.
    let guard = locks.lock("x").await.unwrap();
    let name = raw.children("/orphans/x").await.remove(0);
    assert!(name.ends_with("-lock-0000000100"), "{name}");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_without_a_reply_leaves_no_orphan() {
    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let (locks, raw) = (locks(&through(&proxy, "gives-up")).await, Raw::to(&SERVER.url()));
    locks.lock("x").await.unwrap().release().await.unwrap();
    for _ in 0..5 {
        let made = proxy.count(creates());
        proxy.rule(creates(), Fault::Mute);
        let asking = tokio::spawn(locks.lock("x").into_future());
        proxy.wait_for(creates(), made + 1).await;
        until("the node", async || !raw.children("/gives-up/x").await.is_empty()).await;
        asking.abort();
        proxy.cut_all();
        until("the end of the node", async || raw.children("/gives-up/x").await.is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_reply_is_lost_is_done_all_the_same() {
    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let (locks, raw) = (locks(&through(&proxy, "releases")).await, Raw::to(&SERVER.url()));
    for fault in [Fault::DropReplyAndCut, Fault::CutBefore] {
        let guard = locks.lock("x").await.unwrap();
        let rule = proxy.rule(Match::command("DELETE"), fault);
        drop(guard);
        until("the end of the node", async || raw.children("/releases/x").await.is_empty()).await;
        assert_eq!(rule.fired(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_takes_one_round_trip_and_a_hand_over_no_look() {
    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let url = through(&proxy, "requests");
    let holder = locks(&url).await;
    holder.lock("x").await.unwrap().release().await.unwrap();

    proxy.clear_log();
    let guard = holder.lock("x").ttl(LONG).await.unwrap();
    let names = |proxy: &Proxy| -> Vec<String> {
        let log = proxy.log().into_iter().map(|seen| seen.request);
        let asked = log.filter(|it| it.kind == lockstep_testkit::proxy::Kind::Request);
        asked.map(|request| request.name).filter(|name| name != "PING").collect()
    };
    // Another session, because of the other ttl: it connects first.
    assert_eq!(names(&proxy), ["CONNECT", "CREATE", "CHILDREN"]);

    // Whatever the number of waiters, nobody has to look between one release and the next grant: who
    // is next has looked when it became the next.
    let mut waiters = vec![];
    let observer = locks(&super::url("requests")).await;
    for count in 1..=4 {
        let locks = locks(&url).await;
        let asking = async move { (locks.lock("x").ttl(LONG).await.unwrap(), locks) };
        waiters.push(tokio::spawn(asking));
        until("its place", async || {
            observer.inspect("x").await.unwrap().is_some_and(|lock| lock.waiting == count)
        })
        .await;
    }
    let watching = |log: &[Seen], count| {
        let watches = log.iter().filter(|seen| seen.request.name == "SETWATCHES");
        watches.filter(|seen| seen.reply_passed()).count() == count
    };
    proxy.wait_until(|log| watching(log, 4)).await;
    let (mut guards, last) = (vec![guard], waiters.len() - 1);
    for (number, waiter) in waiters.into_iter().enumerate() {
        // What has passed the proxy is still to be read.
        tokio::time::sleep(Duration::from_millis(200)).await;
        proxy.clear_log();
        let looks = Gate::new();
        proxy.rule(Match::command("CHILDREN"), Fault::Hold(looks.clone()));
        guards.pop().unwrap().release().await.unwrap();
        let (guard, locks) = soon("its turn", waiter).await.unwrap();
        guards.push(guard);
        std::mem::forget(locks);
        if number < last {
            soon("the next one's look", looks.wait_until_reached()).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(proxy.count(Match::command("CHILDREN")), 1, "nobody else looks");
            looks.open();
            let seen = |seen: &Seen| seen.request.name == "CHILDREN" && seen.reply_passed();
            proxy.wait_until(|log| log.iter().any(seen)).await;
        }
        proxy.clear_rules();
    }
}

/// A downgrade makes another node; if nobody knows whether it did, both names are looked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_whose_reply_is_lost_leaves_no_orphan() {
    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let (locks, raw) = (locks(&through(&proxy, "downgrades")).await, Raw::to(&SERVER.url()));
    for fault in [Fault::DropReplyAndCut, Fault::CutBefore] {
        let mut guard = locks.lock("x").ttl(LONG).await.unwrap();
        let rule = proxy.rule(Match::command("MULTI"), fault);
        let _ = guard.downgrade().await;
        assert_eq!(rule.fired(), 1);
        drop(guard);
        until("the end of the node", async || raw.children("/downgrades/x").await.is_empty()).await;
    }
}

/// What the layout of one node costs: the figure that the guide names.
#[tokio::test(flavor = "multi_thread")]
async fn in_the_basic_layout_every_release_wakes_everybody() {
    const WAITING: usize = 8;
    let proxy = Proxy::start(SERVER.addr(), Protocol::ZooKeeper);
    let url = format!("{}&layout=basic", through(&proxy, "herd"));
    let holder = locks(&url).await;
    let guard = holder.lock("x").ttl(LONG).await.unwrap();
    let looks = || Match::command("GETDATA");
    let before = proxy.count(looks());
    let waiters: Vec<_> = (0..WAITING)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { locks(&url).await.lock("x").ttl(LONG).await })
        })
        .collect();
    let answered = |log: &[lockstep_testkit::proxy::Seen]| {
        let looked = log.iter().filter(|seen| seen.request.name == "GETDATA");
        looked.filter(|seen| seen.reply_passed()).count()
    };
    proxy.wait_until(|log| answered(log) >= before + WAITING).await;
    proxy.clear_log();
    guard.release().await.unwrap();
    // One of them has it now, and all have asked: each a create and a look.
    proxy.wait_until(|log| answered(log) >= WAITING).await;
    let creates = proxy.count(Match::command("CREATE"));
    assert_eq!(creates, WAITING, "all ask, and one is served");
    for waiter in waiters {
        waiter.abort();
    }
}
