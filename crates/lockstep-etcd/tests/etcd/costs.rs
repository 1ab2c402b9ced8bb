//! What a lock costs, counted by etcd itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use lockstep_testkit::servers::EtcdServer;

use super::{eventually, locks, server, soon};

const LONG: Duration = Duration::from_secs(600);

/// Calls that were begun: transactions, reads, everything that is neither.
fn calls(server: &EtcdServer) -> [u64; 3] {
    let count = |methods: &[&str]| -> u64 {
        methods.iter().map(|method| server.calls(0, method).expect("metrics")).sum()
    };
    let rest = ["Put", "DeleteRange", "LeaseGrant", "LeaseRevoke", "Watch", "LeaseKeepAlive"];
    [count(&["Txn"]), count(&["Range"]), count(&rest)]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_is_one_request_and_so_is_its_release() -> Result<()> {
    let server = server();
    let locks = locks(&server.url()).await?.with_ttl(LONG);
    locks.lock("warm").await?.release().await?;
    let before = calls(&server);
    for n in 0..20 {
        locks.lock(format!("free {n}")).await?.release().await?;
        locks.try_lock(format!("tried {n}")).await?.expect("it is free").release().await?;
    }
    let after = calls(&server);
    assert_eq!(after[0] - before[0], 80, "two for each of forty");
    assert_eq!(after[1..], before[1..], "and nothing else");

    let held = locks.lock("held").await?;
    let before = calls(&server);
    assert!(locks.try_lock("held").await?.is_none());
    assert_eq!(calls(&server)[0] - before[0], 1, "who does not wait writes nothing");
    held.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_go_together_and_each_gets_its_own() -> Result<()> {
    const MANY: u64 = 64;
    let server = server();
    let locks = locks(&server.url()).await?.with_ttl(LONG);
    locks.lock("warm").await?.release().await?;
    let before = calls(&server);
    let asks = (0..MANY).map(|n| tokio::spawn(locks.lock(format!("many {n}")).into_future()));
    let mut guards = vec![];
    for ask in asks.collect::<Vec<_>>() {
        guards.push(soon("it is free", ask).await??);
    }
    let after = calls(&server);
    let requests = after[0] - before[0];
    assert!(requests < MANY, "{requests} requests for {MANY} locks");
    assert_eq!(locks.list("many", 100).await?.locks.len() as u64, MANY);
    for guard in guards {
        guard.release().await?;
    }
    assert!(locks.list("many", 100).await?.locks.is_empty());
    Ok(())
}

/// What goes together gets the same revision, which is the token: so never two of one lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_one_handle_stands_in_line_with_tokens_of_their_own() -> Result<()> {
    const MANY: usize = 40;
    let server = server();
    let locks = locks(&server.url()).await?.with_ttl(LONG);
    let held = locks.lock("crowd").await?;
    let tokens: Arc<Mutex<Vec<u64>>> = Arc::default();
    let asks = (0..MANY).map(|_| {
        let (ask, tokens) = (locks.lock("crowd").into_future(), Arc::clone(&tokens));
        tokio::spawn(async move {
            let guard = ask.await?;
            tokens.lock().expect("no panic").extend(guard.token().map(|token| token.get()));
            guard.release().await
        })
    });
    let asks: Vec<_> = asks.collect();
    eventually("all wait", async || {
        let view = locks.inspect("crowd").await.unwrap();
        view.is_some_and(|view| view.waiting == MANY as u64)
    })
    .await;
    held.release().await?;
    for ask in asks {
        soon("each is served", ask).await??;
    }
    let tokens = tokens.lock().expect("no panic");
    assert_eq!(tokens.len(), MANY);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    Ok(())
}

/// Parking is the ask and a watch on the standing stream; a hand-over is the release, and a look
/// where somebody had been between.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_is_at_most_two_requests() -> Result<()> {
    const WAITERS: u64 = 10;
    let server = server();
    let (one, other) =
        (locks(&server.url()).await?.with_ttl(LONG), locks(&server.url()).await?.with_ttl(LONG));
    for locks in [&one, &other] {
        // Opens the lease and, through a wait, the stream of watches.
        let held = one.lock("warm").await?;
        let waits = tokio::spawn(locks.lock("warm").into_future());
        eventually("it waits", async || {
            one.inspect("warm").await.unwrap().is_some_and(|view| view.waiting == 1)
        })
        .await;
        held.release().await?;
        soon("it is served", waits).await??.release().await?;
    }
    let held = one.lock("line").await?;
    let mut waiters = vec![];
    for n in 1..=WAITERS {
        let request = other.lock("line");
        waiters.push(tokio::spawn(async move { request.await?.release().await }));
        eventually("it waits", async || {
            one.inspect("line").await.unwrap().is_some_and(|view| view.waiting == n)
        })
        .await;
    }
    // Reads of their own key and of a line that moved on are over when nothing is asked any more.
    let mut before = calls(&server);
    eventually("all is quiet", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = calls(&server);
        std::mem::replace(&mut before, now) == now
    })
    .await;
    held.release().await?;
    for waiter in waiters {
        soon("every waiter is served", waiter).await??;
    }
    let after = calls(&server);
    let requests = after[0] - before[0] + after[1] - before[1];
    // The first release is of who held it, and the last hands over to nobody.
    assert!(requests <= 2 * WAITERS + 1, "{requests} requests for {WAITERS} hand-overs");
    assert_eq!(after[2], before[2], "one stream for all watches");
    Ok(())
}
