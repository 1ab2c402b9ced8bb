//! What a stream of RESP frames means: which are requests, which answer them, which are pushes.

use std::collections::HashSet;

use super::request::{Kind, Request};
use super::resp::{Frame, parse, parse_request};
use super::session::{Expects, Piece, Role, Unit, Unparsable, split_off_front};

/// Frames commands.
pub(super) struct Requests {
    connection: u64,
}

impl Requests {
    pub(super) fn new(connection: u64) -> Self {
        Self { connection }
    }

    pub(super) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Unit>, Unparsable> {
        let Some((mut args, length)) = parse_request(buffer)? else { return Ok(None) };
        if args.is_empty() {
            let bytes = split_off_front(buffer, length);
            return Ok(Some(Unit { request: None, bytes, expects: Expects::Nothing }));
        }
        let name = upper(&args.remove(0));
        if name == "SYNC" || name == "PSYNC" {
            return Err(Unparsable("a replication stream"));
        }
        if name == "CLIENT" && args.first().is_some_and(|arg| arg.eq_ignore_ascii_case(b"REPLY")) {
            return Err(Unparsable("a client that turns replies off or on"));
        }
        let expects = match name.as_str() {
            "SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE" | "UNSUBSCRIBE" | "PUNSUBSCRIBE"
            | "SUNSUBSCRIBE" => Expects::Confirmations { verb: name.clone(), channels: args.len() },
            _ => Expects::Frame,
        };
        let bytes = split_off_front(buffer, length);
        let request = Request {
            connection: self.connection,
            kind: Kind::Request,
            name,
            args,
            sql: String::new(),
        };
        Ok(Some(Unit { request: Some(request), bytes, expects }))
    }
}

/// Frames replies and pushes.
pub(super) struct Replies {
    connection: u64,
    /// A version 3 connection marks its pushes, so that an array never is one.
    marks_pushes: bool,
    /// Sort (`""`, `"P"`, `"S"`) and name of every subscription in force.
    subscriptions: HashSet<(String, Vec<u8>)>,
    /// Confirmations still to come for the request at the head, once the first has come.
    confirmations_due: Option<usize>,
}

impl Replies {
    pub(super) fn new(connection: u64) -> Self {
        Self {
            connection,
            marks_pushes: false,
            subscriptions: HashSet::new(),
            confirmations_due: None,
        }
    }

    pub(super) fn next(
        &mut self,
        buffer: &mut Vec<u8>,
        head: Option<&Expects>,
    ) -> Result<Option<Piece>, Unparsable> {
        let Some((frame, length)) = parse(buffer)? else { return Ok(None) };
        let role = self.role(&frame, head);
        Ok(Some(Piece { bytes: split_off_front(buffer, length), role }))
    }

    fn role(&mut self, frame: &Frame, head: Option<&Expects>) -> Role {
        let (marked, items) = match frame {
            Frame::Push(items) => (true, items.as_slice()),
            Frame::Array(items) => (false, items.as_slice()),
            _ => (false, [].as_slice()),
        };
        self.marks_pushes |= marked;
        let word = items.first().and_then(text).map(|first| upper(&first)).unwrap_or_default();

        if let Some(Expects::Confirmations { verb, channels }) = head
            && *verb == word
        {
            return self.confirm(verb, *channels, items.get(1).and_then(text));
        }
        let published = matches!(word.as_str(), "MESSAGE" | "PMESSAGE" | "SMESSAGE");
        let unmarked = published && !self.marks_pushes && !self.subscriptions.is_empty();
        if marked || unmarked {
            let args = items.iter().skip(1).flat_map(Frame::scalars).collect();
            return Role::Push(Request {
                connection: self.connection,
                kind: Kind::Push,
                name: word,
                args,
                sql: String::new(),
            });
        }
        match head {
            Some(_) => {
                self.confirmations_due = None;
                Role::Last
            }
            None => Role::Loose,
        }
    }

    fn confirm(&mut self, verb: &str, channels: usize, channel: Option<Vec<u8>>) -> Role {
        let ends = verb.ends_with("UNSUBSCRIBE");
        let sort = verb.trim_end_matches(if ends { "UNSUBSCRIBE" } else { "SUBSCRIBE" });
        // Ending all subscriptions is confirmed once for each, and once if there were none. This
        // is known only now: subscriptions pipelined before it have been confirmed meanwhile.
        let of_sort = self.subscriptions.iter().filter(|(other, _)| other == sort).count();
        let expected = if channels == 0 { of_sort.max(1) } else { channels };
        let due = self.confirmations_due.unwrap_or(expected) - 1;
        self.confirmations_due = (due > 0).then_some(due);

        let entry = (sort.to_owned(), channel.unwrap_or_default());
        if ends {
            self.subscriptions.remove(&entry);
        } else {
            self.subscriptions.insert(entry);
        }
        if due > 0 { Role::Part } else { Role::Last }
    }
}

/// An error reply with this text.
pub(super) fn error(text: &str) -> Vec<u8> {
    // A line break would end the reply early and shift all that follows.
    format!("-{}\r\n", text.replace(['\r', '\n'], " ")).into_bytes()
}

fn text(frame: &Frame) -> Option<Vec<u8>> {
    match frame {
        Frame::Bulk(bytes) | Frame::Simple(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

fn upper(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(sort: char, words: &[&str]) -> Vec<u8> {
        let mut out = format!("{sort}{}\r\n", words.len());
        for word in words {
            out += &format!("${}\r\n{word}\r\n", word.len());
        }
        out.into_bytes()
    }

    fn unit(words: &[&str]) -> Unit {
        Requests::new(1).next(&mut array('*', words)).unwrap().unwrap()
    }

    fn roles(replies: &mut Replies, bytes: &[u8], head: Option<&Expects>) -> Vec<Role> {
        let mut buffer = bytes.to_vec();
        let mut roles = Vec::new();
        while let Some(piece) = replies.next(&mut buffer, head).unwrap() {
            roles.push(piece.role);
        }
        roles
    }

    #[test]
    fn a_request_is_named_in_upper_case() {
        let unit = unit(&["evalsha", "abc", "1", "Key"]);
        let request = unit.request.unwrap();
        assert_eq!((request.name.as_str(), unit.expects), ("EVALSHA", Expects::Frame));
        assert_eq!(request.args, [b"abc".to_vec(), b"1".to_vec(), b"Key".to_vec()]);
    }

    #[test]
    fn an_empty_command_expects_nothing() {
        let mut buffer = b"\r\n*0\r\nPING\r\n".to_vec();
        let mut requests = Requests::new(1);
        for _ in 0..2 {
            let unit = requests.next(&mut buffer).unwrap().unwrap();
            assert_eq!((unit.request, unit.expects), (None, Expects::Nothing));
        }
        assert_eq!(requests.next(&mut buffer).unwrap().unwrap().request.unwrap().name, "PING");
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for words in [&["PSYNC", "?", "-1"][..], &["client", "reply", "off"]] {
            let mut buffer = array('*', words);
            assert!(Requests::new(1).next(&mut buffer).is_err());
            assert!(!buffer.is_empty(), "the bytes are still to be passed");
        }
    }

    #[test]
    fn a_marked_push_never_answers() {
        let mut replies = Replies::new(1);
        let push = array('>', &["message", "c", "m"]);
        let bytes = [push.as_slice(), b"+OK\r\n"].concat();
        let got = roles(&mut replies, &bytes, Some(&Expects::Frame));
        assert!(matches!(&got[0], Role::Push(push) if push.name == "MESSAGE"), "{got:?}");
        assert_eq!(got[1], Role::Last);
        assert_eq!(roles(&mut replies, b"+OK\r\n", None), [Role::Loose]);
        // An array that happens to look like a message is a reply on such a connection.
        let array = array('*', &["message", "c", "m"]);
        assert_eq!(roles(&mut replies, &array, Some(&Expects::Frame)), [Role::Last]);
    }

    #[test]
    fn subscriptions_are_confirmed_one_by_one_in_both_versions() {
        for sort in ['*', '>'] {
            let mut replies = Replies::new(1);
            let head = unit(&["SUBSCRIBE", "a", "b"]).expects;
            let first = array(sort, &["subscribe", "a"]);
            let second = array(sort, &["subscribe", "b"]);
            assert_eq!(roles(&mut replies, &first, Some(&head)), [Role::Part]);
            let message = array(sort, &["message", "a", "hello"]);
            let push = roles(&mut replies, &message, Some(&head));
            assert!(matches!(&push[0], Role::Push(push) if push.args[1] == b"hello"), "{push:?}");
            assert_eq!(roles(&mut replies, &second, Some(&head)), [Role::Last]);

            let all = unit(&["UNSUBSCRIBE"]).expects;
            let a = array(sort, &["unsubscribe", "a"]);
            let b = array(sort, &["unsubscribe", "b"]);
            assert_eq!(roles(&mut replies, &a, Some(&all)), [Role::Part]);
            assert_eq!(roles(&mut replies, &b, Some(&all)), [Role::Last]);
            assert_eq!(roles(&mut replies, &a, Some(&all)), [Role::Last], "none are left");
        }
    }

    #[test]
    fn without_a_subscription_an_array_is_a_reply() {
        let message = array('*', &["message", "a", "hello"]);
        let got = roles(&mut Replies::new(1), &message, Some(&Expects::Frame));
        assert_eq!(got, [Role::Last]);
    }

    #[test]
    fn a_refused_subscription_is_answered_at_once() {
        let mut replies = Replies::new(1);
        let head = unit(&["SUBSCRIBE", "a", "b"]).expects;
        assert_eq!(roles(&mut replies, b"-NOPERM no\r\n", Some(&head)), [Role::Last]);
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(error("ERR a\r\n+OK"), b"-ERR a  +OK\r\n");
    }
}
