//! What stands in the value of a key: two or three lines for people and for us.
//!
//! ```text
//! lockstep 1 exclusive 30000 1700000000000 0123… 4567…   (share, ttl and since in ms, owner, claim)
//! host 42 program                                        (label)
//! broken: stuck                                          (an operator's words, if there are any)
//! ```

use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner, Token};
use lockstep_lock::Share;
use lockstep_lock::line;
use lockstep_lock::store::{Claim, HolderView, WaiterView};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::layout::last_part;
use crate::proto::KeyValue;

const MARK: &str = "lockstep 1 ";
const BROKEN: &str = "broken: ";
/// What would end a line too early.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// A key in the line of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) create: i64,
    pub(crate) modified: i64,
    pub(crate) lease: i64,
    pub(crate) who: Who,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Ours(Info),
    /// `etcdctl lock`, a service in Go, the server's own lock service: one of them at a time.
    Foreign,
}

/// What we have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) claim: ClaimId,
    pub(crate) owner: Owner,
    pub(crate) label: Label,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    pub(crate) since_ms: u64,
    pub(crate) broken: Option<String>,
}

impl Entry {
    /// Reads a key of this line; `None` if it belongs to the lock of a longer name.
    pub(crate) fn read(line: &[u8], kv: &KeyValue) -> Option<Self> {
        last_part(line, &kv.key)?;
        Some(Self {
            key: kv.key.clone(),
            create: kv.create_revision,
            modified: kv.mod_revision,
            lease: kv.lease,
            who: Info::read(&kv.value).map_or(Who::Foreign, Who::Ours),
        })
    }

    /// Whether it looks like a lock's key to those who look at everything.
    pub(crate) fn is_a_lock(&self, line: &[u8]) -> bool {
        let named_after_its_lease =
            || last_part(line, &self.key) == Some(&format!("{:x}", self.lease));
        matches!(self.who, Who::Ours(_)) || (self.lease != 0 && named_after_its_lease())
    }

    pub(crate) fn info(&self) -> Option<&Info> {
        match &self.who {
            Who::Ours(info) => Some(info),
            Who::Foreign => None,
        }
    }

    pub(crate) fn in_line(&self) -> line::Entry<Vec<u8>> {
        let share = self.info().map_or(Share::Exclusive, |info| info.share);
        line::Entry { id: self.key.clone(), share }
    }

    pub(crate) fn token(&self) -> Token {
        token(self.create)
    }

    /// As a holder, with `left` to go.
    pub(crate) fn holder(&self, left: Option<Duration>) -> HolderView {
        let (claim, owner, label) = self.for_people();
        let info = self.info();
        HolderView {
            claim,
            owner,
            label,
            share: info.map_or(Share::Exclusive, |info| info.share),
            token: Some(self.token()),
            since_ms: info.map_or(0, |info| info.since_ms),
            left: left.or(info.map(|info| info.ttl)).unwrap_or_default(),
            broken: info.and_then(|info| info.broken.clone()),
        }
    }

    pub(crate) fn waiter(&self) -> WaiterView {
        let (claim, owner, label) = self.for_people();
        let info = self.info();
        WaiterView {
            claim,
            owner,
            label,
            share: info.map_or(Share::Exclusive, |info| info.share),
            since_ms: info.map_or(0, |info| info.since_ms),
        }
    }

    fn for_people(&self) -> (ClaimId, Owner, Label) {
        match &self.who {
            Who::Ours(info) => (info.claim, info.owner, info.label.clone()),
            Who::Foreign => (
                ClaimId::from_u128(self.create as u128),
                Owner::from_u128(self.lease as u128),
                Label::new(format!("not Lockstep: {}", String::from_utf8_lossy(&self.key))),
            ),
        }
    }
}

pub(crate) fn token(create: i64) -> Token {
    Token::new(u64::try_from(create).unwrap_or_default())
}

impl Info {
    pub(crate) fn of(claim: &Claim, since_ms: u64) -> Self {
        Self {
            claim: claim.id,
            owner: claim.owner,
            label: claim.label.clone(),
            share: claim.share,
            ttl: claim.ttl,
            since_ms,
            broken: None,
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { claim, owner, label, share, ttl, since_ms, broken } = self;
        let label = utf8_percent_encode(label.as_str(), ESCAPED);
        let ttl = ttl.as_millis();
        let mut text = format!("{MARK}{share} {ttl} {since_ms} {owner} {claim}\n{label}\n");
        if let Some(reason) = broken {
            text += &format!("{BROKEN}{}\n", utf8_percent_encode(reason, ESCAPED));
        }
        text.into_bytes()
    }

    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.strip_prefix(MARK)?;
        let mut lines = text.lines();
        let mut words = lines.next()?.split(' ');
        let share = words.next()?.parse().ok()?;
        let ttl = Duration::from_millis(words.next()?.parse().ok()?);
        let since_ms = words.next()?.parse().ok()?;
        let owner = words.next()?.parse().ok()?;
        let claim = words.next()?.parse().ok()?;
        let plain = |text: &str| percent_decode_str(text).decode_utf8().ok().map(String::from);
        let label = Label::new(plain(lines.next().unwrap_or_default())?);
        let broken = lines.next().and_then(|line| plain(line.strip_prefix(BROKEN)?));
        Some(Self { claim, owner, label, share, ttl, since_ms, broken })
    }
}

/// A key that no lease ends and that is not ours would be waited for for ever.
pub(crate) fn is_in_the_way(entry: &Entry) -> bool {
    entry.lease == 0
}

/// The words for [`is_in_the_way`].
pub(crate) fn in_the_way(key: &Key, entry: &Entry) -> String {
    let found = String::from_utf8_lossy(&entry.key);
    format!(
        "`{found}` stands where the keys of lock `{key}` are, and no lease ends it: remove it, or \
         use another name or ?prefix="
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> Info {
        Info {
            claim: ClaimId::from_u128(7),
            owner: Owner::from_u128(8),
            label: Label::new("host 1 \"x\" 100 % ö"),
            share: Share::Permits { count: 2, of: 5 },
            ttl: Duration::from_millis(1_500),
            since_ms: 1_700_000_000_000,
            broken: None,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let broken = Some("two\nlines, 100 %\r\n".to_owned());
        for info in [info(), Info { broken, ..info() }] {
            assert_eq!(Info::read(&info.write()), Some(info));
        }
        assert_eq!(Info::read(b""), None);
        assert_eq!(Info::read(b"lockstep 1 exclusive"), None);
    }

    #[test]
    fn keys_of_others_are_told_apart() {
        let kv = |key: &str, value: &[u8], lease| KeyValue {
            key: key.into(),
            value: value.to_vec(),
            lease,
            ..KeyValue::default()
        };
        let read = |kv: &KeyValue| Entry::read(b"a/", kv);
        let ours = read(&kv("a/5-1", &info().write(), 5)).unwrap();
        assert_eq!((ours.info(), ours.is_a_lock(b"a/")), (Some(&info()), true));
        let go = read(&kv("a/5c", b"", 0x5c)).unwrap();
        assert_eq!(
            (go.who.clone(), go.is_a_lock(b"a/"), is_in_the_way(&go)),
            (Who::Foreign, true, false)
        );
        let data = read(&kv("a/settings", b"x", 0)).unwrap();
        assert_eq!((data.is_a_lock(b"a/"), is_in_the_way(&data)), (false, true));
        assert_eq!(read(&kv("a/b/5c", b"", 0x5c)), None);
    }
}
