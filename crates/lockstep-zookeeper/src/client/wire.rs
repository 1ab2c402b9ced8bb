//! Requests and replies of the client protocol, as far as locks need them. Pure.

use super::jute::{Malformed, Reader, Writer};

/// Notices of watches come with this instead of a request's number.
pub(crate) const XID_WATCH: i32 = -1;
/// Pings and their answers.
pub(crate) const XID_PING: i32 = -2;
/// Who we are, and its answer.
pub(crate) const XID_AUTH: i32 = -4;

const PING: i32 = 11;
const AUTH: i32 = 100;
/// Made for clients that come back and name all that they watched.
const SET_WATCHES: i32 = 101;
const CLOSE: i32 = -11;

/// What a server answers instead of what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const OK: Self = Self(0);
    pub(crate) const UNIMPLEMENTED: Self = Self(-6);
    pub(crate) const NO_NODE: Self = Self(-101);
    pub(crate) const NO_AUTH: Self = Self(-102);
    pub(crate) const BAD_VERSION: Self = Self(-103);
    pub(crate) const NO_CHILDREN_FOR_EPHEMERALS: Self = Self(-108);
    pub(crate) const NODE_EXISTS: Self = Self(-110);
    pub(crate) const SESSION_EXPIRED: Self = Self(-112);
    pub(crate) const INVALID_ACL: Self = Self(-114);
    pub(crate) const AUTH_FAILED: Self = Self(-115);
    pub(crate) const SESSION_MOVED: Self = Self(-118);
    pub(crate) const NOT_READ_ONLY: Self = Self(-119);
}

/// Who may do what with a node that we make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acl {
    /// Everybody, everything.
    Open,
    /// Whoever is logged in as we are, everything; nobody else anything.
    Creator,
}

/// How long a node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As long as the session.
    Ephemeral,
    /// The same, with a number at the end of its name.
    EphemeralSequential,
    /// Until the server finds it empty after it has had children.
    Container,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Create {
        path: String,
        data: Vec<u8>,
        acl: Acl,
        mode: Mode,
    },
    Delete {
        path: String,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    Children {
        path: String,
    },
    /// Watches all of these at once. What was changed after `since`, or is not there, is told before
    /// the answer.
    Watch {
        since: i64,
        paths: Vec<String>,
    },
    /// Answered when this server has caught up with the leader.
    Sync {
        path: String,
    },
    /// All or nothing, through the leader, whatever the parts are.
    Multi(Vec<Part>),
    Close,
}

/// A part of a [`Op::Multi`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Check { path: String, version: i32 },
    SetData { path: String, data: Vec<u8>, version: i32 },
    Create { path: String, data: Vec<u8>, acl: Acl, mode: Mode },
}

/// What is known of a node, as far as we look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) czxid: i64,
    pub(crate) ctime: i64,
    pub(crate) version: i32,
    pub(crate) owner: i64,
}

/// The answer to a request that did what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Done,
    Created {
        path: String,
        stat: Stat,
    },
    Stat(Stat),
    Data {
        data: Vec<u8>,
        stat: Stat,
    },
    Children(Vec<String>),
    /// Of a multi that failed: what each part came to.
    Failed(Vec<Code>),
}

/// What a server sends first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Zero: the session is over.
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

/// What has happened to a node that was watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Deleted,
    Data,
}

/// What a server sends after that.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) code: Code,
}

/// The first frame of a connection: a new session, or one that goes on.
pub(crate) fn connect(last_zxid: i64, timeout_ms: i32, session: i64, password: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.int(0).long(last_zxid).int(timeout_ms).long(session).buffer(password).boolean(false);
    writer.frame()
}

/// Who we are: `user:password`.
pub(crate) fn digest(login: &str) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.int(XID_AUTH).int(AUTH).int(0).text("digest").text(login);
    writer.frame()
}

pub(crate) fn ping() -> Vec<u8> {
    let mut writer = Writer::default();
    writer.int(XID_PING).int(PING);
    writer.frame()
}

impl Op {
    fn opcode(&self) -> i32 {
        match self {
            Self::Create { mode, .. } => create_opcode(*mode),
            Self::Delete { .. } => 2,
            Self::Exists { .. } => 3,
            Self::GetData { .. } => 4,
            Self::SetData { .. } => 5,
            Self::Sync { .. } => 9,
            Self::Children { .. } => 12,
            Self::Multi(_) => 14,
            Self::Watch { .. } => SET_WATCHES,
            Self::Close => CLOSE,
        }
    }

    pub(crate) fn frame(&self, xid: i32) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.int(xid).int(self.opcode());
        match self {
            Self::Create { path, data, acl, mode } => create(&mut writer, path, data, *acl, *mode),
            Self::Delete { path } => {
                writer.text(path).int(-1);
            }
            Self::Exists { path, watch } | Self::GetData { path, watch } => {
                writer.text(path).boolean(*watch);
            }
            Self::SetData { path, data, version } => {
                writer.text(path).buffer(data).int(*version);
            }
            Self::Children { path } => {
                writer.text(path).boolean(false);
            }
            Self::Sync { path } => {
                writer.text(path);
            }
            Self::Watch { since, paths } => {
                writer.long(*since).texts(paths);
                // Watches for nodes to come, and for children.
                writer.texts(&[]).texts(&[]);
            }
            Self::Multi(parts) => {
                for part in parts {
                    part.write(&mut writer);
                }
                writer.int(-1).boolean(true).int(-1);
            }
            Self::Close => {}
        }
        writer.frame()
    }

    /// Reads what follows a header without an error.
    pub(crate) fn reply(&self, body: &[u8]) -> Result<Reply, Malformed> {
        let mut reader = Reader::new(body);
        Ok(match self {
            Self::Create { .. } => {
                Reply::Created { path: reader.text()?, stat: Stat::read(&mut reader)? }
            }
            Self::Delete { .. } | Self::Sync { .. } | Self::Watch { .. } | Self::Close => {
                Reply::Done
            }
            Self::Exists { .. } | Self::SetData { .. } => Reply::Stat(Stat::read(&mut reader)?),
            Self::GetData { .. } => {
                let data = reader.buffer()?.to_vec();
                Reply::Data { data, stat: Stat::read(&mut reader)? }
            }
            Self::Children { .. } => Reply::Children(reader.texts()?),
            Self::Multi(parts) => multi_reply(parts.len(), &mut reader)?,
        })
    }
}

impl Part {
    fn write(&self, writer: &mut Writer) {
        let opcode = match self {
            Self::Check { .. } => 13,
            Self::SetData { .. } => 5,
            Self::Create { mode, .. } => create_opcode(*mode),
        };
        writer.int(opcode).boolean(false).int(-1);
        match self {
            Self::Check { path, version } => {
                writer.text(path).int(*version);
            }
            Self::SetData { path, data, version } => {
                writer.text(path).buffer(data).int(*version);
            }
            Self::Create { path, data, acl, mode } => create(writer, path, data, *acl, *mode),
        }
    }
}

/// The forms whose answers say when the node was made.
fn create_opcode(mode: Mode) -> i32 {
    match mode {
        Mode::Ephemeral | Mode::EphemeralSequential => 15,
        Mode::Container => 19,
    }
}

fn create(writer: &mut Writer, path: &str, data: &[u8], acl: Acl, mode: Mode) {
    let (scheme, id) = match acl {
        Acl::Open => ("world", "anyone"),
        Acl::Creator => ("auth", ""),
    };
    let flags = match mode {
        Mode::Ephemeral => 1,
        Mode::EphemeralSequential => 3,
        Mode::Container => 4,
    };
    // Read, write, create, delete and administer.
    writer.text(path).buffer(data).int(1).int(31).text(scheme).text(id).int(flags);
}

/// A multi that worked is [`Reply::Done`]: nobody asks for what its parts answered.
fn multi_reply(parts: usize, reader: &mut Reader<'_>) -> Result<Reply, Malformed> {
    let mut codes = Vec::new();
    let mut failed = false;
    for _ in 0..parts {
        let (kind, done, code) = (reader.int()?, reader.boolean()?, reader.int()?);
        if done {
            return Err(Malformed("fewer answers than parts"));
        }
        match kind {
            -1 => {
                failed = true;
                codes.push(Code(reader.int()?));
            }
            1 => drop(reader.text()?),
            15 => {
                reader.text()?;
                Stat::read(reader)?;
            }
            5 => drop(Stat::read(reader)?),
            2 | 13 => {}
            _ => return Err(Malformed("an answer to what was not asked")),
        }
        if kind != -1 {
            codes.push(Code(code));
        }
    }
    Ok(if failed { Reply::Failed(codes) } else { Reply::Done })
}

impl Stat {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (czxid, _mzxid, ctime, _mtime) =
            (reader.long()?, reader.long()?, reader.long()?, reader.long()?);
        let (version, _cversion, _aversion) = (reader.int()?, reader.int()?, reader.int()?);
        let owner = reader.long()?;
        let (_length, _children, _pzxid) = (reader.int()?, reader.int()?, reader.long()?);
        Ok(Self { czxid, ctime, version, owner })
    }
}

/// Reads the first frame of a server.
pub(crate) fn greeting(body: &[u8]) -> Result<Greeting, Malformed> {
    let mut reader = Reader::new(body);
    let _version = reader.int()?;
    let (timeout_ms, session) = (reader.int()?, reader.long()?);
    Ok(Greeting { timeout_ms, session, password: reader.buffer()?.to_vec() })
}

/// Splits a later frame into its header and the rest.
pub(crate) fn header(body: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let (head, rest) = body.split_at_checked(16).ok_or(Malformed("it ends too early"))?;
    let mut reader = Reader::new(head);
    let (xid, zxid, code) = (reader.int()?, reader.long()?, Code(reader.int()?));
    Ok((Header { xid, zxid, code }, rest))
}

/// Reads what follows the header of a watch's notice; `None` for what nobody here watches.
pub(crate) fn notice(body: &[u8]) -> Result<Option<(Change, String)>, Malformed> {
    let mut reader = Reader::new(body);
    let (kind, _state, path) = (reader.int()?, reader.int()?, reader.text()?);
    let change = match kind {
        1 => Change::Created,
        2 => Change::Deleted,
        3 => Change::Data,
        _ => return Ok(None),
    };
    Ok(Some((change, path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multi_that_worked_is_read_as_a_server_wrote_it() {
        let body = b"\0\0\0\x01\0\0\0\0\0\0\0\0\x03/m1\0\0\0\x0d\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\xff\xff\xff\xff\x01\xff\xff\xff\xff";
        let part = Part::Check { path: "/m1".into(), version: 0 };
        let op = Op::Multi(vec![part.clone(), part.clone(), part]);
        assert_eq!(op.reply(body), Ok(Reply::Done));
    }

    #[test]
    fn a_multi_that_failed_says_which_part() {
        let mut writer = Writer::default();
        for code in [0, -103, -2] {
            writer.int(-1).boolean(false).int(code).int(code);
        }
        writer.int(-1).boolean(true).int(-1);
        let frame = writer.frame();
        let part = Part::Check { path: "/a".into(), version: 0 };
        let op = Op::Multi(vec![part; 3]);
        assert_eq!(
            op.reply(&frame[4..]),
            Ok(Reply::Failed(vec![Code::OK, Code::BAD_VERSION, Code(-2)]))
        );
        assert!(op.reply(&frame[4..20]).is_err());
    }

    #[test]
    fn a_request_is_written_byte_by_byte() {
        let op = Op::GetData { path: "/a".into(), watch: true };
        assert_eq!(op.frame(7), b"\0\0\0\x0f\0\0\0\x07\0\0\0\x04\0\0\0\x02/a\x01");
        let op = Op::Watch { since: 9, paths: vec!["/a".into(), "/b".into()] };
        let text = b"\0\0\0\0\0\0\0\x09\0\0\0\x02\0\0\0\x02/a\0\0\0\x02/b\0\0\0\0\0\0\0\0";
        assert_eq!(op.frame(7)[12..], text[..]);
        assert_eq!(ping(), b"\0\0\0\x08\xff\xff\xff\xfe\0\0\0\x0b");
    }
}
