//! One file per command: its arguments, its help and what it does.

pub(crate) mod completions;
pub(crate) mod lock;
pub(crate) mod locks;
pub(crate) mod migrate;

use crate::console::Console;
use crate::store::Chosen;

/// What every command is given.
pub(crate) struct Context {
    pub(crate) store: Chosen,
    pub(crate) console: Console,
}
