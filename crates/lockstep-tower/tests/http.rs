//! A real server, and requests as they come over the wire.

#![expect(clippy::unwrap_used, reason = "what is unexpected here fails the test")]

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use lockstep_lock::Locks;
use lockstep_lock::memory::Memory;
use lockstep_tower::{FenceLayer, headers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

/// What the service has written, and a door that the text "slow" waits at.
struct Ledger {
    written: Mutex<Vec<String>>,
    entered: Semaphore,
    door: Semaphore,
}

async fn serve() -> (SocketAddr, Arc<Ledger>) {
    let ledger = Arc::new(Ledger {
        written: Mutex::default(),
        entered: Semaphore::new(0),
        door: Semaphore::new(0),
    });
    let write = async |State(ledger): State<Arc<Ledger>>, text: String| {
        if text == "slow" {
            ledger.entered.add_permits(1);
            ledger.door.acquire().await.unwrap().forget();
        }
        ledger.written.lock().await.push(text);
        "written"
    };
    let app = Router::new()
        .route("/", post(write))
        .layer(FenceLayer::new())
        .with_state(Arc::clone(&ledger));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    (address, ledger)
}

/// Sends the text with these headers; answers with the status and the rest.
async fn post_to(server: SocketAddr, headers: &str, text: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let length = text.len();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{text}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.to_lowercase())
}

fn with_token(token: &str) -> String {
    format!("Lockstep-Lock: ledger\r\nLockstep-Token: {token}\r\n")
}

#[tokio::test]
async fn a_token_out_of_date_is_refused_before_the_service_hears_of_it() {
    let (server, ledger) = serve().await;
    let locks = Locks::open(Memory::new()).await.unwrap();
    let late = locks.lock("Bücher: 7").await.unwrap();
    locks.break_lock_now("Bücher: 7", "test").await.unwrap();
    let next = locks.lock("Bücher: 7").await.unwrap();
    let [late, next] = [&late, &next].map(|guard| {
        let headers = headers(guard).unwrap();
        let line = |(name, value): (_, &axum::http::HeaderValue)| {
            format!("{name}: {}\r\n", value.to_str().unwrap())
        };
        headers.iter().map(line).collect::<String>()
    });
    assert_eq!(post_to(server, &late, "a").await.0, 200);
    assert_eq!(post_to(server, &next, "b").await.0, 200);
    assert_eq!(post_to(server, &next, "c").await.0, 200);
    let (status, answer) = post_to(server, &late, "d").await;
    assert!(status == 412 && answer.contains("lockstep-token: 2"), "{answer}");
    assert_eq!(post_to(server, &with_token("1"), "e").await.0, 200, "another lock");
    assert_eq!(*ledger.written.lock().await, ["a", "b", "c", "e"]);
}

#[tokio::test]
async fn what_cannot_be_read_is_a_bad_request() {
    let (server, ledger) = serve().await;
    for headers in [
        String::new(),
        "Lockstep-Lock: ledger\r\n".to_owned(),
        "Lockstep-Token: 1\r\n".to_owned(),
        with_token(""),
        with_token("+1"),
        with_token("-1"),
        with_token("1.0"),
        with_token("99999999999999999999"),
        with_token("1") + "Lockstep-Token: 2\r\n",
        "Lockstep-Lock:\r\nLockstep-Token: 1\r\n".to_owned(),
        "Lockstep-Lock: a%00\r\nLockstep-Token: 1\r\n".to_owned(),
        "Lockstep-Lock: %ff\r\nLockstep-Token: 1\r\n".to_owned(),
    ] {
        let (status, answer) = post_to(server, &headers, "x").await;
        assert_eq!(status, 400, "{headers:?}: {answer}");
    }
    assert!(ledger.written.lock().await.is_empty());
}

#[tokio::test]
async fn a_later_holder_waits_for_the_answer_to_an_earlier_one() {
    let (server, ledger) = serve().await;
    let slow = tokio::spawn(async move { post_to(server, &with_token("1"), "slow").await });
    ledger.entered.acquire().await.unwrap().forget();
    let next = tokio::spawn(async move { post_to(server, &with_token("2"), "next").await });
    // Enough has come and gone meanwhile that the one in question would have been served too.
    for _ in 0..50 {
        let other = "Lockstep-Lock: other\r\nLockstep-Token: 1\r\n";
        assert_eq!(post_to(server, other, "other").await.0, 200);
    }
    assert!(!ledger.written.lock().await.contains(&"next".to_owned()), "it has overtaken");
    ledger.door.add_permits(1);
    assert_eq!((slow.await.unwrap().0, next.await.unwrap().0), (200, 200));
    assert_eq!(ledger.written.lock().await[50..], ["slow", "next"]);
    assert_eq!(post_to(server, &with_token("1"), "late").await.0, 412);
}
