//! Servers that are not what they should be.

use std::sync::Arc;

use lockstep_core::{Effect, ErrorKind, StoreError};
use lockstep_lock::store::{Connect, LockStore, Query};
use lockstep_redis::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const CANARY: &str = "c4n4ry";

/// Starts a server that answers each command as `answer` says (`None`: by closing the connection),
/// and opens a lane to it.
async fn open(
    answer: impl Fn(&str) -> Option<&'static str> + Send + 'static,
) -> Result<Arc<dyn LockStore>, StoreError> {
    open_with("", answer).await
}

/// The same with these parameters in the URL.
pub(crate) async fn open_with(
    parameters: &str,
    answer: impl Fn(&str) -> Option<&'static str> + Send + 'static,
) -> Result<Arc<dyn LockStore>, StoreError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            'connection: while let Ok(length @ 1..) = socket.read(&mut bytes).await {
                // Each command starts a line with '*', which nothing in these commands does.
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                for command in text.split('*').skip(1) {
                    let Some(words) = answer(command) else { break 'connection };
                    socket.write_all(words.as_bytes()).await.unwrap();
                }
            }
        }
    });
    let url = format!("redis://:{CANARY}@127.0.0.1:{port}/{parameters}");
    Redis::from_url(&url).unwrap().open(None).await
}

async fn refused(
    answer: impl Fn(&str) -> Option<&'static str> + Send + 'static,
) -> (ErrorKind, String) {
    let error = open(answer).await.err().expect("it should not open");
    assert_eq!(error.effect(), Effect::None, "{error}");
    let everything = format!("{error} {error:?}");
    assert!(!everything.contains(CANARY), "{everything}");
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn an_old_server_is_named_and_the_password_it_repeats_is_not() {
    let (kind, message) = refused(|_| {
        Some("-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `c4n4ry`\r\n")
    })
    .await;
    assert_eq!(kind, ErrorKind::Config);
    assert!(message.contains("Redis 6 or newer"), "{message}");
}

#[tokio::test]
async fn a_server_that_hangs_up_is_unavailable() {
    let (kind, message) = refused(|_| None).await;
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!(message.contains("127.0.0.1:"), "{message}");
}

#[tokio::test]
async fn a_request_cut_off_has_an_unknown_outcome() {
    let lane = open(|command| match command.contains("SCAN") {
        true => None,
        false => Some("+OK\r\n"),
    })
    .await
    .unwrap();
    let query = Query::All { prefix: String::new(), limit: 1 };
    let error = lane.inspect(&query).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    assert!(error.may_retry());
}
