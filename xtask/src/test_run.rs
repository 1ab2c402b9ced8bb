//! A place for one run of tests: the servers that they share, and a folder for what they start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use lockstep_testkit::servers::sweep;
use tempfile::TempDir;

use crate::fleet::Fleet;

#[derive(Debug)]
pub(crate) struct TestRun {
    pub(crate) fleet: Fleet,
    folder: TempDir,
}

impl TestRun {
    pub(crate) fn start() -> Result<TestRun> {
        let folder = tempfile::Builder::new().prefix("lockstep-test-").tempdir()?;
        // Servers that refuse to run as root must be able to walk in.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let fleet = Fleet::start(folder.path(), |home| home)?;
        let run = TestRun { fleet, folder };
        fs::create_dir(run.temporary())?;
        Ok(run)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Says to the tests where the servers are. Whatever the tests start has its data below the one
    /// folder of this run, so that it can be found and ended even if its test was killed.
    pub(crate) fn tell(&self, command: &mut Command) {
        command.envs(self.fleet.env()).env("TMPDIR", self.temporary());
    }

    /// Ends the servers, and what tests have left behind; says how many processes that were.
    pub(crate) fn end(self) -> Result<usize> {
        drop(self.fleet);
        let left = sweep(self.folder.path())?;
        self.folder.close().context("cannot remove the folder of this run")?;
        Ok(left)
    }

    fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }
}
