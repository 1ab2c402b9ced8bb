use std::fmt;

use lockstep_core::Token;
use parking_lot::Mutex;

/// A resource that checks tokens: it remembers the largest it has seen and refuses smaller ones.
/// This is the part that no lock can do for it.
#[derive(Debug, Default)]
pub struct Fence {
    accepted: Mutex<Vec<Token>>,
}

/// A write with a token that is smaller than one already seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// The token of the write.
    pub token: Token,
    /// The largest one seen.
    pub newest: Token,
}

impl Fence {
    /// A write with this token.
    ///
    /// # Errors
    /// [`Stale`], and the write has not happened.
    pub fn write(&self, token: Token) -> Result<(), Stale> {
        let mut accepted = self.accepted.lock();
        match accepted.last().copied() {
            Some(newest) if token < newest => Err(Stale { token, newest }),
            _ => {
                accepted.push(token);
                Ok(())
            }
        }
    }

    /// The tokens of all writes that were accepted, in order.
    pub fn accepted(&self) -> Vec<Token> {
        self.accepted.lock().clone()
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a write with the token {} came after one with {}", self.token, self.newest)
    }
}

impl std::error::Error for Stale {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_token_is_refused_and_the_same_one_is_not() {
        let fence = Fence::default();
        let (old, new) = (Token::new(1), Token::new(2));
        fence.write(old).unwrap();
        fence.write(new).unwrap();
        fence.write(new).unwrap();
        assert_eq!(fence.write(old), Err(Stale { token: old, newest: new }));
        assert_eq!(fence.accepted(), [old, new, new]);
    }
}
