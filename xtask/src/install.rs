//! Brings the programs that the tests run, or says which are missing.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use lockstep_testkit::servers::{Program, missing};

use crate::child::{self, Stubborn};
use crate::interrupt::Interrupt;

const SCRIPT: &str = include_str!("install.sh");

/// Returns when every program is there. Installs only on Debian and its kin, and only if allowed.
pub(crate) fn ensure_programs(interrupt: &Interrupt, may_install: bool) -> Result<()> {
    let lacking = missing();
    if lacking.is_empty() {
        println!("all programs are there");
        return Ok(());
    }
    let Some(rights) = rights().filter(|_| may_install) else {
        bail!("{}", complaint(&lacking));
    };
    let packages: BTreeSet<&str> = lacking.iter().map(|program| program.package).collect();
    for Program { name, package, why } in &lacking {
        println!("{name} is missing ({why}): installing the package {package}");
    }
    println!("their daemons are not started: the tests run private servers on ports of their own");
    let mut command = Command::new(rights[0]);
    command.args(&rights[1..]).args(["sh", "-c", SCRIPT, "sh"]).args(packages);
    child::run(interrupt, command, Stubborn::Wait)?;
    match missing() {
        lacking if lacking.is_empty() => Ok(()),
        lacking => bail!("installed, and yet: {}", complaint(&lacking)),
    }
}

/// The words to put before a command that needs to be root; `None` where we cannot install.
fn rights() -> Option<&'static [&'static str]> {
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let works = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !is_debian(&os) || !works(&["apt-get", "--version"]) {
        None
    } else if rustix::process::geteuid().is_root() {
        Some(&["env"])
    } else if works(&["sudo", "-n", "true"]) {
        Some(&["sudo", "-n"])
    } else {
        None
    }
}

fn is_debian(os_release: &str) -> bool {
    os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|ids| ids.trim_matches('"').split_whitespace())
        .any(|id| id == "debian" || id == "ubuntu")
}

fn complaint(lacking: &[Program]) -> String {
    let lines: Vec<String> = lacking
        .iter()
        .map(|Program { name, package, why }| format!("  {name}: {why} (Debian package {package})"))
        .collect();
    let names: Vec<&str> = lacking.iter().map(|program| program.name).collect();
    format!("please install what is missing: {}\n{}", names.join(", "), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_its_kin_are_known() {
        assert!(is_debian("NAME=x\nID=debian\n"));
        assert!(is_debian("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian("ID=fedora\nID_LIKE=\"rhel\"\nHOME_URL=\"https://debian\"\n"));
    }

    #[test]
    fn what_is_missing_is_said_with_its_reason() {
        let program = Program { name: "redis-server", package: "redis", why: "the store" };
        assert!(complaint(&[program]).contains("redis-server: the store (Debian package redis)"));
    }
}
