//! The border between a protocol and the pump: requests with what answers them, and the pieces of
//! a server's output. Pure, like the parsers below it.

use super::Protocol;
use super::request::Request;
use super::{mysql_session, postgres_session, resp_session, zookeeper_session};

/// Bytes that are not of the protocol, and what is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unparsable(pub &'static str);

const UNFRAMED: Unparsable = Unparsable("nobody has asked for frames");

/// One request as the pump handles it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// `None` for bytes the server ignores, such as an empty line: forwarded, not logged.
    pub(super) request: Option<Request>,
    pub(super) bytes: Vec<u8>,
    pub(super) expects: Expects,
}

/// What a server will answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expects {
    Nothing,
    /// RESP: one frame that is not a push.
    Frame,
    /// RESP: a confirmation for every channel, as arrays in version 2 and as pushes in version 3.
    /// Zero channels: for all there are.
    Confirmations {
        verb: String,
        channels: usize,
    },
    /// PostgreSQL: the byte that answers a wish for encryption.
    Byte,
    /// PostgreSQL: messages until the server wants something of the client again.
    Ready {
        startup: bool,
    },
    /// MySQL: packets, as many as the shape of the answer says.
    MySql(mysql_session::Awaits),
    /// ZooKeeper: one frame, with the number of the request.
    ZooKeeper {
        xid: i32,
    },
}

impl Expects {
    pub(super) fn a_reply(&self) -> bool {
        *self != Self::Nothing
    }
}

/// One piece of a server's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) role: Role,
}

/// How a piece relates to the request at the head of the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// More of the reply follows.
    Part,
    /// The reply is complete.
    Last,
    /// The reply is complete, and what follows it cannot be framed.
    LastThenRaw(&'static str),
    /// Nobody asked for it, and it may be dropped.
    Push(Request),
    /// Answers no request we know of; it is passed.
    Loose,
}

/// The two directions of one connection.
pub(super) fn pair(protocol: Protocol, connection: u64) -> (Requests, Replies) {
    match protocol {
        Protocol::Resp => (
            Requests::Resp(resp_session::Requests::new(connection)),
            Replies::Resp(resp_session::Replies::new(connection)),
        ),
        Protocol::Postgres => (
            Requests::Postgres(postgres_session::Requests::new(connection)),
            Replies::Postgres(postgres_session::Replies::new(connection)),
        ),
        Protocol::MySql => {
            let (requests, replies) = mysql_session::pair(connection);
            (Requests::MySql(requests), Replies::MySql(replies))
        }
        Protocol::ZooKeeper => (
            Requests::ZooKeeper(zookeeper_session::Requests::new(connection)),
            Replies::ZooKeeper(zookeeper_session::Replies::new(connection)),
        ),
        Protocol::Bytes => (Requests::Bytes, Replies::Bytes),
    }
}

/// Frames what a client sends.
pub(super) enum Requests {
    Resp(resp_session::Requests),
    Postgres(postgres_session::Requests),
    MySql(mysql_session::Requests),
    ZooKeeper(zookeeper_session::Requests),
    Bytes,
}

impl Requests {
    /// Takes the first request off the buffer.
    pub(super) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Unit>, Unparsable> {
        match self {
            Self::Resp(requests) => requests.next(buffer),
            Self::Postgres(requests) => requests.next(buffer),
            Self::MySql(requests) => requests.next(buffer),
            Self::ZooKeeper(requests) => requests.next(buffer),
            Self::Bytes if buffer.is_empty() => Ok(None),
            Self::Bytes => Err(UNFRAMED),
        }
    }

    /// What was taken off the buffer and not yet given out as a request.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        match self {
            Self::Resp(_) | Self::MySql(_) | Self::ZooKeeper(_) | Self::Bytes => Vec::new(),
            Self::Postgres(requests) => requests.take_rest(),
        }
    }
}

/// Frames what a server sends.
pub(super) enum Replies {
    Resp(resp_session::Replies),
    Postgres(postgres_session::Replies),
    MySql(mysql_session::Replies),
    ZooKeeper(zookeeper_session::Replies),
    Bytes,
}

impl Replies {
    /// Takes the first piece off the buffer, given what the oldest unanswered request expects.
    pub(super) fn next(
        &mut self,
        buffer: &mut Vec<u8>,
        head: Option<&Expects>,
    ) -> Result<Option<Piece>, Unparsable> {
        match self {
            Self::Resp(replies) => replies.next(buffer, head),
            Self::Postgres(replies) => replies.next(buffer, head),
            Self::MySql(replies) => replies.next(buffer, head),
            Self::ZooKeeper(replies) => replies.next(buffer, head),
            Self::Bytes if buffer.is_empty() => Ok(None),
            Self::Bytes => Err(UNFRAMED),
        }
    }

    /// A valid error in answer to a request, and whether the connection ends with it.
    pub(super) fn error(&self, text: &str, expects: &Expects) -> (Vec<u8>, bool) {
        match self {
            Self::Resp(_) => (resp_session::error(text), false),
            Self::Postgres(replies) => replies.error(text, expects),
            Self::MySql(replies) => replies.error(text, expects),
            Self::ZooKeeper(_) => (zookeeper_session::error(text, expects), false),
            Self::Bytes => (Vec::new(), true),
        }
    }
}

/// Splits the first `length` bytes off the buffer.
pub(super) fn split_off_front(buffer: &mut Vec<u8>, length: usize) -> Vec<u8> {
    buffer.drain(..length).collect()
}
