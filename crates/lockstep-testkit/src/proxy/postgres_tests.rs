//! Messages whole and cut at every byte, and the fields we read from them.

use super::*;

type Parsed<T> = Result<Option<(T, usize)>, Unparsable>;

/// Parses whole, cut at every byte, and followed by something else.
fn whole_and_cut<T>(bytes: &[u8], parse: fn(&[u8]) -> Parsed<T>, expected: &T)
where
    T: std::fmt::Debug + PartialEq + Clone,
{
    let mut followed = bytes.to_vec();
    followed.extend_from_slice(b"S\0\0");
    assert_eq!(parse(bytes), Ok(Some((expected.clone(), bytes.len()))));
    assert_eq!(parse(&followed), Ok(Some((expected.clone(), bytes.len()))));
    for end in 0..bytes.len() {
        assert_eq!(parse(&bytes[..end]), Ok(None), "cut at {end}");
    }
}

fn opening(code: i32, rest: &[u8]) -> Vec<u8> {
    let length = i32::try_from(rest.len() + 8).unwrap();
    [&length.to_be_bytes(), &code.to_be_bytes(), rest].concat()
}

#[test]
fn openings() {
    whole_and_cut(&opening(80_877_103, b""), parse_opening, &Opening::Ssl);
    whole_and_cut(&opening(80_877_104, b""), parse_opening, &Opening::GssEncryption);
    whole_and_cut(&opening(80_877_102, &[0; 8]), parse_opening, &Opening::Cancel);
    let words = [b"user".to_vec(), b"app".to_vec(), b"database".to_vec(), b"locks".to_vec()];
    whole_and_cut(
        &opening(196_608, b"user\0app\0database\0locks\0\0"),
        parse_opening,
        &Opening::Startup(words.to_vec()),
    );
    assert!(parse_opening(&opening(131_072, b"")).is_err(), "version 2");
    assert!(parse_opening(b"GET / HTTP/1.1").is_err());
    assert!(parse_opening(&[0x16, 3, 1, 2]).is_err(), "TLS at once");
    assert!(parse_opening(&[0, 0, 0, 7]).is_err());
}

#[test]
fn messages() {
    for body in [b"".as_slice(), b"x", b"SELECT 1\0"] {
        let message = Message { tag: b'C', body: body.to_vec() };
        whole_and_cut(&encode(b'C', body), parse_frontend, &message);
        whole_and_cut(&encode(b'C', body), parse_backend, &message);
    }
    assert!(parse_frontend(b"Z").is_err(), "only a server says so");
    assert!(parse_backend(b"Q").is_err(), "only a client says so");
    assert!(parse_backend(b"HTTP/1.1").is_err());
    assert!(parse_frontend(&[b'Q', 0, 0, 0, 3]).is_err());
    assert!(parse_frontend(&[b'Q', 0x80, 0, 0, 3]).is_err());
}

#[test]
fn one_byte_at_a_time_gives_the_same_messages() {
    let sent: Vec<(u8, &[u8])> =
        vec![(b'Q', b"a\0"), (b'S', b""), (b'B', &[0; 9]), (b'X', b""), (b'Q', b"b\0")];
    let mut buffer = Vec::new();
    let mut got = Vec::new();
    for byte in sent.iter().flat_map(|(tag, body)| encode(*tag, body)) {
        buffer.push(byte);
        while let Some((message, length)) = parse_frontend(&buffer).unwrap() {
            buffer.drain(..length);
            got.push((message.tag, message.body));
        }
    }
    let expected: Vec<_> = sent.iter().map(|(tag, body)| (*tag, body.to_vec())).collect();
    assert_eq!(got, expected);
    assert!(buffer.is_empty());
}

fn with(tag: u8, body: &[u8]) -> Message {
    Message { tag, body: body.to_vec() }
}

#[test]
fn fields_of_client_messages() {
    assert_eq!(with(b'Q', b"SELECT 1\0").query().as_deref(), Some("SELECT 1"));
    let parse = with(b'P', b"s1\0SELECT $1\0\0\0").parse();
    assert_eq!(parse, Some(("s1".into(), "SELECT $1".into())));
    assert_eq!(with(b'E', b"p\0\0\0\0\0").execute().as_deref(), Some("p"));
    assert_eq!(with(b'C', b"Ss1\0").close(), Some((b'S', "s1".into())));

    let mut body = b"p\0s1\0".to_vec();
    body.extend_from_slice(&[0, 1, 0, 1]); // one format: binary
    body.extend_from_slice(&[0, 3]);
    body.extend_from_slice(&[0, 0, 0, 2, b'h', b'i', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    body.extend_from_slice(&[0, 0]);
    let bind = with(b'B', &body).bind().unwrap();
    assert_eq!((bind.portal.as_str(), bind.statement.as_str()), ("p", "s1"));
    assert_eq!(bind.parameters, [Some(b"hi".to_vec()), None, Some(vec![])]);
}

#[test]
fn torn_fields_are_none_and_never_a_panic() {
    let mut body = b"p\0s1\0".to_vec();
    body.extend_from_slice(&[0, 1, 0, 1, 0, 1, 0, 0, 0, 2, b'h', b'i']);
    assert!(with(b'B', &body).bind().is_some());
    for end in 0..body.len() {
        assert_eq!(with(b'B', &body[..end]).bind(), None);
    }
    assert_eq!(with(b'B', b"\0\0\xff\xff").bind(), None);
    assert_eq!(with(b'Q', b"no end").query(), None);
    assert_eq!(with(b'E', b"").field(b'M'), None);
}

#[test]
fn fields_of_server_messages() {
    let notification = with(b'A', b"\0\0\0\x07channel\0payload\0").notification();
    assert_eq!(notification, Some(("channel".into(), "payload".into())));
    assert_eq!(with(b'R', &[0, 0, 0, 10, 1]).authentication(), Some(10));
}

#[test]
fn errors_carry_their_sqlstate() {
    for (text, code, message) in [
        ("40001 could not serialize", "40001", "could not serialize"),
        ("out of luck", "XX000", "out of luck"),
        ("ERROR is no code", "XX000", "ERROR is no code"),
        ("57P01", "XX000", "57P01"),
    ] {
        let bytes = error_response("ERROR", text);
        let (error, length) = parse_backend(&bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        assert_eq!(error.field(b'V').as_deref(), Some("ERROR"));
        assert_eq!(error.field(b'C').as_deref(), Some(code));
        assert_eq!(error.field(b'M').as_deref(), Some(message));
    }
}
