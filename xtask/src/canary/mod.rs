//! `cargo xtask canary`: planted bugs, each of which must turn the tests red. A test that cannot
//! fail proves nothing; this keeps proving that ours can.

mod flock;

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
    /// Show what is planted and run nothing
    #[arg(long)]
    list: bool,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask canary                 all of them
  cargo xtask canary --list
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
    let run = tempfile::Builder::new().prefix("lockstep-canary-").tempdir()?;
    fs::set_permissions(run.path(), fs::Permissions::from_mode(0o755))?;
    let fleet = Fleet::start(run.path(), |home| home)?;
    let tree = copy_of_the_tree()?;

    let mut survived = vec![];
    for canary in &chosen {
        match fly(&interrupt, &tree, &fleet, canary) {
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
fn fly(interrupt: &Interrupt, tree: &Path, fleet: &Fleet, canary: &Canary) -> Result<()> {
    let path = tree.join(canary.file);
    let sound = fs::read_to_string(&path).with_context(|| format!("no file {}", canary.file))?;
    let places = sound.matches(canary.find).count();
    ensure!(places == 1, "its place stands {places} times in {}, not once", canary.file);
    fs::write(&path, sound.replacen(canary.find, canary.replace, 1))?;
    let red = is_red(interrupt, tree, fleet, canary);
    fs::write(&path, sound)?;
    ensure!(red?, "no test noticed: {}", canary.harm);
    Ok(())
}

fn is_red(interrupt: &Interrupt, tree: &Path, fleet: &Fleet, canary: &Canary) -> Result<bool> {
    let command = |extra: &[&str]| {
        // The whole workspace is named so that dependencies keep the same features from one canary
        // to the next, and are built once.
        let mut command = cargo(["test", "--quiet", "--workspace"]);
        command.args(extra).args(canary.tests).current_dir(tree).envs(fleet.env());
        // A target folder of its own: cargo names what it builds by the path within the workspace,
        // so a planted bug in the common one would be taken for the real thing afterwards.
        command.env("CARGO_TARGET_DIR", root().join("target/canary-target"));
        command
    };
    let mut build = command(&["--no-run"]);
    quiet(&mut build);
    child::run(interrupt, build, Stubborn::Kill).context("it does not even build")?;
    // A test that hangs has noticed as well.
    let mut tests = Command::new("timeout");
    let inner = command(&[]);
    tests.args(["--kill-after=10", "300"]).arg(inner.get_program()).args(inner.get_args());
    tests.current_dir(tree);
    tests.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    quiet(&mut tests);
    let outcome = child::run(interrupt, tests, Stubborn::Kill);
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
