//! How keys are named: `<prefix><name>/<lease>`, as etcd's own locks name them, and with a number behind it
//! for the second and further claims of one handle (docs/decisions/0014).

use lockstep_core::Key;

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

    /// The lock that a key belongs to.
    pub(crate) fn lock_of(&self, entry: &[u8]) -> Option<Key> {
        let text = std::str::from_utf8(entry).ok()?.strip_prefix(&self.prefix)?;
        Key::new(text.rsplit_once('/')?.0).ok()
    }
}

/// The key of a handle's claim in this line.
pub(crate) fn entry(line: &[u8], lease: i64, number: u32) -> Vec<u8> {
    let last = match number {
        0 => format!("{lease:x}"),
        _ => format!("{lease:x}-{number}"),
    };
    [line, last.as_bytes()].concat()
}

/// The line that a key belongs to.
pub(crate) fn line_of(entry: &[u8]) -> &[u8] {
    let end = entry.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    &entry[..end]
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
        let line = layout.line(&short);
        let of_long = entry(&layout.line(&long), 0x5c, 0);
        assert!(of_long.starts_with(&line), "as in etcd's own locks");
        assert_eq!(line_of(&of_long), layout.line(&long));
        assert_eq!(last_part(&line, &of_long), None);
        assert_eq!(last_part(&layout.line(&long), &of_long), Some("5c"));
        assert_eq!(layout.lock_of(&of_long), Some(long));
        assert_eq!(layout.lock_of(&entry(&line, 0x5c, 3)), Some(short));
        assert_eq!(layout.lock_of(b"another:a/1"), None);
        assert_eq!(layout.lock_of(b"t:plain"), None);
    }

    #[test]
    fn a_range_ends_after_all_that_start_alike() {
        assert_eq!(range_end(b"a/"), b"a0");
        assert_eq!(range_end(b""), b"\0");
    }
}
