//! Wake-ups between processes: one named pipe per lane, in a folder beside the database.
//!
//! Whoever grants a lock to a waiter writes one line into that waiter's pipe after the commit. All
//! of it is a hint: a line that is lost (a full pipe, a dead client, no right to write) costs the
//! waiter time, never the lock. Lanes opened from the same [`Sqlite`](super::Sqlite) value reach
//! each other without a pipe.

use std::collections::HashMap;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{ClaimId, Token};
use lockstep_lock::{Inbox, Signal};
use parking_lot::Mutex;
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Writes up to this many bytes are never mixed with others', on any Unix.
const LINE_BYTES: usize = 512;

/// What a pipe holds on Linux; one read empties it.
const PIPE_BYTES: usize = 64 * 1024;

/// A pipe as full as this may have refused a line.
const NEARLY_FULL: usize = PIPE_BYTES - 8 * LINE_BYTES;

/// A draft that has not got its name after this long belongs to a client that died on the way.
const DRAFT_AGE: Duration = Duration::from_secs(600);

/// The name of a lane's pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InboxId(u128);

/// What the outside must be told after a commit.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) claim: ClaimId,
    /// Where; `None` if the claim came through a lane that nobody waits on.
    pub(super) inbox: Option<InboxId>,
    pub(super) signal: Signal,
}

/// The inboxes of the lanes of one [`Sqlite`](super::Sqlite) value.
#[derive(Default)]
pub(super) struct Post {
    here: Mutex<HashMap<InboxId, Inbox>>,
}

/// A lane's own inbox, gone with the lane.
pub(super) struct Letterbox {
    pub(super) id: InboxId,
    post: Arc<Post>,
    pipe: Option<Pipe>,
}

struct Pipe {
    path: PathBuf,
    reader: JoinHandle<()>,
}

/// The folder of the pipes of a database.
pub(super) fn folder(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".wake");
    name.into()
}

impl Post {
    /// Passes a signal on, as well as it goes. Never blocks.
    pub(super) fn tell(&self, folder: &Path, told: Told) {
        let Some(id) = told.inbox else { return };
        let here = self.here.lock().get(&id).cloned();
        match here {
            Some(inbox) => inbox.deliver(told.signal),
            None => {
                if let Err(error) = write_line(&folder.join(id.file_name()), &told.signal) {
                    tracing::debug!(%error, claim = %told.claim, "a hint was not delivered");
                }
            }
        }
    }
}

impl Letterbox {
    /// Takes signals for `inbox` from now on; the second is why no other process can send any.
    pub(super) fn open(post: Arc<Post>, folder: &Path, inbox: Inbox) -> (Self, Option<io::Error>) {
        let id = InboxId(Uuid::new_v4().as_u128());
        post.here.lock().insert(id, inbox.clone());
        let (pipe, error) = match Pipe::open(folder, id, inbox) {
            Ok(pipe) => (Some(pipe), None),
            Err(error) => (None, Some(error)),
        };
        (Self { id, post, pipe }, error)
    }
}

impl Drop for Letterbox {
    fn drop(&mut self) {
        self.post.here.lock().remove(&self.id);
        if let Some(pipe) = &self.pipe {
            pipe.reader.abort();
            // Whoever cleans up next will find it otherwise.
            let _ = std::fs::remove_file(&pipe.path);
        }
    }
}

impl Pipe {
    fn open(folder: &Path, id: InboxId, inbox: Inbox) -> io::Result<Self> {
        // Only its owner may send hints, or see who waits.
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => remove_stale(folder),
        }
        let (draft, path) = (folder.join(format!("{id}.new")), folder.join(id.file_name()));
        make_fifo(&draft)?;
        // It gets its name when it has a reader: a pipe with a name and no reader is stale.
        let opened = open_both_ways(&draft).and_then(|fd| {
            std::fs::rename(&draft, &path)?;
            pipe::Receiver::from_owned_fd(fd)
        });
        let receiver = opened.inspect_err(|_| {
            let _ = std::fs::remove_file(&draft);
            let _ = std::fs::remove_file(&path);
        })?;
        Ok(Self { path, reader: tokio::spawn(read_lines(receiver, inbox)) })
    }
}

#[cfg(not(target_vendor = "apple"))]
fn make_fifo(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mkfifoat(rustix::fs::CWD, path, Mode::RUSR | Mode::WUSR)?)
}

#[cfg(target_vendor = "apple")]
fn make_fifo(_: &Path) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "no named pipes on this system"))
}

/// Reader and writer at once. The reading lane never sees the end of the pipe when the last
/// sender goes; and a sender can never be killed by SIGPIPE when the reader goes.
fn open_both_ways(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A dead client's pipe takes the line and forgets it; a full one refuses it.
fn write_line(path: &Path, signal: &Signal) -> io::Result<()> {
    let Some(line) = encode(signal) else { return Ok(()) };
    let pipe = open_both_ways(path)?;
    rustix::io::write(pipe, line.as_bytes())?;
    Ok(())
}

/// Removes the pipes that nobody reads. Names are never used twice, so what is stale stays so.
fn remove_stale(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let stale = match path.extension().and_then(|extension| extension.to_str()) {
            Some("fifo") => has_no_reader(&path),
            Some("new") => entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > DRAFT_AGE)),
            _ => false,
        };
        if stale {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn has_no_reader(path: &Path) -> bool {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    matches!(rustix::fs::open(path, flags, Mode::empty()), Err(Errno::NXIO))
}

async fn read_lines(mut receiver: pipe::Receiver, inbox: Inbox) {
    let mut buffer = vec![0; PIPE_BYTES];
    while let Ok(length @ 1..) = receiver.read(&mut buffer).await {
        for line in buffer[..length].split(|byte| *byte == b'\n') {
            if let Some(signal) = str::from_utf8(line).ok().and_then(decode) {
                inbox.deliver(signal);
            }
        }
        if length >= NEARLY_FULL {
            inbox.deliver(Signal::AskAllAgain);
        }
    }
    inbox.deliver(Signal::AskAllAgain);
}

fn encode(signal: &Signal) -> Option<String> {
    let mut line = match signal {
        Signal::Granted { claim, token: Some(token) } => format!("granted {claim} {token}"),
        Signal::Lost { claim, reason } => format!("lost {claim} {reason}").replace('\n', " "),
        // These are never sent to another process.
        Signal::Granted { token: None, .. } | Signal::AskAgain { .. } | Signal::AskAllAgain => {
            return None;
        }
    };
    line.truncate(line.floor_char_boundary(LINE_BYTES - 1));
    line.push('\n');
    Some(line)
}

fn decode(line: &str) -> Option<Signal> {
    let mut words = line.splitn(3, ' ');
    let (kind, claim, rest) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    match kind {
        "granted" => {
            let token = Some(Token::new(rest.parse().ok()?));
            Some(Signal::Granted { claim, token })
        }
        "lost" => Some(Signal::Lost { claim, reason: rest.to_owned() }),
        _ => None,
    }
}

impl InboxId {
    fn file_name(self) -> String {
        format!("{self}.fifo")
    }
}

impl fmt::Display for InboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl ToSql for InboxId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.to_be_bytes().to_vec()))
    }
}

impl FromSql for InboxId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        <[u8; 16]>::column_result(value).map(|bytes| Self(u128::from_be_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_pipe() {
        let claim = ClaimId::from_u128(7);
        let granted = Signal::Granted { claim, token: Some(Token::new(1 << 32 | 5)) };
        let lost = Signal::Lost { claim, reason: "a reason with words".into() };
        for signal in [granted, lost] {
            let line = encode(&signal).unwrap();
            assert_eq!(decode(line.trim_end_matches('\n')), Some(signal));
        }
        assert_eq!(decode("granted 7 x"), None);
        assert_eq!(decode(""), None);
    }

    #[test]
    fn a_long_reason_is_one_short_line() {
        let reason = "ä\n".repeat(400);
        let line = encode(&Signal::Lost { claim: ClaimId::from_u128(7), reason }).unwrap();
        assert!(line.len() <= LINE_BYTES, "{}", line.len());
        assert_eq!(line.matches('\n').count(), 1);
    }
}
