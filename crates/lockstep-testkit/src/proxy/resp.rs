//! A pure parser of the Redis protocol, versions 2 and 3: bytes in, frames out.
//!
//! Nothing here keeps state: a caller holds the bytes and asks again when more have come.

use super::session::Unparsable;

/// One value of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// `+`
    Simple(Vec<u8>),
    /// `-`, or `!` with a length
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `=`: three letters, a colon, and the text
    Verbatim(Vec<u8>),
    /// `_`, or a bulk string or array of length -1
    Null,
    /// `#`
    Boolean(bool),
    /// `,` as written, since infinities and NaN must compare equal to themselves
    Double(String),
    /// `(` as written
    BigNumber(String),
    /// `*`
    Array(Vec<Frame>),
    /// `~`
    Set(Vec<Frame>),
    /// `%`
    Map(Vec<(Frame, Frame)>),
    /// `>`: sent without being asked
    Push(Vec<Frame>),
    /// `|`: data about the value that follows, and that value
    Attributed(Vec<(Frame, Frame)>, Box<Frame>),
}

impl Frame {
    /// The scalars in the frame from left to right, as bytes.
    pub fn scalars(&self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.collect(&mut out);
        out
    }

    fn collect(&self, out: &mut Vec<Vec<u8>>) {
        match self {
            Self::Simple(bytes) | Self::Error(bytes) | Self::Bulk(bytes) => out.push(bytes.clone()),
            // The reader wants the text, not its `txt:`.
            Self::Verbatim(bytes) => out.push(bytes.get(4..).unwrap_or_default().to_vec()),
            Self::Integer(n) => out.push(n.to_string().into_bytes()),
            Self::Null => out.push(Vec::new()),
            Self::Boolean(b) => out.push(b.to_string().into_bytes()),
            Self::Double(text) | Self::BigNumber(text) => out.push(text.clone().into_bytes()),
            Self::Array(items) | Self::Set(items) | Self::Push(items) => {
                items.iter().for_each(|item| item.collect(out));
            }
            Self::Map(pairs) => pairs.iter().for_each(|(key, value)| {
                key.collect(out);
                value.collect(out);
            }),
            Self::Attributed(_, value) => value.collect(out),
        }
    }
}

/// The first frame of a server's output and its length; `None` if it is not complete yet.
///
/// ```
/// use lockstep_testkit::proxy::resp::{Frame, parse};
///
/// assert_eq!(parse(b":7\r\n+OK"), Ok(Some((Frame::Integer(7), 4))));
/// assert_eq!(parse(b"$5\r\nhel"), Ok(None));
/// assert!(parse(b"HTTP/1.1").is_err());
/// ```
pub fn parse(input: &[u8]) -> Result<Option<(Frame, usize)>, Unparsable> {
    Cursor::run(input, |cursor| cursor.frame(0))
}

/// A command: its name and its arguments.
pub type Command = Vec<Vec<u8>>;

/// The first command of a client's output and its length; `None` if it is not complete yet. An
/// empty command, which a server ignores, is an empty list.
///
/// ```
/// use lockstep_testkit::proxy::resp::parse_request;
///
/// let (args, length) = parse_request(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n").unwrap().unwrap();
/// assert_eq!((args, length), (vec![b"GET".to_vec(), b"a".to_vec()], 20));
/// ```
pub fn parse_request(input: &[u8]) -> Result<Option<(Command, usize)>, Unparsable> {
    Cursor::run(input, |cursor| match cursor.peek()? {
        b'*' => cursor.command(),
        byte if byte.is_ascii_graphic() || byte.is_ascii_whitespace() => cursor.inline(),
        _ => Err(Stop::Bad("a request that is neither an array nor text")),
    })
}

/// No server nests deeper; without a bound a hostile stream would overflow the stack.
const DEPTH_MAX: usize = 128;
/// The longest line a Redis server itself accepts.
const LINE_MAX: usize = 64 * 1024;
/// The largest string and the largest aggregate a Redis server itself accepts.
const LENGTH_MAX: i64 = 512 * 1024 * 1024;

enum Stop {
    Incomplete,
    Bad(&'static str),
}

struct Cursor<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn run<T>(
        input: &'a [u8],
        step: impl FnOnce(&mut Self) -> Result<T, Stop>,
    ) -> Result<Option<(T, usize)>, Unparsable> {
        let mut cursor = Self { input, at: 0 };
        match step(&mut cursor) {
            Ok(parsed) => Ok(Some((parsed, cursor.at))),
            Err(Stop::Incomplete) => Ok(None),
            Err(Stop::Bad(why)) => Err(Unparsable(why)),
        }
    }

    fn frame(&mut self, depth: usize) -> Result<Frame, Stop> {
        if depth > DEPTH_MAX {
            return Err(Stop::Bad("a reply nested too deep"));
        }
        let sort = self.peek()?;
        // Judged before the line is complete, so that a foreign protocol is known at its first byte.
        if !b"+-:$=!_#,(*~%>|".contains(&sort) {
            return Err(Stop::Bad("a reply of unknown type"));
        }
        self.at += 1;
        Ok(match sort {
            b'+' => Frame::Simple(self.line()?.to_vec()),
            b'-' => Frame::Error(self.line()?.to_vec()),
            b':' => Frame::Integer(self.integer()?),
            b'$' => self.blob()?.map_or(Frame::Null, Frame::Bulk),
            b'=' => self.blob()?.map_or(Frame::Null, Frame::Verbatim),
            b'!' => self.blob()?.map_or(Frame::Null, Frame::Error),
            b'_' => self.line().and_then(|line| match line {
                b"" => Ok(Frame::Null),
                _ => Err(Stop::Bad("a null that is not empty")),
            })?,
            b'#' => match self.line()? {
                b"t" => Frame::Boolean(true),
                b"f" => Frame::Boolean(false),
                _ => return Err(Stop::Bad("a boolean neither true nor false")),
            },
            b',' => Frame::Double(self.text(|text| text.parse::<f64>().is_ok())?),
            b'(' => Frame::BigNumber(self.text(|text| {
                let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            })?),
            b'*' => match self.length()? {
                None => Frame::Null,
                Some(count) => Frame::Array(self.frames(count, depth)?),
            },
            b'~' => Frame::Set(self.counted(depth)?),
            b'>' => Frame::Push(self.counted(depth)?),
            b'%' => Frame::Map(self.pairs(depth)?),
            _ => {
                let about = self.pairs(depth)?;
                Frame::Attributed(about, Box::new(self.frame(depth + 1)?))
            }
        })
    }

    fn counted(&mut self, depth: usize) -> Result<Vec<Frame>, Stop> {
        let count = self.length()?.ok_or(Stop::Bad("an aggregate of negative length"))?;
        self.frames(count, depth)
    }

    fn frames(&mut self, count: usize, depth: usize) -> Result<Vec<Frame>, Stop> {
        (0..count).map(|_| self.frame(depth + 1)).collect()
    }

    fn pairs(&mut self, depth: usize) -> Result<Vec<(Frame, Frame)>, Stop> {
        let count = self.length()?.ok_or(Stop::Bad("a map of negative length"))?;
        (0..count).map(|_| Ok((self.frame(depth + 1)?, self.frame(depth + 1)?))).collect()
    }

    fn command(&mut self) -> Result<Command, Stop> {
        self.at += 1;
        let count = self.length()?.unwrap_or(0);
        let mut args = Vec::new();
        for _ in 0..count {
            if self.peek()? != b'$' {
                return Err(Stop::Bad("a request with an argument that is no bulk string"));
            }
            self.at += 1;
            args.push(self.blob()?.ok_or(Stop::Bad("a request with a null argument"))?);
        }
        Ok(args)
    }

    /// A command typed by hand: words on one line, with quotes as the server understands them.
    fn inline(&mut self) -> Result<Command, Stop> {
        let Some(end) = self.input.iter().position(|&byte| byte == b'\n') else {
            return Err(if self.input.len() > LINE_MAX {
                Stop::Bad("an inline request without an end")
            } else {
                Stop::Incomplete
            });
        };
        self.at = end + 1;
        words(&self.input[..end]).ok_or(Stop::Bad("an inline request with unbalanced quotes"))
    }

    fn peek(&self) -> Result<u8, Stop> {
        self.input.get(self.at).copied().ok_or(Stop::Incomplete)
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.input[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\r' || byte == b'\n') else {
            return Err(if rest.len() > LINE_MAX {
                Stop::Bad("a line without an end")
            } else {
                Stop::Incomplete
            });
        };
        match (rest[end], rest.get(end + 1)) {
            (b'\r', None) => Err(Stop::Incomplete),
            (b'\r', Some(b'\n')) => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            _ => Err(Stop::Bad("a line with a stray line break")),
        }
    }

    fn text(&mut self, valid: impl Fn(&str) -> bool) -> Result<String, Stop> {
        let text = std::str::from_utf8(self.line()?).unwrap_or_default();
        if valid(text) { Ok(text.to_owned()) } else { Err(Stop::Bad("a number that is none")) }
    }

    fn integer(&mut self) -> Result<i64, Stop> {
        let text = self.text(|text| text.parse::<i64>().is_ok())?;
        text.parse().map_err(|_| Stop::Bad("a number that is none"))
    }

    fn length(&mut self) -> Result<Option<usize>, Stop> {
        match self.integer()? {
            -1 => Ok(None),
            length @ 0..=LENGTH_MAX => Ok(Some(usize::try_from(length).unwrap_or(usize::MAX))),
            _ => Err(Stop::Bad("a length out of range")),
        }
    }

    fn blob(&mut self) -> Result<Option<Vec<u8>>, Stop> {
        let Some(length) = self.length()? else { return Ok(None) };
        let rest = &self.input[self.at..];
        let (Some(blob), Some(end)) = (rest.get(..length), rest.get(length..length + 2)) else {
            return Err(Stop::Incomplete);
        };
        if end != b"\r\n" {
            return Err(Stop::Bad("a string longer than announced"));
        }
        self.at += length + 2;
        Ok(Some(blob.to_vec()))
    }
}

fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        if rest.peek().is_none() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace()) {
            if byte != b'"' && byte != b'\'' {
                word.push(byte);
                continue;
            }
            loop {
                match rest.next()? {
                    end if end == byte => break,
                    b'\\' => word.push(match rest.next()? {
                        b'n' if byte == b'"' => b'\n',
                        b'r' if byte == b'"' => b'\r',
                        b't' if byte == b'"' => b'\t',
                        other => other,
                    }),
                    plain => word.push(plain),
                }
            }
        }
        words.push(word);
    }
}

#[cfg(test)]
#[path = "resp_tests.rs"]
mod tests;
