//! What acts on all connections, and waiting for the log.

use lockstep_testkit::proxy::{Direction, Fault, Gate, Match, Protocol, Proxy, Reply, Seen};
use tokio::net::{TcpListener, TcpSocket};

use super::servers::{Peer, resp, resp_server, within};

#[tokio::test]
async fn a_partition_is_silence_and_healing_ends_what_lost_bytes() {
    let (proxy, server) = resp().await;
    let mut idle = Peer::connect(&proxy).await;
    let mut busy = Peer::connect(&proxy).await;
    for client in [&mut idle, &mut busy] {
        client.send(b"PING\r\n").await;
        assert_eq!(client.line().await, "+OK");
    }
    proxy.partition();
    let rule = proxy.rule(Match::command("SET"), Fault::CutBefore);
    busy.send(b"SET k v\r\n").await;
    let mut fresh = Peer::connect(&proxy).await;
    fresh.send(b"SET k w\r\n").await;
    within(proxy.wait_for(Match::command("SET"), 2)).await;
    let lost = |seen: &&Seen| !seen.forwarded && seen.reply == Reply::Lost;
    within(proxy.wait_until(|log| log.iter().filter(lost).count() == 2)).await;
    assert_eq!(rule.fired(), 0, "what is lost on the way meets no rule");
    assert_eq!(proxy.connections(), 3);
    rule.remove();

    proxy.heal();
    busy.end().await;
    fresh.end().await;
    idle.send(b"SET k x\r\n").await;
    assert_eq!(idle.line().await, "+OK", "a connection that lost nothing goes on");
    assert!(!server.all().iter().any(|heard| heard == "SET k v" || heard == "SET k w"));
}

#[tokio::test]
async fn a_silent_connection_opened_in_a_partition_works_after_it() {
    let (proxy, server) = resp().await;
    proxy.partition();
    let mut client = Peer::connect(&proxy).await;
    // Accepted after the first, so that the first is inside the partition for certain.
    let mut second = Peer::connect(&proxy).await;
    second.send(b"SET k v\r\n").await;
    within(proxy.wait_for(Match::command("SET"), 1)).await;
    proxy.heal();
    second.end().await;
    client.send(b"PING\r\n").await;
    assert_eq!(client.line().await, "+OK");
    assert_eq!(server.all(), ["PING"]);
}

#[tokio::test]
async fn in_a_partition_not_even_the_end_of_a_client_is_heard() {
    let (addr, server) = resp_server().await;
    let proxy = Proxy::start(addr, Protocol::Resp);
    let mut gone = Peer::connect(&proxy).await;
    gone.send(b"PING\r\n").await;
    assert_eq!(gone.line().await, "+OK");
    proxy.partition();
    drop(gone);
    // While these go round, everything that is ready on other sockets is handled as well.
    let second = Proxy::start(addr, Protocol::Resp);
    let mut witness = Peer::connect(&second).await;
    for _ in 0..5 {
        witness.send(b"PING\r\n").await;
        assert_eq!(witness.line().await, "+OK");
    }
    assert_eq!(server.all(), ["PING"; 6]);
    assert_eq!(proxy.connections(), 1);
    proxy.heal();
    server.wait_for("<end>").await;
}

#[tokio::test]
async fn the_link_is_asked_again_after_a_hold() {
    let (proxy, server) = resp().await;
    let gate = Gate::new();
    proxy.rule(Match::command("SET"), Fault::Hold(gate.clone()));
    let mut client = Peer::connect(&proxy).await;
    client.send(b"SET k v\r\n").await;
    within(gate.wait_until_reached()).await;
    proxy.partition();
    gate.open();
    within(proxy.wait_until(|log| log[0].reply == Reply::Lost)).await;
    proxy.heal();
    client.end().await;
    server.wait_for("<end>").await;
    assert_eq!(server.all(), ["<end>"]);
}

#[tokio::test]
async fn a_partition_also_stops_replies_already_under_way() {
    let (proxy, server) = resp().await;
    let gate = Gate::new();
    proxy.rule(Match::command("SET"), Fault::HoldReply(gate.clone()));
    let mut client = Peer::connect(&proxy).await;
    client.send(b"SET k v\r\n").await;
    within(gate.wait_until_reached()).await;
    proxy.partition();
    gate.open();
    within(proxy.wait_until(|log| log[0].reply == Reply::Swallowed)).await;
    proxy.heal();
    client.end().await;
    assert_eq!(server.all()[0], "SET k v");
}

#[tokio::test]
async fn one_way_lets_the_server_act_unheard() {
    let (proxy, server) = resp().await;
    let mut client = Peer::connect(&proxy).await;
    proxy.one_way(Direction::Requests);
    client.send(b"SET k v\r\nQUIT\r\n").await;
    within(proxy.wait_until(|log| log.iter().any(|seen| seen.reply == Reply::Swallowed))).await;
    server.wait_for("<end>").await;
    assert_eq!(server.all(), ["SET k v", "QUIT", "<end>"]);
    assert_eq!(proxy.connections(), 1, "the client does not hear the server leave");
    proxy.heal();
    client.end().await;
}

#[tokio::test]
async fn one_way_back_passes_what_is_still_under_way() {
    let (proxy, server) = resp().await;
    let gate = Gate::new();
    proxy.rule(Match::command("SET"), Fault::HoldReply(gate.clone()));
    let mut client = Peer::connect(&proxy).await;
    client.send(b"SET k v\r\n").await;
    within(gate.wait_until_reached()).await;
    proxy.one_way(Direction::Replies);
    client.send(b"SET k w\r\n").await;
    within(proxy.wait_until(|log| log.get(1).is_some_and(|s| s.reply == Reply::Lost))).await;
    gate.open();
    assert_eq!(client.line().await, "+OK");
    proxy.heal();
    client.end().await;
    assert_eq!(server.all()[0], "SET k v");
    assert!(!server.all().contains(&"SET k w".to_owned()));
}

#[tokio::test]
async fn bytes_lost_in_a_partition_keep_the_rest_of_the_stream_out() {
    let (proxy, server) = resp().await;
    let mut client = Peer::connect(&proxy).await;
    client.send(b"PING\r\n").await;
    assert_eq!(client.line().await, "+OK");
    proxy.partition();
    client.send(b"SET k v\r\n").await;
    within(proxy.wait_for(Match::command("SET"), 1)).await;
    proxy.one_way(Direction::Requests);
    client.send(b"SET k w\r\n").await;
    within(proxy.wait_for(Match::command("SET"), 2)).await;
    within(proxy.wait_until(|log| log[2].reply == Reply::Lost)).await;
    proxy.heal();
    client.end().await;
    server.wait_for("<end>").await;
    assert_eq!(server.all(), ["PING", "<end>"]);
}

#[tokio::test]
async fn cut_all_ends_every_connection_and_marks_what_was_awaited() {
    let (proxy, server) = resp().await;
    proxy.rule(Match::any(), Fault::HoldReply(Gate::new())).always();
    let mut clients = [Peer::connect(&proxy).await, Peer::connect(&proxy).await];
    for client in &mut clients {
        client.send(b"PING\r\n").await;
    }
    within(proxy.wait_for(Match::command("PING"), 2)).await;
    proxy.cut_all();
    for client in &mut clients {
        client.end().await;
    }
    within(proxy.wait_until(|log| log.iter().all(|seen| seen.reply == Reply::Lost))).await;
    proxy.clear_rules();
    let mut next = Peer::connect(&proxy).await;
    next.send(b"PING\r\n").await;
    assert_eq!(next.line().await, "+OK");
    server.wait_for("<end>").await;
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn refused_connections_are_closed_and_others_stay() {
    let (proxy, server) = resp().await;
    let mut old = Peer::connect(&proxy).await;
    old.send(b"PING\r\n").await;
    assert_eq!(old.line().await, "+OK");
    proxy.refuse(true);
    Peer::connect(&proxy).await.end().await;
    old.send(b"PING\r\n").await;
    assert_eq!(old.line().await, "+OK");
    proxy.refuse(false);
    let mut new = Peer::connect(&proxy).await;
    new.send(b"PING\r\n").await;
    assert_eq!(new.line().await, "+OK");
    assert_eq!(server.all().len(), 3);
}

#[tokio::test]
async fn pushes_can_be_dropped_everywhere() {
    let (proxy, _server) = resp().await;
    proxy.drop_pushes(true);
    let mut client = Peer::connect(&proxy).await;
    client.send(b"PUSH a\r\n").await;
    assert_eq!(client.line().await, "+OK");
    proxy.drop_pushes(false);
    client.send(b"PUSH b\r\n").await;
    assert_eq!(client.line().await, ">3");
}

#[tokio::test]
async fn without_a_server_clients_are_turned_away() {
    // Bound and not listening: nobody else can take the port and answer on it.
    let deaf = TcpSocket::new_v4().unwrap();
    deaf.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = Proxy::start(deaf.local_addr().unwrap(), Protocol::Resp);
    Peer::connect(&proxy).await.end().await;
}

#[tokio::test]
async fn dropping_the_proxy_ends_it() {
    let (proxy, server) = resp().await;
    let addr = proxy.addr();
    assert_eq!(addr.port(), proxy.port());
    let mut client = Peer::connect(&proxy).await;
    client.send(b"PING\r\n").await;
    assert_eq!(client.line().await, "+OK");
    drop(proxy);
    client.end().await;
    server.wait_for("<end>").await;
    // The port is free again. Another test may have been quicker to take it, hence the loop.
    within(async {
        while TcpListener::bind(addr).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn waiting_for_requests_ends_with_the_last_of_them() {
    let (proxy, _server) = resp().await;
    let proxy = std::sync::Arc::new(proxy);
    let waiting = proxy.clone();
    let wait = tokio::spawn(async move { waiting.wait_for(Match::command("SET").nth(2), 1).await });
    let mut client = Peer::connect(&proxy).await;
    client.send(b"SET k v\r\nPING\r\n").await;
    assert_eq!([client.line().await, client.line().await], ["+OK", "+OK"]);
    assert!(!wait.is_finished());
    client.send(b"SET k v\r\n").await;
    within(wait).await.unwrap();
    assert_eq!(proxy.count(Match::command("SET")), 2);
}
