//! `cargo xtask canary`: planted bugs, each of which must turn the tests red. A test that cannot
//! fail proves nothing; this keeps proving that ours can.

mod flock;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use crate::child::{self, Stubborn};
use crate::fleet::Fleet;
use crate::interrupt::Interrupt;
use crate::workspace::{cargo, root};

/// Plant each known bug in a copy of the tree and see that the tests catch it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only canaries whose name contains this
    #[arg(value_name = "NAME")]
    only: Option<String>,
    /// The tests have just passed on this very tree: do not run them without any bug first
    #[arg(long)]
    tested: bool,
    /// Show what is planted and run nothing
    #[arg(long)]
    list: bool,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask canary                 all of them
  cargo xtask canary --list
  cargo xtask test && cargo xtask canary --tested
  cargo xtask canary redis";

/// A planted bug.
struct Canary {
    name: &'static str,
    /// What goes wrong in the world if nobody notices.
    harm: &'static str,
    file: &'static str,
    /// Must stand in the file exactly once; otherwise the canary is dead and says so.
    find: &'static str,
    replace: &'static str,
    /// What must turn red: arguments of `cargo test --workspace`.
    tests: &'static [&'static str],
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let chosen: Vec<&Canary> = flock::CANARIES
        .iter()
        .filter(|canary| args.only.as_ref().is_none_or(|only| canary.name.contains(only.as_str())))
        .collect();
    ensure!(!chosen.is_empty(), "no canary has that in its name; see --list");
    if args.list {
        for Canary { name, harm, file, .. } in chosen {
            println!("{name:<32} {harm} ({file})");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let interrupt = Interrupt::listen()?;
    let tree = copy_of_the_tree()?;

    // Tests that fail anyway would catch everything.
    let untested = chosen.iter().filter(|_| !args.tested);
    let all_tests: BTreeSet<_> = untested.map(|canary| canary.tests).collect();
    for tests in all_tests {
        let green = !is_red(&interrupt, &tree, &servers()?, tests)?;
        ensure!(green, "without any bug `cargo test {}` fails too", tests.join(" "));
        println!("sound     cargo test {}", tests.join(" "));
    }

    let mut survived = vec![];
    for canary in &chosen {
        match fly(&interrupt, &tree, canary) {
            Ok(()) => println!("caught    {:<32} {}", canary.name, canary.harm),
            Err(error) => {
                println!("SURVIVED  {:<32} {error:#}", canary.name);
                survived.push(canary.name);
            }
        }
        if let Some(code) = interrupt.exit_code() {
            return Ok(code);
        }
    }
    let (caught, missed) = (chosen.len() - survived.len(), survived.len());
    println!("{caught} passed, {missed} failed");
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plants the bug, sees it build and the tests fail, and takes it out again.
fn fly(interrupt: &Interrupt, tree: &Path, canary: &Canary) -> Result<()> {
    // Servers of its own: functions that an earlier bug has left in a database would be found there,
    // and taken for this one's.
    let servers = servers()?;
    let path = tree.join(canary.file);
    let sound = fs::read_to_string(&path).with_context(|| format!("no file {}", canary.file))?;
    let places = sound.matches(canary.find).count();
    ensure!(places == 1, "its place stands {places} times in {}, not once", canary.file);
    fs::write(&path, sound.replacen(canary.find, canary.replace, 1))?;
    let red = is_red(interrupt, tree, &servers, canary.tests);
    fs::write(&path, sound)?;
    ensure!(red?, "no test noticed: {}", canary.harm);
    Ok(())
}

/// A private fleet, and the folder it lives in.
struct Servers {
    fleet: Fleet,
    _home: tempfile::TempDir,
}

fn servers() -> Result<Servers> {
    let home = tempfile::Builder::new().prefix("lockstep-canary-").tempdir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    Ok(Servers { fleet: Fleet::start(home.path(), |home| home)?, _home: home })
}

fn is_red(interrupt: &Interrupt, tree: &Path, servers: &Servers, tests: &[&str]) -> Result<bool> {
    let command = |extra: &[&str]| {
        // The whole workspace is named so that dependencies keep the same features from one canary
        // to the next, and are built once.
        let mut command = cargo(["test", "--quiet", "--workspace"]);
        command.args(extra).args(tests).current_dir(tree).envs(servers.fleet.env());
        // One failure is enough; the others would wait for what the bug keeps from happening.
        command.env("LOCKSTEP_FAIL_FAST", "1");
        // A target folder of its own: cargo names what it builds by the path within the workspace,
        // so a planted bug in the common one would be taken for the real thing afterwards.
        command.env("CARGO_TARGET_DIR", root().join("target/canary-target"));
        command
    };
    let mut build = command(&["--no-run"]);
    quiet(&mut build);
    child::run(interrupt, build, Stubborn::Kill).context("it does not even build")?;
    // A test that hangs has noticed as well.
    let mut run = Command::new("timeout");
    let inner = command(&[]);
    run.args(["--kill-after=10", "300"]).arg(inner.get_program()).args(inner.get_args());
    run.current_dir(tree);
    run.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    quiet(&mut run);
    let outcome = child::run(interrupt, run, Stubborn::Kill);
    if interrupt.requested() {
        bail!("interrupted");
    }
    Ok(outcome.is_err())
}

/// What a dying canary prints would only be mistaken for a failure.
fn quiet(command: &mut Command) {
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
}

/// A copy of what git knows or would take, so that planting cannot harm the real tree.
fn copy_of_the_tree() -> Result<PathBuf> {
    let (from, to) = (root(), root().join("target/canary"));
    let list = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(&from)
        .output()
        .context("git is needed to copy the tree")?;
    ensure!(list.status.success(), "git ls-files failed");
    let wanted: Vec<&str> = std::str::from_utf8(&list.stdout)?
        .split('\0')
        .filter(|name| !name.is_empty() && from.join(name).is_file())
        .collect();
    forget_what_is_gone(&to, &to, &wanted.iter().copied().collect())?;
    for name in &wanted {
        let (source, target) = (from.join(name), to.join(name));
        let text = fs::read(&source)?;
        // Untouched files keep their time, so that cargo rebuilds only what differs.
        if fs::read(&target).is_ok_and(|old| old == text) {
            continue;
        }
        fs::create_dir_all(target.parent().context("a file has a folder")?)?;
        fs::write(&target, text)?;
    }
    Ok(to)
}

/// Files that the tree no longer has would still be built as tests.
fn forget_what_is_gone(folder: &Path, copy: &Path, wanted: &BTreeSet<&str>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            forget_what_is_gone(&path, copy, wanted)?;
        } else if path.strip_prefix(copy)?.to_str().is_none_or(|name| !wanted.contains(name)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bug that cannot be planted any more catches nothing, and nobody sees it until all of them are
    /// run.
    #[test]
    fn every_bug_has_its_place() {
        for canary in flock::CANARIES {
            let text = fs::read_to_string(root().join(canary.file)).unwrap();
            let places = text.matches(canary.find).count();
            assert_eq!(places, 1, "{} in {}: {:?}", canary.name, canary.file, canary.find);
        }
    }
}
