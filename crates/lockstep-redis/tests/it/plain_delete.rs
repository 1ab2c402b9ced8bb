//! How a plain lock is given back depends on what the server says it can do.

use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{ClaimId, Key};
use lockstep_lock::store::{Hold, LockStore, Release, Released};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::fake::open_with;

/// What a server says of the two commands that it is asked for.
const NEITHER: &str = "*2\r\n_\r\n_\r\n";
const DELEX: &str = "*2\r\n*1\r\n$5\r\ndelex\r\n_\r\n";
const DELIFEQ: &str = "*2\r\n_\r\n*1\r\n$7\r\ndelifeq\r\n";
const BOTH: &str = "*2\r\n*1\r\n$5\r\ndelex\r\n*1\r\n$7\r\ndelifeq\r\n";

/// A lane to a server that knows these commands and answers deletes like this, in turn.
async fn lane(
    knows: &'static str,
    deletes: &'static [&'static str],
) -> (Arc<dyn LockStore>, UnboundedReceiver<String>) {
    let (sent, asked) = unbounded_channel();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let lane = open_with("?layout=plain", move |command| {
        let words: Vec<&str> =
            command.lines().filter(|line| !line.is_empty()).skip(2).step_by(2).collect();
        Some(match words[0] {
            "COMMAND" => knows,
            "DELEX" | "DELIFEQ" | "EVALSHA" | "EVAL" => {
                let _ = sent.send(words.join(" "));
                deletes[count.fetch_add(1, std::sync::atomic::Ordering::Relaxed)]
            }
            _ => "+OK\r\n",
        })
    });
    (lane.await.unwrap(), asked)
}

fn hold() -> Hold {
    let key = Key::new("job").unwrap();
    Hold { id: ClaimId::from_u128(7), key, ttl: Duration::from_secs(10) }
}

const VALUE: &str = "00000000000000000000000000000007";

async fn give_back(lane: &Arc<dyn LockStore>) -> Released {
    lane.release(&Release::Mine(hold())).await.unwrap()
}

#[tokio::test]
async fn the_best_that_the_server_knows_is_used() {
    for (knows, command) in [
        (DELEX, format!("DELEX job IFEQ {VALUE}")),
        (DELIFEQ, format!("DELIFEQ job {VALUE}")),
        (BOTH, format!("DELEX job IFEQ {VALUE}")),
    ] {
        let (lane, mut asked) = lane(knows, &[":1\r\n"]).await;
        assert_eq!(give_back(&lane).await, Released::Done);
        assert_eq!(asked.recv().await, Some(command));
        assert!(asked.try_recv().is_err(), "one request");
    }
    for knows in [NEITHER, "-NOPERM you may not ask\r\n"] {
        let (lane, mut asked) = lane(knows, &[":1\r\n"]).await;
        assert_eq!(give_back(&lane).await, Released::Done);
        let script = asked.recv().await.unwrap();
        assert!(script.starts_with("EVALSHA") && script.ends_with(&format!("job {VALUE}")));
    }
}

/// Only the script can tell a lock that was broken from one that is somebody else's.
#[tokio::test]
async fn a_value_that_differs_is_left_to_the_script() {
    let (lane, mut asked) = lane(DELEX, &[":0\r\n", ":1\r\n", ":0\r\n", ":0\r\n"]).await;
    assert_eq!(give_back(&lane).await, Released::Done, "it was broken, and still the holder's");
    assert_eq!(give_back(&lane).await, Released::NotHeld);
    for starts in ["DELEX", "EVALSHA", "DELEX", "EVALSHA"] {
        assert!(asked.recv().await.unwrap().starts_with(starts));
    }
}

/// A right that nobody thought of, or a failover to an older server: the lock is given back all the same.
#[tokio::test]
async fn a_command_that_is_refused_is_not_tried_again() {
    for refusal in [
        &["-NOPERM no permissions to run 'delex'\r\n", ":1\r\n", ":1\r\n"],
        &["-ERR unknown command 'DELEX', with args\r\n", ":1\r\n", ":1\r\n"],
    ] {
        let (lane, mut asked) = lane(DELEX, refusal).await;
        assert_eq!(give_back(&lane).await, Released::Done);
        assert_eq!(give_back(&lane).await, Released::Done);
        for starts in ["DELEX", "EVALSHA", "EVALSHA"] {
            assert!(asked.recv().await.unwrap().starts_with(starts));
        }
    }
    let (lane, mut asked) = lane(DELEX, &["-READONLY You can't write against a replica\r\n"]).await;
    let error = lane.release(&Release::Mine(hold())).await.unwrap_err();
    assert!(error.may_retry() && error.to_string().contains("primary"), "{error}");
    assert!(asked.recv().await.unwrap().starts_with("DELEX"));
    assert!(asked.try_recv().is_err(), "what is refused for a reason is not asked another way");
}
