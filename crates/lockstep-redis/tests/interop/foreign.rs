//! Other people's programs, and how they are told what to do.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lockstep_testkit::servers;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Whose locks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Player {
    Python,
    Node,
    Go,
    Shell,
}

/// One of their processes; it ends with this.
pub(crate) struct Foreign {
    child: Child,
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
}

impl Player {
    fn command(self) -> Command {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop");
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/interop");
        let (program, script): (PathBuf, Option<PathBuf>) = match self {
            // Debian's own, which has Debian's modules.
            Self::Python => ("/usr/bin/python3".into(), Some(sources.join("python/main.py"))),
            Self::Node => ("node".into(), Some(built.join("node/main.mjs"))),
            Self::Go => (built.join("redsync"), None),
            Self::Shell => ("sh".into(), Some(sources.join("shell/main.sh"))),
        };
        for path in script.iter().chain(program.is_absolute().then_some(&program)) {
            assert!(
                path.exists(),
                "{} is not there: `cargo xtask test -- -p lockstep-redis` or `cargo xtask servers up` \
                 brings what these tests play against",
                path.display()
            );
        }
        let mut command = Command::new(program);
        command.args(script);
        command
    }
}

impl Foreign {
    pub(crate) async fn start(player: Player) -> Self {
        let url = servers::redis_url();
        let (host, port) = url.trim_start_matches("redis://").split_once(':').unwrap();
        let mut command = player.command();
        command.args([host, port.trim_end_matches('/')]).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{player:?}: {error}"));
        let orders = child.stdin.take().unwrap();
        let words = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, orders, words }
    }

    /// Tells it something; the answer comes when it has done it.
    pub(crate) async fn says(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
        self.orders.flush().await.unwrap();
    }

    pub(crate) async fn answers(&mut self) -> String {
        let line = tokio::time::timeout(Duration::from_secs(30), self.words.next_line());
        line.await.expect("no answer came").unwrap().expect("it ended without an answer")
    }

    pub(crate) async fn obeys(&mut self, order: &str) -> String {
        self.says(order).await;
        self.answers().await
    }

    /// SIGKILL; returns when it is dead.
    pub(crate) async fn dies(&mut self) {
        self.child.kill().await.unwrap();
    }
}
