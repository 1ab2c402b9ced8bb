//! What a node's data say: who made it, for people and for views. Nothing is decided by it, except
//! whether an operator has broken the hold.

use std::time::Duration;

use lockstep_core::{ClaimId, Label, Owner, Token};
use lockstep_lock::Share;
use lockstep_lock::store::Claim;

const FORM: &str = "lockstep 1";
/// What Curator writes into a node whose holder shall give it back.
const REVOKE: &[u8] = b"__REVOKE__";

/// The data of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) claim: ClaimId,
    pub(crate) owner: Owner,
    pub(crate) label: Label,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    /// Of a downgraded hold: the token it was granted with.
    pub(crate) token: Option<Token>,
    /// Why an operator has broken it.
    pub(crate) broken: Option<String>,
}

impl Note {
    pub(crate) fn new(claim: &Claim) -> Self {
        Self {
            claim: claim.id,
            owner: claim.owner,
            label: claim.label.clone(),
            share: claim.share,
            ttl: claim.ttl,
            token: None,
            broken: None,
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { claim, owner, share, ttl, .. } = self;
        let mut text = format!("{FORM}\nclaim={claim}\nowner={owner}\nshare={share}\n");
        text.push_str(&format!("ttl_ms={}\nlabel={}\n", ttl.as_millis(), self.label));
        if let Some(token) = self.token {
            text.push_str(&format!("token={token}\n"));
        }
        // Last: an operator's words may have any number of lines.
        if let Some(reason) = &self.broken {
            text.push_str("broken=");
            text.push_str(reason);
        }
        text.into_bytes()
    }

    /// Reads what we wrote; `None` for what somebody else did.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?;
        let text = text.strip_prefix(FORM)?.strip_prefix('\n')?;
        let (head, broken) = match text.split_once("\nbroken=") {
            Some((head, reason)) => (head, Some(reason.to_owned())),
            None => (text, None),
        };
        let field =
            |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        Some(Self {
            claim: field("claim")?.parse().ok()?,
            owner: field("owner")?.parse().ok()?,
            label: Label::new(field("label")?),
            share: field("share")?.parse().ok()?,
            ttl: Duration::from_millis(field("ttl_ms")?.parse().ok()?),
            token: field("token").and_then(|token| token.parse().ok()).map(Token::new),
            broken,
        })
    }
}

/// What a changed node says about why its holder must go; `None` if nothing.
pub(crate) fn reason(data: &[u8]) -> Option<String> {
    if data == REVOKE {
        return Some("revoked through Curator".to_owned());
    }
    Note::read(data)?.broken
}

/// The data with which a hold is broken: ours says why, and a stranger's gets Curator's own word.
pub(crate) fn broken(data: &[u8], reason: &str) -> Vec<u8> {
    match Note::read(data) {
        Some(note) => Note { broken: Some(reason.to_owned()), ..note }.write(),
        None => REVOKE.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_survives_its_text() {
        let note = Note {
            claim: ClaimId::from_u128(1),
            owner: Owner::from_u128(2),
            label: Label::new("host 7 = program"),
            share: Share::Permits { count: 2, of: 5 },
            ttl: Duration::from_millis(1500),
            token: Some(Token::new(9)),
            broken: Some("two\nlines, broken=yes".into()),
        };
        assert_eq!(Note::read(&note.write()), Some(note.clone()));
        let plain = Note { broken: None, token: None, ..note };
        assert_eq!(Note::read(&plain.write()), Some(plain.clone()));
        let data = broken(&plain.write(), "why");
        assert_eq!(reason(&data).as_deref(), Some("why"));
        assert_eq!(reason(&plain.write()), None);
    }

    #[test]
    fn a_stranger_is_asked_in_its_own_words() {
        assert_eq!(Note::read(b"10.0.0.7"), None);
        assert_eq!(broken(b"10.0.0.7", "why"), REVOKE);
        assert!(reason(REVOKE).is_some());
        assert_eq!(reason(b"10.0.0.7"), None);
    }
}
