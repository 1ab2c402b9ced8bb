//! One server that keeps plain locks: what can be done to a key, its value and its ttl. Each verb is one
//! atomic step at the server.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use lockstep_core::{Effect, ErrorKind, StoreError};
use redis::{Cmd, ServerError, Value};

use crate::error::{self, STORE};
use crate::link::{Dialer, Link};
use crate::push;
use crate::scripts::Script;
use crate::store::{millis, text};
use crate::words::Call;

macro_rules! script {
    ($name:ident, $file:literal) => {
        static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));
    };
}

script!(SET, "set.lua");
script!(EXTEND, "extend.lua");
script!(GIVE_BACK, "give_back.lua");
script!(BREAK, "break.lua");
script!(LOOK, "look.lua");

/// What is read of a value at most: more is nothing that we have written.
const VALUE_BYTES: usize = 1024;

/// One server.
pub(crate) struct Node {
    pub(crate) link: Link,
    /// How a key that has a value is deleted, as a [`Delete`].
    delete: AtomicU8,
}

/// A key, the value that it should have, and the ttl that it then gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) ttl: Duration,
}

/// What came of taking a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It has the value, for one ttl.
    Mine,
    /// It has another value, for this much longer; `None`: for ever.
    Others { left: Option<Duration>, value: Vec<u8> },
    /// It had the value, and was broken.
    Broken { reason: String },
}

/// What came of giving a key a fresh ttl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    /// It has the value, for one ttl from now.
    Mine,
    /// It is not there, or has another value.
    Gone,
    /// It had the value, and was broken.
    Broken { reason: String },
}

/// A key as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The first bytes of its value.
    pub(crate) value: Vec<u8>,
    /// How long it lives; `None`: for ever.
    pub(crate) left: Option<Duration>,
}

/// How a key is deleted if it has a value. Newer servers can without a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delete {
    /// By a script.
    Script = 0,
    /// `DELEX key IFEQ value`: Redis 8.4, Valkey 9.2.
    Delex = 1,
    /// `DELIFEQ key value`: Valkey 9.0.
    Delifeq = 2,
}

impl Node {
    /// Connects, and finds out what the server can do.
    pub(crate) async fn open(dialer: Dialer) -> Result<Self, StoreError> {
        let link = Link::open(dialer).await?;
        let delete = Delete::of(&link).await? as u8;
        Ok(Self { link, delete: AtomicU8::new(delete) })
    }

    /// Starts to connect to a server of which nothing is known yet.
    pub(crate) fn keep(dialer: Dialer) -> Self {
        Self { link: Link::keep(dialer), delete: AtomicU8::new(Delete::Script as u8) }
    }

    /// Whether the server tells of changes, for a connection that does not listen itself.
    pub(crate) async fn would_tell(&self) -> Result<bool, StoreError> {
        let told = self.link.call(&push::listen(true)).await?;
        let mut off = redis::cmd("CLIENT");
        self.link.call(off.arg("TRACKING").arg("OFF")).await?;
        Ok(!matches!(told, Value::ServerError(_)))
    }

    /// The same as [`set`](Self::set), cheaper for the server if the key is free and dearer if it is not.
    /// `call` is [`set_if_free`] of the lease.
    pub(crate) async fn set_free(&self, lease: &Lease, call: &Cmd) -> Result<Taken, StoreError> {
        match self.link.call(call).await? {
            Value::Okay => Ok(Taken::Mine),
            Value::Nil => self.set(lease).await,
            Value::ServerError(refusal) => Err(explain(&refusal, &lease.key)),
            other => Err(error::baffled(&lease.key, other)),
        }
    }

    /// Takes a key that is free, and keeps one that has the value already.
    pub(crate) async fn set(&self, lease: &Lease) -> Result<Taken, StoreError> {
        let mut call = Call::on(std::slice::from_ref(&lease.key));
        call.arg(&lease.value).number(millis(lease.ttl));
        match self.run(&SET, &call, &lease.key).await? {
            Value::Int(1) => Ok(Taken::Mine),
            Value::BulkString(reason) => Ok(Taken::Broken { reason: text(reason) }),
            Value::Array(parts) => match &parts[..] {
                [Value::Int(left_ms), Value::BulkString(value)] => {
                    Ok(Taken::Others { left: left(*left_ms), value: value.clone() })
                }
                _ => Err(error::baffled(&lease.key, parts)),
            },
            other => Err(error::baffled(&lease.key, other)),
        }
    }

    /// Gives keys that have their values a fresh ttl, and brings none back. Answers in order.
    pub(crate) async fn extend(&self, leases: &[Lease]) -> Result<Vec<Extended>, StoreError> {
        let Some(first) = leases.first() else { return Ok(vec![]) };
        let keys: Vec<String> = leases.iter().map(|lease| lease.key.clone()).collect();
        let mut call = Call::on(&keys);
        for lease in leases {
            call.arg(&lease.value).number(millis(lease.ttl));
        }
        match self.run(&EXTEND, &call, &first.key).await? {
            Value::Array(answers) if answers.len() == leases.len() => {
                let read = |(answer, lease): (Value, &Lease)| match answer {
                    Value::Int(1) => Ok(Extended::Mine),
                    Value::Int(0) => Ok(Extended::Gone),
                    Value::BulkString(reason) => Ok(Extended::Broken { reason: text(reason) }),
                    other => Err(error::baffled(&lease.key, other)),
                };
                answers.into_iter().zip(leases).map(read).collect()
            }
            other => Err(error::baffled(&first.key, other)),
        }
    }

    /// Deletes a key if it has this value, broken or not. Answers whether it had.
    pub(crate) async fn give_back(&self, key: &str, value: &str) -> Result<bool, StoreError> {
        if let Some(command) = self.delete().command(key, value) {
            match self.link.call(&command).await? {
                Value::Int(1) => return Ok(true),
                // It may be broken, which only the script knows how to read.
                Value::Int(0) => {}
                // Another server than the one that was asked what it can, or a right that is missing:
                // nothing was done, and the script can do without.
                Value::ServerError(refusal) if is_unable(&refusal) => {
                    tracing::debug!(refusal = refusal.code(), "deleting by script from now on");
                    self.delete.store(Delete::Script as u8, Ordering::Relaxed);
                }
                Value::ServerError(refusal) => return Err(explain(&refusal, key)),
                other => return Err(error::baffled(key, other)),
            }
        }
        let mut call = Call::on(&[key.to_owned()]);
        call.arg(value);
        self.yes_or_no(&GIVE_BACK, &call, key).await
    }

    /// Takes a key away from whoever has it: at once, or when its ttl ends. Answers whether anybody had it.
    pub(crate) async fn take_away(
        &self,
        key: &str,
        reason: &str,
        now: bool,
    ) -> Result<bool, StoreError> {
        let mut call = Call::on(&[key.to_owned()]);
        call.arg(reason).number(u64::from(now));
        self.yes_or_no(&BREAK, &call, key).await
    }

    /// The key as it is.
    pub(crate) async fn look(&self, key: &str) -> Result<Option<Seen>, StoreError> {
        let mut call = Call::on(&[key.to_owned()]);
        call.number(VALUE_BYTES as u64);
        match self.run(&LOOK, &call, key).await? {
            Value::Nil => Ok(None),
            Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
                Ok([Value::BulkString(value), Value::Int(left_ms)]) => {
                    Ok(Some(Seen { value, left: left(left_ms) }))
                }
                other => Err(error::baffled(key, other)),
            },
            other => Err(error::baffled(key, other)),
        }
    }

    fn delete(&self) -> Delete {
        match self.delete.load(Ordering::Relaxed) {
            1 => Delete::Delex,
            2 => Delete::Delifeq,
            _ => Delete::Script,
        }
    }

    async fn yes_or_no(&self, script: &Script, call: &Call, key: &str) -> Result<bool, StoreError> {
        match self.run(script, call, key).await? {
            Value::Int(1) => Ok(true),
            Value::Int(0) => Ok(false),
            other => Err(error::baffled(key, other)),
        }
    }

    async fn run(&self, script: &Script, call: &Call, key: &str) -> Result<Value, StoreError> {
        match script.answer(&self.link, call).await? {
            Value::ServerError(refusal) => Err(explain(&refusal, key)),
            answer => Ok(answer),
        }
    }
}

impl Delete {
    /// The best that the server knows.
    async fn of(link: &Link) -> Result<Self, StoreError> {
        let known = [("DELEX", Self::Delex), ("DELIFEQ", Self::Delifeq)];
        let mut ask = redis::cmd("COMMAND");
        ask.arg("INFO").arg(known.map(|(name, _)| name).as_slice());
        // Who may not ask, or asks a server that does not know, uses the script.
        let Value::Array(told) = link.call(&ask).await? else { return Ok(Self::Script) };
        let there =
            |(_, about): &(_, Value)| matches!(about, Value::Array(about) if !about.is_empty());
        let best = known.into_iter().zip(told).find(there);
        Ok(best.map_or(Self::Script, |((_, delete), _)| delete))
    }

    fn command(self, key: &str, value: &str) -> Option<Cmd> {
        match self {
            Self::Script => None,
            Self::Delex => {
                let mut command = redis::cmd("DELEX");
                command.arg(key).arg("IFEQ").arg(value);
                Some(command)
            }
            Self::Delifeq => {
                let mut command = redis::cmd("DELIFEQ");
                command.arg(key).arg(value);
                Some(command)
            }
        }
    }
}

/// The request that takes a key if it is free: the same for every server.
pub(crate) fn set_if_free(lease: &Lease) -> Cmd {
    let mut call = redis::cmd("SET");
    call.arg(&lease.key).arg(&lease.value).arg("NX").arg("PX").arg(millis(lease.ttl));
    call
}

fn left(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Whether the command itself was refused, and not what it was to do.
fn is_unable(refusal: &ServerError) -> bool {
    let unknown = || refusal.details().is_some_and(|told| told.contains("unknown command"));
    match refusal.code() {
        "NOPERM" => true,
        "ERR" => unknown(),
        _ => false,
    }
}

fn explain(refusal: &ServerError, key: &str) -> StoreError {
    let message = match refusal.code() {
        "FOREIGN" => {
            let kind = refusal.details().unwrap_or("something else");
            format!(
                "key {key} is a {kind} and not a string, so it is no lock: another program uses it; \
                 choose another name or ?prefix="
            )
        }
        "IMMORTAL" => format!(
            "key {key} has no ttl, so marked as broken it would never pass on: break it at once \
             (--now, break_lock_now) if its holder is gone"
        ),
        _ => return error::refused(refusal, key),
    };
    StoreError::new(STORE, ErrorKind::Foreign, Effect::None, message)
}
