//! What clients write down.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use lockstep_core::time::{Clock, Moment};
use lockstep_lock::Guard;
use lockstep_lock::clock::SystemClock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of CLOCK_BOOTTIME.
    pub at_ns: u64,
    /// Who; unique among the clients of a history.
    pub client: String,
    /// Which of that client's acquisitions. Entering again belongs to the one that holds.
    pub attempt: u64,
    /// The lock.
    pub key: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened to an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// Written before the request is sent.
    Asked,
    /// Written after somebody has seen it in the queue.
    Queued,
    /// Written after the grant was heard of.
    Granted {
        /// Its token.
        token: Option<u64>,
    },
    /// The client looked, and found that it may trust its lock at least until then.
    Trusted {
        /// The end of trust, as known by now.
        until_ns: u64,
    },
    /// Written before the release is sent.
    ReleaseCalled,
    /// Trust ended at this moment of the client's clock, whenever the line was written.
    TrustEnded {
        /// The end of trust.
        until_ns: u64,
    },
    /// It does not want the lock any more, or has lost its place; it cannot complain later.
    GaveUp,
}

/// Writes down what one client sees.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    client: String,
    attempts: AtomicU64,
    sink: Mutex<Sink>,
}

enum Sink {
    Memory(Vec<Event>),
    File(File),
}

impl Recorder {
    /// A log in memory, for the tasks of one process.
    pub fn in_memory(client: impl Into<String>) -> Self {
        Self::new(client, Sink::Memory(Vec::new()))
    }

    /// A log in a file, for a process of its own. Each line is with the kernel before the call
    /// that wrote it returns, so killing the process loses none.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn to_file(client: impl Into<String>, path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self::new(client, Sink::File(file)))
    }

    fn new(client: impl Into<String>, sink: Sink) -> Self {
        let (client, sink) = (client.into(), Mutex::new(sink));
        Self(Arc::new(Shared { client, attempts: AtomicU64::new(0), sink }))
    }

    /// Starts an acquisition; call it before the request is sent.
    pub fn asks(&self, key: impl Into<String>) -> Attempt {
        let number = self.0.attempts.fetch_add(1, Ordering::Relaxed);
        let attempt = Attempt { recorder: self.clone(), number, key: key.into(), until_ns: 0 };
        attempt.write(What::Asked);
        attempt
    }

    /// What was written so far; empty for a log in a file.
    pub fn events(&self) -> Vec<Event> {
        match &*self.0.sink.lock() {
            Sink::Memory(events) => events.clone(),
            Sink::File(_) => Vec::new(),
        }
    }
}

/// One acquisition in a log.
pub struct Attempt {
    recorder: Recorder,
    number: u64,
    key: String,
    until_ns: u64,
}

impl Attempt {
    /// Somebody has seen it in the queue.
    pub fn queued(&self) {
        self.write(What::Queued);
    }

    /// The grant was heard of.
    pub fn granted(&mut self, guard: &Guard) {
        self.write(What::Granted { token: guard.token().map(|token| token.get()) });
        self.looks(guard);
    }

    /// Notes until when the guard trusts itself. A client that may die without a word looks now
    /// and then: the last look is what it is judged by.
    pub fn looks(&mut self, guard: &Guard) {
        let until = guard.trusted_until();
        if until > Moment::ZERO {
            self.until_ns = until.as_nanos();
            self.write(What::Trusted { until_ns: self.until_ns });
        }
    }

    /// Call it before the guard is released or dropped.
    pub fn releases(&mut self, guard: &Guard) {
        if !guard.is_trusted() {
            self.lost();
        }
        self.write(What::ReleaseCalled);
    }

    /// Trust has ended by itself; call [`looks`](Self::looks) before, while it can be seen.
    pub fn lost(&self) {
        self.write(What::TrustEnded { until_ns: self.until_ns });
    }

    /// It does not want the lock any more, or has lost its place.
    pub fn gave_up(&self) {
        self.write(What::GaveUp);
    }

    fn write(&self, what: What) {
        let Shared { client, sink, .. } = &*self.recorder.0;
        let at_ns = SystemClock.now().as_nanos();
        let (client, key) = (client.clone(), self.key.clone());
        let event = Event { at_ns, client, attempt: self.number, key, what };
        match &mut *sink.lock() {
            Sink::Memory(events) => events.push(event),
            Sink::File(file) => {
                let mut line = serde_json::to_vec(&event).expect("an event is always JSON");
                line.push(b'\n');
                file.write_all(&line).expect("a test that cannot write its log cannot be judged");
            }
        }
    }
}

/// The events of a log file.
pub(super) fn read(path: &Path) -> Result<Vec<Event>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the log {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("not an event: {line}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_processes_can_be_read_again_and_a_cut_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.jsonl");
        let recorder = Recorder::to_file("one", &path).unwrap();
        let attempt = recorder.asks("a\"b");
        attempt.queued();
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"at_ns\":1,")
            .unwrap();
        let events = read(&path).unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!((events[1].key.as_str(), events[1].what), ("a\"b", What::Queued));
    }
}
