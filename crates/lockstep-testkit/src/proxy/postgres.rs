//! A pure parser of the PostgreSQL wire protocol, version 3: bytes in, messages out.
//!
//! Nothing here keeps state: a caller holds the bytes and asks again when more have come. What a
//! run of messages means is decided in `postgres_session.rs`.

use super::session::Unparsable;

/// One message after the opening of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The letter that names it.
    pub tag: u8,
    /// What follows the length.
    pub body: Vec<u8>,
}

/// The first thing a client says; it has no tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// Asks for TLS; one byte answers.
    Ssl,
    /// Asks for GSSAPI encryption; one byte answers.
    GssEncryption,
    /// Cancels what another connection runs; nothing answers.
    Cancel,
    /// Starts the session: names and values in turn.
    Startup(Vec<Vec<u8>>),
}

/// A parsed Bind message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The portal it creates.
    pub portal: String,
    /// The prepared statement it is of.
    pub statement: String,
    /// The parameters as sent; `None` is NULL.
    pub parameters: Vec<Option<Vec<u8>>>,
}

/// The opening of a connection and its length; `None` if it is not complete yet.
///
/// ```
/// use lockstep_testkit::proxy::postgres::{Opening, parse_opening};
///
/// let ask = [0, 0, 0, 8, 4, 210, 22, 47];
/// assert_eq!(parse_opening(&ask), Ok(Some((Opening::Ssl, 8))));
/// assert!(parse_opening(b"GET / HTTP/1.1").is_err());
/// ```
pub fn parse_opening(input: &[u8]) -> Result<Option<(Opening, usize)>, Unparsable> {
    let Some(length) = length(input, 8..=OPENING_MAX)? else { return Ok(None) };
    let Some(body) = input.get(4..length) else { return Ok(None) };
    let mut body = Body(body);
    let opening = match body.int32().unwrap_or_default() {
        80_877_102 => Opening::Cancel,
        80_877_103 => Opening::Ssl,
        80_877_104 => Opening::GssEncryption,
        version if version >> 16 == 3 => {
            let mut words = Vec::new();
            while let Some(word) = body.c_bytes().filter(|word| !word.is_empty()) {
                words.push(word.to_vec());
            }
            Opening::Startup(words)
        }
        _ => return Err(Unparsable("an opening of unknown version")),
    };
    Ok(Some((opening, length)))
}

/// The first message of a client's output and its length; `None` if it is not complete yet.
pub fn parse_frontend(input: &[u8]) -> Result<Option<(Message, usize)>, Unparsable> {
    message(input, b"QPBEDCHSFXpdcf")
}

/// The first message of a server's output and its length; `None` if it is not complete yet.
///
/// ```
/// use lockstep_testkit::proxy::postgres::{parse_backend, ready_for_query};
///
/// let (message, length) = parse_backend(&ready_for_query(b'I')).unwrap().unwrap();
/// assert_eq!((message.tag, message.body.as_slice(), length), (b'Z', &b"I"[..], 6));
/// ```
pub fn parse_backend(input: &[u8]) -> Result<Option<(Message, usize)>, Unparsable> {
    message(input, b"RKZEN1234nISTDCAGHWVtsdcvf")
}

/// A message as bytes.
pub fn encode(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 4).unwrap_or(i32::MAX);
    let mut out = vec![tag];
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// An ErrorResponse. The text may be led by its SQLSTATE: `40001 could not serialize access`.
pub fn error_response(severity: &str, text: &str) -> Vec<u8> {
    let (code, message) = match text.split_once(' ') {
        Some((code, rest)) if is_sqlstate(code) => (code, rest),
        _ => ("XX000", text),
    };
    let mut body = Vec::new();
    for (field, value) in [(b'S', severity), (b'V', severity), (b'C', code), (b'M', message)] {
        body.push(field);
        // A zero byte would end the field early and shift all that follows.
        body.extend(value.bytes().filter(|byte| *byte != 0));
        body.push(0);
    }
    body.push(0);
    encode(b'E', &body)
}

/// A ReadyForQuery with this transaction status: `I`dle, in a `T`ransaction, or in a failed on`E`.
pub fn ready_for_query(status: u8) -> Vec<u8> {
    encode(b'Z', &[status])
}

impl Message {
    /// Query: the SQL.
    pub fn query(&self) -> Option<String> {
        Body(&self.body).c_str()
    }

    /// Parse: the statement's name and its SQL.
    pub fn parse(&self) -> Option<(String, String)> {
        let mut body = Body(&self.body);
        Some((body.c_str()?, body.c_str()?))
    }

    /// Bind: portal, statement, parameters.
    pub fn bind(&self) -> Option<Bind> {
        let mut body = Body(&self.body);
        let (portal, statement) = (body.c_str()?, body.c_str()?);
        let formats = usize::try_from(body.int16()?).ok()?;
        body.take(formats * 2)?;
        let count = body.int16()?;
        let parameters = (0..count).map(|_| body.value()).collect::<Option<_>>()?;
        Some(Bind { portal, statement, parameters })
    }

    /// Execute: the portal's name.
    pub fn execute(&self) -> Option<String> {
        Body(&self.body).c_str()
    }

    /// Close: `S`tatement or `P`ortal, and its name.
    pub fn close(&self) -> Option<(u8, String)> {
        let mut body = Body(&self.body);
        let sort = body.take(1)?[0];
        Some((sort, body.c_str()?))
    }

    /// NotificationResponse: channel and payload.
    pub fn notification(&self) -> Option<(String, String)> {
        let mut body = Body(&self.body);
        body.int32()?;
        Some((body.c_str()?, body.c_str()?))
    }

    /// ParameterStatus: name and value.
    pub fn parameter(&self) -> Option<(String, String)> {
        self.parse()
    }

    /// Authentication: the code that says what the server wants.
    pub fn authentication(&self) -> Option<i32> {
        Body(&self.body).int32()
    }

    /// ErrorResponse and NoticeResponse: one field, such as `M` for the message.
    pub fn field(&self, field: u8) -> Option<String> {
        let mut body = Body(&self.body);
        loop {
            let name = body.take(1)?[0];
            let value = body.c_str()?;
            if name == field {
                return Some(value);
            }
        }
    }
}

/// A startup packet longer than this is refused by the server too.
const OPENING_MAX: i64 = 10_000;
/// The largest message a server accepts or sends.
const MESSAGE_MAX: i64 = 0x3fff_ffff;

fn message(input: &[u8], tags: &[u8]) -> Result<Option<(Message, usize)>, Unparsable> {
    let Some(&tag) = input.first() else { return Ok(None) };
    if !tags.contains(&tag) {
        return Err(Unparsable("a message of unknown type"));
    }
    let Some(length) = length(&input[1..], 4..=MESSAGE_MAX)? else { return Ok(None) };
    let end = length + 1;
    Ok(input.get(5..end).map(|body| (Message { tag, body: body.to_vec() }, end)))
}

fn length(
    input: &[u8],
    within: std::ops::RangeInclusive<i64>,
) -> Result<Option<usize>, Unparsable> {
    let Some(length) = Body(input).int32().map(i64::from) else { return Ok(None) };
    if !within.contains(&length) {
        return Err(Unparsable("a message of impossible length"));
    }
    Ok(usize::try_from(length).ok())
}

pub(super) fn is_sqlstate(code: &str) -> bool {
    let of_code = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    code.len() == 5 && code.bytes().all(of_code) && code.bytes().any(|byte| byte.is_ascii_digit())
}

/// Reads fields off the front of a message.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int16(&mut self) -> Option<i16> {
        self.take(2)?.try_into().ok().map(i16::from_be_bytes)
    }

    fn int32(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    fn c_bytes(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let bytes = self.take(end)?;
        self.take(1)?;
        Some(bytes)
    }

    fn c_str(&mut self) -> Option<String> {
        self.c_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn value(&mut self) -> Option<Option<Vec<u8>>> {
        match self.int32()? {
            -1 => Some(None),
            length => self.take(usize::try_from(length).ok()?).map(|bytes| Some(bytes.to_vec())),
        }
    }
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
