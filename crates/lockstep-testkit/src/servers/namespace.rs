//! A machine that has slept, shown to one process: a time namespace.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Runs what is added to it as on a machine that has slept this long, of which nobody else knows.
pub fn after_a_sleep(asleep: Duration) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--time", "--fork", "--boottime"]);
    command.arg(asleep.as_secs().to_string());
    command
}

/// An error that says what to do, where the system does not let us.
pub fn can_sleep() -> Result<()> {
    let tried = after_a_sleep(Duration::from_secs(1)).arg("true").output();
    let tried = tried.context("cannot run unshare")?;
    if tried.status.success() {
        return Ok(());
    }
    bail!(
        "the tests need time namespaces, to see what becomes of leases while a machine sleeps, and this system \
         refuses one: {}\n\
         Ubuntu allows them to ordinary users with `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; a \
         container needs the right to call unshare (of Docker: --security-opt seccomp=unconfined).",
        String::from_utf8_lossy(&tried.stderr).trim()
    )
}
