//! One file per command: its arguments, its help and what it does.

pub(crate) mod completions;
pub(crate) mod lock;
pub(crate) mod locks;
pub(crate) mod migrate;

use lockstep::Key;

use crate::console::Console;
use crate::exit::Failure;
use crate::secrets::Secrets;
use crate::store::Chosen;

/// What every command is given.
pub(crate) struct Context {
    pub(crate) store: Chosen,
    pub(crate) console: Console,
}

/// The lock of this name.
pub(crate) fn key(name: &str) -> Result<Key, Failure> {
    refuse_password(name)?;
    Ok(Key::new(name)?)
}

/// Whoever has forgotten `--store` does not get a lock that tells everybody the password.
pub(crate) fn refuse_password(name: &str) -> Result<(), Failure> {
    if name.contains("://") && !Secrets::of([name]).is_empty() {
        let message =
            "a URL with a password is no name: everybody who lists the locks would see it";
        return Err(Failure::usage(message).hint("a store is chosen with `--store URL`"));
    }
    Ok(())
}
