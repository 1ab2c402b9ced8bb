//! Other people's lock libraries, which the tests play against: brought as they are pinned, into
//! `target/interop`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::child::{self, Stubborn};
use crate::interrupt::Interrupt;
use crate::workspace::root;

const SOURCES: &str = "crates/lockstep-redis/tests/interop";

/// Returns when they are there. A library that cannot be had is a failure: what was not tried is not known
/// to work.
pub(crate) fn ensure_clients(interrupt: &Interrupt) -> Result<()> {
    let (sources, built) = (root().join(SOURCES), root().join("target").join("interop"));
    node(interrupt, &sources.join("node"), &built.join("node"))?;
    go(interrupt, &sources.join("go"), &built)?;
    eprintln!("redis-py, node-redlock and redsync are there");
    Ok(())
}

fn node(interrupt: &Interrupt, sources: &Path, built: &Path) -> Result<()> {
    fs::create_dir_all(built)?;
    let pinned = fs::read(sources.join("package-lock.json"))?;
    // Written last, so that half an installation is not taken for one.
    let stamp = built.join("installed");
    let is_there = fs::read(&stamp).is_ok_and(|installed| installed == pinned);
    for file in ["main.mjs", "package.json", "package-lock.json"] {
        fs::copy(sources.join(file), built.join(file))?;
    }
    if is_there {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(built);
    // What `servers up` prints is for a shell to run.
    npm.stdout(Stdio::from(std::io::stderr()));
    child::run(interrupt, npm, Stubborn::Kill).context(
        "node-redlock cannot be installed: the tests against it need npm and a registry that it \
         reaches",
    )?;
    Ok(fs::write(stamp, pinned)?)
}

fn go(interrupt: &Interrupt, sources: &Path, built: &Path) -> Result<()> {
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(built.join("redsync")).arg(".").current_dir(sources);
    child::run(interrupt, go, Stubborn::Kill).context(
        "redsync cannot be built: the tests against it need Go 1.19 or newer and a module proxy that it \
         reaches",
    )
}
