//! Groups of messages, and where replies end.

use super::super::postgres::encode;
use super::*;

const READY: Expects = Expects::Ready { startup: false };
const STARTING: Expects = Expects::Ready { startup: true };

fn startup() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0app\0\0";
    [&i32::try_from(body.len() + 4).unwrap().to_be_bytes(), body.as_slice()].concat()
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    encode(b'P', format!("{name}\0{sql}\0\0\0").as_bytes())
}

fn bind(portal: &str, statement: &str, parameter: &str) -> Vec<u8> {
    let mut body = format!("{portal}\0{statement}\0\0\0\0\x01").into_bytes();
    body.extend_from_slice(&i32::try_from(parameter.len()).unwrap().to_be_bytes());
    body.extend_from_slice(parameter.as_bytes());
    body.extend_from_slice(&[0, 0]);
    encode(b'B', &body)
}

fn execute(portal: &str) -> Vec<u8> {
    encode(b'E', format!("{portal}\0\0\0\0\0").as_bytes())
}

fn sync() -> Vec<u8> {
    encode(b'S', b"")
}

/// Everything the client sends after a startup, fed in one piece or byte by byte.
fn units(stream: &[u8], step: usize) -> Vec<Unit> {
    let mut requests = Requests::new(7);
    let (mut buffer, mut units) = (startup(), Vec::new());
    assert_eq!(requests.next(&mut buffer).unwrap().unwrap().expects, STARTING);
    for chunk in stream.chunks(step) {
        buffer.extend_from_slice(chunk);
        while let Some(unit) = requests.next(&mut buffer).unwrap() {
            units.push(unit);
        }
    }
    assert!(buffer.is_empty() && requests.take_rest().is_empty());
    units
}

#[test]
fn the_opening_is_one_request_after_another() {
    let ssl = [0, 0, 0, 8, 4, 210, 22, 47];
    let stream = [ssl.as_slice(), &startup(), &encode(b'p', b"secret\0")].concat();
    let mut requests = Requests::new(1);
    let (mut buffer, mut got) = (Vec::new(), Vec::new());
    for byte in stream {
        buffer.push(byte);
        while let Some(unit) = requests.next(&mut buffer).unwrap() {
            got.push((unit.request.unwrap().name, unit.expects));
        }
    }
    let expected = [("SSLREQUEST", Expects::Byte), ("STARTUP", STARTING), ("PASSWORD", STARTING)];
    assert_eq!(got, expected.map(|(name, expects)| (name.to_owned(), expects)));
}

#[test]
fn a_request_ends_with_sync_or_is_a_simple_query() {
    let stream = [
        parse("s1", "SELECT $1"),
        encode(b'D', b"Ss1\0"),
        sync(),
        bind("", "s1", "hello"),
        execute(""),
        sync(),
        encode(b'Q', b"BEGIN\0"),
        bind("p", "s1", "other"),
        sync(),
        execute("p"),
        sync(),
        encode(b'C', b"Ss1\0"),
        sync(),
        bind("", "s1", "gone"),
        sync(),
        sync(),
        encode(b'X', b""),
    ];
    let expected = [
        ("PREPARE", "SELECT $1", None, READY),
        ("EXECUTE", "SELECT $1", Some("hello"), READY),
        ("QUERY", "BEGIN", None, READY),
        ("BIND", "SELECT $1", Some("other"), READY),
        ("EXECUTE", "SELECT $1", None, READY),
        ("CLOSE", "", None, READY),
        ("BIND", "", Some("gone"), READY),
        ("SYNC", "", None, READY),
        ("TERMINATE", "", None, Expects::Nothing),
    ];
    let stream = stream.concat();
    for step in [1, 2, 7, stream.len()] {
        let got = units(&stream, step);
        let bytes: Vec<u8> = got.iter().flat_map(|unit| unit.bytes.clone()).collect();
        assert_eq!(bytes, stream, "nothing lost, nothing twice");
        assert_eq!(got.len(), expected.len());
        for (unit, (name, sql, parameter, expects)) in got.into_iter().zip(&expected) {
            let request = unit.request.unwrap();
            let args: Vec<_> = parameter.iter().map(|text| text.as_bytes().to_vec()).collect();
            assert_eq!((request.name.as_str(), request.sql.as_str()), (*name, *sql));
            assert_eq!((&request.args, &unit.expects), (&args, expects));
            assert_eq!((request.connection, request.kind), (7, Kind::Request));
        }
    }
}

#[test]
fn a_flush_sends_what_there_is() {
    let stream = [parse("", "SELECT 1"), encode(b'H', b""), sync()].concat();
    let got = units(&stream, 1);
    assert_eq!(got[0].request.as_ref().unwrap().name, "PREPARE");
    assert_eq!((&got[0].expects, &got[1].expects), (&Expects::Nothing, &READY));
}

#[test]
fn an_unfinished_group_can_still_be_passed() {
    let mut requests = Requests::new(1);
    let mut buffer = startup();
    requests.next(&mut buffer).unwrap();
    buffer = [parse("", "SELECT 1"), b"!".to_vec()].concat();
    assert!(requests.next(&mut buffer).is_err());
    assert_eq!((requests.take_rest(), buffer), (parse("", "SELECT 1"), b"!".to_vec()));
}

fn roles(replies: &mut Replies, bytes: &[u8], head: Option<&Expects>) -> Vec<Role> {
    let mut buffer = bytes.to_vec();
    let mut roles = Vec::new();
    while let Some(piece) = replies.next(&mut buffer, head).unwrap() {
        roles.push(piece.role);
    }
    roles
}

#[test]
fn a_reply_ends_where_the_client_is_asked_again() {
    let mut replies = Replies::new(1);
    let bytes = [encode(b'1', b""), encode(b'C', b"SELECT 1\0"), ready_for_query(b'T')].concat();
    assert_eq!(roles(&mut replies, &bytes, Some(&READY)), [Role::Part, Role::Part, Role::Last]);
    assert_eq!(replies.status, b'T');

    let sasl = encode(b'R', &[0, 0, 0, 10]);
    assert_eq!(roles(&mut replies, &sasl, Some(&STARTING)), [Role::Last]);
    let success = [encode(b'R', &[0, 0, 0, 12]), encode(b'R', &[0; 4])].concat();
    assert_eq!(roles(&mut replies, &success, Some(&STARTING)), [Role::Part, Role::Part]);

    let error = error_response("ERROR", "no");
    assert_eq!(roles(&mut replies, &error, Some(&READY)), [Role::Part]);
    let fatal = error_response("FATAL", "57P01 going down");
    assert_eq!(roles(&mut replies, &fatal, Some(&READY)), [Role::Last]);
    assert_eq!(roles(&mut replies, &fatal, None), [Role::Loose]);
}

#[test]
fn unasked_messages_are_pushes() {
    let mut replies = Replies::new(1);
    let notification = encode(b'A', b"\0\0\0\x01orders\0freed\0");
    for head in [None, Some(&READY)] {
        let got = roles(&mut replies, &notification, head);
        let [Role::Push(push)] = got.as_slice() else { panic!("{got:?}") };
        assert_eq!((push.name.as_str(), push.kind), ("NOTIFICATION", Kind::Push));
        assert_eq!(push.args, [b"orders".to_vec(), b"freed".to_vec()]);
    }
    for bytes in [encode(b'S', b"TimeZone\0UTC\0"), encode(b'N', b"Mhello\0\0")] {
        assert_eq!(roles(&mut replies, &bytes, Some(&READY)), [Role::Part]);
        assert!(matches!(roles(&mut replies, &bytes, None).as_slice(), [Role::Push(_)]));
    }
}

#[test]
fn encryption_and_copies_end_the_framing() {
    let mut replies = Replies::new(1);
    assert_eq!(roles(&mut replies, b"N", Some(&Expects::Byte)), [Role::Last]);
    let mut buffer = b"S\x16\x03".to_vec();
    let piece = replies.next(&mut buffer, Some(&Expects::Byte)).unwrap().unwrap();
    assert_eq!((piece.role, buffer.len()), (Role::LastThenRaw("encryption"), 2));
    assert!(replies.next(&mut b"?".to_vec(), Some(&Expects::Byte)).is_err());
    let copy = encode(b'G', &[0, 0, 0]);
    assert!(matches!(roles(&mut replies, &copy, Some(&READY)).as_slice(), [Role::LastThenRaw(_)]));
}

#[test]
fn an_error_keeps_the_conversation_in_step() {
    let mut replies = Replies::new(1);
    let mut synthetic = |before: u8, expects: &Expects| {
        roles(&mut replies, &ready_for_query(before), Some(&READY));
        let (bytes, ends) = replies.error("40001 again", expects);
        let (error, length) = parse_backend(&bytes).unwrap().unwrap();
        let rest = parse_backend(&bytes[length..]).unwrap().map(|(ready, _)| ready.body);
        (error.field(b'V').unwrap(), rest, ends)
    };
    assert_eq!(synthetic(b'I', &READY), ("ERROR".into(), Some(b"I".to_vec()), false));
    assert_eq!(synthetic(b'T', &READY), ("ERROR".into(), Some(b"E".to_vec()), false));
    assert_eq!(synthetic(b'I', &STARTING), ("FATAL".into(), None, true));
}
