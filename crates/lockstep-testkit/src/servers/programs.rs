//! Which programs the tests need, where they are found and which Debian package brings them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A program the tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// The name of the executable.
    pub name: &'static str,
    /// The Debian or Ubuntu package that brings it.
    pub package: &'static str,
    /// What the tests need it for.
    pub why: &'static str,
}

/// Everything the tests run besides cargo.
pub const PROGRAMS: &[Program] = &[
    Program { name: "redis-server", package: "redis-server", why: "the Redis store" },
    Program { name: "postgres", package: "postgresql", why: "the PostgreSQL store" },
    Program { name: "initdb", package: "postgresql", why: "creates a private PostgreSQL" },
    Program {
        name: "pgbouncer",
        package: "pgbouncer",
        why: "the PostgreSQL store behind a pooler",
    },
    Program { name: "mariadbd", package: "mariadb-server", why: "the MariaDB store" },
    Program {
        name: "mariadb-install-db",
        package: "mariadb-server",
        why: "creates a private MariaDB",
    },
    Program { name: "java", package: "default-jre-headless", why: "runs ZooKeeper" },
    Program {
        name: "javac",
        package: "default-jdk-headless",
        why: "builds what speaks to Curator",
    },
    Program { name: "zookeeper.jar", package: "libzookeeper-java", why: "the ZooKeeper store" },
    Program { name: "slf4j-simple.jar", package: "libslf4j-java", why: "what ZooKeeper says" },
    Program { name: "netty-codec.jar", package: "libnetty-java", why: "ZooKeeper with TLS" },
    Program {
        name: "curator-recipes.jar",
        package: "libcurator-recipes-java",
        why: "shares locks on ZooKeeper with us",
    },
    Program { name: "redis-cli", package: "redis-tools", why: "a lock written by hand" },
    Program { name: "redis/__init__.py", package: "python3-redis", why: "locks of redis-py" },
    Program { name: "node", package: "nodejs", why: "locks of node-redlock" },
    Program { name: "npm", package: "npm", why: "brings node-redlock" },
    Program { name: "go", package: "golang-go", why: "locks of redsync" },
    Program { name: "etcd", package: "etcd-server", why: "the etcd store" },
    Program { name: "etcdctl", package: "etcd-client", why: "excludes us and we it" },
    Program { name: "setpriv", package: "util-linux", why: "ends servers with their test" },
    Program {
        name: "setsid",
        package: "util-linux",
        why: "keeps `servers up` out of the terminal",
    },
    Program { name: "ps", package: "procps", why: "sees whether a command is stopped" },
    Program { name: "unshare", package: "util-linux", why: "shows a process another clock" },
    Program { name: "ipcrm", package: "util-linux", why: "tidies up after a killed PostgreSQL" },
    Program { name: "cc", package: "gcc", why: "builds the shim that shifts a server's clock" },
    Program { name: "openssl", package: "openssl", why: "makes certificates for TLS tests" },
];

/// The programs of [`PROGRAMS`] that this machine lacks.
pub fn missing() -> Vec<Program> {
    PROGRAMS.iter().copied().filter(|program| find(program.name).is_err()).collect()
}

pub(super) fn find(name: &str) -> Result<PathBuf> {
    folders().into_iter().map(|folder| folder.join(name)).find(|path| path.is_file()).with_context(
        || format!("{name} is not installed; `cargo xtask test` installs what the tests need"),
    )
}

/// Debian keeps PostgreSQL out of everyone's PATH and daemons out of an ordinary user's.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::from_iter(newest_postgres(Path::new("/usr/lib/postgresql")));
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    folders.extend(["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    // Programs for Java are files of their own place.
    folders.push(PathBuf::from("/usr/share/java"));
    // Where Debian keeps modules for its own Python.
    folders.push("/usr/lib/python3/dist-packages".into());
    folders
}

fn newest_postgres(installed: &Path) -> Option<PathBuf> {
    fs::read_dir(installed)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let bin = entry.path().join("bin");
            bin.join("postgres").is_file().then_some((version, bin))
        })
        .max()
        .map(|(_, bin)| bin)
}

/// Makes a shared object for `LD_PRELOAD` of C text.
pub(super) fn compile(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let (source, so) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    fs::write(&source, text)?;
    let output = Command::new(find("cc")?)
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&so, &source])
        .output()
        .context("cannot run the C compiler")?;
    if !output.status.success() {
        bail!("{name}.c does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(so)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_complete_postgres_wins_by_number_not_by_spelling() {
        let installed = tempfile::tempdir().unwrap();
        for version in ["9", "15", "16"] {
            fs::create_dir_all(installed.path().join(version).join("bin")).unwrap();
        }
        for version in ["9", "15"] {
            fs::write(installed.path().join(version).join("bin/postgres"), "").unwrap();
        }
        assert_eq!(newest_postgres(installed.path()), Some(installed.path().join("15/bin")));
    }

    #[test]
    fn an_absent_program_is_named_with_the_way_out() {
        let error = find("no-such-server").unwrap_err().to_string();
        assert!(error.contains("no-such-server") && error.contains("cargo xtask test"), "{error}");
    }
}
