//! The wire log: what crossed the proxy, in order, for tests to judge by.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::request::{Kind, Request};

/// One line of the wire log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What was seen: a request, a push, or the note that a connection is no longer framed.
    pub request: Request,
    /// Whether the request was sent on to the server. Never true of pushes and notes.
    pub forwarded: bool,
    /// What became of the reply; of a push, of the push itself.
    pub reply: Reply,
}

/// What became of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The request has none.
    NotExpected,
    /// Not yet decided.
    Awaited,
    /// Passed to the client.
    Passed,
    /// Withheld from the client, by a rule or a switch.
    Swallowed,
    /// The client got other bytes instead.
    Replaced,
    /// The connection ended, or the request was never sent on, so that no reply came.
    Lost,
    /// The connection became unframed before the reply came.
    Untracked,
}

impl Seen {
    /// Whether the client got the server's own reply (of a push: the push).
    pub fn reply_passed(&self) -> bool {
        self.reply == Reply::Passed
    }
}

/// The log behind [`Proxy::log`](super::Proxy::log).
#[derive(Default)]
pub(super) struct Log {
    entries: Mutex<Entries>,
    changes: watch::Sender<()>,
}

#[derive(Default)]
struct Entries {
    /// Tickets below this belong to lines that were cleared.
    first: usize,
    seen: Vec<Seen>,
}

/// Names a line of the log while its reply is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(usize);

impl Log {
    pub(super) fn request(&self, request: Request, has_reply: bool) -> Ticket {
        let reply = if has_reply { Reply::Awaited } else { Reply::NotExpected };
        self.add(Seen { request, forwarded: false, reply })
    }

    pub(super) fn push(&self, push: Request, passed: bool) {
        let reply = if passed { Reply::Passed } else { Reply::Swallowed };
        self.add(Seen { request: push, forwarded: false, reply });
    }

    pub(super) fn raw(&self, connection: u64, why: &str) {
        let note = Request {
            connection,
            kind: Kind::Raw,
            name: "RAW".to_owned(),
            args: Vec::new(),
            sql: why.to_owned(),
        };
        self.add(Seen { request: note, forwarded: false, reply: Reply::NotExpected });
    }

    pub(super) fn forwarded(&self, ticket: Ticket) {
        self.change(ticket, |seen| seen.forwarded = true);
    }

    pub(super) fn reply(&self, ticket: Ticket, reply: Reply) {
        self.change(ticket, |seen| seen.reply = reply);
    }

    pub(super) fn clear(&self) {
        let mut entries = self.entries.lock();
        entries.first += entries.seen.len();
        entries.seen.clear();
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&[Seen]) -> T) -> T {
        read(&self.entries.lock().seen)
    }

    /// Waits until the log satisfies `reached`, looking again after every change.
    pub(super) async fn wait_until(&self, reached: impl Fn(&[Seen]) -> bool) {
        let mut changes = self.changes.subscribe();
        while !self.read(&reached) {
            // The sender lives in `self`, so the channel cannot close under us.
            let _ = changes.changed().await;
        }
    }

    fn add(&self, seen: Seen) -> Ticket {
        let mut entries = self.entries.lock();
        entries.seen.push(seen);
        let ticket = Ticket(entries.first + entries.seen.len() - 1);
        drop(entries);
        self.changes.send_replace(());
        ticket
    }

    fn change(&self, ticket: Ticket, change: impl FnOnce(&mut Seen)) {
        let mut entries = self.entries.lock();
        let at = ticket.0.checked_sub(entries.first);
        if let Some(seen) = at.and_then(|at| entries.seen.get_mut(at)) {
            change(seen);
        }
        drop(entries);
        self.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping() -> Request {
        Request {
            connection: 1,
            kind: Kind::Request,
            name: "PING".into(),
            args: vec![],
            sql: String::new(),
        }
    }

    #[test]
    fn a_cleared_line_is_not_confused_with_its_successor() {
        let log = Log::default();
        let old = log.request(ping(), true);
        log.clear();
        let new = log.request(ping(), true);
        log.reply(old, Reply::Passed);
        assert_eq!(log.read(|seen| seen[0].reply), Reply::Awaited);
        log.reply(new, Reply::Swallowed);
        log.forwarded(new);
        log.read(|seen| assert!(seen[0].forwarded && seen[0].reply == Reply::Swallowed));
    }

    #[tokio::test]
    async fn waiting_is_woken_by_a_change() {
        let log = std::sync::Arc::new(Log::default());
        let ticket = log.request(ping(), true);
        let waiter = log.clone();
        let wait = tokio::spawn(async move {
            waiter.wait_until(|seen| seen.iter().any(Seen::reply_passed)).await;
        });
        tokio::task::yield_now().await;
        assert!(!wait.is_finished());
        log.reply(ticket, Reply::Passed);
        let limit = std::time::Duration::from_secs(20);
        tokio::time::timeout(limit, wait).await.expect("the test hangs").unwrap();
    }
}
