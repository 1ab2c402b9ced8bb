//! Faults on PostgreSQL connections.

use lockstep_testkit::proxy::postgres::{encode, parse_backend};
use lockstep_testkit::proxy::{Fault, Gate, Kind, Match, Reply, Seen};

use super::servers::{Peer, postgres, startup_packet, within};

#[tokio::test]
async fn startup_queries_and_statements_are_framed() {
    let (proxy, server) = postgres().await;
    let mut client = Peer::startup(&proxy).await;
    client.query("BEGIN").await;
    client.execute("SELECT $1", "orders").await;
    assert_eq!([client.completed().await, client.completed().await], ["BEGIN", "SELECT $1"]);
    client.send(encode(b'X', b"")).await;
    client.end().await;
    assert_eq!(server.all(), ["startup", "BEGIN", "SELECT $1", "<end>"]);

    let log = proxy.log();
    let names: Vec<_> = log.iter().map(|seen| seen.request.name.as_str()).collect();
    assert_eq!(names, ["STARTUP", "QUERY", "EXECUTE", "TERMINATE"]);
    assert!(log.iter().all(|seen| seen.forwarded));
    assert!(log[..3].iter().all(|seen| seen.reply_passed()));
    assert_eq!(log[3].reply, Reply::NotExpected);
    assert_eq!(
        (log[2].request.sql.as_str(), &log[2].request.args[0][..]),
        ("SELECT $1", &b"orders"[..])
    );
    assert_eq!(proxy.count(Match::sql("orders")), 1);
    assert_eq!(proxy.count(Match::sql("BEGIN")), 1);
}

#[tokio::test]
async fn a_wish_for_encryption_is_passed_on_and_refused_by_the_server() {
    let (proxy, _server) = postgres().await;
    let mut client = Peer::connect(&proxy).await;
    client.send([0, 0, 0, 8, 4, 210, 22, 47]).await;
    assert_eq!(client.bytes(1).await, b"N");
    client.send(startup_packet()).await;
    assert_eq!(client.message().await.tag, b'R');
    assert_eq!(proxy.log()[0].request.name, "SSLREQUEST");
    within(proxy.wait_until(|log| log[1].reply_passed())).await;
}

#[tokio::test]
async fn encryption_is_passed_through_and_noted() {
    let (proxy, _server) = postgres().await;
    let mut client = Peer::connect(&proxy).await;
    client.send([0, 0, 0, 8, 4, 210, 22, 48]).await;
    assert_eq!(client.bytes(1).await, b"G");
    client.send(b"\x00cipher").await;
    assert_eq!(client.bytes(7).await, b"\x00cipher");
    let log = proxy.log();
    assert!(log[0].reply_passed());
    assert_eq!((log[1].request.kind, log[1].request.sql.as_str()), (Kind::Raw, "encryption"));
}

#[tokio::test]
async fn a_copy_is_passed_through_and_noted() {
    let (proxy, _server) = postgres().await;
    let mut client = Peer::startup(&proxy).await;
    client.query("COPY").await;
    assert_eq!(client.message().await.tag, b'G');
    client.send(encode(b'd', b"row")).await;
    assert_eq!(client.bytes(5).await, b"!raw!");
    assert_eq!(proxy.log().last().unwrap().request.kind, Kind::Raw);
}

#[tokio::test]
async fn replies_of_many_messages_are_dropped_replaced_or_held_whole() {
    let (proxy, server) = postgres().await;
    let gate = Gate::new();
    proxy.rule(Match::sql("two"), Fault::DropReply);
    proxy.rule(Match::sql("three"), Fault::Garbage(encode(b'C', b"junk\0")));
    proxy.rule(Match::sql("four"), Fault::HoldReply(gate.clone()));
    let mut client = Peer::startup(&proxy).await;
    for parameter in ["one", "two", "three", "four"] {
        client.execute("SELECT $1", parameter).await;
    }
    client.query("last").await;
    assert_eq!(client.completed().await, "SELECT $1");
    assert_eq!(client.message().await.query().as_deref(), Some("junk"));
    within(gate.wait_until_reached()).await;
    server.wait_for("last").await;
    let replies = |log: &[Seen]| log.iter().skip(1).map(|seen| seen.reply).collect::<Vec<_>>();
    let (passed, awaited) = (Reply::Passed, Reply::Awaited);
    let before = [passed, Reply::Swallowed, Reply::Replaced, awaited, awaited];
    assert_eq!(replies(&proxy.log()), before);
    gate.open();
    assert_eq!([client.completed().await, client.completed().await], ["SELECT $1", "last"]);
}

#[tokio::test]
async fn a_lost_reply_and_a_cut_leave_the_work_done() {
    let (proxy, server) = postgres().await;
    proxy.rule(Match::sql("INSERT"), Fault::DropReplyAndCut);
    proxy.rule(Match::sql("DELETE"), Fault::CutBefore);
    let mut client = Peer::startup(&proxy).await;
    client.execute("INSERT INTO leases", "a").await;
    client.end().await;
    let mut client = Peer::startup(&proxy).await;
    client.query("DELETE FROM leases").await;
    client.end().await;
    assert!(server.all().contains(&"INSERT INTO leases".to_owned()));
    assert!(!server.all().contains(&"DELETE FROM leases".to_owned()));
}

#[tokio::test]
async fn an_error_reply_leaves_the_connection_usable() {
    let (proxy, server) = postgres().await;
    proxy.rule(Match::sql("orders"), Fault::ErrorReply("40001 try again".into()));
    let mut client = Peer::startup(&proxy).await;
    client.execute("SELECT $1", "orders").await;
    let error = client.message().await;
    assert_eq!((error.tag, error.field(b'C').as_deref()), (b'E', Some("40001")));
    assert_eq!(error.field(b'M').as_deref(), Some("try again"));
    assert_eq!(client.message().await.tag, b'Z');
    client.query("next").await;
    assert_eq!(client.completed().await, "next");
    assert_eq!(server.all(), ["startup", "next"]);
}

#[tokio::test]
async fn an_error_at_startup_ends_the_connection() {
    let (proxy, server) = postgres().await;
    proxy.rule(Match::command("STARTUP"), Fault::ErrorReply("53300 too many clients".into()));
    let mut client = Peer::connect(&proxy).await;
    client.send(startup_packet()).await;
    let error = client.message().await;
    assert_eq!(error.field(b'V').as_deref(), Some("FATAL"));
    client.end().await;
    server.wait_for("<end>").await;
    assert_eq!(server.all(), ["<end>"]);
}

#[tokio::test]
async fn notifications_are_pushes_also_inside_a_reply() {
    let (proxy, _server) = postgres().await;
    proxy.rule(Match::command("NOTIFICATION").with_arg("orders"), Fault::DropPush);
    proxy.rule(Match::sql("NOTIFY").nth(2), Fault::DropReply);
    let mut client = Peer::startup(&proxy).await;
    for _ in 0..3 {
        client.query("NOTIFY").await;
    }
    // The first notification is dropped, of the second only the reply it came in.
    let tags = [
        client.message().await.tag,
        client.message().await.tag,
        client.message().await.tag,
        client.message().await.tag,
    ];
    assert_eq!(&tags, b"CZAA");
    assert_eq!(client.completed().await, "NOTIFY");
    let log = proxy.log();
    let pushes: Vec<_> = log.iter().filter(|seen| seen.request.kind == Kind::Push).collect();
    assert_eq!(pushes.iter().map(|p| p.reply_passed()).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(pushes[0].request.args, [b"orders".to_vec(), b"freed".to_vec()]);
}

#[tokio::test]
async fn a_fatal_error_is_the_whole_reply() {
    let (proxy, _server) = postgres().await;
    proxy.rule(Match::sql("DIE").nth(2), Fault::Garbage(b"gone".to_vec()));
    let mut client = Peer::startup(&proxy).await;
    client.query("DIE").await;
    assert_eq!(client.message().await.tag, b'E');
    client.end().await;
    assert!(proxy.log()[1].reply_passed());

    let mut client = Peer::startup(&proxy).await;
    client.query("DIE").await;
    assert_eq!(client.bytes(4).await, b"gone");
    assert!(parse_backend(b"gone").is_err());
    client.end().await;
}
