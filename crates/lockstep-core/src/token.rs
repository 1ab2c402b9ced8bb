use std::fmt;

/// A number that only grows per key: a later owner has a larger token, and entering again never
/// raises it. A resource that remembers the largest token it has seen can refuse everyone older.
///
/// ```
/// use lockstep_core::Token;
///
/// assert!(Token::new(41) < Token::new(42));
/// assert_eq!(Token::new(42).to_string(), "42");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Token(u64);

impl Token {
    /// The token with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, to be sent to the resource.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
