//! Readers and permits from a shell.

mod common;

use common::World;

const WAITS: [&str; 4] = ["--", "sh", "-c", "echo in; read line"];

#[test]
fn readers_share_a_lock_and_a_writer_does_not() {
    let world = World::new();
    let reads = [&["lock", "--shared", "config"], WAITS.as_slice()].concat();
    let (one, other) = (world.start(&reads), world.start(&reads));
    assert_eq!((one.line(), other.line()), ("in".to_owned(), "in".to_owned()));
    let lock = world.show("config");
    let shares: Vec<_> = (0..2).map(|n| lock["holders"][n]["share"].clone()).collect();
    assert_eq!(shares, ["read", "read"]);
    assert_eq!(lock["holders"][0]["token"], lock["holders"][1]["token"]);
    let busy = world.run(&["lock", "--try", "config", "--", "true"]);
    assert_eq!(busy.code, Some(75), "{}", busy.err);
    assert!(busy.err.contains(" and 1 more since 20"), "{}", busy.err);
    let list = world.run(&["locks", "ls"]);
    assert!(list.out.contains(" and 1 more") && list.out.contains(" read "), "{}", list.out);
    for mut reader in [one, other] {
        reader.say("go on");
        assert_eq!(reader.finish().code, Some(0));
    }
    assert_eq!(world.run(&["lock", "--try", "config", "--", "true"]).code, Some(0));
}

#[test]
fn permits_are_counted_and_all_must_agree_on_the_total() {
    let world = World::new();
    let mut two = world.start(&[&["lock", "--permits", "2/3", "pool"], WAITS.as_slice()].concat());
    assert_eq!(two.line(), "in");
    let try_one =
        |permits| world.run(&["lock", "--try", "--permits", permits, "pool", "--", "true"]);
    assert_eq!(try_one("1/3").code, Some(0));
    assert_eq!(try_one("2/3").code, Some(75));
    let differs = try_one("1/4");
    assert_eq!(differs.code, Some(64), "{}", differs.err);
    assert!(
        differs.err.contains("3 permits") && differs.err.contains("4 permits"),
        "{}",
        differs.err
    );
    assert!(world.run(&["locks", "ls"]).out.contains(" 2/3 "));
    two.say("go on");
    assert_eq!(two.finish().code, Some(0));
    for nonsense in ["0/3", "4/3", "3", "read", "1/9999999"] {
        let refused = try_one(nonsense);
        assert_eq!(refused.code, Some(64), "{nonsense}: {}", refused.err);
        assert!(refused.err.contains("COUNT/OF"), "{}", refused.err);
    }
    let both = world.run(&["lock", "--shared", "--permits", "1/3", "pool", "--", "true"]);
    assert_eq!(both.code, Some(64), "{}", both.err);
}
