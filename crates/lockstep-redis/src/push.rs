//! What the server says without being asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_core::Token;
use lockstep_lock::{Inbox, Signal};
use redis::{Cmd, PushKind, Value};

/// What a connection is listened to for.
#[derive(Clone)]
pub(crate) enum Ear {
    /// Nothing.
    Deaf,
    /// Words on a channel of its own.
    Channel { inbox: Inbox, channel: String },
    /// Changes of keys that were read through it.
    Changes(Changes),
}

/// Who hears of changes, and whether the server tells of them.
#[derive(Clone)]
pub(crate) struct Changes {
    pub(crate) hear: Arc<dyn Fn(Changed<'_>) + Send + Sync>,
    /// Whether the server has agreed, when it was last asked.
    pub(crate) told: Arc<AtomicBool>,
    /// Whether what the connection changes itself is told as well.
    pub(crate) own: bool,
}

/// What may be different now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed<'a> {
    /// This key. The server does not tell of it again before it is read again.
    Key(&'a [u8]),
    /// Any: changes may have been missed.
    All,
}

impl Ear {
    /// The server has said something unasked.
    pub(crate) fn hear(&self, kind: &PushKind, data: &[Value]) {
        match (kind, self) {
            (PushKind::Message, Self::Channel { inbox, .. }) => {
                if let Some(signal) = read(data) {
                    inbox.deliver(signal);
                }
            }
            (PushKind::Invalidate, Self::Changes(changes)) => {
                changed(data).for_each(|changed| (changes.hear)(changed));
            }
            _ => {}
        }
    }

    /// What was said may have been missed.
    pub(crate) fn missed(&self) {
        match self {
            Self::Deaf => {}
            Self::Channel { inbox, .. } => inbox.deliver(Signal::AskAllAgain),
            Self::Changes(changes) => (changes.hear)(Changed::All),
        }
    }
}

impl Changes {
    pub(crate) fn are_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }
}

/// Asks the server to tell of changes of what is read. With `own` also of those that come through the same
/// connection: they free a lock for others who wait there.
pub(crate) fn listen(own: bool) -> Cmd {
    let mut listen = redis::cmd("CLIENT");
    listen.arg("TRACKING").arg("ON");
    if !own {
        listen.arg("NOLOOP");
    }
    listen
}

/// Reads `[keys]`, or `[nothing]` when the whole database was emptied.
fn changed(data: &[Value]) -> impl Iterator<Item = Changed<'_>> {
    let (keys, all) = match data {
        [Value::Array(keys)] => (&keys[..], None),
        _ => (&[][..], Some(Changed::All)),
    };
    let keys = keys.iter().map(|key| match key {
        Value::BulkString(key) => Changed::Key(key),
        _ => Changed::All,
    });
    keys.chain(all)
}

/// Reads `[channel, words]`. Words that we do not know are ignored: a newer release may say them.
fn read(data: &[Value]) -> Option<Signal> {
    let [_, Value::BulkString(words)] = data else { return None };
    let words = std::str::from_utf8(words).ok()?;
    let (what, rest) = words.split_once(' ')?;
    let (claim, rest) = rest.split_once(' ')?;
    let claim = claim.parse().ok()?;
    match what {
        "granted" => Some(Signal::Granted { claim, token: Some(Token::new(rest.parse().ok()?)) }),
        "lost" => Some(Signal::Lost { claim, reason: rest.to_owned() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lockstep_core::ClaimId;

    use super::*;

    fn said(words: &str) -> Option<Signal> {
        read(&[Value::BulkString(b"in".to_vec()), Value::BulkString(words.into())])
    }

    #[test]
    fn words_become_signals() {
        let claim = ClaimId::from_u128(0xfeed);
        assert_eq!(
            said(&format!("granted {claim} 1760000000000001")),
            Some(Signal::Granted { claim, token: Some(Token::new(1_760_000_000_000_001)) })
        );
        assert_eq!(
            said(&format!("lost {claim} moved to\nanother host ")),
            Some(Signal::Lost { claim, reason: "moved to\nanother host ".into() })
        );
        assert_eq!(
            said(&format!("lost {claim} ")),
            Some(Signal::Lost { claim, reason: "".into() })
        );
    }

    #[test]
    fn keys_that_changed_are_named() {
        let key = |name: &str| Value::BulkString(name.into());
        let told = |data: &[Value]| changed(data).map(|changed| format!("{changed:?}")).collect();
        let several: Vec<String> = told(&[Value::Array(vec![key("a"), key("b")])]);
        assert_eq!(several, ["Key([97])", "Key([98])"]);
        let flushed: Vec<String> = told(&[Value::Nil]);
        assert_eq!(flushed, ["All"]);
    }

    #[test]
    fn strange_words_are_ignored() {
        for words in ["", "granted", "granted 7 7", "granted x", "hello world again"] {
            assert_eq!(said(words), None, "{words}");
        }
        assert_eq!(said(&format!("granted {} x", ClaimId::new())), None);
        assert_eq!(read(&[Value::Nil]), None);
    }
}
