//! A server that is killed under load: what anybody was told must survive.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockstep_core::{ClaimId, StoreError, Token};
use lockstep_lock::Signal;
use lockstep_lock::store::{Answer, Claim, Release};
use lockstep_sql::mysql::MySql;
use lockstep_testkit::servers::MariaDbServer;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::support::{Lane, claim, open};

const LANES: usize = 6;
/// A restart takes this long at least, and a lock whose release was lost waits for its end.
const TTL: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_is_told_twice_across_crashes() {
    let mut server = MariaDbServer::start().unwrap();
    let store = MySql::from_url(&server.url()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, mut told) = unbounded_channel();
    let lanes = join_all((0..LANES).map(|_| open(&store))).await;
    let tasks: Vec<_> = lanes
        .into_iter()
        .map(|lane| tokio::spawn(take_turns(lane, tell.clone(), Arc::clone(&stop))))
        .collect();

    let mut owners: HashMap<Token, ClaimId> = HashMap::new();
    for _ in 0..3 {
        for _ in 0..150 {
            let (token, claim) = told.recv().await.unwrap();
            assert_eq!(*owners.entry(token).or_insert(claim), claim, "{token} was told twice");
        }
        server.kill().unwrap();
        server.restart().unwrap();
    }
    for _ in 0..50 {
        let (token, claim) = told.recv().await.unwrap();
        assert_eq!(*owners.entry(token).or_insert(claim), claim, "{token} was told twice");
    }
    stop.store(true, Ordering::Relaxed);
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
}

async fn take_turns(
    mut lane: Lane,
    tell: UnboundedSender<(Token, ClaimId)>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Ordering::Relaxed) {
        let claim = Claim { ttl: TTL, ..claim("job") };
        let Some(token) = wait_for(&mut lane, &claim, &stop).await else { return };
        let _ = tell.send((token, claim.id));
        let give_back = Release::Mine(claim.hold());
        while let Err(error) = lane.store.release(&give_back).await {
            pause_after(&error).await;
        }
    }
}

async fn wait_for(lane: &mut Lane, claim: &Claim, stop: &AtomicBool) -> Option<Token> {
    while !stop.load(Ordering::Relaxed) {
        match lane.store.acquire(claim).await {
            Ok(Answer::Granted { token }) => return token,
            Ok(Answer::Queued { .. }) => {
                match tokio::time::timeout(TTL / 3, lane.signals.recv()).await {
                    Ok(Some(Signal::Granted { claim: id, token })) if id == claim.id => {
                        return token;
                    }
                    _ => {}
                }
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => pause_after(&error).await,
        }
    }
    None
}

/// The server is away: asking again at once would only make the test busy.
async fn pause_after(error: &StoreError) {
    assert!(error.may_retry(), "{error}");
    tokio::time::sleep(Duration::from_millis(20)).await;
}
