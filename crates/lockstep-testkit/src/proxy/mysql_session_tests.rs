//! Commands, the statements they name, and where their answers end.

use super::*;

const CLASSIC: u32 = capability::PROTOCOL_41 | capability::SECURE_CONNECTION;
const WITHOUT_EOF: u32 = CLASSIC | capability::DEPRECATE_EOF;
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const OK_AND_MORE: &[u8] = &[0, 0, 0, 0x0a, 0, 0, 0];
const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
const EOF_AND_MORE: &[u8] = &[0xfe, 0, 0, 0x0a, 0];
const EOF_WITH_CURSOR: &[u8] = &[0xfe, 0, 0, 0x42, 0];
/// An OK packet where an EOF packet would have been.
const LAST_OK: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
const LAST_OK_AND_MORE: &[u8] = &[0xfe, 0, 0, 0x0a, 0, 0, 0];
const COLUMN: &[u8] = b"\x03def\0\0\0\x01a";
const ROW: &[u8] = b"\x06orders";

fn greeting() -> Vec<u8> {
    let mut body = b"\x0a5.5.5-10.11\0\x01\0\0\0challeng\0".to_vec();
    body.extend([0xfe, 0xff, 45, 2, 0, 0xff, 0xff, 21]);
    body.extend([0; 10]);
    body.extend(b"e of the rest\0");
    encode(0, &body)
}

fn handshake(capabilities: u32) -> Vec<u8> {
    let mut body = capabilities.to_le_bytes().to_vec();
    body.extend([0; 28]);
    body.extend(b"app\0\0");
    encode(1, &body)
}

fn command(code: u8, rest: &[u8]) -> Vec<u8> {
    encode(0, &[&[code], rest].concat())
}

fn awaits(answer: Answer, sequence: u8) -> Expects {
    Expects::MySql(Awaits { answer, sequence })
}

/// The two sides after they have met.
fn opened(capabilities: u32) -> (Requests, Replies) {
    let (mut requests, mut replies) = pair(7);
    let greeting = replies.next(&mut greeting(), None).unwrap().unwrap();
    assert_eq!(greeting.role, Role::Loose);
    let unit = requests.next(&mut handshake(capabilities)).unwrap().unwrap();
    assert_eq!(unit.expects, awaits(Answer::Login, 2));
    let role = replies.next(&mut encode(2, OK), Some(&unit.expects)).unwrap().unwrap().role;
    assert_eq!(role, Role::Last);
    (requests, replies)
}

/// The roles of these packets as an answer, fed byte by byte, and what is left of the stage.
fn roles(replies: &mut Replies, expects: &Expects, bodies: &[&[u8]]) -> Vec<Role> {
    let (mut buffer, mut roles, mut passed) = (Vec::new(), Vec::new(), Vec::new());
    let sent: Vec<u8> = (1..).zip(bodies).flat_map(|(place, body)| encode(place, body)).collect();
    for byte in &sent {
        buffer.push(*byte);
        while let Some(piece) = replies.next(&mut buffer, Some(expects)).unwrap() {
            passed.extend(piece.bytes);
            roles.push(piece.role);
        }
    }
    assert_eq!(passed, sent, "nothing lost, nothing twice");
    roles
}

/// Every packet is a part of the answer but the last, which is its end.
fn is_one_answer(replies: &mut Replies, answer: Answer, bodies: &[&[u8]]) {
    let roles = roles(replies, &awaits(answer, 1), bodies);
    let (last, parts) = roles.split_last().unwrap();
    assert_eq!(*last, Role::Last, "{bodies:?}");
    assert!(parts.iter().all(|role| *role == Role::Part), "{bodies:?}: {roles:?}");
    assert_eq!(replies.stage, Stage::First);
}

#[test]
fn results_with_eof_packets() {
    let (_, mut replies) = opened(CLASSIC);
    for bodies in [
        &[OK][..],
        &[OK_AND_MORE, OK],
        &[b"\xff\x01\x02#HY000no"],
        &[b"\x01", COLUMN, EOF, EOF],
        &[b"\x02", COLUMN, COLUMN, EOF, ROW, ROW, EOF],
        &[b"\x01", COLUMN, EOF, ROW, b"\xff\x25\x05#70100interrupted"],
        &[b"\x01", COLUMN, EOF, ROW, EOF_AND_MORE, b"\x01", COLUMN, EOF, EOF_AND_MORE, OK],
        &[b"\x01", COLUMN, EOF, ROW, EOF_AND_MORE, b"\xff\x01\x02#HY000no"],
        &[b"\x01", COLUMN, EOF_WITH_CURSOR],
    ] {
        is_one_answer(&mut replies, Answer::Results, bodies);
    }
}

#[test]
fn results_without_eof_packets() {
    let (_, mut replies) = opened(WITHOUT_EOF);
    for bodies in [
        &[OK][..],
        &[b"\x01", COLUMN, LAST_OK],
        &[b"\x02", COLUMN, COLUMN, ROW, ROW, LAST_OK],
        &[b"\x01", COLUMN, ROW, LAST_OK_AND_MORE, b"\x01", COLUMN, LAST_OK_AND_MORE, OK],
        &[b"\x01", COLUMN, b"\xff\x25\x05#70100interrupted"],
    ] {
        is_one_answer(&mut replies, Answer::Results, bodies);
    }
}

#[test]
fn a_row_may_look_like_an_ok_packet() {
    for (capabilities, middle) in [(CLASSIC, &[EOF][..]), (WITHOUT_EOF, &[])] {
        let (_, mut replies) = opened(capabilities);
        let binary_row = [0, 0, 0, 2, 0, 0, 0];
        let head = [b"\x01", COLUMN].into_iter().chain(middle.iter().copied());
        let bodies: Vec<&[u8]> = head.chain([&binary_row[..], b"\0", LAST_OK]).collect();
        is_one_answer(&mut replies, Answer::Results, &bodies);
    }
}

#[test]
fn a_wish_for_a_file_ends_the_framing() {
    let (_, mut replies) = opened(CLASSIC);
    let role = roles(&mut replies, &awaits(Answer::Results, 1), &[b"\xfb/etc/passwd"]);
    assert!(matches!(role.as_slice(), [Role::LastThenRaw(_)]));
}

#[test]
fn answers_of_other_shapes() {
    for capabilities in [CLASSIC, WITHOUT_EOF] {
        let (_, mut replies) = opened(capabilities);
        is_one_answer(&mut replies, Answer::Packet, &[EOF]);
        is_one_answer(&mut replies, Answer::Packet, &[b"Uptime: 1"]);
        is_one_answer(&mut replies, Answer::Rows, &[ROW, ROW, EOF]);
        is_one_answer(&mut replies, Answer::Rows, &[b"\xff\x01\x02#HY000no"]);
        let login = [b"\xfemysql_native_password\0".as_slice(), b"\x01\x04", OK, b"\x01key"];
        for body in login {
            is_one_answer(&mut replies, Answer::Login, &[body]);
        }
        is_one_answer(&mut replies, Answer::Login, &[b"\x01\x03", OK]);
    }
}

fn prepared(statement: u8, columns: u8, parameters: u8) -> Vec<u8> {
    vec![0, statement, 0, 0, 0, columns, 0, parameters, 0, 0, 0, 0]
}

#[test]
fn answers_to_a_prepare() {
    let cases: [(u32, u8, u8, &[&[u8]]); 7] = [
        (CLASSIC, 0, 0, &[]),
        (CLASSIC, 0, 1, &[COLUMN, EOF]),
        (CLASSIC, 2, 0, &[COLUMN, COLUMN, EOF]),
        (CLASSIC, 1, 2, &[COLUMN, COLUMN, EOF, COLUMN, EOF]),
        (WITHOUT_EOF, 0, 0, &[]),
        (WITHOUT_EOF, 0, 1, &[COLUMN]),
        (WITHOUT_EOF, 1, 2, &[COLUMN, COLUMN, COLUMN]),
    ];
    for (capabilities, columns, parameters, descriptions) in cases {
        let (_, mut replies) = opened(capabilities);
        let first = prepared(1, columns, parameters);
        let bodies: Vec<&[u8]> = [&first[..]].into_iter().chain(descriptions.to_vec()).collect();
        let prepare = Answer::Prepared { sql: String::new() };
        is_one_answer(&mut replies, prepare.clone(), &bodies);
        is_one_answer(&mut replies, prepare, &[b"\xff\x28\x04#42000syntax"]);
    }
}

/// What these commands look like to a rule: name, text, arguments, and whether an answer comes.
fn seen(requests: &mut Requests, stream: &[u8]) -> Vec<(String, String, Vec<Vec<u8>>, bool)> {
    let (mut buffer, mut seen, mut passed) = (Vec::new(), Vec::new(), Vec::new());
    for byte in stream {
        buffer.push(*byte);
        while let Some(unit) = requests.next(&mut buffer).unwrap() {
            let request = unit.request.unwrap();
            assert_eq!((request.connection, request.kind), (7, Kind::Request));
            passed.extend(unit.bytes);
            seen.push((request.name, request.sql, request.args, unit.expects.a_reply()));
        }
    }
    assert_eq!(passed, stream, "nothing lost, nothing twice");
    seen
}

#[test]
fn commands_have_names_and_some_have_text() {
    let (mut requests, _) = opened(CLASSIC);
    let stream = [
        command(0x03, b"SELECT 1"),
        command(0x0e, b""),
        command(0x02, b"locks"),
        command(0x1f, b""),
        command(0x11, b"other\0"),
        encode(3, b"an answer"),
        command(0x01, b""),
    ];
    let expected = [
        ("QUERY", "SELECT 1", None, true),
        ("PING", "", None, true),
        ("INITDB", "", Some("locks"), true),
        ("RESET", "", None, true),
        ("CHANGEUSER", "", None, true),
        ("AUTH", "", None, true),
        ("QUIT", "", None, false),
    ]
    .map(|(name, sql, arg, answered)| {
        let args: Vec<_> = arg.iter().map(|arg: &&str| arg.as_bytes().to_vec()).collect();
        (name.to_owned(), sql.to_owned(), args, answered)
    });
    assert_eq!(seen(&mut requests, &stream.concat()), expected);
}

#[test]
fn an_execute_names_the_statement_that_the_server_named() {
    let (mut requests, mut replies) = opened(CLASSIC);
    let unit = requests.next(&mut command(0x16, b"SELECT ?")).unwrap().unwrap();
    assert_eq!(unit.request.as_ref().unwrap().name, "PREPARE");
    assert_eq!(unit.request.unwrap().sql, "SELECT ?");
    let first = prepared(5, 1, 1);
    roles(&mut replies, &unit.expects, &[&first, COLUMN, EOF, COLUMN, EOF]);

    let name = [5, 0, 0, 0];
    let head = [&name[..], &[0, 1, 0, 0, 0]].concat();
    let with_types = [&head[..], b"\0\x01\xfd\0\x06orders"].concat();
    let as_before = [&head[..], b"\0\0\x05parts"].concat();
    let sent_ahead = [&head[..], b"\0\0"].concat();
    let stream = [
        command(0x17, &with_types),
        command(0x17, &as_before),
        command(0x18, &[&name[..], b"\0\0long"].concat()),
        command(0x17, &sent_ahead),
        command(0x1c, &[&name[..], b"\x0a\0\0\0"].concat()),
        command(0x1a, &name),
        command(0x19, &name),
        command(0x17, &with_types),
    ];
    let expected: [(_, _, &[&[u8]], _); 8] = [
        ("EXECUTE", "SELECT ?", &[b"orders"], true),
        ("EXECUTE", "SELECT ?", &[b"parts"], true),
        ("LONGDATA", "SELECT ?", &[b"long"], false),
        ("EXECUTE", "SELECT ?", &[b"\0\0"], true),
        ("FETCH", "SELECT ?", &[], true),
        ("RESETSTATEMENT", "SELECT ?", &[], true),
        ("CLOSE", "SELECT ?", &[], false),
        ("EXECUTE", "", &[b"\0\x01\xfd\0\x06orders"], true),
    ];
    let expected = expected.map(|(name, sql, args, answered)| {
        let args: Vec<_> = args.iter().map(|arg| arg.to_vec()).collect();
        (name.to_owned(), sql.to_owned(), args, answered)
    });
    assert_eq!(seen(&mut requests, &stream.concat()), expected);
}

#[test]
fn a_statement_may_be_run_before_its_name_is_known() {
    let (mut requests, _) = opened(CLASSIC);
    let execute = command(0x17, &[0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0]);
    let seen = seen(&mut requests, &[command(0x16, b"SELECT 1"), execute].concat());
    assert_eq!((seen[1].0.as_str(), seen[1].1.as_str()), ("EXECUTE", "SELECT 1"));
}

#[test]
fn a_connection_that_was_reset_has_no_statements() {
    for reset in [command(0x1f, b""), command(0x11, b"app\0")] {
        let (mut requests, mut replies) = opened(CLASSIC);
        let unit = requests.next(&mut command(0x16, b"SELECT 1")).unwrap().unwrap();
        roles(&mut replies, &unit.expects, &[&prepared(5, 0, 0)]);
        let execute = command(0x17, &[5, 0, 0, 0, 0, 1, 0, 0, 0]);
        let seen = seen(&mut requests, &[execute.clone(), reset, execute].concat());
        assert_eq!([&seen[0].1, &seen[2].1], ["SELECT 1", ""]);
    }
}

#[test]
fn what_we_could_not_follow_is_neither_offered_nor_asked_for() {
    let (mut requests, mut replies) = pair(1);
    let greeting = replies.next(&mut greeting(), None).unwrap().unwrap().bytes;
    let (greeting, _) = parse_packet(&greeting).unwrap().unwrap();
    assert_eq!(greeting.offered().unwrap() & capability::WITHHELD, 0);
    let eager = CLASSIC | capability::COMPRESS | capability::QUERY_ATTRIBUTES;
    let unit = requests.next(&mut handshake(eager)).unwrap().unwrap();
    assert_eq!(unit.bytes, handshake(CLASSIC));
    assert_eq!(unit.request.unwrap().args, [b"app".to_vec(), Vec::new()]);
}

#[test]
fn what_cannot_be_followed_is_told() {
    let open = |mut bytes: Vec<u8>| pair(1).0.next(&mut bytes);
    assert_eq!(open(handshake(CLASSIC | capability::SSL)), Err(Unparsable("encryption")));
    assert!(open(handshake(capability::SECURE_CONNECTION)).is_err(), "before version 4.1");
    assert!(open(b"GET / HTTP/1.1".to_vec()).is_err());
    assert_eq!(open(handshake(CLASSIC)[..20].to_vec()), Ok(None));
    assert!(pair(1).1.next(&mut encode(0, b"+PONG\r\n"), None).is_err());
    for code in [0x12, 0x1e, 0x7f] {
        let (mut requests, _) = opened(CLASSIC);
        let mut buffer = command(code, b"rest");
        assert!(requests.next(&mut buffer).is_err());
        assert_eq!(buffer, command(code, b"rest"), "it can still be passed");
    }
    let (mut requests, _) = opened(CLASSIC);
    assert!(requests.next(&mut encode(0, b"")).is_err());
}

#[test]
fn a_server_that_lets_nobody_in_says_so_first() {
    let (_, mut replies) = pair(1);
    let refusal = error_packet(0, "1040 08004 Too many connections");
    let piece = replies.next(&mut refusal.clone(), None).unwrap().unwrap();
    assert_eq!((piece.bytes, piece.role), (refusal, Role::Loose));
}

#[test]
fn last_words_to_an_idle_client_answer_nothing() {
    let (_, mut replies) = opened(CLASSIC);
    let mut words = error_packet(0, "4031 HY000 The client was disconnected");
    assert_eq!(replies.next(&mut words, None).unwrap().unwrap().role, Role::Loose);
}

#[test]
fn an_error_takes_the_place_of_the_answer() {
    let (mut requests, replies) = opened(CLASSIC);
    let long = vec![b' '; 0xff_ffff];
    for (mut bytes, place, ends) in [
        (command(0x03, b"SELECT 1"), 1, false),
        (command(0x03, &long), 2, false),
        (encode(3, b"an answer"), 4, true),
    ] {
        let unit = requests.next(&mut bytes).unwrap().unwrap();
        let (error, ended) = replies.error("1213 40001 again", &unit.expects);
        let (packet, _) = parse_packet(&error).unwrap().unwrap();
        assert_eq!((packet.sequence, ended), (place, ends));
        assert_eq!(packet.error(), Some((1213, "40001".into(), "again".into())));
    }
}
