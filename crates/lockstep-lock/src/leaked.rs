use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lockstep_core::{Key, Label, Token};

use crate::store::Claim;

/// A lock that nobody looks after: what [`Guard::leak`](crate::Guard::leak) leaves and
/// [`Locks::adopt`](crate::Locks::adopt) takes. It survives being printed and read again, so it can
/// be handed to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the lock runs out unless this is adopted"]
pub struct Leaked {
    pub(crate) claim: Claim,
    pub(crate) token: Option<Token>,
}

impl Leaked {
    /// The key.
    pub fn key(&self) -> &Key {
        &self.claim.key
    }

    /// Its token, which stays the same when it is adopted.
    pub fn token(&self) -> Option<Token> {
        self.token
    }
}

/// `1 <claim> <owner> <ttl ms> <share> <token or -> <key>`: the key is last because it may have spaces.
impl fmt::Display for Leaked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { id, owner, ttl, share, key, .. } = &self.claim;
        write!(f, "1 {id} {owner} {} {share} ", ttl.as_millis())?;
        match self.token {
            Some(token) => write!(f, "{token} {key}"),
            None => write!(f, "- {key}"),
        }
    }
}

/// A text that is not a leaked lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a leaked lock: expected `1 CLAIM OWNER TTL_MS SHARE TOKEN KEY`")]
pub struct ParseLeakedError;

impl FromStr for Leaked {
    type Err = ParseLeakedError;

    fn from_str(text: &str) -> Result<Self, ParseLeakedError> {
        let fail = |_| ParseLeakedError;
        let mut parts = text.splitn(7, ' ');
        let mut part = || parts.next().ok_or(ParseLeakedError);
        if part()? != "1" {
            return Err(ParseLeakedError);
        }
        let id = part()?.parse().map_err(|_| ParseLeakedError)?;
        let owner = part()?.parse().map_err(|_| ParseLeakedError)?;
        let ttl = Duration::from_millis(part()?.parse().map_err(fail)?);
        let share = part()?.parse().map_err(|_| ParseLeakedError)?;
        let token = match part()? {
            "-" => None,
            number => Some(Token::new(number.parse().map_err(fail)?)),
        };
        let key = Key::new(part()?).map_err(|_| ParseLeakedError)?;
        let claim = Claim { id, key, owner, label: Label::default(), share, ttl, wait: false };
        Ok(Self { claim, token })
    }
}

#[cfg(test)]
mod tests {
    use lockstep_core::{ClaimId, Owner};

    use super::*;
    use crate::share::Share;

    #[test]
    fn survives_its_text() {
        let claim = Claim {
            id: ClaimId::new(),
            key: Key::new("a b  c ").unwrap(),
            owner: Owner::new(),
            label: Label::default(),
            share: Share::Permits { count: 2, of: 5 },
            ttl: Duration::from_secs(3),
            wait: false,
        };
        let leaked = Leaked { claim, token: Some(Token::new(7)) };
        assert_eq!(leaked.to_string().parse(), Ok(leaked));
        assert_eq!("1 2 3".parse::<Leaked>(), Err(ParseLeakedError));
    }
}
