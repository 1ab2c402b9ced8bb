//! What a stream of MySQL packets means: what a client asks, and where the answer ends.
//!
//! Other than in the other protocols, each side must know what the other has said: the server
//! names the statements it prepares, and the client decides whether results have EOF packets.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::mysql::{
    CURSOR_EXISTS, Fields, MORE_RESULTS, Packet, capability, encode, error_packet, parse_packet,
};
use super::mysql_values::{self, Types};
use super::request::{Kind, Request};
use super::session::{Expects, Piece, Role, Unit, Unparsable, split_off_front};

/// What a server will say to a packet of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Awaits {
    pub(super) answer: Answer,
    /// The place of the answer's first packet in the exchange.
    pub(super) sequence: u8,
}

/// The shapes of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// One more step of the handshake.
    Login,
    /// One packet, whatever it says.
    Packet,
    /// One result after the other, each without rows or with columns and rows.
    Results,
    /// Rows, or descriptions of columns, and their end.
    Rows,
    /// A statement's name and descriptions of its parameters and columns.
    Prepared { sql: String },
}

/// What both directions of a connection know.
#[derive(Default)]
struct Known {
    offered: u32,
    wanted: u32,
    statements: HashMap<u32, Statement>,
}

struct Statement {
    sql: String,
    parameters: usize,
    types: Option<Types>,
}

impl Known {
    fn has_eof_packets(&self) -> bool {
        self.offered & self.wanted & capability::DEPRECATE_EOF == 0
    }
}

/// The two directions of one connection.
pub(super) fn pair(connection: u64) -> (Requests, Replies) {
    let known = Arc::<Mutex<Known>>::default();
    let requests =
        Requests { connection, opened: false, known: known.clone(), prepared_last: String::new() };
    (requests, Replies { greeted: false, known, stage: Stage::First })
}

/// Tells what a client asks.
pub(super) struct Requests {
    connection: u64,
    opened: bool,
    known: Arc<Mutex<Known>>,
    /// For clients that run a statement before they have heard its name.
    prepared_last: String,
}

/// A command as a rule sees it, and what answers it.
struct Command {
    name: &'static str,
    args: Vec<Vec<u8>>,
    sql: String,
    answer: Option<Answer>,
}

impl Command {
    fn new(name: &'static str, answer: impl Into<Option<Answer>>) -> Self {
        Self { name, args: Vec::new(), sql: String::new(), answer: answer.into() }
    }

    fn with_sql(mut self, sql: impl Into<String>) -> Self {
        self.sql = sql.into();
        self
    }

    fn with_args(mut self, args: Vec<Vec<u8>>) -> Self {
        self.args = args;
        self
    }
}

impl Requests {
    pub(super) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Unit>, Unparsable> {
        // Looked at before the rest has come: what another protocol takes for its first word could
        // be the length of a packet that never ends.
        if !self.opened && buffer.get(3).is_some_and(|sequence| *sequence != 1) {
            return Err(Unparsable("no handshake"));
        }
        let Some((packet, length)) = parse_packet(buffer)? else { return Ok(None) };
        let (command, bytes) = if !self.opened {
            let command = self.open(&packet)?;
            (command, encode(packet.sequence, &packet.clone().with_less_wanted().body))
        } else {
            // Every command starts at 0. What does not goes on with a handshake.
            let command = match packet.sequence {
                0 => self.command(&packet.body)?,
                _ => Command::new("AUTH", Answer::Login),
            };
            (command, buffer[..length].to_vec())
        };
        buffer.drain(..length);
        let Command { name, args, sql, answer } = command;
        let sequence = packet.last_sequence.wrapping_add(1);
        let expects =
            answer.map_or(Expects::Nothing, |answer| Expects::MySql(Awaits { answer, sequence }));
        let (connection, name) = (self.connection, name.to_owned());
        let request = Request { connection, kind: Kind::Request, name, args, sql };
        Ok(Some(Unit { request: Some(request), bytes, expects }))
    }

    fn open(&mut self, packet: &Packet) -> Result<Command, Unparsable> {
        let capabilities = Fields::of(&packet.body).u32().unwrap_or_default();
        if capabilities & capability::SSL != 0 {
            return Err(Unparsable("encryption"));
        }
        let handshake = packet.handshake().filter(|_| capabilities & capability::PROTOCOL_41 != 0);
        let handshake = handshake.ok_or(Unparsable("a handshake of unknown version"))?;
        self.known.lock().wanted = capabilities;
        self.opened = true;
        let words = vec![handshake.user, handshake.database];
        Ok(Command::new("HANDSHAKE", Answer::Login).with_args(words))
    }

    fn command(&mut self, body: &[u8]) -> Result<Command, Unparsable> {
        let (code, rest) = body.split_first().ok_or(Unparsable("an empty command"))?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        Ok(match code {
            0x01 => Command::new("QUIT", None),
            0x02 => Command::new("INITDB", Answer::Packet).with_args(vec![rest.to_vec()]),
            0x03 => Command::new("QUERY", Answer::Results).with_sql(text()),
            0x04 => Command::new("FIELDLIST", Answer::Rows),
            0x07 => Command::new("REFRESH", Answer::Packet),
            0x08 => Command::new("SHUTDOWN", Answer::Packet),
            0x09 => Command::new("STATISTICS", Answer::Packet),
            0x0a => Command::new("PROCESSINFO", Answer::Results),
            0x0c => Command::new("KILL", Answer::Packet),
            0x0d => Command::new("DEBUG", Answer::Packet),
            0x0e => Command::new("PING", Answer::Packet),
            0x11 => {
                self.known.lock().statements.clear();
                Command::new("CHANGEUSER", Answer::Login)
            }
            0x16 => {
                self.prepared_last = text();
                Command::new("PREPARE", Answer::Prepared { sql: text() }).with_sql(text())
            }
            0x17 => self.execute(rest, rest.get(9..).unwrap_or_default()),
            0x18 => Command::new("LONGDATA", None)
                .with_sql(self.sql_of(rest))
                .with_args(vec![rest.get(6..).unwrap_or_default().to_vec()]),
            0x19 => {
                let sql = self.sql_of(rest);
                if let Some(statement) = Fields::of(rest).u32() {
                    self.known.lock().statements.remove(&statement);
                }
                Command::new("CLOSE", None).with_sql(sql)
            }
            0x1a => Command::new("RESETSTATEMENT", Answer::Packet).with_sql(self.sql_of(rest)),
            0x1b => Command::new("SETOPTION", Answer::Packet),
            0x1c => Command::new("FETCH", Answer::Rows).with_sql(self.sql_of(rest)),
            0x1f => {
                self.known.lock().statements.clear();
                Command::new("RESET", Answer::Packet)
            }
            // MariaDB: the same statement for many rows, whose values are not told apart.
            0xfa => Command::new("EXECUTE", Answer::Results)
                .with_sql(self.sql_of(rest))
                .with_args(vec![rest.get(6..).unwrap_or_default().to_vec()]),
            0x12 | 0x15 | 0x1e => return Err(Unparsable("replication")),
            _ => return Err(Unparsable("an unknown command")),
        })
    }

    fn execute(&mut self, body: &[u8], block: &[u8]) -> Command {
        let command = Command::new("EXECUTE", Answer::Results).with_sql(self.sql_of(body));
        let mut known = self.known.lock();
        let statement = Fields::of(body).u32().and_then(|name| known.statements.get_mut(&name));
        let Some(statement) = statement else {
            return command.with_args(vec![block.to_vec()]);
        };
        if statement.parameters == 0 {
            return command;
        }
        match mysql_values::parse(block, statement.parameters, statement.types.as_ref()) {
            Some((values, types)) => {
                statement.types = Some(types);
                command.with_args(values)
            }
            None => command.with_args(vec![block.to_vec()]),
        }
    }

    /// The text of the statement that a command names first.
    fn sql_of(&self, body: &[u8]) -> String {
        const THE_ONE_PREPARED_LAST: u32 = u32::MAX;
        match Fields::of(body).u32() {
            Some(THE_ONE_PREPARED_LAST) => self.prepared_last.clone(),
            name => name
                .and_then(|name| self.known.lock().statements.get(&name).map(|s| s.sql.clone()))
                .unwrap_or_default(),
        }
    }
}

/// Finds the ends of answers in a server's packets.
pub(super) struct Replies {
    greeted: bool,
    known: Arc<Mutex<Known>>,
    stage: Stage,
}

/// How far the answer at hand has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its first packet, or the first of one of several results.
    First,
    /// So many descriptions of columns are still to come.
    Columns(u64),
    /// The EOF packet between columns and rows.
    EndOfColumns,
    Rows,
    /// So many packets are still to come.
    Counted(u64),
}

impl Replies {
    pub(super) fn next(
        &mut self,
        buffer: &mut Vec<u8>,
        head: Option<&Expects>,
    ) -> Result<Option<Piece>, Unparsable> {
        let Some((packet, length)) = parse_packet(buffer)? else { return Ok(None) };
        if !self.greeted {
            let bytes = self.greet(packet)?;
            buffer.drain(..length);
            return Ok(Some(Piece { bytes, role: Role::Loose }));
        }
        let role = match head {
            Some(Expects::MySql(awaits)) => self.role(&packet, &awaits.answer)?,
            // Such as the last words to a client that was idle for too long.
            _ => Role::Loose,
        };
        Ok(Some(Piece { bytes: split_off_front(buffer, length), role }))
    }

    pub(super) fn error(&self, text: &str, expects: &Expects) -> (Vec<u8>, bool) {
        let Expects::MySql(awaits) = expects else { return (error_packet(1, text), false) };
        // Who is not let in is shown out.
        (error_packet(awaits.sequence, text), awaits.answer == Answer::Login)
    }

    /// Offers less than the server does: only what we can follow.
    fn greet(&mut self, packet: Packet) -> Result<Vec<u8>, Unparsable> {
        self.greeted = true;
        if packet.is_error() {
            return Ok(encode(packet.sequence, &packet.body));
        }
        let packet = packet.with_less_offered();
        let offered = packet.offered().ok_or(Unparsable("no greeting"))?;
        self.known.lock().offered = offered;
        Ok(encode(packet.sequence, &packet.body))
    }

    fn role(&mut self, packet: &Packet, answer: &Answer) -> Result<Role, Unparsable> {
        let role = if packet.is_error() {
            Role::Last
        } else {
            match answer {
                Answer::Packet => Role::Last,
                Answer::Login if is_followed_by_ok(packet) => Role::Part,
                Answer::Login => Role::Last,
                Answer::Rows if packet.ends_rows() => Role::Last,
                Answer::Rows => Role::Part,
                Answer::Prepared { sql } => self.of_prepare(packet, sql)?,
                Answer::Results => self.of_results(packet)?,
            }
        };
        if role != Role::Part {
            self.stage = Stage::First;
        }
        Ok(role)
    }

    fn of_prepare(&mut self, packet: &Packet, sql: &str) -> Result<Role, Unparsable> {
        let left = match self.stage {
            Stage::Counted(left) => left - 1,
            _ => {
                let prepared = packet.prepared().ok_or(Unparsable("no answer to a Prepare"))?;
                let mut known = self.known.lock();
                let eof = u64::from(known.has_eof_packets());
                let parameters = usize::from(prepared.parameters);
                let statement = Statement { sql: sql.to_owned(), parameters, types: None };
                known.statements.insert(prepared.statement, statement);
                let descriptions = [prepared.parameters, prepared.columns].map(u64::from);
                descriptions.iter().filter(|count| **count > 0).map(|count| count + eof).sum()
            }
        };
        self.stage = Stage::Counted(left);
        Ok(if left == 0 { Role::Last } else { Role::Part })
    }

    fn of_results(&mut self, packet: &Packet) -> Result<Role, Unparsable> {
        let has_eof = self.known.lock().has_eof_packets();
        let garbled = Unparsable("no result");
        let next = match (self.stage, packet.body.first()) {
            (Stage::First, Some(0)) => return self.after(packet.ok_status().ok_or(garbled)?),
            (Stage::First, Some(0xfb)) => return Ok(Role::LastThenRaw("a file from the client")),
            (Stage::First, _) => Stage::Columns(packet.columns().ok_or(garbled)?),
            (Stage::Columns(left @ 2..), _) => Stage::Columns(left - 1),
            (Stage::Columns(_), _) if has_eof => Stage::EndOfColumns,
            (Stage::Columns(_), _) => Stage::Rows,
            (Stage::EndOfColumns, _) => {
                let status = packet.eof_status().ok_or(garbled)?;
                if status & CURSOR_EXISTS != 0 {
                    return self.after(status);
                }
                Stage::Rows
            }
            (Stage::Rows, _) if packet.ends_rows() => {
                let status = if has_eof { packet.eof_status() } else { packet.ok_status() };
                return self.after(status.ok_or(garbled)?);
            }
            (Stage::Rows, _) => Stage::Rows,
            (Stage::Counted(_), _) => return Err(garbled),
        };
        self.stage = next;
        Ok(Role::Part)
    }

    /// At the end of one result: is it that of the answer?
    fn after(&mut self, status: u16) -> Result<Role, Unparsable> {
        self.stage = Stage::First;
        Ok(if status & MORE_RESULTS == 0 { Role::Last } else { Role::Part })
    }
}

/// The server has recognised the password and says so before it says OK.
fn is_followed_by_ok(packet: &Packet) -> bool {
    packet.body == [1, 3]
}

#[cfg(test)]
#[path = "mysql_session_tests.rs"]
mod tests;
