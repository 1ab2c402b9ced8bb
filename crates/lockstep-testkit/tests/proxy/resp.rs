//! Faults on RESP connections.

use std::time::Duration;

use lockstep_testkit::proxy::{Fault, Gate, Kind, Match, Reply};
use tokio::time::Instant;

use super::servers::{Heard, Peer, resp, within};

fn echo(text: &str) -> Vec<u8> {
    format!("*2\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n", text.len()).into_bytes()
}

fn heard(heard: &Heard) -> String {
    heard.all().join(", ")
}

#[tokio::test]
async fn without_rules_pipelined_requests_pass_in_order_and_are_logged() {
    let (proxy, server) = resp().await;
    let mut client = Peer::connect(&proxy).await;
    client
        .send([echo("a"), b"\r\n".to_vec(), b"echo-less b\r\n".to_vec(), echo("c")].concat())
        .await;
    assert_eq!(
        [client.line().await, client.line().await, client.line().await],
        ["+a", "+OK", "+c"]
    );
    assert_eq!(heard(&server), "ECHO a, echo-less b, ECHO c");

    let log = proxy.log();
    let names: Vec<_> = log.iter().map(|seen| seen.request.name.as_str()).collect();
    assert_eq!(names, ["ECHO", "ECHO-LESS", "ECHO"]);
    assert_eq!(log[2].request.args, [b"c".to_vec()]);
    assert!(log.iter().all(|seen| seen.forwarded && seen.reply_passed()));
    assert!(log.iter().all(|seen| seen.request.connection == 1));
    assert_eq!(proxy.count(Match::command("echo")), 2);
    assert_eq!(proxy.count(Match::command("echo").with_arg("c")), 1);
    proxy.clear_log();
    assert_eq!(proxy.count(Match::any()), 0);
}

#[tokio::test]
async fn requests_split_at_every_byte_are_the_same_requests() {
    let (proxy, _server) = resp().await;
    let mut client = Peer::connect(&proxy).await;
    for byte in [echo("hello"), echo("world")].concat() {
        client.send([byte]).await;
    }
    assert_eq!([client.line().await, client.line().await], ["+hello", "+world"]);
    assert_eq!(proxy.count(Match::command("ECHO")), 2);
}

#[tokio::test]
async fn drop_reply_swallows_just_that_reply() {
    let (proxy, server) = resp().await;
    let rule = proxy.rule(Match::command("ECHO").with_arg("b"), Fault::DropReply);
    let mut client = Peer::connect(&proxy).await;
    client.send([echo("a"), echo("b"), echo("c"), echo("b")].concat()).await;
    assert_eq!([client.line().await, client.line().await, client.line().await], ["+a", "+c", "+b"]);
    assert_eq!(heard(&server), "ECHO a, ECHO b, ECHO c, ECHO b");
    assert_eq!(rule.fired(), 1);
    let log = proxy.log();
    assert_eq!((log[1].forwarded, log[1].reply), (true, Reply::Swallowed));
    assert!(log[3].reply_passed());
}

#[tokio::test]
async fn the_nth_and_the_times_choose_which() {
    let (proxy, _server) = resp().await;
    proxy.rule(Match::any().nth(2), Fault::DropReply).times(2);
    proxy.rule(Match::when(|request| request.args == [b"e"]), Fault::DropReply);
    let mut client = Peer::connect(&proxy).await;
    client.send(["a", "b", "c", "d", "e", "f"].map(echo).concat()).await;
    assert_eq!([client.line().await, client.line().await, client.line().await], ["+a", "+d", "+f"]);
}

#[tokio::test]
async fn mute_silences_the_connection_but_not_the_server() {
    let (proxy, server) = resp().await;
    proxy.rule(Match::command("ECHO").with_arg("b"), Fault::Mute);
    let mut client = Peer::connect(&proxy).await;
    client.send([echo("a"), echo("b"), echo("c"), b"PUSH x\r\nQUIT\r\n".to_vec()].concat()).await;
    assert_eq!(client.line().await, "+a");
    server.wait_for("<end>").await;
    within(proxy.wait_until(|log| log.iter().filter(|s| s.reply == Reply::Swallowed).count() == 4))
        .await;
    assert_eq!(proxy.connections(), 1, "the client does not learn that the server left");
    let mut other = Peer::connect(&proxy).await;
    other.send(echo("d")).await;
    assert_eq!(other.line().await, "+d", "other connections are not affected");
    proxy.cut_all();
    client.end().await;
}

#[tokio::test]
async fn drop_reply_and_cut_comes_after_the_server_has_acted() {
    let (proxy, server) = resp().await;
    proxy.rule(Match::command("SET"), Fault::DropReplyAndCut);
    let mut client = Peer::connect(&proxy).await;
    client.send([echo("a"), b"SET k v\r\n".to_vec()].concat()).await;
    assert_eq!(client.line().await, "+a");
    client.end().await;
    assert!(heard(&server).starts_with("ECHO a, SET k v"));
    let seen = &proxy.log()[1];
    assert_eq!((seen.forwarded, seen.reply), (true, Reply::Swallowed));
}

#[tokio::test]
async fn cut_before_keeps_the_request_from_the_server() {
    let (proxy, server) = resp().await;
    proxy.rule(Match::command("SET"), Fault::CutBefore);
    let mut client = Peer::connect(&proxy).await;
    client.send([echo("a"), b"SET k v\r\n".to_vec(), echo("b")].concat()).await;
    assert_eq!(client.line().await, "+a", "earlier replies come first");
    client.end().await;
    server.wait_for("<end>").await;
    assert_eq!(heard(&server), "ECHO a, <end>");
    let seen = &proxy.log()[1];
    assert_eq!((seen.forwarded, seen.reply), (false, Reply::Lost));
}

#[tokio::test]
async fn delays_take_their_time_in_either_direction() {
    let time = Duration::from_millis(60);
    for fault in [Fault::Delay(time), Fault::DelayReply(time)] {
        let (proxy, server) = resp().await;
        let late_request = matches!(fault, Fault::Delay(_));
        proxy.rule(Match::command("ECHO"), fault);
        let mut client = Peer::connect(&proxy).await;
        let start = Instant::now();
        client.send(echo("a")).await;
        if !late_request {
            server.wait_for("ECHO a").await;
            assert_eq!(proxy.log()[0].reply, Reply::Awaited);
        }
        assert_eq!(client.line().await, "+a");
        assert!(start.elapsed() >= time, "{:?}", start.elapsed());
        client.send(echo("b")).await;
        assert_eq!(client.line().await, "+b");
        assert!(proxy.log().iter().all(|seen| seen.reply_passed()));
    }
}

#[tokio::test]
async fn a_held_request_reaches_the_server_when_the_gate_opens() {
    let (proxy, server) = resp().await;
    let gate = Gate::new();
    proxy.rule(Match::command("SET"), Fault::Hold(gate.clone()));
    let mut holder = Peer::connect(&proxy).await;
    holder.send(b"SET k old\r\n").await;
    within(gate.wait_until_reached()).await;
    let mut other = Peer::connect(&proxy).await;
    other.send(b"SET k new\r\n").await;
    assert_eq!(other.line().await, "+OK");
    assert_eq!(heard(&server), "SET k new");
    gate.open();
    assert_eq!(holder.line().await, "+OK");
    assert_eq!(heard(&server), "SET k new, SET k old");
}

#[tokio::test]
async fn a_held_request_arrives_even_from_a_client_that_left() {
    let (proxy, server) = resp().await;
    let gate = Gate::new();
    proxy.rule(Match::command("SET"), Fault::Hold(gate.clone()));
    let mut client = Peer::connect(&proxy).await;
    client.send(b"SET k late\r\n").await;
    within(gate.wait_until_reached()).await;
    drop(client);
    gate.open();
    server.wait_for("<end>").await;
    assert_eq!(heard(&server), "SET k late, <end>");
}

#[tokio::test]
async fn a_held_reply_waits_with_the_work_done() {
    let (proxy, server) = resp().await;
    let gate = Gate::new();
    proxy.rule(Match::command("SET"), Fault::HoldReply(gate.clone()));
    let mut client = Peer::connect(&proxy).await;
    client.send([b"SET k v\r\n".to_vec(), echo("a")].concat()).await;
    within(gate.wait_until_reached()).await;
    assert!(heard(&server).starts_with("SET k v"));
    server.wait_for("ECHO a").await;
    assert!(proxy.log().iter().all(|seen| seen.reply == Reply::Awaited));
    gate.open();
    assert_eq!([client.line().await, client.line().await], ["+OK", "+a"]);
}

#[tokio::test]
async fn garbage_replaces_the_reply() {
    let (proxy, server) = resp().await;
    proxy.rule(Match::command("SET"), Fault::Garbage(b"\x00huh\r\n".to_vec()));
    let mut client = Peer::connect(&proxy).await;
    client.send([b"SET k v\r\n".to_vec(), echo("a")].concat()).await;
    assert_eq!([client.line().await, client.line().await], ["\0huh", "+a"]);
    assert!(heard(&server).starts_with("SET k v"));
    assert_eq!(proxy.log()[0].reply, Reply::Replaced);
}

#[tokio::test]
async fn an_error_reply_takes_its_place_in_the_line() {
    let (proxy, server) = resp().await;
    let gate = Gate::new();
    proxy.rule(Match::command("ECHO").with_arg("a"), Fault::HoldReply(gate.clone()));
    proxy.rule(Match::command("SET"), Fault::ErrorReply("LOADING wait".into()));
    let mut client = Peer::connect(&proxy).await;
    client.send([echo("a"), b"SET k v\r\n".to_vec(), echo("b")].concat()).await;
    within(gate.wait_until_reached()).await;
    server.wait_for("ECHO b").await;
    gate.open();
    let lines = [client.line().await, client.line().await, client.line().await];
    assert_eq!(lines, ["+a", "-LOADING wait", "+b"]);
    assert_eq!(heard(&server), "ECHO a, ECHO b");
    assert_eq!((proxy.log()[1].forwarded, proxy.log()[1].reply), (false, Reply::Replaced));
}

#[tokio::test]
async fn pushes_are_not_replies_and_can_be_dropped() {
    let (proxy, _server) = resp().await;
    proxy.rule(Match::command("MESSAGE").with_arg("secret"), Fault::DropPush);
    proxy.rule(Match::command("PUSH").with_arg("third"), Fault::DropReply);
    let mut client = Peer::connect(&proxy).await;
    client
        .send([b"PUSH first\r\nPUSH secret\r\nPUSH third\r\n".to_vec(), echo("a")].concat())
        .await;
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "+a") {
        lines.push(client.line().await);
    }
    let push = |text| [">3", "+message", "+news", &format!("${}", str::len(text)), text].join(" ");
    assert_eq!(lines.join(" "), format!("{} +OK +OK {} +a", push("first"), push("third")));
    let log = proxy.log();
    let pushes: Vec<_> = log.iter().filter(|seen| seen.request.kind == Kind::Push).collect();
    assert_eq!(pushes.iter().map(|p| p.reply_passed()).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(pushes[1].request.args[1], b"secret");
    assert_eq!(proxy.count(Match::any()), 4, "pushes are not counted as requests");
}

#[tokio::test]
async fn subscribers_of_the_old_protocol_are_understood() {
    let (proxy, _server) = resp().await;
    proxy.rule(Match::command("MESSAGE"), Fault::DropPush);
    proxy.rule(Match::command("SUBSCRIBE").nth(2), Fault::DropReply);
    let mut client = Peer::connect(&proxy).await;
    client
        .send([b"SUBSCRIBE x y\r\nTELL hello\r\nSUBSCRIBE p q\r\n".to_vec(), echo("a")].concat())
        .await;
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "+a") {
        lines.push(client.line().await);
    }
    assert_eq!(lines.join(" "), "*3 +subscribe +x :1 *3 +subscribe +y :1 +OK +a");
}

#[tokio::test]
async fn an_unknown_stream_is_passed_through_and_noted() {
    let (proxy, _server) = resp().await;
    proxy.rule(Match::command("ECHO"), Fault::DropReply).always();
    let mut client = Peer::connect(&proxy).await;
    client.send(b"BABBLE\r\n").await;
    assert_eq!(client.line().await, "?what");
    client.send(echo("a")).await;
    assert_eq!(client.line().await, "+a", "rules no longer apply");
    let log = proxy.log();
    assert_eq!(log.len(), 2, "{log:?}");
    assert_eq!(log[0].reply, Reply::Untracked);
    assert_eq!((log[1].request.kind, log[1].request.name.as_str()), (Kind::Raw, "RAW"));

    let mut other = Peer::connect(&proxy).await;
    other.send([echo("dropped"), echo("too"), b"PING\r\n".to_vec()].concat()).await;
    assert_eq!(other.line().await, "+OK", "other connections are framed still");
}

#[tokio::test]
async fn a_client_that_speaks_otherwise_is_passed_through() {
    let (proxy, _server) = resp().await;
    let mut client = Peer::connect(&proxy).await;
    client.send(b"client reply on\r\n").await;
    assert_eq!(client.line().await, "+OK");
    assert_eq!(proxy.log()[0].request.kind, Kind::Raw);
    client.send(echo("a")).await;
    assert_eq!(client.line().await, "+a");
    assert_eq!(proxy.count(Match::any()), 0);
}
