//! Programs in Java that tests run beside ours: compiled when they are needed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::programs;
use super::zookeeper::class_path;

/// What Curator and the clients of ZooKeeper need; Debian's packages bring them.
const JARS: &[&str] = &[
    "curator-recipes.jar",
    "curator-framework.jar",
    "curator-client.jar",
    "zookeeper.jar",
    "zookeeper-jute.jar",
    "guava.jar",
    "slf4j-api.jar",
    "slf4j-simple.jar",
];

/// A program of one class, compiled in a folder of its own.
#[derive(Debug)]
pub struct JavaProgram {
    class: String,
    path: String,
    _folder: TempDir,
}

impl JavaProgram {
    /// Compiles one source file against Curator.
    pub fn compile(source: &Path) -> Result<JavaProgram> {
        let folder = tempfile::Builder::new().prefix("lockstep-java-").tempdir()?;
        let jars = class_path(JARS)?;
        let output = Command::new(programs::find("javac")?)
            .args(["-cp", &jars, "-d"])
            .arg(folder.path())
            .arg(source)
            .output()?;
        if !output.status.success() {
            bail!("javac {}:\n{}", source.display(), String::from_utf8_lossy(&output.stderr));
        }
        let class = source.file_stem().context("a source file")?.to_string_lossy().into_owned();
        let path = format!("{}:{jars}", folder.path().display());
        Ok(JavaProgram { class, path, _folder: folder })
    }

    /// The one that does with Curator what it is told, line by line.
    pub fn curator_peer() -> Result<JavaProgram> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/CuratorPeer.java");
        Self::compile(&source)
    }

    /// A command that runs it; it ends with its caller. What Java itself has to say goes nowhere.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(programs::find("setpriv")?);
        command
            .args(["--pdeathsig", "KILL"])
            .arg(programs::find("java")?)
            .args(["-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"])
            .args(["-cp", &self.path, &self.class])
            .args(args)
            .stderr(Stdio::null());
        Ok(command)
    }
}
