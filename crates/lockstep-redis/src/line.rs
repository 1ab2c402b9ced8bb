//! One connection: requests go out in their order, answers come back in the same.
//!
//! Who asks while nobody else does writes to the socket itself, and its words are on their way before it
//! waits for anything. What is asked meanwhile is gathered, and a task sends it together.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lockstep_net::TlsStream;
use parking_lot::Mutex;
use redis::{RedisError, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::frame;
use crate::push::Ear;
use crate::words::Words;

/// A buffer that has grown larger than this is not kept.
const USUAL: usize = 64 * 1024;

/// What is read at once.
const ROOM: usize = 8 * 1024;

/// A connection that has been greeted, and what it has said since.
pub(crate) struct Socket {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// How the server calls it, if it has said so.
    pub(crate) id: Option<i64>,
    pub(crate) heard: Vec<u8>,
}

pub(crate) enum Reader {
    Tcp(OwnedReadHalf),
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

pub(crate) enum Writer {
    Tcp(OwnedWriteHalf),
    Tls(WriteHalf<TlsStream<TcpStream>>),
}

/// A connection in use; it is closed when this is dropped.
pub(crate) struct Line {
    shared: Arc<Shared>,
    id: Option<i64>,
    tasks: [AbortHandle; 2],
}

struct Shared {
    out: Mutex<Out>,
    /// Rung when there is something for the task that sends.
    gathered: Notify,
}

struct Out {
    /// Requests of which the socket has not taken all.
    unsent: Vec<u8>,
    /// Who waits for an answer, in the order of the requests.
    waiting: VecDeque<oneshot::Sender<Value>>,
    /// How many have been answered.
    answered: u64,
    /// With the task that sends while it does; nowhere once the connection is broken.
    writer: Option<Writer>,
    broken: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection broke; the request may have arrived.
    Lost,
    /// Nothing came in time.
    Silent,
}

/// An answer that is still to come.
pub(crate) struct Reply {
    answer: oneshot::Receiver<Value>,
    /// Who has found the server silent gives the connection up; it stays open for those who have not.
    _line: Arc<Line>,
}

/// Held by a task of the line: without it, the line is broken, however it ended.
struct Alive<B: Fn()> {
    shared: Arc<Shared>,
    broke: B,
}

impl<B: Fn()> Drop for Alive<B> {
    fn drop(&mut self) {
        // In this order: who finds it broken must be able to wait for the next one.
        (self.broke)();
        self.shared.break_up();
    }
}

impl Line {
    /// Takes the connection into use, on the current runtime. What the server says unasked goes to the
    /// `ear`; `broke` is called when the connection is gone, perhaps more than once. A server that owes
    /// an answer and says nothing for `patience`, or for twice as long at most, counts as gone.
    pub(crate) fn start(
        socket: Socket,
        ear: Ear,
        patience: Duration,
        broke: impl Fn() + Clone + Send + 'static,
    ) -> Self {
        let Socket { reader, writer, id, heard } = socket;
        let (unsent, waiting) = (vec![], VecDeque::new());
        let writer = Some(writer);
        let out = Mutex::new(Out { unsent, waiting, answered: 0, writer, broken: false });
        let shared = Arc::new(Shared { out, gathered: Notify::new() });
        let hearing = Alive { shared: Arc::clone(&shared), broke: broke.clone() };
        let sending = Alive { shared: Arc::clone(&shared), broke };
        let hear = tokio::spawn(async move {
            let why = match reader {
                Reader::Tcp(tcp) => hear(tcp, heard, &hearing.shared, &ear).await,
                Reader::Tls(tls) => hear(tls, heard, &hearing.shared, &ear).await,
            };
            tracing::debug!(%why, "connection to Redis ended");
        });
        let send = tokio::spawn(async move {
            if let Err(why) = sending.shared.send_on(patience).await {
                tracing::debug!(%why, "connection to Redis broken");
            }
        });
        Self { shared, id, tasks: [hear.abort_handle(), send.abort_handle()] }
    }

    /// How the server calls it, if it has said so.
    pub(crate) fn id(&self) -> Option<i64> {
        self.id
    }

    /// Sends a command, once. It is on its way when this returns, or is as soon as those before it are.
    /// Nothing, if the connection is broken: then nothing was sent.
    pub(crate) fn send(self: &Arc<Self>, words: &dyn Words) -> Option<Reply> {
        let (tell, answer) = oneshot::channel();
        let mut out = self.shared.out.lock();
        if out.broken {
            return None;
        }
        words.write(&mut out.unsent);
        out.waiting.push_back(tell);
        if out.waiting.len() == 1 {
            out.write_at_once();
        }
        let gathered = !out.unsent.is_empty();
        drop(out);
        if gathered {
            self.shared.gathered.notify_one();
        }
        Some(Reply { answer, _line: Arc::clone(self) })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Reply {
    /// What the server says to it; without a limit but the line's own patience.
    pub(crate) async fn answer(self) -> Result<Value, Failure> {
        self.answer.await.map_err(|_| Failure::Lost)
    }

    /// The same with one.
    pub(crate) async fn within(self, patience: Duration) -> Result<Value, Failure> {
        timeout(patience, self.answer()).await.unwrap_or(Err(Failure::Silent))
    }
}

impl Out {
    fn next_asked(&mut self) -> Option<oneshot::Sender<Value>> {
        self.answered += 1;
        self.waiting.pop_front()
    }

    /// As far as the socket takes it without waiting; the rest, and what is wrong with the socket, is for
    /// the task that sends.
    fn write_at_once(&mut self) {
        if let Some(Writer::Tcp(tcp)) = &self.writer
            && let Ok(written) = tcp.try_write(&self.unsent)
        {
            self.unsent.drain(..written);
        }
    }
}

impl Shared {
    /// Sends what is gathered, until that fails or the connection is broken anyway.
    async fn send_on(&self, patience: Duration) -> io::Result<()> {
        let silent = || io::Error::from(io::ErrorKind::TimedOut);
        let mut owed = None;
        let mut look_at = Instant::now() + patience;
        loop {
            let taken = {
                let mut out = self.out.lock();
                match out.writer.take() {
                    None => return Ok(()),
                    Some(writer) if out.unsent.is_empty() => {
                        out.writer = Some(writer);
                        None
                    }
                    Some(writer) => Some((writer, std::mem::take(&mut out.unsent))),
                }
            };
            let Some((mut writer, mut bytes)) = taken else {
                if timeout_at(look_at, self.gathered.notified()).await.is_err() {
                    // Also for who has gone: nobody else may notice, and no probe is sent to a peer that
                    // has not taken what was sent to it.
                    let owes = self.owes();
                    if owed.is_some() && owed == owes {
                        return Err(silent());
                    }
                    (owed, look_at) = (owes, Instant::now() + patience);
                }
                continue;
            };
            let sent = async {
                match &mut writer {
                    Writer::Tcp(tcp) => tcp.write_all(&bytes).await,
                    Writer::Tls(tls) => {
                        tls.write_all(&bytes).await?;
                        tls.flush().await
                    }
                }
            };
            timeout(patience, sent).await.map_err(|_| silent())??;
            let mut out = self.out.lock();
            if out.broken {
                return Ok(());
            }
            out.writer = Some(writer);
            // What was gathered meanwhile has a buffer of its own already.
            if out.unsent.is_empty() && bytes.capacity() <= USUAL {
                bytes.clear();
                out.unsent = bytes;
            }
        }
    }

    /// Which answer the server owes, if it owes one.
    fn owes(&self) -> Option<u64> {
        let out = self.out.lock();
        (!out.waiting.is_empty()).then_some(out.answered)
    }

    /// Nothing is sent any more, and nobody waits any longer.
    fn break_up(&self) {
        {
            let mut out = self.out.lock();
            out.broken = true;
            out.waiting.clear();
            out.writer = None;
            out.unsent = vec![];
        }
        self.gathered.notify_one();
    }
}

/// Passes on what the server says, until it says no more.
async fn hear(
    mut from: impl AsyncRead + Unpin,
    mut bytes: Vec<u8>,
    shared: &Shared,
    ear: &Ear,
) -> RedisError {
    loop {
        let mut read = 0;
        loop {
            match frame::first(&bytes[read..]) {
                Ok(Some((Value::Push { kind, data }, length))) => {
                    ear.hear(&kind, &data);
                    read += length;
                }
                Ok(Some((answer, length))) => {
                    let asked = shared.out.lock().next_asked();
                    // Who has gone meanwhile does not want to know; what nobody has asked for has
                    // shifted all answers after it.
                    match asked {
                        Some(asked) => drop(asked.send(answer)),
                        None => return unasked(),
                    }
                    read += length;
                }
                Ok(None) => break,
                Err(error) => return error,
            }
        }
        bytes.drain(..read);
        if bytes.is_empty() && bytes.capacity() > USUAL {
            bytes = vec![];
        }
        bytes.reserve(ROOM);
        match from.read_buf(&mut bytes).await {
            Ok(1..) => {}
            Ok(0) => return io::Error::from(io::ErrorKind::UnexpectedEof).into(),
            Err(error) => return error.into(),
        }
    }
}

fn unasked() -> RedisError {
    RedisError::from((redis::ErrorKind::Parse, "an answer that nobody asked for"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lockstep_lock::Inbox;
    use redis::Cmd;
    use tokio::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A line, the server's end of it, and how often it was found broken.
    async fn line(patience: Duration) -> (Arc<Line>, TcpStream, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (reader, writer) = ours.expect("a connection").into_split();
        let (reader, writer) = (Reader::Tcp(reader), Writer::Tcp(writer));
        let broken = Arc::new(AtomicUsize::new(0));
        let broke = {
            let broken = Arc::clone(&broken);
            move || {
                broken.fetch_add(1, Ordering::SeqCst);
            }
        };
        let socket = Socket { reader, writer, id: None, heard: vec![] };
        let ear = Ear::Channel { inbox: Inbox::new(), channel: "in".to_owned() };
        let line = Arc::new(Line::start(socket, ear, patience, broke));
        (line, theirs.expect("the other end").0, broken)
    }

    fn echo(words: &str) -> Cmd {
        let mut echo = redis::cmd("ECHO");
        echo.arg(words);
        echo
    }

    /// Answers `ECHO` as a server does, with a push before each answer.
    async fn serve(mut stream: TcpStream) {
        let mut bytes = vec![];
        loop {
            while let Some((Value::Array(parts), length)) = frame::first(&bytes).expect("a command")
            {
                let [_, Value::BulkString(words)] = &parts[..] else { panic!("{parts:?}") };
                let head = format!(">2\r\n+message\r\n+x\r\n${}\r\n", words.len());
                let answer = [head.as_bytes(), words, b"\r\n"].concat();
                stream.write_all(&answer).await.expect("a reader");
                bytes.drain(..length);
            }
            if stream.read_buf(&mut bytes).await.expect("a writer") == 0 {
                return;
            }
        }
    }

    /// The connection is closed from our side.
    async fn ends(theirs: &mut TcpStream) {
        let mut rest = vec![];
        let end = timeout(PATIENCE, theirs.read_to_end(&mut rest)).await;
        end.expect("an end in time").expect("an end");
    }

    fn told(answer: Result<Value, Failure>) -> String {
        match answer {
            Ok(Value::BulkString(words)) => String::from_utf8(words).expect("text"),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn everybody_gets_the_answer_to_what_it_asked() {
        let (line, theirs, broken) = line(PATIENCE).await;
        // Nobody reads yet: the first is sent at once, the others are gathered behind it.
        let replies: Vec<Reply> =
            (0..1000).map(|n| line.send(&echo(&n.to_string())).expect("a line")).collect();
        tokio::spawn(serve(theirs));
        for (n, reply) in replies.into_iter().enumerate() {
            // Who has gone shifts nobody's answer.
            if n % 3 != 0 {
                assert_eq!(told(reply.within(PATIENCE).await), n.to_string());
            }
        }
        assert_eq!(broken.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn more_than_the_socket_takes_at_once_arrives_whole() {
        let (line, theirs, _) = line(PATIENCE).await;
        let large = "x".repeat(8 << 20);
        let first = line.send(&echo(&large)).expect("a line");
        let second = line.send(&echo("then")).expect("a line");
        tokio::spawn(serve(theirs));
        assert!(told(first.within(PATIENCE).await) == large);
        assert_eq!(told(second.within(PATIENCE).await), "then");
        let third = line.send(&echo("and then")).expect("a line");
        assert_eq!(told(third.within(PATIENCE).await), "and then");
    }

    #[tokio::test]
    async fn what_was_asked_before_the_end_may_have_arrived_and_what_after_has_not() {
        let (line, theirs, broken) = line(PATIENCE).await;
        let asked = line.send(&echo("a")).expect("a line");
        drop(theirs);
        assert_eq!(asked.within(PATIENCE).await, Err(Failure::Lost));
        assert!(line.send(&echo("b")).is_none());
        assert!(broken.load(Ordering::SeqCst) > 0);
    }

    #[tokio::test]
    async fn who_says_nothing_is_not_waited_for() {
        let (line, _theirs, broken) = line(PATIENCE).await;
        let asked = line.send(&echo("a")).expect("a line");
        assert_eq!(asked.within(Duration::from_millis(20)).await, Err(Failure::Silent));
        assert_eq!(broken.load(Ordering::SeqCst), 0, "who asked decides");
    }

    #[tokio::test]
    async fn who_owes_an_answer_and_says_nothing_is_gone_also_when_nobody_waits() {
        let patience = Duration::from_millis(30);
        let (line, mut theirs, broken) = line(patience).await;
        drop(line.send(&echo("a")).expect("a line"));
        ends(&mut theirs).await;
        assert!(broken.load(Ordering::SeqCst) > 0);
        assert!(line.send(&echo("b")).is_none());
    }

    #[tokio::test]
    async fn who_owes_nothing_may_be_silent() {
        // A machine that stands still for less is not a server that does.
        let patience = Duration::from_millis(300);
        let (line, theirs, broken) = line(patience).await;
        tokio::spawn(serve(theirs));
        for words in ["a", "b"] {
            let asked = line.send(&echo(words)).expect("a line");
            assert_eq!(told(asked.within(PATIENCE).await), words);
            tokio::time::sleep(patience * 3).await;
        }
        assert_eq!(broken.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_connection_that_is_given_up_stays_open_for_who_still_waits() {
        let (line, theirs, _) = line(PATIENCE).await;
        let asked = line.send(&echo("a")).expect("a line");
        drop(line);
        tokio::spawn(serve(theirs));
        assert_eq!(told(asked.within(PATIENCE).await), "a");
    }

    #[tokio::test]
    async fn an_answer_that_nobody_asked_for_ends_the_line() {
        for words in ["+surprise\r\n", "surprise\r\n"] {
            let (line, mut theirs, broken) = line(PATIENCE).await;
            theirs.write_all(words.as_bytes()).await.expect("a reader");
            ends(&mut theirs).await;
            assert!(line.send(&echo("a")).is_none());
            assert!(broken.load(Ordering::SeqCst) > 0);
        }
    }
}
