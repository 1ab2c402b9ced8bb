//! Arrows between our crates point down only: assemblies → adapters → features → core.

use super::packages::{Dependency, Package};

const TESTKIT: &str = "lockstep-testkit";

/// What a crate may see of the others. Tests may see more: development dependencies are free.
const ARROWS: [(&str, &[&str]); 12] = [
    ("lockstep-core", &[]),
    ("lockstep-lock", &["lockstep-core"]),
    ("lockstep-net", &[]),
    ("lockstep-sql", &["lockstep-core", "lockstep-lock", "lockstep-net"]),
    ("lockstep-sqlx", &["lockstep-sql"]),
    ("lockstep-redis", &["lockstep-core", "lockstep-lock", "lockstep-net"]),
    ("lockstep-etcd", &["lockstep-core", "lockstep-lock"]),
    ("lockstep-zookeeper", &["lockstep-core", "lockstep-lock", "lockstep-net"]),
    (
        "lockstep-kit",
        &[
            "lockstep-core",
            "lockstep-lock",
            "lockstep-sql",
            "lockstep-sqlx",
            "lockstep-redis",
            "lockstep-etcd",
            "lockstep-zookeeper",
        ],
    ),
    ("lockstep-cli", &["lockstep-kit"]),
    ("lockstep-tower", &["lockstep-core", "lockstep-lock"]),
    (TESTKIT, &["lockstep-core", "lockstep-lock"]),
];
/// May see everything: the commands of the project, and what they run, are made of its parts.
const SEES_ALL: [&str; 2] = ["xtask", "lockstep-bench"];

pub(super) fn problems(ours: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    for Package { name, dependencies, .. } in
        ours.iter().filter(|package| !SEES_ALL.contains(&&*package.name))
    {
        let Some((_, allowed)) = ARROWS.iter().find(|(of, _)| of == name) else {
            let here = file!();
            problems.push(format!("{name}: which of our crates may it see? Say so in {here}"));
            continue;
        };
        for Dependency { name: other, kind } in dependencies {
            let is_ours = ours.iter().any(|package| package.name == *other);
            if !is_ours || kind.as_deref() == Some("dev") {
                continue;
            }
            if other == TESTKIT {
                problems.push(format!("{name}: {TESTKIT} is for tests: [dev-dependencies] only"));
            } else if !allowed.contains(&other.as_str()) {
                problems.push(format!("{name} must not depend on {other}"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Packages from arrows such as `"a > b"`, or `"a > b dev"` for a development dependency.
    fn check(arrows: &[&str]) -> Vec<String> {
        let mut packages: BTreeMap<String, Vec<Dependency>> = BTreeMap::new();
        for arrow in arrows {
            let words: Vec<String> = arrow.split_whitespace().map(str::to_owned).collect();
            let (from, name, kind) = (words[0].clone(), words[2].clone(), words.get(3).cloned());
            if name.starts_with("lockstep") {
                packages.entry(name.clone()).or_default();
            }
            packages.entry(from).or_default().push(Dependency { name, kind });
        }
        let package = |(name, dependencies)| Package { name, dependencies, ..Package::default() };
        problems(&packages.into_iter().map(package).collect::<Vec<_>>())
    }

    #[test]
    fn arrows_that_point_down_are_fine() {
        let none: [&str; 0] = [];
        let arrows = [
            "lockstep-lock > lockstep-core",
            "lockstep-redis > lockstep-lock",
            "lockstep-redis > tokio",
            "lockstep-redis > lockstep-testkit dev",
            "lockstep-testkit > lockstep-lock",
            "lockstep-cli > lockstep-kit",
            "xtask > lockstep-testkit",
            "xtask > lockstep-kit",
        ];
        assert_eq!(check(&arrows), none);
    }

    #[test]
    fn arrows_that_point_up_or_sideways_are_named() {
        let wrong = "lockstep-sql > lockstep-redis";
        assert_eq!(check(&[wrong]), ["lockstep-sql must not depend on lockstep-redis"]);
        let wrong = "lockstep-core > lockstep-lock build";
        assert_eq!(check(&[wrong]), ["lockstep-core must not depend on lockstep-lock"]);
    }

    #[test]
    fn the_testkit_is_for_tests() {
        let problems = check(&["lockstep-kit > lockstep-testkit"]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("[dev-dependencies] only"), "{problems:?}");
    }

    #[test]
    fn a_new_crate_needs_a_decision() {
        let problems = check(&["lockstep-new > lockstep-core"]);
        assert!(problems[0].starts_with("lockstep-new: which of our crates"), "{problems:?}");
    }
}
