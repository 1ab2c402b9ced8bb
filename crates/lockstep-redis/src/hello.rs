//! How a connection begins: it is made, and both sides say who they are.

use std::io;
use std::sync::atomic::Ordering;

use redis::{Cmd, PushKind, RedisError, Value, cmd};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::config::Config;
use crate::frame;
use crate::line::{Reader, Socket, Writer};
use crate::push::{self, Ear};

/// Makes a connection that listens for what the `ear` wants to hear.
pub(crate) async fn connect(
    config: &Config,
    password: Option<&str>,
    ear: &Ear,
) -> Result<Socket, RedisError> {
    let mut tcp = lockstep_net::tcp(&config.host, config.port).await?;
    match &config.tls {
        None => {
            let (id, heard) = introduce(&mut tcp, config, password, ear).await?;
            let (reader, writer) = tcp.into_split();
            Ok(Socket { reader: Reader::Tcp(reader), writer: Writer::Tcp(writer), id, heard })
        }
        Some(trust) => {
            let mut tls = lockstep_net::tls(&config.host, tcp, trust).await?;
            let (id, heard) = introduce(&mut tls, config, password, ear).await?;
            let (reader, writer) = tokio::io::split(tls);
            Ok(Socket { reader: Reader::Tls(reader), writer: Writer::Tls(writer), id, heard })
        }
    }
}

/// How the answer to one of the first commands is taken.
enum Taken {
    /// The answer to `HELLO` says how the server calls the connection.
    Named,
    /// An error ends the connection.
    Must,
    /// Older servers do not know it.
    May,
    /// The answer to `SUBSCRIBE` comes as if it had not been asked for.
    Subscribed,
    /// Whoever listens is told whether it was.
    Tracked,
}

/// Says who we are and what we want to hear, in one breath; answers with how the server calls the
/// connection, and what was heard beyond that.
async fn introduce(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    config: &Config,
    password: Option<&str>,
    ear: &Ear,
) -> Result<(Option<i64>, Vec<u8>), RedisError> {
    let words = words(config, password, ear);
    let mut said = vec![];
    words.iter().for_each(|(word, _)| word.write_packed_command(&mut said));
    stream.write_all(&said).await?;
    stream.flush().await?;
    let (mut id, mut heard) = (None, vec![]);
    for (_, taken) in &words {
        let mut answer = next(stream, &mut heard).await?;
        // What is said unasked meanwhile is no answer; before we listen it is nothing to us either.
        while let Value::Push { kind, .. } = &answer
            && *kind != PushKind::Subscribe
        {
            answer = next(stream, &mut heard).await?;
        }
        match (taken, ear, answer) {
            (Taken::May, ..) => {}
            (Taken::Tracked, Ear::Changes(changes), answer) => {
                let refused = matches!(answer, Value::ServerError(_));
                changes.told.store(!refused, Ordering::Relaxed);
            }
            (_, _, Value::ServerError(refusal)) => return Err(refusal.into()),
            (Taken::Named, _, answer) => id = named(&answer),
            (Taken::Subscribed, _, Value::Push { kind: PushKind::Subscribe, .. }) => {}
            (Taken::Subscribed, ..) => return Err(strange()),
            (Taken::Must | Taken::Tracked, ..) => {}
        }
    }
    Ok((id, heard))
}

/// How the server calls the connection, by its answer to `HELLO`.
fn named(told: &Value) -> Option<i64> {
    let Value::Map(told) = told else { return None };
    told.iter().find_map(|(name, value)| match (name, value) {
        (Value::BulkString(name), Value::Int(id)) if name == b"id" => Some(*id),
        _ => None,
    })
}

fn words(config: &Config, password: Option<&str>, ear: &Ear) -> Vec<(Cmd, Taken)> {
    let command = |words: &[&str]| {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        command
    };
    let mut hello = command(&["HELLO", "3"]);
    if let Some(password) = password {
        hello.arg("AUTH").arg(config.user.as_deref().unwrap_or("default")).arg(password);
    }
    let mut words = vec![(hello, Taken::Named)];
    if config.db != 0 {
        words.push((command(&["SELECT", &config.db.to_string()]), Taken::Must));
    }
    for (name, value) in [("LIB-NAME", "lockstep"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
        words.push((command(&["CLIENT", "SETINFO", name, value]), Taken::May));
    }
    match ear {
        Ear::Deaf => {}
        Ear::Channel { channel, .. } => {
            words.push((command(&["SUBSCRIBE", channel]), Taken::Subscribed));
        }
        Ear::Changes(changes) => words.push((push::listen(changes.own), Taken::Tracked)),
    }
    words
}

/// The next value; what follows it is left in `heard`.
async fn next(
    stream: &mut (impl AsyncRead + Unpin),
    heard: &mut Vec<u8>,
) -> Result<Value, RedisError> {
    loop {
        if let Some((value, length)) = frame::first(heard)? {
            heard.drain(..length);
            return Ok(value);
        }
        if stream.read_buf(heard).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

fn strange() -> RedisError {
    RedisError::from((redis::ErrorKind::Parse, "no answer to SUBSCRIBE"))
}
