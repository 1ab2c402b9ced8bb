//! One at a time.

mod common;

use std::process::Command;

use common::{Running, World};
use lockstep_testkit::servers::ClockShim;

#[test]
fn commands_under_one_lock_never_overlap() {
    let world = World::new();
    let log = world.file("log");
    let script = format!("echo in >> {log}; echo out >> {log}");
    let holders: Vec<_> =
        (0..8).map(|_| world.start(&["lock", "job", "--", "sh", "-c", &script])).collect();
    for holder in holders {
        let done = holder.finish();
        assert_eq!(done.code, Some(0), "{}", done.err);
    }
    assert_eq!(world.read("log"), "in\nout\n".repeat(8));
}

#[test]
fn different_names_do_not_exclude_each_other() {
    let world = World::new();
    let mut one = world.start(&["lock", "one", "--", "sh", "-c", "echo in; read line"]);
    assert_eq!(one.line(), "in");
    assert_eq!(world.run(&["lock", "--try", "two", "--", "true"]).code, Some(0));
    one.say("go on");
    assert_eq!(one.finish().code, Some(0));
}

#[test]
fn a_lock_that_is_not_free_in_time_is_75_and_the_holder_is_named() {
    let world = World::new();
    let script = "echo in; read line";
    let mut holder =
        world.start(&["lock", "job", "--label", "the first", "--", "sh", "-c", script]);
    assert_eq!(holder.line(), "in");

    for args in [["--try"].as_slice(), &["--wait", "200ms"]] {
        let touch = ["job", "--", "touch", &world.file("touched")];
        let done = world.run(&[&["lock"], args, &touch].concat());
        assert_eq!(done.code, Some(75), "{args:?}: {}", done.err);
        assert!(done.err.contains("held by \"the first\" since 20"), "{args:?}: {}", done.err);
        assert!(!world.path("touched").exists(), "{args:?}");
    }
    assert_eq!(world.show("job")["waiting"], 0);

    holder.say("go on");
    assert_eq!(holder.finish().code, Some(0));
    assert_eq!(world.run(&["lock", "--try", "job", "--", "true"]).code, Some(0));
}

#[test]
fn waiters_are_served_in_the_order_of_arrival() {
    let world = World::new();
    let mut holder = world.start(&["lock", "job", "--", "sh", "-c", "echo in; read line"]);
    assert_eq!(holder.line(), "in");
    let mut waiters = Vec::new();
    for number in 1..=3 {
        let script = format!("echo {number} >> {}", world.file("log"));
        waiters.push(world.start(&["lock", "job", "--", "sh", "-c", &script]));
        world.until_waiting("job", number);
    }
    holder.say("go on");
    for process in std::iter::once(holder).chain(waiters) {
        assert_eq!(process.finish().code, Some(0));
    }
    assert_eq!(world.read("log"), "1\n2\n3\n");
}

/// It is wrong, and it is set while somebody holds: leases are counted on the clock that nobody sets.
#[test]
fn the_wall_clock_decides_nothing() {
    const TWO_DAYS_MS: i64 = 2 * 24 * 60 * 60 * 1_000;
    let world = World::new();
    let folder = world.path("shim");
    std::fs::create_dir(&folder).unwrap();
    let shim = ClockShim::build(&folder).unwrap();
    let clock = shim.clock_file(world.path("clock")).unwrap();
    let shifted = |mut command: Command| {
        let (name, file) = clock.env();
        command.env("LD_PRELOAD", &shim.so).env(name, file);
        Running::start(command)
    };
    let seconds = |line: &str| line.parse::<i64>().unwrap();

    let script = "while :; do date +%s; read line || break; done";
    let mut holder =
        shifted(world.lockstep(&[
            "lock", "--ttl", "3s", "--grace", "50ms", "job", "--", "sh", "-c", script,
        ]));
    let start = seconds(&holder.line());
    for ms in [TWO_DAYS_MS, -TWO_DAYS_MS] {
        clock.set(ms).unwrap();
        holder.say("what time is it?");
        let shift = seconds(&holder.line()) - start;
        assert!((shift * 1_000 - ms).abs() < TWO_DAYS_MS / 2, "the clock was set by {shift} s");
        // Longer than the lease, so that it has been renewed on the clock that is wrong.
        let waits = ["lock", "--wait", "4s", "job", "--", "true"];
        assert_eq!(world.run(&waits).code, Some(75));
        assert_eq!(shifted(world.lockstep(&waits)).finish().code, Some(75));
    }
    holder.send(rustix::process::Signal::TERM);
    holder.finish();
    assert_eq!(world.run(&["lock", "--try", "job", "--", "true"]).code, Some(0));
}
