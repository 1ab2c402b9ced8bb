//! Brings the programs that the tests run, or says which are missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use lockstep_testkit::servers::{Program, missing};

use crate::child::{self, Stubborn};
use crate::interrupt::Interrupt;

const SCRIPT: &str = include_str!("install.sh");

/// What the script changes while it installs: which daemons may start, and which cluster PostgreSQL
/// makes.
const SETTINGS: [&str; 2] = ["/usr/sbin/policy-rc.d", "/etc/postgresql-common/createcluster.conf"];

/// Returns when every program is there. Installs only on Debian and its kin, and only if allowed.
pub(crate) fn ensure_programs(interrupt: &Interrupt, may_install: bool) -> Result<()> {
    if is_half_done(SETTINGS) {
        put_back(interrupt)?;
    }
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
    child::run(interrupt, script(rights, SETTINGS, packages), Stubborn::Wait)?;
    match missing() {
        lacking if lacking.is_empty() => Ok(()),
        lacking => bail!("installed, and yet: {}", complaint(&lacking)),
    }
}

/// Undoes what a run of the script has left behind that was killed.
fn put_back(interrupt: &Interrupt) -> Result<()> {
    let files = SETTINGS.join(" and ");
    let Some(rights) = rights() else {
        println!("an installation was not finished: run this as root once, to put back {files}");
        return Ok(());
    };
    println!("an installation was not finished: putting back {files}");
    child::run(interrupt, script(rights, SETTINGS, []), Stubborn::Wait)
}

fn is_half_done(settings: [&str; 2]) -> bool {
    let ours = fs::read_to_string(settings[0]).is_ok_and(|text| text.contains("by lockstep"));
    ours || settings.iter().any(|file| Path::new(&format!("{file}.before-lockstep")).exists())
}

fn script<'a>(
    rights: &[&str],
    settings: [&str; 2],
    packages: impl IntoIterator<Item = &'a str>,
) -> Command {
    let mut command = Command::new(rights[0]);
    command.args(&rights[1..]).args(["sh", "-c", SCRIPT, "sh"]).args(settings).args(packages);
    command
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
    use std::io::{BufRead, BufReader, Write};

    use super::*;

    #[test]
    fn debian_and_its_kin_are_known() {
        assert!(is_debian("NAME=x\nID=debian\n"));
        assert!(is_debian("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian("ID=fedora\nID_LIKE=\"rhel\"\nHOME_URL=\"https://debian\"\n"));
    }

    /// A Debian where `killer` kills whoever installs it and `broken` cannot be installed, and on which
    /// pgbouncer was installed before.
    const DEBIAN: &str = r#"
        set -e
        mkdir bin installed
        touch installed/pgbouncer disabled
        cat >bin/apt-get <<'END'
#!/bin/sh
case " $* " in *" -s "* | *" update "*) exit ;; esac
for word; do
    case $word in
    install | -*) ;;
    broken) exit 100 ;;
    killer) kill -KILL $PPID ;;
    slow) read line <pipe && touch "installed/$word" ;;
    *) touch "installed/$word" ;;
    esac
done
END
        cat >bin/dpkg-query <<'END'
#!/bin/sh
for word; do :; done
[ -e "installed/$word" ] && printf installed
END
        cat >bin/dpkg <<'END'
#!/bin/sh
grep -q 'exit 101' policy && grep -qs false clusters && echo "$*" >>configured
END
        cat >bin/systemctl <<'END'
#!/bin/sh
for word; do
    case $word in disable | -*) ;; *) echo "$word" >>disabled ;; esac
done
END
        cp bin/systemctl bin/update-rc.d
        chmod +x bin/*
    "#;

    struct Debian(tempfile::TempDir);

    impl Debian {
        /// Its files are written by a shell: what this process has open for writing while another test
        /// starts a program cannot be run.
        fn new() -> Self {
            let debian = Debian(tempfile::tempdir().unwrap());
            let mut shell = Command::new("sh");
            shell.args(["-c", DEBIAN]).current_dir(debian.0.path());
            assert!(shell.status().unwrap().success());
            debian
        }

        fn file(&self, name: &str) -> String {
            self.0.path().join(name).to_str().unwrap().to_owned()
        }

        fn read(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.file(name)).ok()
        }

        fn is_half_done(&self) -> bool {
            is_half_done([&self.file("policy"), &self.file("clusters")])
        }

        fn script(&self, packages: &[&str]) -> Command {
            let settings = [&*self.file("policy"), &self.file("clusters")];
            let mut script = script(&["env"], settings, packages.iter().copied());
            let path = std::env::var("PATH").unwrap();
            script.env("PATH", format!("{}:{path}", self.file("bin")));
            script.current_dir(self.0.path());
            script
        }

        /// Whether the script says that it has installed them.
        fn install(&self, packages: &[&str]) -> bool {
            self.script(packages).status().unwrap().success()
        }
    }

    #[test]
    fn what_was_installed_is_disabled_also_if_something_else_could_not_be() {
        let debian = Debian::new();
        let packages = ["redis-server", "pgbouncer", "gcc", "broken", "etcd-server"];
        assert!(!debian.install(&packages));
        assert_eq!(debian.read("disabled").unwrap(), "redis-server\n");
        assert!(!debian.is_half_done());
        assert_eq!(debian.read("policy"), None);
        assert!(debian.install(&["mariadb-server", "etcd-server"]));
        assert_eq!(debian.read("disabled").unwrap(), "redis-server\nmariadb\netcd\n");
        assert_eq!(debian.read("policy"), None);
    }

    #[test]
    fn what_a_killed_installation_left_behind_is_put_back() {
        for policy in [None, Some("somebody's")] {
            let debian = Debian::new();
            fs::write(debian.file("clusters"), "create_main_cluster = true\n").unwrap();
            if let Some(policy) = policy {
                fs::write(debian.file("policy"), policy).unwrap();
            }
            assert!(!debian.is_half_done());
            assert!(!debian.install(&["redis-server", "postgresql", "killer"]));
            assert!(debian.is_half_done());
            assert!(debian.read("policy").unwrap().contains("exit 101"));
            assert_eq!(debian.read("clusters").unwrap(), "create_main_cluster = false\n");
            assert_eq!(debian.read("disabled").unwrap(), "");
            assert_eq!(debian.read("configured"), None);

            assert!(debian.install(&[]));
            assert_eq!(debian.read("configured").unwrap(), "--configure -a\n");
            assert!(!debian.is_half_done());
            assert_eq!(debian.read("policy").as_deref(), policy);
            assert_eq!(debian.read("clusters").unwrap(), "create_main_cluster = true\n");
            assert_eq!(debian.read("disabled").unwrap(), "redis-server\n");
        }
    }

    #[test]
    fn one_installation_waits_for_the_other_and_does_not_take_it_for_a_dead_one() {
        let debian = Debian::new();
        let pipe = debian.file("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut first = debian.script(&["slow"]).spawn().unwrap();
        // Somebody reads from it when the package is about to be installed.
        let mut go_on = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        let mut second = debian.script(&["redis-server"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(second.stdout.take().unwrap()).lines();
        assert!(said.next().unwrap().unwrap().contains("under way"));
        assert!(debian.is_half_done());
        go_on.write_all(b"go on\n").unwrap();
        assert!(first.wait().unwrap().success() && second.wait().unwrap().success());
        assert!(!debian.is_half_done());
        assert_eq!(debian.read("disabled").unwrap(), "redis-server\n");
    }

    #[test]
    fn what_is_missing_is_said_with_its_reason() {
        let program = Program { name: "redis-server", package: "redis", why: "the store" };
        assert!(complaint(&[program]).contains("redis-server: the store (Debian package redis)"));
    }
}
