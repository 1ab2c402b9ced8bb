//! Packets whole, in parts and cut at every byte, and the fields we read from them.

use super::*;

fn packet(body: &[u8]) -> Packet {
    Packet { sequence: 0, last_sequence: 0, body: body.to_vec() }
}

#[test]
fn packets_whole_and_cut_at_every_byte() {
    for body in [b"".as_slice(), b"\x0e", b"\x03SELECT 1"] {
        let bytes = encode(3, body);
        let expected = Packet { sequence: 3, last_sequence: 3, body: body.to_vec() };
        assert_eq!(parse_packet(&bytes), Ok(Some((expected.clone(), bytes.len()))));
        let followed = [bytes.as_slice(), b"\x01\0"].concat();
        assert_eq!(parse_packet(&followed), Ok(Some((expected, bytes.len()))));
        for end in 0..bytes.len() {
            assert_eq!(parse_packet(&bytes[..end]), Ok(None), "cut at {end}");
        }
    }
}

#[test]
fn a_long_packet_comes_in_parts() {
    for (length, parts) in [(PART_MAX - 1, 1), (PART_MAX, 2), (PART_MAX + 5, 2)] {
        let body = vec![7; length];
        let mut bytes = encode(255, &body);
        assert_eq!(bytes.len(), length + parts * 4);
        let (packet, end) = parse_packet(&bytes).unwrap().unwrap();
        assert!(packet.body == body && end == bytes.len());
        assert_eq!(usize::from(packet.last_sequence.wrapping_add(1)), parts - 1);
        assert_eq!(parse_packet(&bytes[..end - 1]), Ok(None));
        if parts == 2 {
            bytes[PART_MAX + 4 + 3] = 9;
            assert!(parse_packet(&bytes).is_err(), "a part of another packet");
        }
    }
}

#[test]
fn numbers_say_how_long_they_are() {
    let cases: [(&[u8], u64); 5] = [
        (&[0xfa], 250),
        (&[0xfc, 1, 2], 0x0201),
        (&[0xfd, 1, 2, 3], 0x03_0201),
        (&[0xfe, 1, 0, 0, 0, 0, 0, 0, 1], 0x0100_0000_0000_0001),
        (&[0], 0),
    ];
    for (bytes, number) in cases {
        assert_eq!(Fields::of(bytes).length(), Some(number));
        assert_eq!(Fields::of(&bytes[..bytes.len() - 1]).length(), None);
    }
    assert_eq!(Fields::of(&[0xfb]).length(), None, "this is NULL and no number");
    assert_eq!(Fields::of(&[3, b'a', b'b']).counted(), None);
}

#[test]
fn errors_carry_their_number_and_sqlstate() {
    for (text, number, state, message) in [
        ("1213 40001 Deadlock found", 1213, "40001", "Deadlock found"),
        ("1205 Lock wait timeout", 1205, "HY000", "Lock wait timeout"),
        ("40001 try again", 1105, "40001", "try again"),
        ("out of luck", 1105, "HY000", "out of luck"),
        ("no", 1105, "HY000", "no"),
    ] {
        let (error, _) = parse_packet(&error_packet(1, text)).unwrap().unwrap();
        assert!(error.is_error());
        assert_eq!(error.error(), Some((number, state.to_owned(), message.to_owned())));
    }
    assert_eq!(packet(b"\xff\x01").error(), None);
}

#[test]
fn ends_of_results() {
    assert_eq!(packet(&[0, 1, 0, 0x0a, 0, 0, 0]).ok_status(), Some(0x0a));
    assert_eq!(packet(&[0, 0xfc, 1, 2, 0, 8, 0]).ok_status(), Some(8));
    assert_eq!(packet(&[0xfe, 0, 0, 8, 0]).eof_status(), Some(8));
    assert_eq!((packet(&[0]).ok_status(), packet(&[0xfe]).eof_status()), (None, None));
    assert!(packet(&[0xfe, 0, 0, 8, 0]).ends_rows());
    assert!(!packet(&[0, 0, 0, 8, 0]).ends_rows());
    let mut row = vec![0; PART_MAX];
    row[0] = 0xfe;
    assert!(!packet(&row).ends_rows(), "a row whose first text is very long");
}

#[test]
fn the_answer_to_a_prepare() {
    let prepared = packet(&[0, 9, 0, 0, 0, 2, 0, 3, 0, 0, 0, 0]).prepared();
    assert_eq!(prepared, Some(Prepared { statement: 9, columns: 2, parameters: 3 }));
    assert_eq!(packet(&[0, 9, 0, 0]).prepared(), None);
    assert_eq!(packet(&[0xff, 9, 0, 0, 0, 2, 0, 3, 0]).prepared(), None);
}

/// A greeting of MariaDB that offers everything.
fn greeting(capabilities: u32) -> Packet {
    let [a, b, c, d] = capabilities.to_le_bytes();
    let mut body = b"\x0a5.5.5-10.11-MariaDB\0\x01\0\0\0challeng\0".to_vec();
    body.extend([a, b, 45, 2, 0, c, d, 21, 0, 0, 0, 0, 0, 0]);
    body.extend([0xff; 4]);
    body.extend(b"e of the rest\0mysql_native_password\0");
    packet(&body)
}

#[test]
fn a_greeting_offers_less_than_the_server() {
    assert_eq!(greeting(0x8123_4567).offered(), Some(0x8123_4567));
    let before = greeting(!capability::IS_MYSQL);
    let after = before.clone().with_less_offered();
    assert_eq!(after.offered(), Some(!capability::IS_MYSQL & !capability::WITHHELD));
    let own_of_mariadb = |packet: &Packet| {
        let end = packet.body.windows(4).position(|four| four == b"e of").unwrap();
        Fields::of(&packet.body[end - 4..]).u32().unwrap()
    };
    assert_eq!(own_of_mariadb(&before), u32::MAX);
    assert_eq!(own_of_mariadb(&after), !capability::WITHHELD_OF_MARIADB);
    assert_eq!(own_of_mariadb(&greeting(u32::MAX).with_less_offered()), u32::MAX);
    let differing = before.body.iter().zip(&after.body).filter(|(a, b)| a != b).count();
    assert_eq!((before.body.len(), differing), (after.body.len(), 4), "and nothing else");
}

#[test]
fn what_is_no_greeting_is_left_as_it_is() {
    for body in [b"".as_slice(), b"\x0a", b"\x0a5.5\0\x01\0", b"\x095.5\0", b"+PONG\r\n"] {
        assert_eq!(packet(body).offered(), None);
        assert_eq!(packet(body).with_less_offered(), packet(body));
        assert_eq!(packet(body).handshake(), None);
    }
    assert_eq!(packet(b"").with_less_wanted(), packet(b""));
}

fn handshake(capabilities: u32, answer: &[u8]) -> Packet {
    let mut body = capabilities.to_le_bytes().to_vec();
    body.extend([0; 24]);
    body.extend([0xff; 4]);
    body.extend(b"app\0");
    body.extend(answer);
    body.extend(b"locks\0mysql_native_password\0");
    packet(&body)
}

#[test]
fn a_handshake_names_user_and_database() {
    use capability::{LONG_ANSWER, SECURE_CONNECTION, WITH_DATABASE};
    for (bits, answer) in [
        (LONG_ANSWER, b"\x03abc".as_slice()),
        (SECURE_CONNECTION, b"\x03abc"),
        (SECURE_CONNECTION, b"\0"),
        (0, b"abc\0"),
    ] {
        let known = handshake(bits | WITH_DATABASE, answer).handshake().unwrap();
        assert_eq!((known.user, known.database), (b"app".to_vec(), b"locks".to_vec()));
        assert_eq!(handshake(bits, answer).handshake().unwrap().database, b"");
    }
}

#[test]
fn a_handshake_wants_no_more_than_was_offered() {
    let body = |capabilities| handshake(capabilities, b"\0").with_less_wanted().body;
    let mariadb = body(!capability::IS_MYSQL);
    let wanted = |body: &[u8], at: usize| Fields::of(&body[at..]).u32().unwrap();
    assert_eq!(wanted(&mariadb, 0), !capability::IS_MYSQL & !capability::WITHHELD);
    assert_eq!(wanted(&mariadb, 28), !capability::WITHHELD_OF_MARIADB);
    assert_eq!(wanted(&body(u32::MAX), 28), u32::MAX, "MySQL means nothing by these");
}
