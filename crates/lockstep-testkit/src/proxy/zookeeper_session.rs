//! What a stream of ZooKeeper frames means: which are requests, which answer them, which are notices.

use super::request::{Kind, Request};
use super::session::{Expects, Piece, Role, Unit, Unparsable, split_off_front};

/// No frame that a test sends is longer.
const FRAME_MAX: usize = 16 << 20;
const XID_NOTICE: i32 = -1;
const XID_PING: i32 = -2;
const XID_AUTH: i32 = -4;

/// Takes the length of the first frame, with its head.
fn frame(buffer: &[u8]) -> Result<Option<usize>, Unparsable> {
    let Some(head) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if length > FRAME_MAX {
        return Err(Unparsable("a frame that is too long, or a word of four letters"));
    }
    Ok((buffer.len() >= 4 + length).then_some(4 + length))
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The text that starts with its length here.
fn text(bytes: &[u8], at: usize) -> Vec<u8> {
    let length = int(bytes, at).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    bytes.get(at + 4..at + 4 + length).unwrap_or_default().to_vec()
}

/// Frames what a client asks.
pub(super) struct Requests {
    connection: u64,
    opened: bool,
}

impl Requests {
    pub(super) fn new(connection: u64) -> Self {
        Self { connection, opened: false }
    }

    pub(super) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Unit>, Unparsable> {
        let Some(length) = frame(buffer)? else { return Ok(None) };
        let bytes = split_off_front(buffer, length);
        let (name, args, expects) = if !self.opened {
            self.opened = true;
            ("CONNECT", vec![], Expects::ZooKeeper { xid: 0 })
        } else {
            let (Some(xid), Some(opcode)) = (int(&bytes, 4), int(&bytes, 8)) else {
                return Err(Unparsable("a request without a head"));
            };
            // These two are answered out of turn.
            let out_of_turn = xid == XID_PING || xid == XID_AUTH;
            let expects = if out_of_turn { Expects::Nothing } else { Expects::ZooKeeper { xid } };
            let path = match opcode {
                14 => text(&bytes, 12 + 9),
                // The first of those that are watched.
                101 | 105 => text(&bytes, 12 + 8 + 4),
                _ => text(&bytes, 12),
            };
            (word(opcode), vec![path], expects)
        };
        let connection = self.connection;
        let (kind, name, sql) = (Kind::Request, name.to_owned(), String::new());
        let request = Some(Request { connection, kind, name, args, sql });
        Ok(Some(Unit { request, bytes, expects }))
    }
}

fn word(opcode: i32) -> &'static str {
    match opcode {
        1 | 15 | 19 | 21 => "CREATE",
        2 => "DELETE",
        3 => "EXISTS",
        4 => "GETDATA",
        5 => "SETDATA",
        8 | 12 => "CHILDREN",
        9 => "SYNC",
        11 => "PING",
        14 => "MULTI",
        100 => "AUTH",
        101 | 105 => "SETWATCHES",
        -11 => "CLOSE",
        _ => "OTHER",
    }
}

/// Frames replies and notices.
pub(super) struct Replies {
    connection: u64,
    greeted: bool,
}

impl Replies {
    pub(super) fn new(connection: u64) -> Self {
        Self { connection, greeted: false }
    }

    pub(super) fn next(
        &mut self,
        buffer: &mut Vec<u8>,
        head: Option<&Expects>,
    ) -> Result<Option<Piece>, Unparsable> {
        let Some(length) = frame(buffer)? else { return Ok(None) };
        let bytes = split_off_front(buffer, length);
        let xid = int(&bytes, 4);
        let role = match xid {
            _ if !self.greeted => {
                self.greeted = true;
                Role::Last
            }
            Some(XID_NOTICE) => Role::Push(Request {
                connection: self.connection,
                kind: Kind::Push,
                name: "NOTICE".to_owned(),
                args: vec![text(&bytes, 4 + 16 + 8)],
                sql: String::new(),
            }),
            Some(XID_PING | XID_AUTH) => Role::Loose,
            _ if head.is_some() => Role::Last,
            _ => Role::Loose,
        };
        Ok(Some(Piece { bytes, role }))
    }
}

/// A reply with this code, such as `-101`.
pub(super) fn error(text: &str, expects: &Expects) -> Vec<u8> {
    let xid = if let Expects::ZooKeeper { xid } = expects { *xid } else { 0 };
    let code: i32 = text.parse().unwrap_or(-1);
    let mut frame = 16i32.to_be_bytes().to_vec();
    frame.extend(xid.to_be_bytes());
    frame.extend(0i64.to_be_bytes());
    frame.extend(code.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_be_bytes()[..], body].concat()
    }

    #[test]
    fn requests_are_named_by_their_opcode_and_their_path() {
        let mut requests = Requests::new(1);
        let mut buffer = framed(&[0; 45]);
        buffer.extend(framed(b"\0\0\0\x07\0\0\0\x0f\0\0\0\x02/a rest"));
        buffer.extend(framed(b"\xff\xff\xff\xfe\0\0\0\x0b"));
        let named = |unit: Unit| {
            let request = unit.request.unwrap();
            (request.name, request.args.concat(), unit.expects)
        };
        let next = |requests: &mut Requests, buffer: &mut Vec<u8>| {
            requests.next(buffer).unwrap().map(named)
        };
        let connect = next(&mut requests, &mut buffer).unwrap();
        assert_eq!(connect, ("CONNECT".into(), vec![], Expects::ZooKeeper { xid: 0 }));
        let create = next(&mut requests, &mut buffer).unwrap();
        assert_eq!(create, ("CREATE".into(), b"/a".to_vec(), Expects::ZooKeeper { xid: 7 }));
        let ping = next(&mut requests, &mut buffer).unwrap();
        assert_eq!((&*ping.0, ping.2), ("PING", Expects::Nothing));
        assert_eq!(next(&mut requests, &mut buffer), None);
        assert!(requests.next(&mut b"srvr".to_vec()).is_err());
    }

    #[test]
    fn notices_are_pushes_and_pings_answer_nothing() {
        let mut replies = Replies::new(1);
        let head = Expects::ZooKeeper { xid: 7 };
        let mut role =
            |body: &[u8]| replies.next(&mut framed(body), Some(&head)).unwrap().unwrap().role;
        assert_eq!(role(&[0; 37]), Role::Last);
        let notice = [&[0xff; 12][..], &[0; 4], b"\0\0\0\x02\0\0\0\x03\0\0\0\x02/a"].concat();
        assert!(matches!(role(&notice), Role::Push(push) if push.has_arg(b"/a")));
        assert_eq!(role(b"\xff\xff\xff\xfe\0\0\0\0\0\0\0\0\0\0\0\0"), Role::Loose);
        assert_eq!(role(b"\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0"), Role::Last);
    }
}
