//! No file grows into the one that everybody fears.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const MOST_LINES: usize = 800;
const KINDS: [&str; 9] = ["rs", "c", "sql", "lua", "sh", "md", "toml", "html", "txt"];

pub(super) fn problems(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    look_into(root, root, &mut problems)?;
    problems.sort();
    Ok(problems)
}

fn look_into(root: &Path, folder: &Path, problems: &mut Vec<String>) -> Result<()> {
    let unreadable = || format!("cannot read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        let path = entry.path();
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !hidden && path != root.join("target") {
                look_into(root, &path, problems)?;
            }
        } else if kind.is_file() && is_ours_to_write(&path) {
            let lines = String::from_utf8_lossy(&fs::read(&path)?).lines().count();
            if lines > MOST_LINES {
                let path = path.strip_prefix(root).unwrap_or(&path).display();
                problems.push(format!(
                    "{path}: {lines} lines, more than {MOST_LINES}: split it by its jobs"
                ));
            }
        }
    }
    Ok(())
}

fn is_ours_to_write(path: &Path) -> bool {
    let kind = path.extension().and_then(|kind| kind.to_str());
    kind.is_some_and(|kind| KINDS.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sources_are_named_and_other_files_are_not() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, lines: usize| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x\n".repeat(lines)).unwrap();
        };
        write("crates/a/src/long.rs", 801);
        write("crates/a/src/just_right.rs", 800);
        write("crates/a/src/target/of/somebody.rs", 801);
        write("target/debug/generated.rs", 9_000);
        write(".git/notes.md", 9_000);
        write("Cargo.lock", 9_000);
        let problems = problems(root.path()).unwrap();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("crates/a/src/long.rs: 801 lines"), "{problems:?}");
    }
}
