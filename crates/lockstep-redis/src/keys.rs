//! The names of keys and channels, layout version 1.
//!
//! ```text
//! <prefix>:1:{<name>}      text: who holds it alone and the token, or that several do
//! <prefix>:1:{<name>}:h    hash: the particulars of several that hold it
//! <prefix>:1:{<name>}:e    sorted set: these, by the end of their leases
//! <prefix>:1:{<name>}:q    sorted set: who waits, by arrival
//! <prefix>:1:{<name>}:w    hash: the waiters' particulars
//! <prefix>:1:o:<owner>     sorted set: the locks where this owner waits, or did
//! <prefix>:1:in:<id>       channel: the inbox of one handle
//! <prefix>:1:inb:<id>      the same of a handle whose holds end with its connection
//! ```
//!
//! The braces are Redis's hash tag. In the name `%`, `{` and `}` are escaped, so that two names are
//! always two keys and the tag always ends where the name does.

use lockstep_core::{Key, Owner};
use uuid::Uuid;

/// The prefix when the URL names none.
pub(crate) const DEFAULT_PREFIX: &str = "lockstep";

/// Names everything under one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    root: String,
}

impl Layout {
    /// The layout under `prefix`, if that is a prefix.
    pub(crate) fn new(prefix: &str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let valid = (1..=64).contains(&prefix.len()) && prefix.bytes().all(plain);
        valid.then(|| Self { root: format!("{prefix}:1:") })
    }

    /// The key of a lock; the scripts derive the others.
    pub(crate) fn lock(&self, key: &Key) -> String {
        let name = key.as_str();
        let mut lock = String::with_capacity(self.root.len() + name.len() + 2);
        lock.push_str(&self.root);
        lock.push('{');
        escape(name, &mut lock);
        lock.push('}');
        lock
    }

    /// Where `acquire.lua` notes what this owner waits for.
    pub(crate) fn waits(&self, owner: Owner) -> String {
        format!("{}o:{owner}", self.root)
    }

    /// A new inbox channel.
    pub(crate) fn inbox(&self, bound: bool) -> String {
        let kind = if bound { "inb" } else { "in" };
        format!("{}{kind}:{}", self.root, Uuid::new_v4().simple())
    }

    /// What SCAN is to match for all keys of the locks whose names start with `start`.
    pub(crate) fn pattern(&self, start: &str) -> String {
        let mut text = format!("{}{{", self.root);
        escape(start, &mut text);
        literally(&text) + "*}*"
    }

    /// Which lock a key of the server belongs to; `None` if we did not name it.
    pub(crate) fn owner(&self, redis_key: &[u8]) -> Option<Key> {
        let text = std::str::from_utf8(redis_key).ok()?.strip_prefix(&*self.root)?;
        let (name, rest) = text.strip_prefix('{')?.split_once('}')?;
        let ours = matches!(rest, "" | ":h" | ":e" | ":q" | ":w");
        ours.then(|| unescape(name)).flatten().and_then(|name| Key::new(name).ok())
    }
}

/// A pattern that matches this text and nothing else.
pub(crate) fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 4);
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

fn escape(name: &str, into: &mut String) {
    for character in name.chars() {
        match character {
            '%' => into.push_str("%25"),
            '{' => into.push_str("%7B"),
            '}' => into.push_str("%7D"),
            other => into.push(other),
        }
    }
}

/// Takes back [`escape`] and nothing else: what it cannot have written is no name of ours.
fn unescape(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut name = pieces.next()?.to_owned();
    for piece in pieces {
        let (code, rest) = piece.split_at_checked(2)?;
        name.push(match code {
            "25" => '%',
            "7B" => '{',
            "7D" => '}',
            _ => return None,
        });
        name.push_str(rest);
    }
    (!name.is_empty() && !text.contains(['{', '}'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout() -> Layout {
        Layout::new(DEFAULT_PREFIX).unwrap()
    }

    #[test]
    fn names_are_readable() {
        let lock = layout().lock(&Key::new("order:42").unwrap());
        assert_eq!(lock, "lockstep:1:{order:42}");
        let waits = layout().waits(Owner::from_u128(0xfeed));
        assert_eq!(waits, "lockstep:1:o:0000000000000000000000000000feed");
    }

    #[test]
    fn prefixes_are_checked() {
        for good in ["a", "team-1.app_2", &"x".repeat(64)] {
            assert!(Layout::new(good).is_some(), "{good}");
        }
        for bad in ["", "a:b", "a b", "ö", "{a}", "a*", &"x".repeat(65)] {
            assert!(Layout::new(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn what_we_did_not_name_is_nobodys() {
        let strangers: [&[u8]; 9] = [
            b"lockstep:1:{a",
            b"lockstep:1:{a}:x",
            b"lockstep:1:o:00000000000000000000000000000001",
            b"lockstep:1:{}",
            b"lockstep:1:{%7b}",
            b"lockstep:1:{%}",
            b"lockstep:1:{a}}",
            b"lockstep:2:{a}",
            b"lockstep:1:{\xff}",
        ];
        for stranger in strangers {
            assert_eq!(layout().owner(stranger), None, "{}", stranger.escape_ascii());
        }
    }

    #[test]
    fn patterns_take_names_literally() {
        assert_eq!(layout().pattern(""), "lockstep:1:{*}*");
        assert_eq!(layout().pattern("a*[b]?\\{%"), r"lockstep:1:{a\*\[b\]\?\\%7B%25*}*");
    }

    proptest! {
        #[test]
        fn every_name_comes_back_and_the_tag_ends_with_it(
            name in "[%{}257BDbd:qwö]{1,20}|\\PC{1,40}",
        ) {
            let key = Key::new(&name).unwrap();
            let mut escaped = String::new();
            escape(&name, &mut escaped);
            let ends_early = escaped.contains(['{', '}']);
            prop_assert!(!ends_early, "{}", escaped);
            prop_assert_eq!(unescape(&escaped), Some(name));
            let lock = layout().lock(&key);
            for suffix in ["", ":h", ":e", ":q", ":w"] {
                let redis_key = format!("{lock}{suffix}");
                prop_assert_eq!(layout().owner(redis_key.as_bytes()), Some(key.clone()));
            }
        }

        #[test]
        fn two_texts_are_never_one_name(text in "[%257BDbd{}a]{1,12}") {
            if let Some(name) = unescape(&text) {
                let mut again = String::new();
                escape(&name, &mut again);
                prop_assert_eq!(again, text);
            }
        }
    }
}
