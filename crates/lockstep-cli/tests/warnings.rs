//! What a server may do to a lock is said to who looks, and to a person who takes one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Command;
use std::time::Duration;

use common::{Running, bare};
use lockstep_testkit::servers::{RedisOptions, RedisServer, after_a_sleep};

/// Shown a machine that has slept for a day, which its neighbours have not.
#[test]
fn a_clock_of_ones_own_is_warned_about() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = after_a_sleep(Duration::from_secs(86_400));
    command.args([env!("CARGO_BIN_EXE_lockstep"), "locks", "facts"]);
    command.env("LOCKSTEP_STORE", format!("sqlite:{}/locks.db", folder.path().display()));
    let facts = Running::start(command).finish();
    assert!(facts.out.contains("has a time namespace"), "{} {}", facts.out, facts.err);
}

#[test]
fn a_server_that_evicts_is_warned_about() {
    let args = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"].map(str::to_owned);
    let options = RedisOptions { args: args.to_vec(), ..RedisOptions::default() };
    let server = RedisServer::start(options).unwrap();
    let on = |mut command: Command| {
        command.env("LOCKSTEP_STORE", server.url());
        let done = Running::start(command).finish();
        assert_eq!(done.code, Some(0), "{}", done.err);
        done
    };

    let facts = on(bare(&["locks", "facts"])).out;
    assert!(facts.contains("allkeys-lru"), "{facts}");

    // What is run by other programs stays quiet, unless it is asked to speak.
    let lock = ["lock", "job", "--", "echo", "done"];
    let quiet = on(bare(&lock));
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("done\n", ""));
    let asked = on(bare(&["-v", "lock", "job", "--", "true"])).err;
    assert_eq!(asked.matches("allkeys-lru").count(), 1, "{asked}");

    // `script` runs it on a terminal.
    let program = env!("CARGO_BIN_EXE_lockstep");
    let told = format!("warning: 127.0.0.1:{}: maxmemory-policy is allkeys-lru", server.port());
    for (flags, told) in [("", told.as_str()), ("-v", "WARN")] {
        let mut terminal = Command::new("script");
        let inner = format!("{program} {flags} {}", lock.join(" "));
        terminal.args(["--quiet", "--return", "--command", &inner, "/dev/null"]);
        terminal.env_remove("LOCKSTEP_LOG");
        let seen = on(terminal).out;
        assert!(seen.contains(told) && seen.contains("done"), "{seen}");
        assert_eq!(seen.matches("allkeys-lru").count(), 1, "{seen}");
    }
}
