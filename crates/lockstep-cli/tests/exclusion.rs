//! One at a time.

mod common;

use common::World;

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
