//! Every type of the protocol, whole and cut at every byte.

use super::*;

fn bulk(text: &str) -> Frame {
    Frame::Bulk(text.as_bytes().to_vec())
}

fn samples() -> Vec<(&'static [u8], Frame)> {
    vec![
        (b"+OK\r\n", Frame::Simple(b"OK".to_vec())),
        (b"-ERR no\r\n", Frame::Error(b"ERR no".to_vec())),
        (b"!6\r\nERR no\r\n", Frame::Error(b"ERR no".to_vec())),
        (b":-12\r\n", Frame::Integer(-12)),
        (b"$4\r\na\r\nb\r\n", bulk("a\r\nb")),
        (b"$0\r\n\r\n", bulk("")),
        (b"=7\r\ntxt:abc\r\n", Frame::Verbatim(b"txt:abc".to_vec())),
        (b"$-1\r\n", Frame::Null),
        (b"*-1\r\n", Frame::Null),
        (b"_\r\n", Frame::Null),
        (b"#t\r\n", Frame::Boolean(true)),
        (b"#f\r\n", Frame::Boolean(false)),
        (b",1.5e3\r\n", Frame::Double("1.5e3".into())),
        (b",-inf\r\n", Frame::Double("-inf".into())),
        (b",nan\r\n", Frame::Double("nan".into())),
        (b"(-123456789012345678901\r\n", Frame::BigNumber("-123456789012345678901".into())),
        (b"*0\r\n", Frame::Array(vec![])),
        (
            b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n*0\r\n",
            Frame::Array(vec![
                Frame::Integer(1),
                Frame::Array(vec![bulk("a"), Frame::Null]),
                Frame::Array(vec![]),
            ]),
        ),
        (b"~2\r\n:1\r\n:2\r\n", Frame::Set(vec![Frame::Integer(1), Frame::Integer(2)])),
        (
            b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
            Frame::Map(vec![
                (Frame::Simple(b"a".to_vec()), Frame::Integer(1)),
                (Frame::Simple(b"b".to_vec()), Frame::Array(vec![Frame::Integer(2)])),
            ]),
        ),
        (
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
            Frame::Push(vec![bulk("message"), bulk("c"), bulk("m")]),
        ),
        (
            b"|1\r\n+ttl\r\n:9\r\n*1\r\n|1\r\n+k\r\n#t\r\n:5\r\n",
            Frame::Attributed(
                vec![(Frame::Simple(b"ttl".to_vec()), Frame::Integer(9))],
                Box::new(Frame::Array(vec![Frame::Attributed(
                    vec![(Frame::Simple(b"k".to_vec()), Frame::Boolean(true))],
                    Box::new(Frame::Integer(5)),
                )])),
            ),
        ),
    ]
}

/// Feeds the stream byte by byte and takes every frame as soon as it is there.
fn trickle<T>(
    stream: &[u8],
    parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, Unparsable>,
) -> Vec<(T, usize)> {
    let mut buffer = Vec::new();
    let mut out = Vec::new();
    for byte in stream {
        buffer.push(*byte);
        while let Some((parsed, length)) = parse(&buffer).unwrap() {
            buffer.drain(..length);
            out.push((parsed, length));
        }
    }
    assert!(buffer.is_empty(), "bytes left over: {buffer:?}");
    out
}

#[test]
fn every_type_parses_whole() {
    for (bytes, frame) in samples() {
        let mut followed = bytes.to_vec();
        followed.extend_from_slice(b"+next\r\n");
        assert_eq!(parse(bytes), Ok(Some((frame.clone(), bytes.len()))));
        assert_eq!(parse(&followed), Ok(Some((frame, bytes.len()))));
    }
}

#[test]
fn every_cut_of_every_type_is_incomplete() {
    for (bytes, _) in samples() {
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{:?}", &bytes[..end]);
        }
    }
}

#[test]
fn one_byte_at_a_time_gives_the_same_frames() {
    let stream: Vec<u8> = samples().iter().flat_map(|(bytes, _)| bytes.to_vec()).collect();
    let expected: Vec<_> = samples().into_iter().map(|(b, f)| (f, b.len())).collect();
    assert_eq!(trickle(&stream, parse), expected);
}

#[test]
fn foreign_and_broken_replies_are_refused() {
    for bytes in [
        b"H".as_slice(),
        b"\x16\x03\x01",
        b":x\r\n",
        b"+a\nb\r\n",
        b"+a\rb\r\n",
        b"$2\r\nabc\r\n",
        b"$-2\r\n",
        b"$?\r\n",
        b"*99999999999\r\n",
        b"#x\r\n",
        b"_x\r\n",
        b",abc\r\n",
        b"(1x\r\n",
        b"(\r\n",
        b"~-1\r\n",
        b"%-1\r\n",
        b"*1\r\n?\r\n",
    ] {
        assert!(parse(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
    }
    assert!(parse(&b"*1\r\n".repeat(DEPTH_MAX + 2)).is_err());
    let mut endless = vec![b'+'];
    endless.resize(LINE_MAX + 10, b'a');
    assert!(parse(&endless).is_err());
}

fn command(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn requests() -> Vec<(&'static [u8], Vec<Vec<u8>>)> {
    vec![
        (b"*1\r\n$4\r\nPING\r\n", command(&["PING"])),
        (b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n*1\r\n", command(&["SET", "a", "\r\n*1"])),
        (b"*0\r\n", vec![]),
        (b"*-1\r\n", vec![]),
        (b"\r\n", vec![]),
        (b"PING\r\n", command(&["PING"])),
        (b"  set a \"b \\\"c\\\"\\n\" 'd\\'e'\n", command(&["set", "a", "b \"c\"\n", "d'e"])),
        (b"get \"\"\r\n", command(&["get", ""])),
    ]
}

#[test]
fn requests_parse_whole_and_cut() {
    for (bytes, args) in requests() {
        assert_eq!(parse_request(bytes), Ok(Some((args, bytes.len()))));
        for end in 0..bytes.len() {
            assert_eq!(parse_request(&bytes[..end]), Ok(None), "{:?}", &bytes[..end]);
        }
    }
    let stream: Vec<u8> = requests().iter().flat_map(|(bytes, _)| bytes.to_vec()).collect();
    let expected: Vec<_> = requests().into_iter().map(|(b, args)| (args, b.len())).collect();
    assert_eq!(trickle(&stream, parse_request), expected);
}

#[test]
fn foreign_requests_are_refused() {
    for bytes in [
        b"\x16\x03\x01".as_slice(),
        b"*1\r\n:1\r\n",
        b"*1\r\n$-1\r\n",
        b"*x\r\n",
        b"*1\r\n$1\r\nabc",
        b"get \"a\r\n",
    ] {
        assert!(parse_request(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
    }
    assert!(parse_request(&vec![b'a'; LINE_MAX + 1]).is_err());
}

#[test]
fn scalars_flatten_in_order() {
    let (frame, _) = parse(
        b">5\r\n+invalidate\r\n*2\r\n$1\r\na\r\n:7\r\n%1\r\n#t\r\n_\r\n=5\r\ntxt:v\r\n,1.5\r\n",
    )
    .unwrap()
    .unwrap();
    let expected: [&[u8]; 7] = [b"invalidate", b"a", b"7", b"true", b"", b"v", b"1.5"];
    assert_eq!(frame.scalars(), expected);
}
