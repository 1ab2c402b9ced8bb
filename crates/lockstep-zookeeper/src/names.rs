//! Where a lock is kept, and what the names of its nodes say: docs/decisions/0016.
//!
//! A lock is a directory, `<chroot>/<prefix>/<name>`; every claim is a node in it whose name ends in
//! the number that says its place. The names are those of Apache Curator, so that programs that use
//! Curator on the same path take part.

use std::fmt::Write as _;

use lockstep_core::{ClaimId, Key, Owner};
use lockstep_lock::Share;
use uuid::Uuid;

/// The only node of a lock in [`Layout::Basic`].
pub(crate) const BASIC: &str = "lock";

/// Where it is written down who waits for what. No lock is called that: a `%` in a name is written
/// with its number.
const WAITS: &str = "%waits";

/// Whose names are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Layout {
    /// Those of `InterProcessMutex` and `LeaderSelector`: all contenders end in `lock-NUMBER`.
    #[default]
    Mutex,
    /// Those of `InterProcessReadWriteLock`: `__WRIT__NUMBER` and `__READ__NUMBER`.
    ReadWrite,
    /// Those of `LeaderLatch`: `latch-NUMBER`.
    Latch,
    /// One node, and everybody waits for it: neither fair nor cheap.
    Basic,
}

impl Layout {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "mutex" => Self::Mutex,
            "readwrite" => Self::ReadWrite,
            "latch" => Self::Latch,
            "basic" => Self::Basic,
            _ => return None,
        })
    }
}

/// The names of one tenant.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) layout: Layout,
    /// What holds all locks: chroot and prefix.
    pub(crate) root: String,
}

/// What a node's name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// Whose it is, if the name says it in Curator's way.
    pub(crate) claim: Option<ClaimId>,
    pub(crate) share: Share,
    /// Its place. A counter that wraps: only differences mean something.
    pub(crate) number: i32,
}

impl Names {
    /// The directory of a lock.
    pub(crate) fn directory(&self, key: &Key) -> String {
        format!("{}/{}", self.root, element(key.as_str()))
    }

    /// Where an owner's waiting claims are written down.
    pub(crate) fn waits(&self, owner: Owner) -> [String; 2] {
        let all = format!("{}/{WAITS}", self.root);
        let own = format!("{all}/{owner}");
        [all, own]
    }

    /// The name of a claim's node up to its number.
    pub(crate) fn node(&self, claim: ClaimId, share: Share) -> String {
        let mut name = start(claim);
        let word = if self.layout == Layout::Latch { "latch-" } else { "lock-" };
        match share {
            Share::Exclusive if self.layout == Layout::ReadWrite => name.push_str("__WRIT__"),
            Share::Read if self.layout == Layout::ReadWrite => name.push_str("__READ__"),
            Share::Exclusive => name.push_str(word),
            // Everything before the word is passed over by Curator, who sees one more contender.
            Share::Read => {
                name.push_str("read-");
                name.push_str(word);
            }
            Share::Permits { count, of } => {
                // Writing to a string cannot fail.
                let _ = write!(name, "{count}of{of}-{word}");
            }
        }
        name
    }

    /// Reads a node's name; `None` if this layout has no such names.
    pub(crate) fn read(&self, name: &str) -> Option<Node> {
        let (front, mark, digits) = match self.layout {
            Layout::Basic => {
                let (claim, share, number) = (None, Share::Exclusive, 0);
                let node = || Node { name: name.to_owned(), claim, share, number };
                return (name == BASIC).then(node);
            }
            Layout::Mutex => split(name, "lock-")?,
            Layout::Latch => split(name, "latch-")?,
            Layout::ReadWrite => split(name, "__WRIT__")
                .or_else(|| split(name, "__READ__"))
                .or_else(|| split(name, "lock-").filter(|(front, ..)| permits(front).is_some()))?,
        };
        let share = match mark {
            "__WRIT__" => Share::Exclusive,
            "__READ__" => Share::Read,
            _ if front.ends_with("-read-") => Share::Read,
            _ => permits(front).unwrap_or(Share::Exclusive),
        };
        let number = number(digits)?;
        Some(Node { name: name.to_owned(), claim: claim_of(name), share, number })
    }

    /// Reads the names of a directory's children and puts them into the order of their places.
    ///
    /// # Errors
    /// The first name that this layout does not have.
    pub(crate) fn line(&self, children: &[String]) -> Result<Vec<Node>, String> {
        let nodes = children.iter().map(|name| self.read(name).ok_or_else(|| name.clone()));
        let mut nodes = nodes.collect::<Result<Vec<Node>, String>>()?;
        // Counted from the first that is there: a counter that has wrapped goes on below zero.
        let base = nodes.first().map_or(0, |node| node.number);
        let far = nodes.iter().map(|node| node.number.wrapping_sub(base)).min().unwrap_or(0);
        let base = base.wrapping_add(far);
        nodes.sort_by(|a, b| {
            let place = |node: &Node| node.number.wrapping_sub(base);
            // A downgraded node has the number of the one it replaces, never of another.
            place(a).cmp(&place(b)).then_with(|| a.name.cmp(&b.name))
        });
        Ok(nodes)
    }

    /// The lock that a directory is of; `None` if it is none of ours.
    pub(crate) fn key(directory: &str) -> Option<Key> {
        let name = percent_encoding::percent_decode_str(directory).decode_utf8().ok()?;
        let key = Key::new(&name).ok()?;
        // Two spellings of one name would be two locks.
        (element(key.as_str()) == directory).then_some(key)
    }
}

/// What all nodes of a claim start with.
pub(crate) fn start(claim: ClaimId) -> String {
    format!("_c_{}-", Uuid::from_u128(claim.as_u128()).hyphenated())
}

fn claim_of(name: &str) -> Option<ClaimId> {
    let id = name.strip_prefix("_c_")?.get(..36)?;
    let id = Uuid::try_parse(id).ok()?;
    name[39..].starts_with('-').then(|| ClaimId::from_u128(id.as_u128()))
}

/// Splits at the last `mark`, as Curator does.
fn split<'a>(name: &'a str, mark: &'static str) -> Option<(&'a str, &'static str, &'a str)> {
    let at = name.rfind(mark)?;
    Some((&name[..at], mark, &name[at + mark.len()..]))
}

/// Ten digits, of a number that may be negative.
fn number(digits: &str) -> Option<i32> {
    let plain = digits.strip_prefix('-').unwrap_or(digits);
    let sound = plain.len() == 10 && plain.bytes().all(|byte| byte.is_ascii_digit());
    sound.then(|| digits.parse().ok())?
}

/// The `2of5-` of a node that takes permits.
fn permits(front: &str) -> Option<Share> {
    let word = front.get(40..)?.strip_suffix('-')?;
    let (count, of) = word.split_once("of")?;
    match Share::from_numbers(count.parse().ok()?, of.parse().ok()?)? {
        share @ Share::Permits { .. } => Some(share),
        Share::Exclusive | Share::Read => None,
    }
}

/// A name as one element of a path: itself, with what cannot be in one written as `%XX`, as in a URL.
fn element(name: &str) -> String {
    if name == "." || name == ".." {
        return name.replace('.', "%2E");
    }
    let mut element = String::with_capacity(name.len());
    for character in name.chars() {
        let refused = matches!(
            character,
            '/' | '%' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..
        );
        if refused {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                let _ = write!(element, "%{byte:02X}");
            }
        } else {
            element.push(character);
        }
    }
    element
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: ClaimId = ClaimId::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

    fn names(layout: Layout) -> Names {
        Names { layout, root: "/lockstep".into() }
    }

    #[test]
    fn ordinary_names_are_what_a_user_of_curator_would_write() {
        let names = names(Layout::Mutex);
        let path = |name: &str| names.directory(&Key::new(name).unwrap());
        assert_eq!(path("order:42"), "/lockstep/order:42");
        assert_eq!(path("jöb 7"), "/lockstep/jöb 7");
        assert_eq!(path("a/b%"), "/lockstep/a%2Fb%25");
        assert_eq!(path(".."), "/lockstep/%2E%2E");
        assert_eq!(path("🔒"), "/lockstep/%F0%9F%94%92");
        assert_eq!(Names::key("a%2fb"), None, "one spelling per name");
        assert_eq!(Names::key(WAITS), None);
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in "\\PC{1,40}") {
            let key = Key::new(&name).unwrap();
            let element = element(key.as_str());
            prop_assert!(!element.contains('/') && element != "." && element != "..");
            prop_assert_eq!(Names::key(&element), Some(key));
        }
    }

    #[test]
    fn nodes_have_the_names_of_curator_and_come_back() {
        let two_of_five = Share::Permits { count: 2, of: 5 };
        for (layout, share, expected) in [
            (Layout::Mutex, Share::Exclusive, "lock-"),
            (Layout::Mutex, Share::Read, "read-lock-"),
            (Layout::Mutex, two_of_five, "2of5-lock-"),
            (Layout::Latch, Share::Exclusive, "latch-"),
            (Layout::ReadWrite, Share::Exclusive, "__WRIT__"),
            (Layout::ReadWrite, Share::Read, "__READ__"),
            (Layout::ReadWrite, two_of_five, "2of5-lock-"),
        ] {
            let names = names(layout);
            let name = names.node(ID, share);
            assert_eq!(name, format!("_c_01234567-89ab-cdef-0123-456789abcdef-{expected}"));
            let node = names.read(&format!("{name}0000000007")).unwrap();
            assert_eq!((node.claim, node.share, node.number), (Some(ID), share, 7), "{layout:?}");
        }
    }

    #[test]
    fn other_programs_are_honoured_as_curator_honours_them_or_refused() {
        let mutex = names(Layout::Mutex);
        let go = mutex.read("_c_0123456789abcdef0123456789abcdef-lock-0000000003").unwrap();
        assert_eq!((go.claim, go.share, go.number), (None, Share::Exclusive, 3));
        for foreign in [
            "0123456789abcdef0123456789abcdef__lock__0000000003",
            "x-72057594037927936-0000000003",
            "n-0000000003",
            "_c_01234567-89ab-cdef-0123-456789abcdef-__WRIT__0000000003",
            "_c_01234567-89ab-cdef-0123-456789abcdef-lock-",
            "config",
        ] {
            assert_eq!(mutex.read(foreign), None, "{foreign}");
        }
        let lock = "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000003";
        assert_eq!(names(Layout::ReadWrite).read(lock), None);
        assert_eq!(names(Layout::Latch).read(lock), None);
    }

    #[test]
    fn places_are_in_order_also_when_the_counter_wraps() {
        let names = names(Layout::Mutex);
        let child =
            |number: &str| format!("{}{number}", names.node(ClaimId::new(), Share::Exclusive));
        for order in [
            ["0000000001", "0000000002", "0000000010"],
            ["2147483646", "2147483647", "-2147483648"],
            ["2147483647", "-2147483648", "-2147483647"],
            ["-0000000001", "0000000000", "0000000001"],
        ] {
            let mut children = order.map(child);
            children.reverse();
            let line = names.line(&children).unwrap();
            let numbers: Vec<_> = line.iter().map(|node| node.number).collect();
            assert_eq!(numbers, order.map(|number| number.parse::<i32>().unwrap()));
        }
        assert_eq!(names.line(&["config".to_owned()]), Err("config".to_owned()));
    }
}
