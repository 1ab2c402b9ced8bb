//! A writer becomes a reader while somebody stands in line: the end of its node is not the end of its hold.

use lockstep_testkit::proxy::{Fault, Gate, Match, Seen};

use super::replies::through;
use super::*;

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
