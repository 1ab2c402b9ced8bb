//! Which store is meant, and where that was said.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lockstep::{Locks, Store};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::console::Console;
use crate::exit::{Code, Failure};
use crate::secrets::Secrets;

pub(crate) const VARIABLE: &str = "LOCKSTEP_STORE";

/// What means something in a `sqlite:` URL, and what would be hard to read in a message.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#').add(b' ');

/// A store's URL and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) url: String,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Argument,
    Environment,
    /// A SQLite file that nobody has named.
    Default(PathBuf),
}

impl Chosen {
    /// The argument, else the environment, else a file in the user's data folder.
    pub(crate) fn new(argument: Option<&str>) -> Result<Self, Failure> {
        let from_env = std::env::var_os(VARIABLE).filter(|url| !url.is_empty());
        if let Some(url) = argument {
            return Ok(Self { url: url.to_owned(), origin: Origin::Argument });
        }
        if let Some(url) = from_env {
            let url = url
                .into_string()
                .map_err(|_| Failure::usage(format!("{VARIABLE} is not valid UTF-8")))?;
            return Ok(Self { url, origin: Origin::Environment });
        }
        let file = default_file(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))
            .ok_or_else(|| {
                Failure::usage("there is no home folder for the default store")
                    .hint(format!("name a store with `--store URL` or {VARIABLE}"))
            })?;
        Ok(Self { url: sqlite_url(&file), origin: Origin::Default(file) })
    }

    pub(crate) fn secrets(&self) -> Secrets {
        Secrets::of([self.url.as_str()])
    }

    /// The process list shows arguments to every user of the machine.
    pub(crate) fn warn_if_seen(&self, console: &Console) {
        if self.origin == Origin::Argument && !self.secrets().is_empty() {
            console.say(&format!(
                "warning: other users can see a password in the arguments (`ps`); put the URL \
                 into {VARIABLE}, or the password into a file (`?password_file=PATH`)"
            ));
        }
    }

    /// Nothing is connected yet.
    pub(crate) fn store(&self) -> Result<Store, Failure> {
        let store = match &self.origin {
            Origin::Default(file) => Store::embedded(file),
            Origin::Argument | Origin::Environment => Store::from_url(&self.url),
        };
        store.map_err(|error| self.failed(error.into()))
    }

    pub(crate) async fn open(&self) -> Result<Locks, Failure> {
        Locks::open(self.store()?).await.map_err(|error| self.failed(error.into()))
    }

    /// Says which store it was, if it was the store's fault; the console masks its password.
    pub(crate) fn failed(&self, failure: Failure) -> Failure {
        let about_store = failure.code == Code::STORE || failure.code == Code::USAGE;
        if !about_store {
            return failure;
        }
        let origin = match &self.origin {
            Origin::Argument => "from --store".to_owned(),
            Origin::Environment => format!("from {VARIABLE}"),
            Origin::Default(_) => format!("the default; choose with --store or {VARIABLE}"),
        };
        let store = format!("the store is {} ({origin})", self.url);
        let hint = match &failure.hint {
            Some(hint) => format!("{hint}\n  {store}"),
            None => store,
        };
        failure.hint(hint)
    }
}

fn default_file(data_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // The XDG rules: a relative path is to be ignored.
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let data = data_home
        .and_then(absolute)
        .or_else(|| Some(home.and_then(absolute)?.join(".local/share")))?;
    Some(data.join("lockstep/locks.db"))
}

fn sqlite_url(file: &Path) -> String {
    format!("sqlite:{}", percent_encode(file.as_os_str().as_bytes(), ESCAPED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_file_follows_the_xdg_rules() {
        let file = |data: Option<&str>, home: Option<&str>| {
            default_file(data.map(Into::into), home.map(Into::into))
        };
        let expected = |path: &str| Some(PathBuf::from(path));
        assert_eq!(file(Some("/d"), Some("/h")), expected("/d/lockstep/locks.db"));
        assert_eq!(file(None, Some("/h")), expected("/h/.local/share/lockstep/locks.db"));
        assert_eq!(file(Some("d"), Some("/h")), expected("/h/.local/share/lockstep/locks.db"));
        assert_eq!(file(Some(""), None), None);
    }

    #[test]
    fn odd_folders_survive_the_url() {
        let file = Path::new("/home/a b/50%?/locks.db");
        assert_eq!(sqlite_url(file), "sqlite:/home/a%20b/50%25%3F/locks.db");
    }
}
