//! What a command gets, and what its end becomes.

mod common;

use std::process::Command;

use common::{Running, World, bare};

#[test]
fn the_status_is_the_commands_own() {
    let world = World::new();
    for (script, code) in [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        let done = world.run(&["lock", "job", "--", "sh", "-c", script]);
        assert_eq!(done.code, Some(code), "{script}: {}", done.err);
        assert_eq!(done.err, "", "{script}");
        assert!(world.is_free("job"), "{script}");
    }
}

#[test]
fn the_command_knows_its_lock() {
    let world = World::new();
    let script = "echo $LOCKSTEP_LOCK; echo $LOCKSTEP_TOKEN; echo $LOCKSTEP_OWNER; read line";
    let mut holder = world.start(&["lock", "job", "--label", "me", "--", "sh", "-c", script]);
    let (name, token, owner) = (holder.line(), holder.line(), holder.line());
    let lock = world.show("job");
    assert_eq!(name, "job");
    assert_eq!(lock["holders"][0]["token"].to_string(), token);
    assert_eq!(lock["holders"][0]["owner"], owner);
    assert_eq!(lock["holders"][0]["label"], "me");
    holder.say("go on");
    assert_eq!(holder.finish().code, Some(0));

    let next = world.run(&["lock", "job", "--", "sh", "-c", "echo $LOCKSTEP_TOKEN"]);
    let token: u64 = token.parse().unwrap();
    assert!(next.out.trim().parse::<u64>().unwrap() > token, "{}", next.out);
}

#[test]
fn who_holds_is_told_by_host_process_and_program() {
    let world = World::new();
    let script = "echo in; read line";
    let mut holder = world.start(&["lock", "job", "--", "/bin/sh", "-c", script]);
    assert_eq!(holder.line(), "in");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let expected = format!("{} {} sh", host.trim_end(), holder.pid().as_raw_pid());
    assert_eq!(world.show("job")["holders"][0]["label"], expected);
    holder.say("go on");
    assert_eq!(holder.finish().code, Some(0));
}

#[test]
fn the_command_has_the_real_stdin_and_no_other_files() {
    let world = World::new();
    let mut copy = world.start(&["lock", "job", "--", "cat"]);
    copy.say("hello");
    assert_eq!(copy.line(), "hello");
    assert_eq!(copy.finish().code, Some(0));

    // Neither lockstep's database nor its sockets, which would outlive the lock.
    let list = ["ls", "/proc/self/fd"];
    let under_lock = world.run(&[&["lock", "job", "--"], &list[..]].concat());
    let mut plain = Command::new(list[0]);
    plain.arg(list[1]);
    assert_eq!(under_lock.out, Running::start(plain).finish().out);
}

#[test]
fn a_command_that_cannot_run_leaves_the_lock_free() {
    let world = World::new();
    let done = world.run(&["lock", "job", "--", "no-such-command"]);
    assert_eq!(done.code, Some(127));
    assert_eq!(done.err, "lockstep: command not found: no-such-command\n");
    assert!(world.is_free("job"));

    let done = world.run(&["lock", "job", "--", "/etc/passwd"]);
    assert_eq!(done.code, Some(126));
    assert!(done.err.contains("cannot execute /etc/passwd: Permission denied"), "{}", done.err);
    assert!(world.is_free("job"));

    // The command's own 127 is its own.
    let done = world.run(&["lock", "job", "--", "sh", "-c", "exit 127"]);
    assert_eq!((done.code, done.err.as_str()), (Some(127), ""));
}

#[test]
fn wrong_usage_is_64_and_says_what_is_right() {
    let world = World::new();
    let long = "x".repeat(256);
    for (args, hint) in [
        (vec!["lock", "job"], "<CMD>"),
        (vec!["lock", "--", "true"], "<NAME>"),
        (vec!["lock", "--try", "--wait", "1s", "job", "--", "true"], "cannot be used with"),
        (vec!["lock", "--ttl", "10", "job", "--", "true"], "500ms, 10s, 2m, 1h or 1d"),
        (vec!["lock", "--ttl", "3s", "job", "--", "true"], "`--ttl 4s` or longer"),
        (vec!["lock", "--ttl", "30d", "job", "--", "true"], "20ms and 1d"),
        (vec!["lock", "--ttl", "1ms", "--grace", "0s", "job", "--", "true"], "20ms and 1d"),
        (vec!["lock", "", "--", "true"], "at least one character"),
        (vec!["lock", "a\nb", "--", "true"], "control characters"),
        (vec!["lock", &long, "--", "true"], "255"),
        (vec!["locks", "break", "job"], "--reason"),
        (vec!["locks", "break", "job", "--reason", " "], "reason"),
        (vec!["--store", "gopher://x", "locks", "ls"], "gopher"),
        (vec!["frobnicate"], "frobnicate"),
        (vec![], "Usage:"),
    ] {
        let done = world.run(&args);
        assert_eq!(done.code, Some(64), "{args:?}: {}", done.err);
        assert!(done.err.contains(hint), "{args:?}: {}", done.err);
        assert_eq!(done.out, "", "{args:?}");
    }
}

#[test]
fn help_is_no_error_and_has_examples_and_defaults() {
    let commands: [&[&str]; 9] = [
        &["--help"],
        &["lock", "--help"],
        &["locks", "--help"],
        &["locks", "ls", "--help"],
        &["locks", "show", "--help"],
        &["locks", "break", "--help"],
        &["locks", "facts", "--help"],
        &["migrate", "--help"],
        &["completions", "--help"],
    ];
    for args in commands {
        let done = Running::start(bare(args)).finish();
        assert_eq!(done.code, Some(0), "{args:?}");
        assert!(done.out.contains("Examples:\n  lockstep "), "{args:?}: {}", done.out);
        assert!(!done.out.contains("__run"), "{args:?}");
    }
    let lock = Running::start(bare(&["lock", "--help"])).finish().out;
    for default in ["[default: 10s]", "[default: 2s]", "[default: waits for ever]"] {
        assert!(lock.contains(default), "{default}: {lock}");
    }
    let stores = Running::start(bare(&["--help"])).finish().out;
    let limit = format!("{} s per store operation", lockstep::DEFAULT_OP_TIMEOUT.as_secs());
    for text in ["?prefix=NAME", "separates the tenants of one store", &limit] {
        assert!(stores.contains(text), "{text}: {stores}");
    }
}
