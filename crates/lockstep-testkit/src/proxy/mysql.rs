//! A pure parser of the MySQL client protocol: bytes in, packets out.
//!
//! Nothing here keeps state: a caller holds the bytes and asks again when more have come. What a
//! run of packets means is decided in `mysql_session.rs`.

use super::postgres::is_sqlstate;
use super::session::Unparsable;

/// One packet, put together from its parts if it was too long for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its place in the exchange; every command starts again at 0.
    pub sequence: u8,
    /// The place of its last part: an answer goes on from there.
    pub last_sequence: u8,
    /// What follows the head.
    pub body: Vec<u8>,
}

/// What the two sides agree on when they meet, as bits.
pub mod capability {
    /// The database is named in the handshake.
    pub const WITH_DATABASE: u32 = 1 << 3;
    /// The packets after the handshake are compressed.
    pub const COMPRESS: u32 = 1 << 5;
    /// The protocol of this file, and not the one before it.
    pub const PROTOCOL_41: u32 = 1 << 9;
    /// The connection goes on encrypted.
    pub const SSL: u32 = 1 << 11;
    /// The answer to the challenge is led by its length in one byte.
    pub const SECURE_CONNECTION: u32 = 1 << 15;
    /// The answer to the challenge is led by its length, however long.
    pub const LONG_ANSWER: u32 = 1 << 21;
    /// No EOF packet between columns and rows, and an OK packet in place of the last.
    pub const DEPRECATE_EOF: u32 = 1 << 24;
    /// A result may come without its columns.
    pub const OPTIONAL_METADATA: u32 = 1 << 25;
    /// As [`COMPRESS`], with another algorithm.
    pub const ZSTD: u32 = 1 << 26;
    /// A query may be led by named values.
    pub const QUERY_ATTRIBUTES: u32 = 1 << 27;
    /// Set by MySQL and its clients; what MariaDB has of its own is only there without it.
    pub const IS_MYSQL: u32 = 1;

    /// What would keep us from following the conversation.
    pub const WITHHELD: u32 = COMPRESS | SSL | OPTIONAL_METADATA | ZSTD | QUERY_ATTRIBUTES;
    /// The same of MariaDB's own: progress reports, several commands in one, results that may come
    /// without their columns, a result for every row of a batch.
    pub const WITHHELD_OF_MARIADB: u32 = 1 | 1 << 1 | 1 << 4 | 1 << 5;
}

/// The status bit of a result that another one follows.
pub const MORE_RESULTS: u16 = 1 << 3;
/// The status bit of a result whose rows are fetched by further commands.
pub const CURSOR_EXISTS: u16 = 1 << 6;

/// The longest body of one part; a longer packet goes on in the next part.
const PART_MAX: usize = 0xff_ffff;

/// The first packet and its length in bytes; `None` if it is not complete yet.
///
/// ```
/// use lockstep_testkit::proxy::mysql::{encode, parse_packet};
///
/// let ping = encode(0, &[0x0e]);
/// let (packet, length) = parse_packet(&ping).unwrap().unwrap();
/// assert_eq!((packet.sequence, packet.body.as_slice(), length), (0, &[0x0e][..], 5));
/// assert_eq!(parse_packet(&ping[..4]), Ok(None));
/// ```
pub fn parse_packet(input: &[u8]) -> Result<Option<(Packet, usize)>, Unparsable> {
    // Measured first: a long packet that is still under way is not copied again and again.
    let (mut end, mut parts) = (0, Vec::new());
    loop {
        let Some(&[low, middle, high, sequence]) = input.get(end..).and_then(<[u8]>::first_chunk)
        else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([low, middle, high, 0]) as usize;
        if parts.last().is_some_and(|(before, _): &(u8, _)| before.wrapping_add(1) != sequence) {
            return Err(Unparsable("a packet whose parts are not in order"));
        }
        parts.push((sequence, end + 4..end + 4 + length));
        end += 4 + length;
        if input.len() < end {
            return Ok(None);
        }
        if length < PART_MAX {
            break;
        }
    }
    let body = parts.iter().flat_map(|(_, range)| &input[range.clone()]).copied().collect();
    let (sequence, last_sequence) = (parts[0].0, parts[parts.len() - 1].0);
    Ok(Some((Packet { sequence, last_sequence, body }, end)))
}

/// A packet as bytes, in as many parts as it needs.
pub fn encode(sequence: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 4);
    let (mut sequence, mut rest) = (sequence, body);
    loop {
        let (part, further) = rest.split_at(rest.len().min(PART_MAX));
        out.extend_from_slice(&u32::try_from(part.len()).unwrap_or_default().to_le_bytes()[..3]);
        out.push(sequence);
        out.extend_from_slice(part);
        if part.len() < PART_MAX {
            return out;
        }
        (sequence, rest) = (sequence.wrapping_add(1), further);
    }
}

/// An ERR packet. The text may be led by its number, its SQLSTATE, or both:
/// `1213 40001 Deadlock found`.
pub fn error_packet(sequence: u8, text: &str) -> Vec<u8> {
    let (mut number, mut state, mut message) = (1105_u16, "HY000", text);
    if let Some((word, rest)) = message.split_once(' ')
        // No number of the server has five digits, and every SQLSTATE has five characters.
        && word.len() == 4
        && let Ok(known) = word.parse()
    {
        (number, message) = (known, rest);
    }
    if let Some((word, rest)) = message.split_once(' ')
        && is_sqlstate(word)
    {
        (state, message) = (word, rest);
    }
    let mut body = vec![0xff];
    body.extend_from_slice(&number.to_le_bytes());
    body.push(b'#');
    body.extend_from_slice(state.as_bytes());
    body.extend_from_slice(message.as_bytes());
    encode(sequence, &body)
}

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// What it wants, see [`capability`].
    pub capabilities: u32,
    /// Who it is.
    pub user: Vec<u8>,
    /// Where it wants to work; empty if it does not say.
    pub database: Vec<u8>,
}

/// What a server says to a statement it has prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    /// The name by which the client runs it.
    pub statement: u32,
    /// How many columns its rows have.
    pub columns: u16,
    /// How many parameters it takes.
    pub parameters: u16,
}

impl Packet {
    /// Whether this is an ERR packet. Nothing else a server says starts with this byte.
    pub fn is_error(&self) -> bool {
        self.body.first() == Some(&0xff)
    }

    /// Whether this ends rows: an EOF packet, or the OK packet in its place. A row that starts
    /// with the same byte is too long for one part.
    pub fn ends_rows(&self) -> bool {
        self.body.first() == Some(&0xfe) && self.body.len() < PART_MAX
    }

    /// ERR: number, SQLSTATE, message.
    pub fn error(&self) -> Option<(u16, String, String)> {
        let mut fields = Fields::of(&self.body);
        fields.take(1).filter(|head| *head == [0xff])?;
        let number = fields.u16()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let state = fields.take(6)?.strip_prefix(b"#")?;
        Some((number, text(state), text(fields.0)))
    }

    /// OK: the status bits.
    pub fn ok_status(&self) -> Option<u16> {
        let mut fields = Fields::of(self.body.get(1..)?);
        fields.length()?;
        fields.length()?;
        fields.u16()
    }

    /// EOF: the status bits.
    pub fn eof_status(&self) -> Option<u16> {
        Fields::of(self.body.get(3..)?).u16()
    }

    /// The first packet of a result: how many columns it has.
    pub fn columns(&self) -> Option<u64> {
        Fields::of(&self.body).length()
    }

    /// The first packet of the answer to a Prepare.
    pub fn prepared(&self) -> Option<Prepared> {
        let mut fields = Fields::of(&self.body);
        fields.take(1).filter(|head| *head == [0])?;
        let statement = fields.u32()?;
        Some(Prepared { statement, columns: fields.u16()?, parameters: fields.u16()? })
    }

    /// The capabilities in a server's greeting, without which it is none of this protocol.
    pub fn offered(&self) -> Option<u32> {
        let [low, high] = self.offer_places()?.map(|place| u16_at(&self.body, place));
        Some(u32::from(low?) | u32::from(high?) << 16)
    }

    /// The greeting without the capabilities we could not follow.
    #[must_use]
    pub fn with_less_offered(mut self) -> Packet {
        let Some((offered, [low, high])) = self.offered().zip(self.offer_places()) else {
            return self;
        };
        let [a, b, c, d] = (offered & !capability::WITHHELD).to_le_bytes();
        self.body[low..low + 2].copy_from_slice(&[a, b]);
        self.body[high..high + 2].copy_from_slice(&[c, d]);
        if offered & capability::IS_MYSQL == 0 {
            // In the last four of the ten bytes that MySQL leaves empty.
            withhold(&mut self.body, high + 9, capability::WITHHELD_OF_MARIADB);
        }
        self
    }

    /// A client's first packet.
    pub fn handshake(&self) -> Option<Handshake> {
        let mut fields = Fields::of(&self.body);
        let capabilities = fields.u32()?;
        fields.take(28)?;
        let user = fields.until_zero()?.to_vec();
        let answer = if capabilities & capability::LONG_ANSWER != 0 {
            fields.length()?
        } else if capabilities & capability::SECURE_CONNECTION != 0 {
            u64::from(fields.u8()?)
        } else {
            fields.until_zero()?;
            0
        };
        fields.take(usize::try_from(answer).ok()?)?;
        let names_database = capabilities & capability::WITH_DATABASE != 0;
        let database = names_database.then(|| fields.until_zero()).flatten().unwrap_or_default();
        Some(Handshake { capabilities, user, database: database.to_vec() })
    }

    /// A client's first packet without what we do not offer, whatever it made of our offer.
    #[must_use]
    pub fn with_less_wanted(mut self) -> Packet {
        if u16_at(&self.body, 0).is_some_and(|low| u32::from(low) & capability::IS_MYSQL == 0) {
            withhold(&mut self.body, 28, capability::WITHHELD_OF_MARIADB);
        }
        withhold(&mut self.body, 0, capability::WITHHELD);
        self
    }

    /// Where the two halves of the capabilities are in a greeting: version, its name, the thread,
    /// half of the challenge and a zero come before; character set and status in between.
    fn offer_places(&self) -> Option<[usize; 2]> {
        let version = self.body.strip_prefix(&[10])?;
        let low = 1 + version.iter().position(|byte| *byte == 0)? + 1 + 4 + 8 + 1;
        Some([low, low + 5])
    }
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    Fields::of(bytes.get(place..)?).u16()
}

/// Clears bits of a number of four bytes, if it is there.
fn withhold(bytes: &mut [u8], place: usize, bits: u32) {
    if let Some(number) = bytes.get_mut(place..place + 4) {
        for (byte, bits) in number.iter_mut().zip(bits.to_le_bytes()) {
            *byte &= !bits;
        }
    }
}

/// Reads fields off the front of a packet.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// A number that says itself how long it is.
    pub(super) fn length(&mut self) -> Option<u64> {
        let width = match self.u8()? {
            small @ ..=0xfa => return Some(u64::from(small)),
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            _ => return None,
        };
        let mut number = [0; 8];
        number[..width].copy_from_slice(self.take(width)?);
        Some(u64::from_le_bytes(number))
    }

    /// Bytes led by their number.
    pub(super) fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(usize::try_from(length).ok()?)
    }

    fn until_zero(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let bytes = self.take(end)?;
        self.take(1)?;
        Some(bytes)
    }
}

#[cfg(test)]
#[path = "mysql_tests.rs"]
mod tests;
