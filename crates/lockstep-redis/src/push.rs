//! What the server says without being asked.

use std::sync::Arc;

use lockstep_core::Token;
use lockstep_lock::{Inbox, Signal};
use redis::{PushInfo, PushKind, Value};

use crate::link::Breaks;

/// What connection number `number` does with pushes: signals go straight into the inbox, from the
/// task that reads the socket, and the end of the connection is noted.
pub(crate) fn receiver(
    inbox: Option<Inbox>,
    breaks: Arc<Breaks>,
    number: u64,
) -> impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static {
    move |push| {
        match push.kind {
            PushKind::Message => {
                if let (Some(inbox), Some(signal)) = (&inbox, read(&push.data)) {
                    inbox.deliver(signal);
                }
            }
            PushKind::Disconnection => breaks.note(number),
            _ => {}
        }
        Ok(())
    }
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
    fn strange_words_are_ignored() {
        for words in ["", "granted", "granted 7 7", "granted x", "hello world again"] {
            assert_eq!(said(words), None, "{words}");
        }
        assert_eq!(said(&format!("granted {} x", ClaimId::new())), None);
        assert_eq!(read(&[Value::Nil]), None);
    }
}
