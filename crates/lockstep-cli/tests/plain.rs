//! The command beside scripts that lock with `redis-cli SET … NX PX`.

mod common;

use common::{Running, bare};
use lockstep_testkit::servers;

/// `lockstep ARGS…` on plain locks of the tests' Redis.
fn lockstep(args: &[&str]) -> std::process::Command {
    let mut command = bare(args);
    command.env("LOCKSTEP_STORE", format!("{}?layout=plain", servers::redis_url()));
    command
}

fn run(args: &[&str]) -> common::Done {
    Running::start(lockstep(args)).finish()
}

fn redis_cli(words: &[&str]) -> String {
    let url = servers::redis_url();
    let output = std::process::Command::new("redis-cli").args(["-u", &url]).args(words).output();
    let said = output.expect("redis-cli is installed").stdout;
    String::from_utf8_lossy(&said).trim().to_owned()
}

#[test]
fn a_command_and_a_script_exclude_each_other() {
    let name = format!("cli-plain-{}", std::process::id());
    let script = ["SET", &name, "a script", "NX", "PX", "60000"];
    let in_lock =
        ["lock", &name, "--", "sh", "-c", "echo \"token [${LOCKSTEP_TOKEN-unset}]\"; read line"];
    let mut holder = Running::start(lockstep(&in_lock));
    assert_eq!(holder.line(), "token [unset]");
    assert_eq!(redis_cli(&script), "", "refused");
    holder.say("go on");
    assert_eq!(holder.finish().code, Some(0));

    assert_eq!(redis_cli(&script), "OK");
    let busy = run(&["lock", &name, "--try", "--", "true"]);
    assert!(busy.code != Some(0) && busy.err.contains("held by \"a script\""), "{}", busy.err);
    let shown = run(&["locks", "show", &name]).out;
    assert!(shown.contains("holder    a script") && shown.contains("token     none"), "{shown}");
    let waiting = Running::start(lockstep(&["lock", &name, "--", "true"]));
    assert_eq!(redis_cli(&["DEL", &name]), "1");
    assert_eq!(waiting.finish().code, Some(0));
}

#[test]
fn breaking_what_never_ends_needs_now() {
    let name = format!("cli-immortal-{}", std::process::id());
    assert_eq!(redis_cli(&["SET", &name, "for ever", "NX"]), "OK");
    let refused = run(&["locks", "break", &name, "--reason", "gone"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("--now"), "{}", refused.err);
    assert_eq!(run(&["locks", "break", &name, "--reason", "gone", "--now"]).code, Some(0));
    assert_eq!(redis_cli(&["EXISTS", &name]), "0");
}

#[test]
fn a_list_needs_to_know_where_locks_are() {
    let refused = run(&["locks", "ls"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("prefix"), "{}", refused.err);
    assert_eq!(run(&["locks", "ls", "no-such-lock"]).code, Some(0));
}
