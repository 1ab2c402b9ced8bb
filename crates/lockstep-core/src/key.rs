use std::fmt;
use std::sync::Arc;

/// The longest key in bytes of UTF-8: the shortest index limit of the stores we speak to leaves
/// room for it even when every byte has to be escaped.
pub const MAX_KEY_BYTES: usize = 255;

/// The name of what is protected.
///
/// Two different texts are always two different keys: no case folding, no trimming, no
/// normalisation, in any store.
///
/// ```
/// use lockstep_core::Key;
///
/// let names = ["Job", "job", "job ", "jöb", "a/b"];
/// let keys: std::collections::HashSet<Key> =
///     names.iter().map(|name| Key::new(name).unwrap()).collect();
/// assert_eq!(keys.len(), 5);
/// assert!(Key::new("").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Checks a name and makes it a key.
    ///
    /// # Errors
    /// Empty names, names over [`MAX_KEY_BYTES`] and names with control characters are refused.
    pub fn new(name: impl AsRef<str>) -> Result<Self, KeyError> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(KeyError::Empty);
        }
        if name.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLong { bytes: name.len() });
        }
        if let Some((at, character)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return Err(KeyError::Control { at, character });
        }
        Ok(Self(name.into()))
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", &*self.0)
    }
}

/// Why a name cannot be a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The name has no characters.
    #[error("a lock name must have at least one character")]
    Empty,
    /// The name is longer than [`MAX_KEY_BYTES`].
    #[error("a lock name has at most {MAX_KEY_BYTES} bytes of UTF-8; this one has {bytes}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The name has a line break, NUL or another control character.
    #[error("a lock name has no control characters; this one has {character:?} at byte {at}")]
    Control {
        /// Where, in bytes.
        at: usize,
        /// Which one.
        character: char,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_in_bytes_and_is_named_in_the_message() {
        assert!(Key::new("x".repeat(MAX_KEY_BYTES)).is_ok());
        let error = Key::new("ö".repeat(128)).unwrap_err();
        assert_eq!(error, KeyError::TooLong { bytes: 256 });
        assert!(error.to_string().contains("255"));
    }

    #[test]
    fn control_characters_are_named() {
        let error = Key::new("a\nb").unwrap_err();
        assert_eq!(error, KeyError::Control { at: 1, character: '\n' });
    }
}
