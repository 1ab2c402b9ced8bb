//! What a stream of PostgreSQL messages means: which run of them is one request, where its reply
//! ends, and what comes unasked.

use std::collections::HashMap;

use super::postgres::{
    Message, Opening, error_response, parse_backend, parse_frontend, parse_opening, ready_for_query,
};
use super::request::{Kind, Request};
use super::session::{Expects, Piece, Role, Unit, Unparsable, split_off_front};

/// Groups a client's messages into requests.
pub(super) struct Requests {
    connection: u64,
    opened: bool,
    /// SQL by statement name; the unnamed statement is one of them.
    statements: HashMap<String, String>,
    /// SQL by portal name, for a portal that is executed in a later request than it was bound.
    portals: HashMap<String, String>,
    group: Group,
}

/// The messages since the last request was complete.
#[derive(Default)]
struct Group {
    bytes: Vec<u8>,
    tags: Vec<u8>,
    sql: Vec<String>,
    parameters: Vec<Vec<u8>>,
}

impl Requests {
    pub(super) fn new(connection: u64) -> Self {
        Self {
            connection,
            opened: false,
            statements: HashMap::new(),
            portals: HashMap::new(),
            group: Group::default(),
        }
    }

    pub(super) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Unit>, Unparsable> {
        if !self.opened {
            return self.opening(buffer);
        }
        while let Some((message, length)) = parse_frontend(buffer)? {
            if matches!(message.tag, b'd' | b'c' | b'f') {
                return Err(Unparsable("copied data"));
            }
            self.group.bytes.extend(buffer.drain(..length));
            self.group.tags.push(message.tag);
            self.note(&message);
            let expects = match message.tag {
                b'S' | b'Q' | b'F' => Expects::Ready { startup: false },
                b'p' => Expects::Ready { startup: true },
                // What a Flush makes the server send has no end of its own: it is passed as it
                // comes, and only what follows until the next Sync counts as a reply.
                b'H' | b'X' => Expects::Nothing,
                _ => continue,
            };
            return Ok(Some(self.complete(expects)));
        }
        Ok(None)
    }

    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.group).bytes
    }

    fn opening(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Unit>, Unparsable> {
        let Some((opening, length)) = parse_opening(buffer)? else { return Ok(None) };
        let (name, args, expects) = match opening {
            Opening::Ssl => ("SSLREQUEST", Vec::new(), Expects::Byte),
            Opening::GssEncryption => ("GSSENCREQUEST", Vec::new(), Expects::Byte),
            Opening::Cancel => ("CANCEL", Vec::new(), Expects::Nothing),
            Opening::Startup(words) => {
                self.opened = true;
                ("STARTUP", words, Expects::Ready { startup: true })
            }
        };
        let bytes = split_off_front(buffer, length);
        let request = self.request(name, args, String::new());
        Ok(Some(Unit { request: Some(request), bytes, expects }))
    }

    /// Keeps what a later message of this or another request refers to.
    fn note(&mut self, message: &Message) {
        match message.tag {
            b'Q' => self.group.sql.extend(message.query()),
            b'P' => {
                if let Some((name, sql)) = message.parse() {
                    self.group.add_sql(&sql);
                    self.statements.insert(name, sql);
                }
            }
            b'B' => {
                if let Some(bind) = message.bind() {
                    let sql = self.statements.get(&bind.statement).cloned().unwrap_or_default();
                    self.group.add_sql(&sql);
                    self.portals.insert(bind.portal, sql);
                    let parameters = bind.parameters.into_iter().map(Option::unwrap_or_default);
                    self.group.parameters.extend(parameters);
                }
            }
            b'E' => {
                let sql = message.execute().and_then(|portal| self.portals.get(&portal));
                self.group.add_sql(sql.map(String::as_str).unwrap_or_default());
            }
            b'C' => match message.close() {
                Some((b'S', name)) => drop(self.statements.remove(&name)),
                Some((_, name)) => drop(self.portals.remove(&name)),
                None => {}
            },
            _ => {}
        }
    }

    fn complete(&mut self, expects: Expects) -> Unit {
        let group = std::mem::take(&mut self.group);
        let request = self.request(group.name(), group.parameters, group.sql.join("; "));
        Unit { request: Some(request), bytes: group.bytes, expects }
    }

    fn request(&self, name: &str, args: Vec<Vec<u8>>, sql: String) -> Request {
        Request {
            connection: self.connection,
            kind: Kind::Request,
            name: name.to_owned(),
            args,
            sql,
        }
    }
}

impl Group {
    fn add_sql(&mut self, sql: &str) {
        if !sql.is_empty() && !self.sql.iter().any(|known| known == sql) {
            self.sql.push(sql.to_owned());
        }
    }

    /// The most telling message names the group.
    fn name(&self) -> &'static str {
        const BY_WEIGHT: [(u8, &str); 10] = [
            (b'X', "TERMINATE"),
            (b'p', "PASSWORD"),
            (b'Q', "QUERY"),
            (b'F', "CALL"),
            (b'E', "EXECUTE"),
            (b'P', "PREPARE"),
            (b'B', "BIND"),
            (b'C', "CLOSE"),
            (b'D', "DESCRIBE"),
            (b'H', "FLUSH"),
        ];
        let telling = BY_WEIGHT.iter().find(|(tag, _)| self.tags.contains(tag));
        telling.map_or("SYNC", |(_, name)| name)
    }
}

/// Finds replies and pushes in a server's messages.
pub(super) struct Replies {
    connection: u64,
    /// The transaction status of the last ReadyForQuery.
    status: u8,
}

impl Replies {
    pub(super) fn new(connection: u64) -> Self {
        Self { connection, status: b'I' }
    }

    pub(super) fn next(
        &mut self,
        buffer: &mut Vec<u8>,
        head: Option<&Expects>,
    ) -> Result<Option<Piece>, Unparsable> {
        // An old server answers a wish for encryption with an error message, whose tag this is.
        if head == Some(&Expects::Byte)
            && let Some(answer) = buffer.first().filter(|byte| **byte != b'E')
        {
            let role = match answer {
                b'N' => Role::Last,
                b'S' | b'G' => Role::LastThenRaw("encryption"),
                _ => return Err(Unparsable("an unknown answer to a wish for encryption")),
            };
            return Ok(Some(Piece { bytes: split_off_front(buffer, 1), role }));
        }
        let Some((message, length)) = parse_backend(buffer)? else { return Ok(None) };
        let role = self.role(&message, head.is_some());
        Ok(Some(Piece { bytes: split_off_front(buffer, length), role }))
    }

    pub(super) fn error(&self, text: &str, expects: &Expects) -> (Vec<u8>, bool) {
        if *expects != (Expects::Ready { startup: false }) {
            return (error_response("FATAL", text), true);
        }
        // The server never saw the request, so its transaction goes on; the client must believe
        // that it failed, as it would have.
        let status = if self.status == b'I' { b'I' } else { b'E' };
        ([error_response("ERROR", text), ready_for_query(status)].concat(), false)
    }

    fn role(&mut self, message: &Message, asked: bool) -> Role {
        let end = if asked { Role::Last } else { Role::Loose };
        let part = if asked { Role::Part } else { Role::Loose };
        match message.tag {
            b'Z' => {
                self.status = message.body.first().copied().unwrap_or(b'I');
                end
            }
            // A server may deliver notifications inside a reply as well; they are still no part
            // of it.
            b'A' => self.push("NOTIFICATION", message.notification()),
            b'N' if !asked => self.push("NOTICE", message.field(b'M').map(|m| (m, String::new()))),
            b'S' if !asked => self.push("PARAMETERSTATUS", message.parameter()),
            b'E' if is_fatal(message) => end,
            b'R' if wants_answer(message) => end,
            b'G' | b'W' => Role::LastThenRaw("a copy from the client"),
            _ => part,
        }
    }

    fn push(&self, name: &str, content: Option<(String, String)>) -> Role {
        let (first, second) = content.unwrap_or_default();
        Role::Push(Request {
            connection: self.connection,
            kind: Kind::Push,
            name: name.to_owned(),
            args: vec![first.into_bytes(), second.into_bytes()],
            sql: String::new(),
        })
    }
}

/// After such an error the server hangs up without a ReadyForQuery.
fn is_fatal(message: &Message) -> bool {
    matches!(message.field(b'V').as_deref(), Some("FATAL" | "PANIC"))
}

/// Whether the server waits for the client; codes 0 and 12 only report success.
fn wants_answer(message: &Message) -> bool {
    !matches!(message.authentication(), Some(0 | 12))
}

#[cfg(test)]
#[path = "postgres_session_tests.rs"]
mod tests;
