//! Runs the user's command for as long as the lock is held, and not longer.
//!
//! `plan` decides when to stop it (pure); `watch` does so, on a thread that nothing blocks;
//! `supervise` passes signals on and waits for the end, on the first thread; `trampoline` is what
//! runs in the new process before the command.

mod group;
mod plan;
mod procfs;
mod signals;
mod start;
mod supervise;
mod terminal;
pub(crate) mod trampoline;
mod watch;

pub(crate) use group::Ended;
pub(crate) use plan::{Plan, Why};
pub(crate) use signals::{Signals, name_of};
pub(crate) use start::Start;
pub(crate) use supervise::{Finished, Job, supervise};
pub(crate) use watch::Notice;
