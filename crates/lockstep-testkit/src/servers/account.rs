//! Servers that do not run as root, and the user they run as where we are root.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::process::Launch;

/// The user that a server's package brings, and the server's name for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    pub(super) user: &'static str,
    pub(super) server: &'static str,
}

impl Account {
    /// A launch as that user, or as ourselves where we are not root.
    pub(super) fn launch(self, program: &str, folder: &Path) -> Result<Launch> {
        let mut launch = Launch::new(program, folder)?.env("LC_ALL", "C").env("HOME", folder);
        launch.user = we_are_root().then_some(self.user);
        Ok(launch)
    }

    /// Makes what the server has to write its own, and says in words when it cannot get there.
    pub(super) fn hand_over(self, folder: &Path) -> Result<()> {
        if !we_are_root() {
            return Ok(());
        }
        self.give(folder)?;
        let mut look = self.launch("test", Path::new("/"))?.args(["-x".into(), folder.to_owned()]);
        look.env.clear();
        look.run("").ok().with_context(|| {
            format!(
                "{} does not run as root, and the user `{}` may not enter {}: choose a place that \
                 everyone can walk into, such as a folder under /tmp",
                self.server,
                self.user,
                folder.display()
            )
        })
    }

    /// Makes a file or folder the server's own.
    pub(super) fn give(self, path: &Path) -> Result<()> {
        if we_are_root() {
            chown(path, Some(self.id("-u")?), Some(self.id("-g")?))?;
        }
        Ok(())
    }

    fn id(self, flag: &str) -> Result<u32> {
        let output = Command::new("id").args([flag, self.user]).output()?;
        String::from_utf8_lossy(&output.stdout).trim().parse().with_context(|| {
            format!(
                "there is no user `{}`, and {} does not run as root; `cargo xtask test` installs \
                 the package that brings it",
                self.user, self.server
            )
        })
    }
}

fn we_are_root() -> bool {
    rustix::process::geteuid().is_root()
}
