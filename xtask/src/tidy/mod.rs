//! `cargo xtask tidy`: what the compiler does not check.

mod edges;
mod licences;
mod lines;
mod packages;
mod reach;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Fails with everything that is not in order, not only with the first.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut problems = lines::problems(root)?;
    let (ours, others) = packages::ours_and_others()?;
    problems.extend(edges::problems(&ours));
    problems.extend(licences::problems(root, &others)?);
    problems.extend(reach::problems()?);
    if problems.is_empty() {
        println!("tidy");
        return Ok(());
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    bail!("not tidy: {} problem(s)", problems.len());
}

fn output_of(mut command: Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
