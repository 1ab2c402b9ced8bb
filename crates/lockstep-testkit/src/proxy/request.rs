//! What a rule and the wire log see of one message, the same for every protocol.

/// One message as it crossed the proxy.
///
/// For RESP, `name` is the first argument in upper case and `args` the remaining arguments as sent.
///
/// For PostgreSQL, `name` says what the group of messages up to its `Sync` amounts to: `QUERY` (a
/// simple query), `EXECUTE` (it runs a statement), `PREPARE` (it only parses one), or `BIND`,
/// `DESCRIBE`, `CLOSE`, `CALL`, `SYNC`; before and around these `SSLREQUEST`, `GSSENCREQUEST`,
/// `STARTUP`, `PASSWORD`, `CANCEL` and `TERMINATE`. `sql` is the text, also when the statement was
/// prepared by an earlier request, and `args` are the Bind parameters (a NULL is empty).
///
/// For MySQL, `name` is the command: `QUERY`, `PREPARE`, `EXECUTE`, `CLOSE` (of a statement),
/// `PING`, `QUIT`, `RESET` (of the connection), `INITDB`, `CHANGEUSER`…; before these `HANDSHAKE`
/// (its `args` are user and database) and `AUTH`. `sql` and the `args` of an `EXECUTE` are as with
/// PostgreSQL, numbers and times in their binary form.
///
/// For ZooKeeper, `name` is `CONNECT`, `CREATE`, `DELETE`, `EXISTS`, `GETDATA`, `SETDATA`, `CHILDREN`,
/// `MULTI`, `SYNC`, `PING`, `AUTH`, `CLOSE`…, and its one argument the path (of a multi, that of its first
/// part). A push is a `NOTICE` of a watch, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The connection, counted from 1 in the order the proxy accepted them.
    pub connection: u64,
    /// Whether this is a request, a push, or a note of the proxy itself.
    pub kind: Kind,
    /// The command, see above. Of a push: its kind in upper case, such as `MESSAGE`,
    /// `INVALIDATE`, `NOTIFICATION`, `NOTICE` or `PARAMETERSTATUS`.
    pub name: String,
    /// The raw arguments, see above. Of a push: its elements.
    pub args: Vec<Vec<u8>>,
    /// The SQL text, empty if there is none. Of [`Kind::Raw`]: why framing was given up.
    pub sql: String,
}

/// What sort of message a [`Request`] describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sent by the client.
    Request,
    /// Sent by the server without being asked.
    Push,
    /// Not a message: from here on the connection is passed through unframed.
    Raw,
}

impl Request {
    /// Whether any argument contains these bytes.
    pub fn has_arg(&self, bytes: &[u8]) -> bool {
        self.args.iter().any(|arg| contains(arg, bytes))
    }

    /// Whether this request makes a database run a statement, rather than only prepare it.
    pub fn executes(&self) -> bool {
        self.kind == Kind::Request && matches!(self.name.as_str(), "QUERY" | "EXECUTE")
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || haystack.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containment_is_by_bytes() {
        assert!(contains(b"lock:a", b"ock"));
        assert!(contains(b"x", b""));
        assert!(!contains(b"ock", b"lock"));
        assert!(!contains(b"", b"a"));
    }
}
