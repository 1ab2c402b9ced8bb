//! Signals reach the command, and nothing is left behind.

mod common;

use std::process::Command;

use common::{CTRL_D, CTRL_Z, Running, World, until_stopped};
use rustix::process::{Pid, Signal};

#[test]
fn signals_are_passed_on_and_the_commands_answer_counts() {
    let world = World::new();
    let script = "
        trap 'echo USR1' USR1; trap 'echo HUP' HUP; trap 'echo bye; exit 3' TERM
        echo ready; while :; do :; done";
    let holder = world.start(&["lock", "job", "--", "sh", "-c", script]);
    assert_eq!(holder.line(), "ready");
    for (signal, answer) in [(Signal::USR1, "USR1"), (Signal::HUP, "HUP"), (Signal::TERM, "bye")] {
        holder.send(signal);
        assert_eq!(holder.line(), answer);
    }
    let done = holder.finish();
    assert_eq!((done.code, done.err.as_str()), (Some(3), ""));
    assert!(world.is_free("job"));
}

#[test]
fn a_signal_reaches_the_whole_group_and_the_lock_outlives_the_last_of_it() {
    let world = World::new();
    // The shell dies at once; the one that it waits for still has something to finish.
    let worker = "trap 'echo cleaning; echo cleaned; exit' TERM; echo ready; while :; do :; done";
    let script = format!("sh -c \"{worker}\"; echo never");
    let holder = world.start(&["lock", "job", "--", "sh", "-c", &script]);
    assert_eq!(holder.line(), "ready");
    holder.send(Signal::TERM);
    assert_eq!((holder.line(), holder.line()), ("cleaning".into(), "cleaned".into()));
    let done = holder.finish();
    assert_eq!((done.code, done.out.as_str()), (Some(143), ""));
}

#[test]
fn what_a_killed_command_leaves_of_its_group_is_killed() {
    let world = World::new();
    let worker = "trap '' TERM; echo ready; while :; do :; done";
    let script = format!("sh -c \"{worker}\"; echo never");
    let terms = ["lock", "--grace", "100ms", "job", "--"];
    let holder = world.start(&[&terms[..], &["sh", "-c", &script]].concat());
    assert_eq!(holder.line(), "ready");
    holder.send(Signal::TERM);
    // The output ends when nobody is left who could write.
    assert_eq!(holder.finish().code, Some(143));
    assert!(world.is_free("job"));
}

#[test]
fn ctrl_c_while_waiting_gives_the_place_back() {
    let world = World::new();
    let mut holder = world.start(&["lock", "job", "--", "sh", "-c", "echo in; read line"]);
    assert_eq!(holder.line(), "in");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let waiter = world.start(&["lock", "job", "--", "touch", &world.file("touched")]);
        world.until_waiting("job", 1);
        waiter.send(signal);
        assert_eq!(waiter.finish().code, Some(code));
        assert_eq!(world.show("job")["waiting"], 0);
    }
    holder.say("go on");
    assert_eq!(holder.finish().code, Some(0));
    assert!(world.is_free("job"));
    assert!(!world.path("touched").exists());
}

#[test]
fn a_second_ctrl_c_does_not_wait_for_a_store_that_does_not_answer() {
    let world = World::new();
    let mut holder = world.start(&["lock", "job", "--", "sh", "-c", "echo in; read line"]);
    assert_eq!(holder.line(), "in");
    let lockstep = env!("CARGO_BIN_EXE_lockstep");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {lockstep} lock job -- true 2>&1")]);
    command.env("LOCKSTEP_STORE", world.store());
    let waiter = Running::start(command);
    world.until_waiting("job", 1);
    // Somebody else writes the file, and does not end.
    let file = rusqlite::Connection::open(world.path("locks.db")).unwrap();
    file.busy_timeout(std::time::Duration::from_secs(20)).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    waiter.send(Signal::INT);
    assert!(waiter.line().contains("once more to leave at once"));
    waiter.send(Signal::INT);
    assert!(waiter.line().contains("SIGINT: the place is free in 10s"));
    assert_eq!(waiter.finish().code, Some(130));
    drop(file);
    holder.say("go on");
    assert_eq!(holder.finish().code, Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn the_command_dies_with_lockstep() {
    let world = World::new();
    let holder = world.start(&["lock", "job", "--", "sh", "-c", "echo in; exec cat /dev/zero"]);
    assert_eq!(holder.line(), "in");
    holder.send(Signal::KILL);
    // The pipe closes when nobody is left who could write to it.
    holder.until_silent();
    // Nobody gave it back; only the ttl frees it.
    assert!(!world.show("job")["holders"][0].is_null());
}

#[test]
fn what_was_ignored_stays_ignored() {
    let world = World::new();
    let lockstep = env!("CARGO_BIN_EXE_lockstep");
    let script = format!(
        "trap '' HUP; exec {lockstep} lock job -- sh -c 'echo in; read line; kill -HUP $$; echo out'"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("LOCKSTEP_STORE", world.store());
    let mut holder = Running::start(command);
    assert_eq!(holder.line(), "in");
    holder.send(Signal::HUP);
    holder.say("go on");
    assert_eq!(holder.line(), "out");
    assert_eq!(holder.finish().code, Some(0));
}

#[test]
fn a_command_that_is_stopped_keeps_its_lock() {
    let world = World::new();
    let script = "echo $$; read word; echo got $word";
    let terms = ["lock", "--ttl", "3s", "--grace", "50ms", "job", "--"];
    let mut holder = world.start_apart(&[&terms[..], &["sh", "-c", script]].concat());
    let command = holder.line().parse().ok().and_then(Pid::from_raw);
    holder.send(Signal::TSTP);
    until_stopped(command.expect("a process"));
    let other = world.run(&["lock", "--wait", "4s", "job", "--", "true"]);
    assert_eq!(other.code, Some(75), "{}", other.err);
    holder.send(Signal::CONT);
    holder.say("hello");
    assert_eq!(holder.line(), "got hello");
    let done = holder.finish();
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
}

#[test]
fn at_a_terminal_ctrl_z_stops_it_and_fg_goes_on() {
    let world = World::new();
    world.write("task", "echo ready; while read word; do echo got $word; done; exit 3");
    let mut shell = world.shell("1h");
    shell.say("$lock task");
    shell.until("ready");
    // Many times, because it depends on which thread hears of what first.
    for turn in 0..100 {
        shell.press(CTRL_Z);
        shell.until("Stopped");
        shell.say("fg");
        shell.say(&format!("{turn}"));
        shell.until(&format!("got {turn}"));
    }
    shell.press(CTRL_D);
    shell.say("exit $?");
    assert_eq!(shell.finish().code, Some(3));
    assert!(world.is_free("job"));
}

#[test]
fn at_a_terminal_whoever_waits_long_is_told_who_holds_it() {
    let world = World::new();
    let label = ["lock", "--label", "the nightly import", "job", "--"];
    let mut holder = world.start(&[&label[..], &["sh", "-c", "echo in; read line"]].concat());
    assert_eq!(holder.line(), "in");
    let lockstep = env!("CARGO_BIN_EXE_lockstep");
    let mut command = Command::new("script");
    let inner = format!("{lockstep} lock job -- echo done");
    command.args(["--quiet", "--return", "--command", &inner, "/dev/null"]);
    command.env("LOCKSTEP_STORE", world.store());
    let terminal = Running::start(command);
    let told = terminal.line();
    assert!(told.contains("waiting for \"job\", held by \"the nightly import\""), "{told}");
    holder.say("go on");
    assert_eq!(terminal.line().trim_end(), "done");
    assert_eq!(terminal.finish().code, Some(0));
    assert_eq!(holder.finish().code, Some(0));
}

/// Without the foreground it would be stopped as soon as it reads.
#[test]
fn at_a_terminal_the_command_may_read_from_it() {
    let world = World::new();
    let lockstep = env!("CARGO_BIN_EXE_lockstep");
    let inner = format!("{lockstep} lock job -- sh -c 'echo ready; read word; echo got $word'");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &inner, "/dev/null"]);
    command.env("LOCKSTEP_STORE", world.store());
    let mut terminal = Running::start(command);
    assert_eq!(terminal.line().trim_end(), "ready");
    terminal.say("hello");
    let answer = (0..2).map(|_| terminal.line()).find(|line| line.contains("got"));
    assert_eq!(answer.unwrap().trim_end(), "got hello");
    assert_eq!(terminal.finish().code, Some(0));
    assert!(world.is_free("job"));
}
