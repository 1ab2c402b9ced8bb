//! How keys are named: `<prefix><name>/<claim id>` (docs/decisions/0014).

use lockstep_core::{ClaimId, Key};

/// The tenant's part of every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    prefix: String,
}

impl Layout {
    pub(crate) fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What the keys of all who hold a lock or wait for it start with.
    pub(crate) fn line(&self, key: &Key) -> Vec<u8> {
        format!("{}{key}/", self.prefix).into_bytes()
    }

    pub(crate) fn entry(&self, key: &Key, claim: ClaimId) -> Vec<u8> {
        format!("{}{key}/{claim}", self.prefix).into_bytes()
    }

    /// The lock that a key belongs to.
    pub(crate) fn lock_of(&self, entry: &[u8]) -> Option<Key> {
        let text = std::str::from_utf8(entry).ok()?.strip_prefix(&self.prefix)?;
        Key::new(text.rsplit_once('/')?.0).ok()
    }
}

/// The end of the range of keys that start like this. Ours never end in 0xff: they are UTF-8.
pub(crate) fn range_end(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        // From the first key to the last.
        None => end.push(0),
    }
    end
}

/// The last part of a key, if it belongs to this line and not to the lock of a longer name.
pub(crate) fn last_part<'a>(line: &[u8], entry: &'a [u8]) -> Option<&'a str> {
    let rest = std::str::from_utf8(entry.strip_prefix(line)?).ok()?;
    (!rest.contains('/')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_part_of_a_longer_one() {
        let layout = Layout::new("t:");
        let (short, long) = (Key::new("a").unwrap(), Key::new("a/b").unwrap());
        let claim = ClaimId::from_u128(0xabc);
        let (line, entry) = (layout.line(&short), layout.entry(&long, claim));
        assert!(entry.starts_with(&line), "as in etcd's own locks");
        assert_eq!(last_part(&line, &entry), None);
        assert_eq!(last_part(&layout.line(&long), &entry), Some(claim.to_string().as_str()));
        assert_eq!(layout.lock_of(&entry), Some(long));
        assert_eq!(layout.lock_of(&layout.entry(&short, claim)), Some(short));
        assert_eq!(layout.lock_of(b"another:a/1"), None);
        assert_eq!(layout.lock_of(b"t:plain"), None);
    }

    #[test]
    fn a_range_ends_after_all_that_start_alike() {
        assert_eq!(range_end(b"a/"), b"a0");
        assert_eq!(range_end(b""), b"\0");
    }
}
