use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::procfs::Processes;

/// The command's process group, whose leader is our child.
///
/// The leader is not reaped before everything that is to be sent to the group has been sent:
/// until then its number cannot become somebody else's.
pub(crate) struct Group {
    leader: Pid,
    reaped: Mutex<bool>,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Signalled(i32),
}

impl Group {
    pub(crate) fn new(leader: Pid) -> Self {
        Self { leader, reaped: Mutex::new(false) }
    }

    pub(crate) fn id(&self) -> Pid {
        self.leader
    }

    /// Sends to everyone in the group; after [`reap`](Self::reap) to nobody.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let reaped = self.lock();
        if *reaped { Ok(()) } else { kill_process_group(self.leader, signal) }
    }

    /// How the leader ended, if it has; does not reap it.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let reaped = self.lock();
        if *reaped {
            return None;
        }
        self.ended_unreaped()
    }

    /// Which signal has stopped the leader since this was last asked.
    pub(crate) fn newly_stopped(&self) -> Option<i32> {
        let reaped = self.lock();
        if *reaped {
            return None;
        }
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.leader), options).ok()??.stopping_signal()
    }

    /// Whether somebody in the group still lives. Where that cannot be seen: no.
    pub(crate) fn is_alive(&self) -> bool {
        Processes::now().any_alive_in(self.leader)
    }

    /// Lets the dead leader go, and with it the group's number.
    pub(crate) fn reap(&self) {
        let mut reaped = self.lock();
        if !*reaped && self.ended_unreaped().is_some() {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::Pid(self.leader), options);
            *reaped = true;
        }
    }

    fn ended_unreaped(&self) -> Option<Ended> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.leader), options).ok()??;
        let exited = status.exit_status().map(Ended::Exited);
        exited.or_else(|| status.terminating_signal().map(Ended::Signalled))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // Nothing under it can be left half done.
        self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
