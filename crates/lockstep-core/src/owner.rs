use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

/// The longest label in bytes; a longer one is cut, because it is for people only.
pub const MAX_LABEL_BYTES: usize = 200;

/// Who asks: a value, never a thread.
///
/// It may be cloned, sent to another task and kept as long as you like. Asking for a key that the
/// same owner already holds through the same handle enters again instead of waiting for itself.
///
/// ```
/// use lockstep_core::Owner;
///
/// let owner = Owner::new();
/// assert_eq!(owner, owner.clone());
/// assert_ne!(owner, Owner::new());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Uuid);

/// One acquisition, named before its first byte is sent, so that asking again after a lost reply
/// is asking for the same thing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(Uuid);

macro_rules! random_id {
    ($name:ident, $what:literal) => {
        impl $name {
            #[doc = concat!("A new ", $what, ", random and unguessable.")]
            #[expect(clippy::new_without_default, reason = "a default that differs each time lies")]
            pub fn new() -> Self {
                Self(Uuid::new_v4())
            }

            #[doc = concat!("The ", $what, " as a number, for stores and tests.")]
            pub const fn as_u128(self) -> u128 {
                self.0.as_u128()
            }

            #[doc = concat!("The ", $what, " as text, the same as its `Display`, which takes longer.")]
            pub fn encode(self, buffer: &mut [u8; 32]) -> &str {
                self.0.as_simple().encode_lower(buffer)
            }

            #[doc = concat!("The ", $what, " with this number.")]
            pub const fn from_u128(number: u128) -> Self {
                Self(Uuid::from_u128(number))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.encode(&mut [0; 32]))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                // `from_str_radix` alone would accept a sign and shorter text.
                if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(ParseIdError);
                }
                u128::from_str_radix(text, 16).map(Self::from_u128).map_err(|_| ParseIdError)
            }
        }
    };
}

random_id!(Owner, "owner");
random_id!(ClaimId, "claim id");

/// A text that is not 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id has exactly 32 hexadecimal digits")]
pub struct ParseIdError;

/// What people read when they ask who holds a lock: host, process, program.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Label(Arc<str>);

impl Label {
    /// A label from any text: control characters become spaces, and what is longer than
    /// [`MAX_LABEL_BYTES`] is cut.
    pub fn new(text: impl AsRef<str>) -> Self {
        let mut clean = String::new();
        for character in text.as_ref().chars() {
            let character = if character.is_control() { ' ' } else { character };
            if clean.len() + character.len_utf8() > MAX_LABEL_BYTES {
                break;
            }
            clean.push(character);
        }
        Self(clean.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_their_text() {
        let id = ClaimId::from_u128(7);
        assert_eq!(id.to_string(), "00000000000000000000000000000007");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("+0000000000000000000000000000007".parse::<ClaimId>(), Err(ParseIdError));
        assert_eq!("7".parse::<Owner>(), Err(ParseIdError));
    }

    #[test]
    fn labels_cannot_break_a_log_line() {
        assert_eq!(Label::new("a\nb").as_str(), "a b");
        assert_eq!(Label::new("ö".repeat(150)).as_str().len(), MAX_LABEL_BYTES);
    }
}
