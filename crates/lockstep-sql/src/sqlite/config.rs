//! What a `sqlite:` URL says.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use lockstep_core::{Key, StoreError};
use percent_encoding::percent_decode_str;

use super::error::STORE;

const PARAMETERS: &str = "prefix, synchronous";

/// Between a tenant and its lock names in a row's key. Neither can contain it, so two pairs of
/// tenant and name are never one row.
const SEPARATOR: char = '\u{1f}';

/// Where the locks are, and how they are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) path: PathBuf,
    pub(super) tenant: Tenant,
    pub(super) synchronous: Synchronous,
}

/// When a commit reaches the disk. Either way it is safe from the crash of any process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Synchronous {
    /// Some time later: the last commits may go with the power.
    #[default]
    Normal,
    /// Before the verb answers.
    Full,
}

/// Whose locks: the start of every row key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tenant(String);

impl Config {
    pub(super) fn at(path: &Path) -> Result<Self, StoreError> {
        if path.as_os_str().is_empty() {
            return Err(StoreError::config(STORE, "the path of the database file is missing"));
        }
        // The process may change its folder later; the file stays where it was named.
        let path = std::path::absolute(path).map_err(|error| {
            StoreError::config(STORE, format!("no absolute path for {path:?}: {error}"))
        })?;
        Ok(Self { path, tenant: Tenant::default(), synchronous: Synchronous::default() })
    }

    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let rest = url.strip_prefix("sqlite:").ok_or_else(|| {
            StoreError::config(STORE, format!("the URL {url:?} does not start with `sqlite:`"))
        })?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match path.strip_prefix("//") {
            // Others read `sqlite://a/b` as a relative path, yet others as a host: rather ask.
            Some(path) if !path.starts_with('/') => {
                let message = format!(
                    "{url:?}: write `sqlite:PATH` for a relative path and `sqlite:///PATH` for an \
                     absolute one"
                );
                return Err(StoreError::config(STORE, message));
            }
            Some(path) => path,
            None => path,
        };
        if path == ":memory:" {
            let message = "locks in memory are another store: use `memory:`";
            return Err(StoreError::config(STORE, message));
        }
        let path: Vec<u8> = percent_decode_str(path).collect();
        if path.contains(&0) {
            return Err(StoreError::config(STORE, format!("{url:?}: a path has no NUL byte")));
        }
        let mut config = Self::at(Path::new(&OsString::from_vec(path)))?;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            config.set(parameter)?;
        }
        Ok(config)
    }

    fn set(&mut self, parameter: &str) -> Result<(), StoreError> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = percent_decode_str(value).decode_utf8_lossy();
        match name {
            "prefix" => self.tenant = Tenant::new(&value)?,
            "synchronous" => {
                self.synchronous = match &*value {
                    "normal" => Synchronous::Normal,
                    "full" => Synchronous::Full,
                    other => {
                        let message = format!("`synchronous` is `normal` or `full`, not {other:?}");
                        return Err(StoreError::config(STORE, message));
                    }
                }
            }
            other => {
                let message = format!("unknown parameter {other:?}; there are: {PARAMETERS}");
                return Err(StoreError::config(STORE, message));
            }
        }
        Ok(())
    }
}

impl Tenant {
    fn new(prefix: &str) -> Result<Self, StoreError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if !(1..=64).contains(&prefix.len()) || !prefix.bytes().all(plain) {
            let message = format!(
                "`prefix` has 1 to 64 letters, digits, `.`, `_` or `-`; this one is {prefix:?}"
            );
            return Err(StoreError::config(STORE, message));
        }
        Ok(Self(format!("{prefix}{SEPARATOR}")))
    }

    /// The prefix as it was given, empty for none.
    pub(super) fn prefix(&self) -> &str {
        self.0.trim_end_matches(SEPARATOR)
    }

    /// The row key of what starts with `name`.
    pub(super) fn row_key(&self, name: &str) -> String {
        let mut key = String::with_capacity(self.0.len() + name.len());
        key.push_str(&self.0);
        key.push_str(name);
        key
    }

    /// The lock that a row key stands for; `None` if it is another tenant's.
    pub(super) fn lock(&self, row_key: &str) -> Option<Key> {
        Key::new(row_key.strip_prefix(&*self.0)?).ok()
    }
}

impl Synchronous {
    pub(super) const fn pragma(self) -> &'static str {
        match self {
            Self::Normal => "PRAGMA synchronous = NORMAL",
            Self::Full => "PRAGMA synchronous = FULL",
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_core::ErrorKind;

    use super::*;

    fn path(url: &str) -> PathBuf {
        Config::parse(url).unwrap().path
    }

    #[test]
    fn paths_are_absolute_relative_and_percent_decoded() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(path("sqlite:locks.db"), here.join("locks.db"));
        assert_eq!(path("sqlite:/var/lib/locks.db"), Path::new("/var/lib/locks.db"));
        assert_eq!(path("sqlite:///var/lib/locks.db"), Path::new("/var/lib/locks.db"));
        assert_eq!(path("sqlite:/a%20b%3Fc"), Path::new("/a b?c"));
    }

    #[test]
    fn parameters_are_read() {
        let config = Config::parse("sqlite:/x?prefix=shop&synchronous=full").unwrap();
        assert_eq!(config.synchronous, Synchronous::Full);
        assert_eq!(config.tenant.row_key("job"), "shop\u{1f}job");
        assert_eq!(Config::parse("sqlite:/x").unwrap().synchronous, Synchronous::Normal);
    }

    #[test]
    fn what_can_never_work_says_so() {
        for (url, hint) in [
            ("sqlite:", "missing"),
            ("sqlite://host/x", "sqlite:///PATH"),
            ("sqlite::memory:", "memory:"),
            ("sqlite:/x?sync=full", "prefix, synchronous"),
            ("sqlite:/x?synchronous=off", "`normal` or `full`"),
            ("sqlite:/x?prefix=", "1 to 64"),
            ("sqlite:/x?prefix=a%1Fb", "1 to 64"),
            ("sqlite:/x%00y", "NUL"),
            ("postgres:/x", "sqlite:"),
        ] {
            let error = Config::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
        }
    }

    #[test]
    fn tenants_do_not_see_each_other() {
        let (none, shop) = (Tenant::default(), Tenant::new("shop").unwrap());
        assert_eq!(shop.lock(&shop.row_key("job")), Some(Key::new("job").unwrap()));
        assert_eq!(none.lock(&shop.row_key("job")), None);
        assert_eq!(shop.lock(&none.row_key("job")), None);
    }
}
