use std::fmt;
use std::str::FromStr;

/// How much of a lock somebody takes. One rule serves them all: those who hold it together never
/// take more than its total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// All of it: an ordinary lock, or a writer.
    #[default]
    Exclusive,
    /// A reader's share: any number of readers hold it together, and no writer.
    Read,
    /// Some of a fixed number of permits.
    Permits {
        /// How many.
        count: u32,
        /// Of how many there are.
        of: u32,
    },
}

/// The total of a lock that is not made of permits: more than there can be readers.
pub const WHOLE: u32 = i32::MAX as u32;

/// The most permits a lock can be made of.
pub const MAX_PERMITS: u32 = 1_000_000;

impl Share {
    /// What it takes of the total.
    pub const fn weight(self) -> u32 {
        match self {
            Self::Exclusive => WHOLE,
            Self::Read => 1,
            Self::Permits { count, .. } => count,
        }
    }

    /// The total: all who hold a lock or wait for it must agree on it.
    pub const fn of(self) -> u32 {
        match self {
            Self::Exclusive | Self::Read => WHOLE,
            Self::Permits { of, .. } => of,
        }
    }

    /// The share that a store has written as these two numbers; `None` if it cannot have.
    pub const fn from_numbers(weight: u32, of: u32) -> Option<Self> {
        match (weight, of) {
            (WHOLE, WHOLE) => Some(Self::Exclusive),
            (1, WHOLE) => Some(Self::Read),
            (count, of) if 0 < count && count <= of && of <= MAX_PERMITS => {
                Some(Self::Permits { count, of })
            }
            _ => None,
        }
    }
}

/// One word, the same for people and for stores: `exclusive`, `read` or `2/5`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Read => f.write_str("read"),
            Self::Permits { count, of } => write!(f, "{count}/{of}"),
        }
    }
}

/// A word that is no share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a share is `exclusive`, `read` or `COUNT/OF`")]
pub struct ParseShareError;

impl FromStr for Share {
    type Err = ParseShareError;

    fn from_str(word: &str) -> Result<Self, ParseShareError> {
        let share = match word {
            "exclusive" => Some(Self::Exclusive),
            "read" => Some(Self::Read),
            _ => word.split_once('/').and_then(|(count, of)| {
                let of = of.parse().ok().filter(|of| *of <= MAX_PERMITS)?;
                Self::from_numbers(count.parse().ok()?, of)
            }),
        };
        share.ok_or(ParseShareError)
    }
}

/// What a total means, for people.
pub(crate) fn in_words(of: u32) -> String {
    match of {
        WHOLE => "a read-write lock".to_owned(),
        1 => "1 permit".to_owned(),
        of => format!("{of} permits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_survive_their_word_and_their_numbers() {
        let permits = Share::Permits { count: 2, of: 5 };
        for (share, word) in
            [(Share::Exclusive, "exclusive"), (Share::Read, "read"), (permits, "2/5")]
        {
            assert_eq!(share.to_string(), word);
            assert_eq!(word.parse(), Ok(share));
            assert_eq!(Share::from_numbers(share.weight(), share.of()), Some(share));
        }
        for nonsense in ["", "write", "0/5", "6/5", "1/2147483647", "-1/5", "5"] {
            assert_eq!(nonsense.parse::<Share>(), Err(ParseShareError), "{nonsense}");
        }
    }
}
