//! Licences of other people's crates: each must be one that `deny.toml` allows.

use std::fs;
use std::iter::Peekable;
use std::path::Path;
use std::str::SplitWhitespace;

use anyhow::{Context, Result};

use super::packages::Package;

pub(super) fn problems(root: &Path, others: &[Package]) -> Result<Vec<String>> {
    let deny = fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let allowed = allowed(&deny).context("deny.toml has no `allow = [` below [licenses]")?;
    Ok(others.iter().filter_map(|package| problem(package, &allowed)).collect())
}

fn problem(Package { name, version, license, .. }: &Package, allowed: &[String]) -> Option<String> {
    let Some(licence) = license else {
        return Some(format!("{name} {version} does not name its licence: may we use it?"));
    };
    match permits(licence, allowed) {
        Some(true) => None,
        Some(false) => Some(format!("{name} {version}: deny.toml does not allow `{licence}`")),
        None => Some(format!("{name} {version}: cannot understand the licence `{licence}`")),
    }
}

/// The words of the list, of which we know only this much: it is a list of strings.
fn allowed(deny: &str) -> Option<Vec<String>> {
    let without_comments: Vec<&str> =
        deny.lines().map(|line| line.split_once('#').map_or(line, |(before, _)| before)).collect();
    let text = without_comments.join("\n");
    let (_, section) = text.split_once("[licenses]")?;
    let (_, list) = section.split_once("allow = [")?;
    let (list, _) = list.split_once(']')?;
    Some(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Whether somebody who has only the allowed licences may use it; `None` if this is no expression
/// of SPDX. A `/` is what `OR` was before.
fn permits(licence: &str, allowed: &[String]) -> Option<bool> {
    let spaced = licence.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let permitted = one_of(&mut words, allowed)?;
    words.next().is_none().then_some(permitted)
}

type Words<'a> = Peekable<SplitWhitespace<'a>>;

fn one_of(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut permitted = all_of(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        permitted |= all_of(words, allowed)?;
    }
    Some(permitted)
}

fn all_of(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut permitted = single(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        permitted &= single(words, allowed)?;
    }
    Some(permitted)
}

fn single(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    match words.next()? {
        "(" => {
            let permitted = one_of(words, allowed)?;
            words.next_if_eq(&")").map(|_| permitted)
        }
        ")" | "AND" | "OR" | "WITH" => None,
        name => {
            // With an exception it is another licence, which has to be allowed by itself.
            let name = match words.next_if_eq(&"WITH") {
                Some(_) => format!("{name} WITH {}", words.next()?),
                None => name.to_owned(),
            };
            Some(allowed.contains(&name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = r#"
        [bans]
        allow = ["nothing"]
        [licenses] # what "we" take
        allow = [
            "MIT",
            "ISC", # not "GPL-3.0" [yet]
            "Apache-2.0 WITH LLVM-exception",
        ]
        exceptions = ["GPL-2.0"]
    "#;

    #[test]
    fn the_list_is_read_and_nothing_else() {
        let list = allowed(DENY).unwrap();
        assert_eq!(list, ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"]);
        assert_eq!(allowed("[licenses]\n# allow = [\"MIT\"]"), None);
    }

    #[test]
    fn an_expression_means_what_it_says() {
        let list = allowed(DENY).unwrap();
        for (licence, expected) in [
            ("MIT", Some(true)),
            ("BSL-1.0", Some(false)),
            ("GPL-3.0 OR MIT", Some(true)),
            ("GPL-3.0/MIT", Some(true)),
            ("GPL-3.0 AND MIT", Some(false)),
            ("MIT AND ISC", Some(true)),
            // AND binds more tightly.
            ("MIT OR ISC AND GPL-3.0", Some(true)),
            ("(MIT OR ISC) AND GPL-3.0", Some(false)),
            ("ISC AND (GPL-3.0 OR (MIT))", Some(true)),
            ("Apache-2.0", Some(false)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT ISC", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT)", None),
            ("OR MIT", None),
        ] {
            assert_eq!(permits(licence, &list), expected, "{licence}");
        }
    }

    #[test]
    fn a_crate_that_we_may_not_use_is_named() {
        let list = allowed(DENY).unwrap();
        let told = |license: Option<&str>| {
            let (name, version) = ("hash".to_owned(), "0.8.1".to_owned());
            let license = license.map(str::to_owned);
            problem(&Package { name, version, license, ..Package::default() }, &list)
        };
        assert_eq!(told(Some("MIT")), None);
        assert_eq!(
            told(Some("BSL-1.0")).unwrap(),
            "hash 0.8.1: deny.toml does not allow `BSL-1.0`"
        );
        assert!(told(None).unwrap().contains("does not name its licence"));
    }
}
