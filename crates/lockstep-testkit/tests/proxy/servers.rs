//! Servers and clients that speak just enough of each protocol.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lockstep_testkit::proxy::postgres::{
    Message, Opening, encode, error_response, parse_backend, parse_frontend, parse_opening,
    ready_for_query,
};
use lockstep_testkit::proxy::resp::parse_request;
use lockstep_testkit::proxy::{Protocol, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Turns a hang into a failure.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("the test hangs")
}

/// What a server has heard, in order; the end of a connection is heard as `<end>`.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<watch::Sender<Vec<String>>>);

impl Heard {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    pub(crate) async fn wait_for(&self, what: &str) {
        let mut heard = self.0.subscribe();
        within(heard.wait_for(|all| all.iter().any(|one| one == what))).await.unwrap();
    }

    fn add(&self, what: String) {
        self.0.send_modify(|all| all.push(what));
    }
}

/// A proxy before a server that answers `ECHO`, publishes to itself on `PUSH` (marked) and `TELL`
/// (unmarked), confirms `SUBSCRIBE`, talks nonsense on `BABBLE`, hangs up on `QUIT`, and says `OK`
/// to all else.
pub(crate) async fn resp() -> (Proxy, Heard) {
    let (addr, heard) = resp_server().await;
    (Proxy::start(addr, Protocol::Resp), heard)
}

/// The server alone.
pub(crate) async fn resp_server() -> (SocketAddr, Heard) {
    let heard = Heard::default();
    (listen(heard.clone(), resp_session).await, heard)
}

/// A proxy before a server that completes every statement, reporting it as its own command tag.
/// `NOTIFY`, `COPY` and `DIE` do what they say.
pub(crate) async fn postgres() -> (Proxy, Heard) {
    let heard = Heard::default();
    let addr = listen(heard.clone(), postgres_session).await;
    (Proxy::start(addr, Protocol::Postgres), heard)
}

async fn listen<F>(heard: Heard, session: fn(TcpStream, Heard) -> F) -> SocketAddr
where
    F: Future<Output = Option<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let heard = heard.clone();
            tokio::spawn(async move {
                session(stream, heard.clone()).await;
                heard.add("<end>".to_owned());
            });
        }
    });
    addr
}

/// A stream from which parsers take what they understand.
pub(crate) struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Peer {
    pub(crate) async fn connect(proxy: &Proxy) -> Self {
        Self::new(TcpStream::connect(proxy.addr()).await.unwrap())
    }

    fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// The next thing `parse` recognises; `None` at the end of the stream.
    async fn next<T>(&mut self, parse: impl Fn(&[u8]) -> Option<(T, usize)>) -> Option<T> {
        loop {
            if let Some((parsed, length)) = parse(&self.buffer) {
                self.buffer.drain(..length);
                return Some(parsed);
            }
            if !matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..)) {
                return None;
            }
        }
    }

    /// The next line.
    pub(crate) async fn line(&mut self) -> String {
        let line = self.next(|bytes| {
            let end = bytes.windows(2).position(|two| two == b"\r\n")?;
            Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), end + 2))
        });
        within(line).await.expect("a line, not the end")
    }

    /// Exactly this many bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        let bytes = self.next(|bytes| bytes.get(..count).map(|bytes| (bytes.to_vec(), count)));
        within(bytes).await.expect("bytes, not the end")
    }

    /// The next backend message.
    pub(crate) async fn message(&mut self) -> Message {
        within(self.next(|bytes| parse_backend(bytes).unwrap())).await.expect("a message")
    }

    /// The stream ends here, with nothing unread before it.
    pub(crate) async fn end(&mut self) {
        let more = within(self.next(|bytes| (!bytes.is_empty()).then(|| (bytes.to_vec(), 0))));
        assert_eq!(more.await, None, "the stream should have ended");
    }

    pub(crate) async fn startup(proxy: &Proxy) -> Self {
        let mut peer = Self::connect(proxy).await;
        peer.send(startup_packet()).await;
        while peer.message().await.tag != b'Z' {}
        peer
    }

    pub(crate) async fn query(&mut self, sql: &str) {
        self.send(encode(b'Q', format!("{sql}\0").as_bytes())).await;
    }

    /// Prepares, binds and runs in one request.
    pub(crate) async fn execute(&mut self, sql: &str, parameter: &str) {
        let mut bind = b"\0\0\0\0\0\x01".to_vec();
        bind.extend_from_slice(&i32::try_from(parameter.len()).unwrap().to_be_bytes());
        bind.extend_from_slice(parameter.as_bytes());
        bind.extend_from_slice(&[0, 0]);
        let messages = [
            encode(b'P', format!("\0{sql}\0\0\0").as_bytes()),
            encode(b'B', &bind),
            encode(b'E', b"\0\0\0\0\0"),
            encode(b'S', b""),
        ];
        self.send(messages.concat()).await;
    }

    /// The command tag of the next reply, which is read to its end.
    pub(crate) async fn completed(&mut self) -> String {
        let mut tag = None;
        loop {
            let message = self.message().await;
            match message.tag {
                b'Z' => return tag.expect("a reply with a command tag"),
                b'C' => tag = message.query(),
                b'1' | b'2' => {}
                other => panic!("unexpected {}", char::from(other)),
            }
        }
    }
}

pub(crate) fn startup_packet() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0app\0\0";
    [&i32::try_from(body.len() + 4).unwrap().to_be_bytes(), body.as_slice()].concat()
}

async fn resp_session(stream: TcpStream, heard: Heard) -> Option<()> {
    let mut peer = Peer::new(stream);
    loop {
        let args = peer.next(|bytes| parse_request(bytes).unwrap_or(None)).await?;
        if args.is_empty() {
            continue;
        }
        let words: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
        heard.add(words.join(" "));
        let word = |at: usize| words.get(at).map_or("", AsRef::as_ref).to_owned();
        let message =
            |sort| format!("{sort}3\r\n+message\r\n+news\r\n${}\r\n{}\r\n", word(1).len(), word(1));
        let reply = match word(0).as_str() {
            "ECHO" => format!("+{}\r\n", word(1)),
            "PUSH" => message('>') + "+OK\r\n",
            "TELL" => message('*') + "+OK\r\n",
            "SUBSCRIBE" => (words[1..].iter())
                .map(|channel| format!("*3\r\n+subscribe\r\n+{channel}\r\n:1\r\n"))
                .collect(),
            "BABBLE" => "?what\r\n".to_owned(),
            "QUIT" => return Some(()),
            _ => "+OK\r\n".to_owned(),
        };
        peer.stream.write_all(reply.as_bytes()).await.ok()?;
    }
}

async fn postgres_session(stream: TcpStream, heard: Heard) -> Option<()> {
    let mut peer = Peer::new(stream);
    loop {
        match peer.next(|bytes| parse_opening(bytes).unwrap()).await? {
            Opening::Ssl => peer.stream.write_all(b"N").await.ok()?,
            Opening::GssEncryption => {
                peer.stream.write_all(b"G").await.ok()?;
                // From here on an echo, as unreadable to the proxy as encryption is.
                let bytes = peer.next(|bytes| (!bytes.is_empty()).then(|| (bytes.to_vec(), 0)));
                let bytes = bytes.await?;
                peer.stream.write_all(&bytes).await.ok()?;
            }
            Opening::Cancel => return Some(()),
            Opening::Startup(_) => break,
        }
    }
    heard.add("startup".to_owned());
    let greeting = [encode(b'R', &[0; 4]), encode(b'S', b"a\0b\0"), ready_for_query(b'I')];
    peer.stream.write_all(&greeting.concat()).await.ok()?;
    let mut sql = String::new();
    loop {
        let message = peer.next(|bytes| parse_frontend(bytes).unwrap()).await?;
        let done = |sql: &str| {
            [encode(b'C', format!("{sql}\0").as_bytes()), ready_for_query(b'I')].concat()
        };
        let reply = match message.tag {
            b'X' => return Some(()),
            b'P' => {
                sql = message.parse().unwrap().1;
                encode(b'1', b"")
            }
            b'B' => encode(b'2', b""),
            b'S' => {
                heard.add(sql.clone());
                done(&sql)
            }
            b'Q' => {
                let sql = message.query().unwrap();
                heard.add(sql.clone());
                match sql.as_str() {
                    "NOTIFY" => [encode(b'A', b"\0\0\0\x01orders\0freed\0"), done(&sql)].concat(),
                    "COPY" => encode(b'G', &[0, 0, 0]),
                    "DIE" => {
                        let bytes = error_response("FATAL", "57P01 going down");
                        peer.stream.write_all(&bytes).await.ok()?;
                        return Some(());
                    }
                    _ => done(&sql),
                }
            }
            b'd' => b"!raw!".to_vec(),
            _ => continue,
        };
        peer.stream.write_all(&reply).await.ok()?;
    }
}
