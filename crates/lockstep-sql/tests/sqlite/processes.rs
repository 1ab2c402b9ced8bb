//! Several real processes on one file. A child is this test binary itself, asked by an
//! environment variable to play a role.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use lockstep_core::{Effect, ErrorKind};

use super::*;

const ROLE: &str = "LOCKSTEP_TEST_ROLE";
const DATABASE: &str = "LOCKSTEP_TEST_DATABASE";
const SHORT: Duration = Duration::from_millis(500);

/// A child that is killed with its value.
struct Process {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(DATABASE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { child, says }
    }

    /// Reads until the child says this; answers the rest of the line.
    fn hears(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.says.read_line(&mut line).unwrap(), 0, "the child never said {word}");
            if let Some((_, rest)) = line.split_once(&format!("<{word}>")) {
                return rest.trim().to_owned();
            }
        }
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(word: &str, rest: impl std::fmt::Display) {
    println!("<{word}> {rest}");
}

fn told_to_go_on() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Not a test of its own: what a child does.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = PathBuf::from(std::env::var_os(DATABASE).unwrap());
    if role == "writer" {
        let conn = raw(&path);
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        say("writing", "");
        // Not for ever: a parent whose only thread waits for this file could not say anything.
        let (heard, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            told_to_go_on();
            heard.send(())
        });
        let _ = hears.recv_timeout(SOON);
        return conn.execute_batch("ROLLBACK").unwrap();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::open(Sqlite::at(&path).unwrap()).await.unwrap();
        match &*role {
            "holder" | "short holder" => {
                let ttl = if role == "holder" { LONG } else { SHORT };
                let guard = locks.lock("job").ttl(ttl).await.unwrap();
                say("held", guard.token().unwrap());
                told_to_go_on();
                guard.release().await.unwrap();
            }
            "counter" => {
                say("ready", "");
                told_to_go_on();
                for _ in 0..INCREMENTS {
                    let guard = locks.lock("counter").await.unwrap();
                    let number = read_number(&path);
                    tokio::task::yield_now().await;
                    std::fs::write(path.with_extension("count"), (number + 1).to_string()).unwrap();
                    guard.release().await.unwrap();
                }
            }
            other => panic!("no role {other}"),
        }
        locks.close().await;
    });
    say("done", "");
}

const INCREMENTS: u32 = 40;

/// The counter that nothing but the lock protects.
fn read_number(path: &Path) -> u32 {
    std::fs::read_to_string(path.with_extension("count")).unwrap().parse().unwrap()
}

#[test]
fn eight_processes_count_without_losing_one() {
    let (_folder, path) = database();
    std::fs::write(path.with_extension("count"), "0").unwrap();
    let mut children: Vec<_> = (0..8).map(|_| Process::start("counter", &path)).collect();
    children.iter_mut().for_each(|child| drop(child.hears("ready")));
    children.iter_mut().for_each(Process::go_on);
    children.iter_mut().for_each(|child| drop(child.hears("done")));
    assert_eq!(read_number(&path), 8 * INCREMENTS);
}

/// The waiter's lease is so long that only the pipe explains its haste, in both directions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_the_waiter_of_another_process() {
    let (_folder, path) = database();
    let locks = Locks::open(Sqlite::at(&path).unwrap()).await.unwrap();
    let guard = locks.lock("job").ttl(LONG).await.unwrap();
    let mut other = Process::start("holder", &path);
    waiting(&locks, "job", 1).await;
    let token = guard.token().unwrap().get();
    guard.release().await.unwrap();
    let heard = tokio::task::spawn_blocking(move || (other.hears("held"), other));
    let (held, mut other) = tokio::time::timeout(SOON, heard).await.expect("not woken").unwrap();
    assert!(held.parse::<u64>().unwrap() > token);

    let again = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("job").ttl(LONG).await.unwrap().release().await.unwrap() }
    });
    waiting(&locks, "job", 1).await;
    other.go_on();
    tokio::time::timeout(SOON, again).await.expect("not woken").unwrap();
    other.hears("done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_killed_process_passes_on_when_its_lease_ends() {
    let (_folder, path) = database();
    let mut holder = Process::start("short holder", &path);
    let token: u64 = holder.hears("held").parse().unwrap();
    holder.kill();
    let locks = Locks::open(Sqlite::at(&path).unwrap()).await.unwrap();
    let guard = locks.lock("job").ttl(LONG).within(SOON).await.unwrap();
    assert!(guard.token().unwrap().get() > token);
}

#[tokio::test]
async fn the_pipe_of_a_killed_process_is_removed() {
    let (_folder, path) = database();
    let pipes = || {
        let folder = std::fs::read_dir(format!("{}.wake", path.display())).unwrap();
        folder.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let mut holder = Process::start("holder", &path);
    holder.hears("held");
    let stale = pipes();
    assert_eq!(stale.len(), 1);
    holder.kill();
    assert_eq!(pipes(), stale);
    let _lane = lane(&Sqlite::at(&path).unwrap()).await;
    assert_eq!(pipes().len(), 1);
    assert_ne!(pipes(), stale);
}

/// Another process writes for a while: the verb waits, and this one thread does other work.
#[tokio::test(flavor = "current_thread")]
async fn a_locked_file_does_not_stop_the_executor() {
    let (_folder, path) = database();
    let lane = lane(&Sqlite::at(&path).unwrap()).await;
    let mut writer = Process::start("writer", &path);
    writer.hears("writing");
    let asking = tokio::spawn({
        let lane = Arc::clone(&lane);
        async move { granted(&*lane, &claim("job")).await }
    });
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!asking.is_finished());
    writer.go_on();
    assert_eq!(asking.await.unwrap(), 1 << 32 | 1);
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_that_stays_locked_is_busy_and_nothing_happened() {
    let (_folder, path) = database();
    let lane = lane(&Sqlite::at(&path).unwrap()).await;
    let mut writer = Process::start("writer", &path);
    writer.hears("writing");
    let error = lane.acquire(&claim("job")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Busy, Effect::None), "{error}");
    assert!(error.may_retry());
    writer.kill();
    granted(&*lane, &claim("job")).await;
}
