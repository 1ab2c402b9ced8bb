use std::fs::{File, OpenOptions};
use std::io::IsTerminal;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp, getpid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::procfs::Processes;

/// The terminal that this process was started from. One process group at a time is in its
/// foreground: only that one may read from it, and hears of Ctrl-C.
pub(crate) struct Terminal {
    tty: File,
    home: Pid,
}

impl Terminal {
    pub(crate) fn open() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, home: getpgrp() })
    }

    /// Whether the command shall have it from the start: it is talked to at the terminal, and
    /// nobody else in our pipeline (`| less`) may want it.
    pub(crate) fn is_for_the_command(&self) -> bool {
        std::io::stdin().is_terminal() && self.is_ours() && !Processes::now().has_company(getpid())
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.belongs_to(self.home)
    }

    pub(crate) fn belongs_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|foreground| foreground == group)
    }

    pub(crate) fn give_to(&self, group: Pid) {
        // A group in the background that gives the terminal away is stopped by SIGTTOU, unless the
        // thread blocks it. Only for this call: children inherit the mask.
        let mut ttou = SigSet::empty();
        ttou.add(Signal::SIGTTOU);
        let before = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        // A terminal that hung up has no foreground to give.
        let _ = tcsetpgrp(&self.tty, group);
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
    }

    pub(crate) fn take_back_from(&self, group: Pid) {
        if self.belongs_to(group) {
            self.give_to(self.home);
        }
    }
}
