//! The command is stopped before the lock can pass on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{CTRL_Z, World, bare, until_stopped};
use rusqlite::{Connection, TransactionBehavior};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::ClockId;

/// Says when it started, and then writes the time into a file for as long as it lives.
fn stubborn(file: &str) -> String {
    format!("trap '' TERM; echo in; while :; do date +%s%N >> {file}; done")
}

fn last_moment(text: &str) -> u128 {
    // The last line may be cut by the kill.
    let whole = text.rsplit_once('\n').expect("a whole line").0;
    whole.lines().next_back().unwrap().parse().unwrap()
}

fn now(clock: ClockId) -> i64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

#[test]
fn a_broken_lock_passes_on_only_after_a_stubborn_command_is_dead() {
    let world = World::new();
    let script = stubborn(&world.file("first"));
    let terms = ["lock", "--ttl", "2s", "--grace", "500ms", "job", "--"];
    let holder = world.start(&[&terms[..], &["sh", "-c", &script]].concat());
    assert_eq!(holder.line(), "in");
    let script = format!("date +%s%N > {}", world.file("second"));
    let next = world.start(&[&terms[..], &["sh", "-c", &script]].concat());
    world.until_waiting("job", 1);

    let done = world.run(&["locks", "break", "job", "--reason", "ticket 4711"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.out.contains("passes on when the lease runs out"), "{}", done.out);

    let done = holder.finish();
    assert_eq!(done.code, Some(76), "{}", done.err);
    for word in ["broken by an operator", "ticket 4711", "SIGTERM", "was killed"] {
        assert!(done.err.contains(word), "{word}: {}", done.err);
    }
    assert_eq!(next.finish().code, Some(0));
    let second: u128 = world.read("second").trim().parse().unwrap();
    assert!(last_moment(&world.read("first")) < second, "two have acted at once");
}

#[test]
fn a_polite_command_ends_with_its_own_words_and_is_76_all_the_same() {
    let world = World::new();
    let script = "trap 'echo tidied; exit 0' TERM; echo in; while :; do :; done";
    let terms = ["lock", "--ttl", "2s", "--grace", "500ms", "job", "--"];
    let holder = world.start(&[&terms[..], &["sh", "-c", script]].concat());
    assert_eq!(holder.line(), "in");
    world.run(&["locks", "break", "job", "--reason", "ticket"]);
    assert_eq!(holder.line(), "tidied");
    let done = holder.finish();
    assert_eq!(done.code, Some(76), "{}", done.err);
    assert!(!done.err.contains("killed"), "{}", done.err);
    assert!(world.is_free("job"), "what is left of the lease is given back");
}

#[test]
fn a_store_that_does_not_answer_stops_the_command_in_time() {
    let world = World::new();
    let script = stubborn(&world.file("first"));
    let terms = ["lock", "--ttl", "4s", "--grace", "500ms", "job", "--"];
    let holder = world.start(&[&terms[..], &["sh", "-c", &script]].concat());
    assert_eq!(holder.line(), "in");
    let until = {
        let mut store = Connection::open(world.path("locks.db")).unwrap();
        // Nobody else can write now, so nothing can be renewed.
        let tx = store.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let sql = "SELECT until_ns FROM lockstep_lock WHERE key = 'job'";
        let until: i64 = tx.query_row(sql, [], |row| row.get(0)).unwrap();
        holder.until_silent();
        // From the clock of the lease to that of `date`.
        u128::try_from(until + now(ClockId::Realtime) - now(ClockId::Boottime)).unwrap()
    };
    let last = last_moment(&world.read("first"));
    assert!(last < until, "it lived {} ns too long", last - until);
    let done = holder.finish();
    assert_eq!(done.code, Some(76), "{}", done.err);
    assert!(done.err.contains("could not be renewed in time"), "{}", done.err);
}

#[test]
fn a_lock_that_is_broken_at_once_waives_the_promise_in_so_many_words() {
    let world = World::new();
    let terms = ["lock", "--ttl", "2s", "--grace", "500ms", "job", "--"];
    let holder = world.start(&[&terms[..], &["sh", "-c", &stubborn("/dev/null")]].concat());
    assert_eq!(holder.line(), "in");
    let done = world.run(&["locks", "break", "job", "--reason", "ticket", "--now"]);
    assert!(done.out.contains("The promise is waived"), "{}", done.out);
    assert_eq!(world.run(&["lock", "--try", "job", "--", "true"]).code, Some(0));
    assert_eq!(holder.finish().code, Some(76));
    let help = common::Running::start(bare(&["locks", "break", "--help"])).finish();
    assert!(help.out.contains("THIS WAIVES THE PROMISE"), "{}", help.out);
}

#[test]
fn a_stopped_command_is_woken_to_tidy_up() {
    let world = World::new();
    let script = "trap 'echo tidied; exit 0' TERM; echo $$; while :; do :; done";
    let terms = ["lock", "--ttl", "6s", "--grace", "3s", "job", "--"];
    let holder = world.start_apart(&[&terms[..], &["sh", "-c", script]].concat());
    let command = Pid::from_raw(holder.line().parse().unwrap()).unwrap();
    kill_process_group(command, Signal::STOP).unwrap();
    until_stopped(command);
    world.run(&["locks", "break", "job", "--reason", "ticket"]);
    assert_eq!(holder.line(), "tidied");
    let done = holder.finish();
    assert_eq!(done.code, Some(76), "{}", done.err);
    assert!(!done.err.contains("killed"), "{}", done.err);
}

#[test]
fn a_lockstep_that_was_stopped_for_too_long_kills_the_command_when_it_goes_on() {
    let world = World::new();
    let terms = ["lock", "--ttl", "2s", "--grace", "500ms", "job", "--"];
    let holder = world.start(&[&terms[..], &["sh", "-c", &stubborn("/dev/null")]].concat());
    assert_eq!(holder.line(), "in");
    holder.send(Signal::STOP);
    // Nobody gets it while the lease lasts.
    let mut next = world.start(&["lock", "job", "--", "sh", "-c", "echo in; read line"]);
    assert_eq!(next.line(), "in");
    holder.send(Signal::CONT);
    let done = holder.finish();
    assert_eq!(done.code, Some(76), "{}", done.err);
    assert!(done.err.contains("the command was killed"), "{}", done.err);
    next.say("go on");
    assert_eq!(next.finish().code, Some(0));
}

/// Ctrl-Z stops both, and nobody renews the lease.
#[test]
fn a_command_that_was_stopped_with_lockstep_for_too_long_is_killed_where_it_stands() {
    let world = World::new();
    // Without other programs: a shell that waits for one to start cannot be stopped meanwhile.
    world.write("task", "echo ready; while :; do echo at work >> first; done");
    let mut shell = world.shell("5s");
    shell.say("$lock task");
    shell.until("ready");
    shell.press(CTRL_Z);
    shell.until("Stopped");
    let mut next = world.start(&["lock", "job", "--", "sh", "-c", "echo in; read line"]);
    assert_eq!(next.line(), "in");
    let before = world.read("first");
    shell.say("fg");
    shell.until("the command was killed");
    shell.say("exit $?");
    assert_eq!(shell.finish().code, Some(76));
    assert_eq!(world.read("first"), before, "it has acted without the lock");
    next.say("go on");
    assert_eq!(next.finish().code, Some(0));
}

#[test]
fn a_command_that_runs_for_many_ttls_keeps_its_lock() {
    let world = World::new();
    let terms = ["lock", "--ttl", "3s", "--grace", "50ms", "job", "--"];
    let mut holder = world.start(&[&terms[..], &["sh", "-c", "echo in; read line"]].concat());
    assert_eq!(holder.line(), "in");
    let other = world.run(&["lock", "--wait", "7s", "job", "--", "true"]);
    assert_eq!(other.code, Some(75), "{}", other.err);
    holder.say("go on");
    let done = holder.finish();
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
}
