//! `cargo xtask canary`: planted bugs, each of which must turn the tests red. A test that cannot
//! fail proves nothing; this keeps proving that ours can.

mod flight;
mod flock;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use self::flight::{LIMIT_S, Outcome, try_tests};
use crate::interrupt::Interrupt;
use crate::workspace::root;

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
        let outcome = try_tests(&interrupt, &tree, tests)?;
        let green = outcome == Outcome::Green;
        ensure!(green, "without any bug `cargo test {}`: {outcome:?}", tests.join(" "));
        println!("sound     cargo test {}", tests.join(" "));
    }

    let mut caught = 0;
    for canary in &chosen {
        let outcome = fly(&interrupt, &tree, canary);
        if let Some(code) = interrupt.exit_code() {
            return Ok(code);
        }
        let (word, why) = verdict(canary, outcome);
        println!("{word:<9} {:<32} {why}", canary.name);
        caught += usize::from(word == CAUGHT);
    }
    let missed = chosen.len() - caught;
    println!("{caught} passed, {missed} failed");
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plants the bug, sees how the tests end, and takes it out again.
fn fly(interrupt: &Interrupt, tree: &Path, canary: &Canary) -> Result<Outcome> {
    let path = tree.join(canary.file);
    let sound = fs::read_to_string(&path).with_context(|| format!("no file {}", canary.file))?;
    let places = sound.matches(canary.find).count();
    ensure!(places == 1, "its place stands {places} times in {}, not once", canary.file);
    fs::write(&path, sound.replacen(canary.find, canary.replace, 1))?;
    let outcome = try_tests(interrupt, tree, canary.tests);
    fs::write(&path, sound)?;
    outcome
}

const CAUGHT: &str = "caught";

/// The word for how a canary ended, and what there is to say about it.
fn verdict(canary: &Canary, outcome: Result<Outcome>) -> (&'static str, String) {
    let harm = canary.harm;
    match outcome {
        Ok(Outcome::Red) => (CAUGHT, harm.to_owned()),
        Ok(Outcome::Hung) => ("HUNG", format!("not done within {LIMIT_S} s: {harm}")),
        Ok(Outcome::Green) => ("SURVIVED", format!("no test noticed: {harm}")),
        Err(error) => ("SURVIVED", format!("{error:#}")),
    }
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

    #[test]
    fn who_hangs_is_not_caught() {
        let canary = Canary {
            name: "deaf",
            harm: "nobody hears",
            file: "",
            find: "",
            replace: "",
            tests: &[],
        };
        let word = |outcome| verdict(&canary, Ok(outcome)).0;
        assert_eq!(word(Outcome::Red), CAUGHT);
        assert_eq!(word(Outcome::Green), "SURVIVED");
        assert_eq!(word(Outcome::Hung), "HUNG");
    }
}
