//! Faults on MySQL connections, between a driver and a real MariaDB.

use std::net::SocketAddr;
use std::time::Duration;

use lockstep_testkit::proxy::mysql::{Packet, capability, encode, parse_packet};
use lockstep_testkit::proxy::{Direction, Fault, Gate, Kind, Match, Protocol, Proxy, Reply, Seen};
use lockstep_testkit::servers::{MariaDbOptions, MariaDbServer, TlsFiles, mariadb_url};
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, Error, Opts, OptsBuilder, Params, Row, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::servers::within;

/// The capability without which a procedure may not answer with rows.
const SEVERAL_RESULTS: u32 = 1 << 17;

fn opts() -> Opts {
    Opts::from_url(&mariadb_url()).unwrap()
}

/// A proxy before the server that all tests share.
fn mariadb() -> Proxy {
    Proxy::start(SocketAddr::from(([127, 0, 0, 1], opts().tcp_port())), Protocol::MySql)
}

async fn try_connect(proxy: &Proxy) -> Result<Conn, Error> {
    let opts = OptsBuilder::from_opts(opts()).tcp_port(proxy.port()).prefer_socket(false);
    within(Conn::new(opts)).await
}

async fn connect(proxy: &Proxy) -> Conn {
    try_connect(proxy).await.unwrap()
}

/// A connection beside the proxy, with an empty table of this name.
async fn table(name: &str) -> Conn {
    let mut beside = within(Conn::new(opts())).await.unwrap();
    let create = format!("CREATE OR REPLACE TABLE {name} (v VARCHAR(20)) ENGINE = InnoDB");
    beside.query_drop(create).await.unwrap();
    beside
}

async fn rows_of(beside: &mut Conn, name: &str) -> Vec<String> {
    beside.query(format!("SELECT v FROM {name} ORDER BY v")).await.unwrap()
}

/// The number of the server's error.
fn number<T: std::fmt::Debug>(result: Result<T, Error>) -> u16 {
    match result {
        Err(Error::Server(error)) => error.code,
        other => panic!("not an error of the server: {other:?}"),
    }
}

#[tokio::test]
async fn a_session_is_framed_from_its_handshake_to_its_end() {
    let proxy = mariadb();
    let mut client = connect(&proxy).await;
    proxy.clear_log();
    client.ping().await.unwrap();
    let rows: Vec<(u8, String)> = client.query("SELECT 1, 'a' UNION SELECT 2, 'b'").await.unwrap();
    assert_eq!(rows, [(1, "a".to_owned()), (2, "b".to_owned())]);
    for word in ["orders", "parts"] {
        let echo: Option<String> = client.exec_first("SELECT ?", (word,)).await.unwrap();
        assert_eq!(echo.as_deref(), Some(word));
    }
    assert_eq!(number(client.query_drop("SELECT nonsense FROM nowhere").await), 1146);
    client.reset().await.unwrap();
    client.disconnect().await.unwrap();

    within(proxy.wait_for(Match::command("QUIT"), 1)).await;
    let log = proxy.log();
    let names: Vec<_> = log.iter().map(|seen| seen.request.name.as_str()).collect();
    let expected = ["PING", "QUERY", "PREPARE", "EXECUTE", "EXECUTE", "QUERY", "RESET", "QUIT"];
    assert_eq!(names, expected);
    assert!(log.iter().all(|seen| seen.forwarded));
    assert!(log[..7].iter().all(|seen| seen.reply_passed()));
    assert_eq!(log[7].reply, Reply::NotExpected);
    assert_eq!(proxy.count(Match::sql("SELECT ?").with_arg("parts")), 1);
    assert_eq!(proxy.count(Match::sql("orders")), 1);
    assert_eq!(proxy.count(Match::prepare("SELECT ?")), 1);
}

#[tokio::test]
async fn the_handshake_is_a_request_with_names() {
    let proxy = mariadb();
    connect(&proxy).await;
    let log = proxy.log();
    assert_eq!(log[0].request.name, "HANDSHAKE");
    assert_eq!(log[0].request.args, [b"lockstep".to_vec(), b"lockstep".to_vec()]);
    assert!(log[0].reply_passed());

    proxy.rule(Match::command("HANDSHAKE"), Fault::ErrorReply("1040 08004 Too many".into()));
    assert_eq!(number(try_connect(&proxy).await), 1040);
    let wrong = OptsBuilder::from_opts(opts()).tcp_port(proxy.port()).pass(Some("wrong"));
    assert_eq!(number(within(Conn::new(wrong)).await), 1045);
    assert!(proxy.log().iter().all(|seen| seen.request.kind == Kind::Request));
}

#[tokio::test]
async fn a_change_of_user_is_a_handshake_of_its_own() {
    let proxy = mariadb();
    let mut client = connect(&proxy).await;
    let echo: Option<u8> = client.exec_first("SELECT 1", ()).await.unwrap();
    assert_eq!(echo, Some(1));
    proxy.clear_log();
    client.change_user(ChangeUserOpts::default()).await.unwrap();
    let echo: Option<u8> = client.exec_first("SELECT 1", ()).await.unwrap();
    assert_eq!(echo, Some(1));
    let log = proxy.log();
    let names: Vec<_> = log.iter().map(|seen| seen.request.name.as_str()).collect();
    assert_eq!(names, ["CHANGEUSER", "AUTH", "PREPARE", "EXECUTE"]);
    assert!(log.iter().all(Seen::reply_passed));
}

#[tokio::test]
async fn a_client_that_wants_eof_packets_is_followed_too() {
    let server = MariaDbServer::start().unwrap();
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port())), Protocol::MySql);
    let mut client = Raw::login(&proxy).await;
    let procedure = "CREATE PROCEDURE lockstep.two() BEGIN SELECT 1; SELECT 2, 3; END";
    proxy.rule(Match::sql("CALL").nth(2), Fault::DropReply);
    for (sql, packets) in [
        (procedure, 1),
        // Each: a head, columns, EOF, a row, EOF; and an OK for the call itself.
        ("CALL lockstep.two()", 5 + 6 + 1),
        ("CALL lockstep.two()", 0),
        ("SELECT 1 FROM mysql.user WHERE FALSE", 4),
        ("SELECT nonsense", 1),
    ] {
        client.send(0x03, sql).await;
        client.read(packets).await;
        within(proxy.wait_until(|log| log.last().unwrap().reply != Reply::Awaited)).await;
    }
    client.send(0x16, "SELECT ?, ?").await;
    // The statement; then two parameters and two columns, each with their EOF.
    client.read(1 + 3 + 3).await;
    client.send(0x0e, "").await;
    assert_eq!(client.read(1).await[0].body[0], 0, "nothing was left unread before the OK");

    let log = proxy.log();
    let swallowed = log.iter().filter(|seen| seen.reply == Reply::Swallowed).count();
    assert_eq!((swallowed, log.iter().filter(|seen| seen.reply_passed()).count()), (1, 7));
}

/// A client of few words that knows nothing newer than EOF packets.
struct Raw {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Raw {
    /// As the administrator, who needs no password.
    async fn login(proxy: &Proxy) -> Raw {
        let stream = TcpStream::connect(proxy.addr()).await.unwrap();
        let mut client = Raw { stream, buffer: Vec::new() };
        client.read(1).await;
        let wanted = capability::PROTOCOL_41 | capability::SECURE_CONNECTION | SEVERAL_RESULTS;
        let mut handshake = wanted.to_le_bytes().to_vec();
        handshake.extend([0; 28]);
        handshake.extend(b"root\0\0");
        client.stream.write_all(&encode(1, &handshake)).await.unwrap();
        client.read(1).await;
        client
    }

    async fn send(&mut self, command: u8, text: &str) {
        let bytes = encode(0, &[&[command], text.as_bytes()].concat());
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn read(&mut self, count: usize) -> Vec<Packet> {
        let mut packets = Vec::new();
        while packets.len() < count {
            if let Some((packet, length)) = parse_packet(&self.buffer).unwrap() {
                self.buffer.drain(..length);
                packets.push(packet);
            } else {
                assert_ne!(within(self.stream.read_buf(&mut self.buffer)).await.unwrap(), 0);
            }
        }
        packets
    }
}

#[tokio::test]
async fn a_call_answers_with_several_results() {
    let proxy = mariadb();
    let mut client = connect(&proxy).await;
    let create = "CREATE OR REPLACE PROCEDURE proxy_three(IN word VARCHAR(20))
        BEGIN SELECT '1'; SELECT word FROM (SELECT 1 UNION SELECT 2) AS two; DO 0; END";
    client.query_drop(create).await.unwrap();
    for prepared in [false, true] {
        let mut sets: Vec<Vec<String>> = Vec::new();
        let text = |row: Row| mysql_async::from_row::<String>(row);
        if prepared {
            let mut result = client.exec_iter("CALL proxy_three(?)", ("x",)).await.unwrap();
            while !result.is_empty() {
                sets.push(result.map(text).await.unwrap());
            }
        } else {
            let mut result = client.query_iter("CALL proxy_three('x')").await.unwrap();
            while !result.is_empty() {
                sets.push(result.map(text).await.unwrap());
            }
        }
        assert_eq!(sets[..2], [vec!["1"], vec!["x", "x"]], "prepared: {prepared}");
    }
    // A reply of many results is swallowed whole: the next one answers the next request.
    proxy.rule(Match::sql("CALL"), Fault::DropReplyAndCut);
    assert!(client.query_drop("CALL proxy_three('y')").await.is_err());
    let swallowed = |seen: &&Seen| seen.reply == Reply::Swallowed;
    assert_eq!(proxy.log().iter().filter(swallowed).count(), 1);
    assert!(proxy.log().iter().all(|seen| seen.request.kind == Kind::Request));
}

#[tokio::test]
async fn large_rows_and_statements_cross_in_parts() {
    const LENGTH: usize = 17 << 20;
    let server = MariaDbServer::start_with(MariaDbOptions {
        settings: vec![("max-allowed-packet".to_owned(), "64M".to_owned())],
        ..MariaDbOptions::default()
    });
    let server = server.unwrap();
    let upstream = SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = Proxy::start(upstream, Protocol::MySql);
    let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).unwrap());
    let opts = opts.tcp_port(proxy.port()).prefer_socket(false);
    let mut client = within(Conn::new(opts)).await.unwrap();
    let long = "x".repeat(LENGTH);
    let echo: Option<String> = client.query_first(format!("SELECT '{long}'")).await.unwrap();
    assert!(echo.is_some_and(|echo| echo == long));
    let echo: Option<(String, u8)> = client.exec_first("SELECT ?, 7", (&long,)).await.unwrap();
    assert!(echo.is_some_and(|echo| echo == (long, 7)));
    client.ping().await.unwrap();
    assert!(proxy.log().iter().all(|seen| seen.request.kind == Kind::Request));
}

#[tokio::test]
async fn a_lost_reply_and_a_cut_leave_the_work_done() {
    let proxy = mariadb();
    let mut beside = table("proxy_cut").await;
    proxy.rule(Match::sql("INSERT").with_arg("a"), Fault::DropReplyAndCut);
    proxy.rule(Match::sql("INSERT").with_arg("b"), Fault::CutBefore);
    for word in ["a", "b"] {
        let mut client = connect(&proxy).await;
        let lost = client.exec_drop("INSERT INTO proxy_cut VALUES (?)", (word,)).await;
        assert!(matches!(lost, Err(Error::Io(_) | Error::Driver(_))), "{lost:?}");
    }
    assert_eq!(rows_of(&mut beside, "proxy_cut").await, ["a"]);
}

#[tokio::test]
async fn an_error_reply_leaves_the_connection_usable() {
    let proxy = mariadb();
    let mut beside = table("proxy_error").await;
    let mut client = connect(&proxy).await;
    let rule = proxy.rule(Match::sql("INSERT"), Fault::ErrorReply("1213 40001 Deadlock".into()));
    let insert = "INSERT INTO proxy_error VALUES ('a')";
    match client.query_drop(insert).await {
        Err(Error::Server(error)) => {
            assert_eq!((error.code, error.state.as_str()), (1213, "40001"));
            assert_eq!(error.message, "Deadlock");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rows_of(&mut beside, "proxy_error").await, [""; 0]);
    client.query_drop(insert).await.unwrap();
    assert_eq!(rows_of(&mut beside, "proxy_error").await, ["a"]);
    assert_eq!(rule.fired(), 1);

    proxy.rule(Match::prepare("nothing"), Fault::ErrorReply("1615 HY000 again".into()));
    assert_eq!(number(client.exec_drop("SELECT 'nothing'", ()).await), 1615);
    client.exec_drop("SELECT 'nothing'", ()).await.unwrap();
}

#[tokio::test]
async fn requests_and_replies_are_held_until_their_gate_opens() {
    let proxy = mariadb();
    let mut beside = table("proxy_held").await;
    let (request, reply) = (Gate::new(), Gate::new());
    proxy.rule(Match::sql("'late'"), Fault::Hold(request.clone()));
    proxy.rule(Match::sql("'slow'"), Fault::HoldReply(reply.clone()));
    let mut late = connect(&proxy).await;
    let late = tokio::spawn(async move {
        late.query_drop("INSERT INTO proxy_held VALUES ('late')").await.unwrap();
    });
    let mut slow = connect(&proxy).await;
    let slow = tokio::spawn(async move {
        slow.query_drop("INSERT INTO proxy_held VALUES ('slow')").await.unwrap();
    });
    within(request.wait_until_reached()).await;
    within(reply.wait_until_reached()).await;
    assert_eq!(rows_of(&mut beside, "proxy_held").await, ["slow"]);
    assert!(!slow.is_finished() && !late.is_finished());
    request.open();
    reply.open();
    within(late).await.unwrap();
    within(slow).await.unwrap();
    assert_eq!(rows_of(&mut beside, "proxy_held").await, ["late", "slow"]);
}

#[tokio::test]
async fn delays_end_and_garbage_is_an_error() {
    let proxy = mariadb();
    let mut client = connect(&proxy).await;
    let time = Duration::from_millis(5);
    proxy.rule(Match::command("PING"), Fault::Delay(time));
    proxy.rule(Match::command("PING").nth(2), Fault::DelayReply(time));
    for _ in 0..2 {
        within(client.ping()).await.unwrap();
    }
    proxy.rule(Match::sql("SELECT"), Fault::Garbage(b"\x02\0\0\x07??".to_vec()));
    let garbled: Result<Option<u8>, _> = within(client.query_first("SELECT 1")).await;
    assert!(garbled.is_err());
    let replaced = proxy.log().iter().filter(|seen| seen.reply == Reply::Replaced).count();
    assert_eq!(replaced, 1);
}

#[tokio::test]
async fn a_reply_can_be_lost_without_the_connection() {
    let proxy = mariadb();
    let mut beside = table("proxy_lost").await;
    for fault in [Fault::DropReply, Fault::Mute] {
        proxy.clear_log();
        proxy.rule(Match::sql("INSERT"), fault);
        let mut client = connect(&proxy).await;
        let waiting = tokio::spawn(async move {
            client.query_drop("INSERT INTO proxy_lost VALUES ('a')").await.is_err()
        });
        within(proxy.wait_until(|log| log.iter().any(|seen| seen.reply == Reply::Swallowed))).await;
        assert!(!waiting.is_finished());
        proxy.cut_all();
        assert!(within(waiting).await.unwrap());
    }
    assert_eq!(rows_of(&mut beside, "proxy_lost").await, ["a", "a"]);
}

#[tokio::test]
async fn a_partition_is_silence_and_healing_ends_what_lost_bytes() {
    let proxy = mariadb();
    let mut beside = table("proxy_apart").await;
    let (mut idle, mut busy) = (connect(&proxy).await, connect(&proxy).await);
    proxy.partition();
    let busy = tokio::spawn(async move {
        busy.query_drop("INSERT INTO proxy_apart VALUES ('a')").await.is_err()
    });
    let lost = |wanted| move |log: &[Seen]| log.iter().any(|seen| seen.reply == wanted);
    within(proxy.wait_until(lost(Reply::Lost))).await;
    proxy.heal();
    assert!(within(busy).await.unwrap());
    idle.ping().await.unwrap();
    assert_eq!(rows_of(&mut beside, "proxy_apart").await, [""; 0]);

    let mut heard = connect(&proxy).await;
    proxy.one_way(Direction::Requests);
    let heard = tokio::spawn(async move {
        heard.query_drop("INSERT INTO proxy_apart VALUES ('b')").await.is_err()
    });
    within(proxy.wait_until(lost(Reply::Swallowed))).await;
    proxy.heal();
    assert!(within(heard).await.unwrap());
    assert_eq!(rows_of(&mut beside, "proxy_apart").await, ["b"]);
}

#[tokio::test]
async fn values_of_every_sort_are_told_apart() {
    let proxy = mariadb();
    let mut client = connect(&proxy).await;
    let values = vec![
        Value::Int(-5),
        Value::UInt(u64::MAX),
        Value::NULL,
        Value::Double(0.5),
        Value::Date(2026, 1, 2, 3, 4, 5, 6),
        Value::Time(true, 1, 2, 3, 4, 5),
        Value::Bytes(b"orders".to_vec()),
    ];
    let ask = "SELECT ?, ?, ?, ?, ?, ?, ?";
    client.exec_drop(ask, Params::Positional(values)).await.unwrap();
    within(proxy.wait_for(Match::command("EXECUTE"), 1)).await;
    let log = proxy.log();
    let execute = log.iter().find(|seen| seen.request.name == "EXECUTE").unwrap();
    let args = &execute.request.args;
    let lengths: Vec<usize> = args.iter().map(Vec::len).collect();
    assert_eq!(lengths, [8, 8, 0, 8, 11, 12, 6], "{args:?}");
    assert_eq!(args[6], b"orders");
}

/// What is offered in the greeting on this port.
async fn offered(port: u16) -> u32 {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut client = Raw { stream, buffer: Vec::new() };
    client.read(1).await[0].offered().unwrap()
}

#[tokio::test]
async fn what_the_proxy_cannot_follow_is_not_offered() {
    let folder = tempfile::tempdir().unwrap();
    let tls = Some(TlsFiles::generate(folder.path()).unwrap());
    let options = MariaDbOptions { tls, ..MariaDbOptions::default() };
    let server = MariaDbServer::start_with(options).unwrap();
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port())), Protocol::MySql);
    let opts = |port| {
        let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).unwrap());
        opts.tcp_port(port).prefer_socket(false)
    };
    // A client that may compress does without.
    let compressing = opts(proxy.port()).compression(Some(mysql_async::Compression::default()));
    let mut client = within(Conn::new(compressing)).await.unwrap();
    let echo: Option<u8> = client.query_first("SELECT 1").await.unwrap();
    assert_eq!((echo, proxy.count(Match::sql("SELECT 1"))), (Some(1), 1));
    // The server would encrypt, but no client of the proxy hears of it.
    assert_ne!(offered(server.port()).await & capability::WITHHELD, 0);
    assert_eq!(offered(proxy.port()).await & capability::WITHHELD, 0);
    assert_eq!(
        offered(proxy.port()).await,
        offered(server.port()).await & !capability::WITHHELD,
        "and of everything else it does"
    );
    assert!(proxy.log().iter().all(|seen| seen.request.kind == Kind::Request));
}
