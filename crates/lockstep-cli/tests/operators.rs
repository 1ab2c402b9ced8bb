//! What operators see, and what nobody shall see.

mod common;

use std::process::{Command, Stdio};

use common::{Running, World, bare};
use lockstep_testkit::servers::{RedisOptions, RedisServer};
use serde_json::Value;

#[test]
fn an_empty_store_says_so() {
    let world = World::new();
    assert_eq!(world.run(&["locks", "ls"]).out, "no locks are held\n");
    assert!(world.run(&["locks", "show", "job"]).out.contains("it is free"));
    assert_eq!(
        world.run(&["locks", "ls", "--json"]).out,
        "{\n  \"locks\": [],\n  \"more\": false\n}\n"
    );
    let done = world.run(&["locks", "break", "job", "--reason", "x"]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("nobody holds lock \"job\""), "{}", done.err);
}

#[test]
fn holders_and_waiters_are_shown() {
    let world = World::new();
    let command = ["--", "sh", "-c", "echo in; read line"];
    let mut holders: Vec<Running> = ["order:1", "order:2", "other"]
        .map(|name| world.start(&[&["lock", name, "--label", "a host"], &command[..]].concat()))
        .into();
    for holder in &holders {
        assert_eq!(holder.line(), "in");
    }
    let waiter = world.start(&["lock", "order:1", "--label", "a waiter", "--", "true"]);
    world.until_waiting("order:1", 1);

    let listed = world.run(&["locks", "ls", "order:"]).out;
    let rows: Vec<&str> = listed.lines().collect();
    assert!(rows[0].starts_with("NAME     HOLDER"), "{listed}");
    assert!(rows[1].starts_with("order:1  a host") && rows[1].ends_with('1'), "{listed}");
    assert!(rows[2].starts_with("order:2  a host") && rows[2].ends_with('0'), "{listed}");
    assert_eq!(rows.len(), 3, "{listed}");

    let done = world.run(&["locks", "ls", "--limit", "1", "--json"]);
    let page: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(page["locks"].as_array().unwrap().len(), 1);
    assert_eq!((&page["locks"][0]["name"], &page["more"]), (&"order:1".into(), &true.into()));

    let shown = world.run(&["locks", "show", "order:1"]).out;
    for text in ["holder    a host", "left unless renewed", "1.  a waiter, exclusive, since 20"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    for holder in &mut holders {
        holder.say("go on");
    }
    assert_eq!(waiter.finish().code, Some(0));
}

#[test]
fn facts_are_told_for_people_for_programs_and_for_the_readme() {
    let world = World::new();
    let text = world.run(&["locks", "facts"]).out;
    assert!(text.starts_with("store             sqlite\n"), "{text}");
    let json: Value = serde_json::from_str(&world.run(&["locks", "facts", "--json"]).out).unwrap();
    assert_eq!((&json["store"], &json["fencing"]), (&"sqlite".into(), &"strong".into()));
    let rows = world.run(&["locks", "facts", "--markdown", "memory:", &world.store()]).out;
    let rows: Vec<&str> = rows.lines().collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[0].starts_with("| memory | strong | one process |"), "{rows:?}");
    assert!(rows[1].starts_with("| sqlite | strong | one machine |"), "{rows:?}");
}

#[test]
fn tables_can_be_created_or_printed() {
    let world = World::new();
    let printed = world.run(&["migrate", "--print"]);
    assert!(printed.out.contains("CREATE TABLE"), "{}", printed.out);
    assert!(!world.path("locks.db").exists());
    for _ in 0..2 {
        let done = world.run(&["migrate"]);
        assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{}", done.err);
    }
    assert!(world.path("locks.db").exists());
    let none = Running::start(bare(&["--store", "memory:", "migrate"])).finish();
    assert!(none.err.contains("no tables"), "{}", none.err);
}

#[test]
fn completions_complete() {
    let script = Running::start(bare(&["completions", "bash"])).finish();
    assert!(script.out.contains("_lockstep()"), "{}", script.out);
    assert!(!script.out.contains("__run"), "{}", script.out);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut command = bare(&["completions", "zsh"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}

#[test]
fn the_default_store_is_a_private_file_in_the_users_data_folder() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let mut command = bare(&["lock", "job", "--", "true"]);
    command.env("XDG_DATA_HOME", world.path("data")).env_remove("HOME");
    let done = Running::start(command).finish();
    assert_eq!(done.code, Some(0), "{}", done.err);
    let mode = |path: &str| world.path(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("data/lockstep"), 0o700);
    assert_eq!(mode("data/lockstep/locks.db"), 0o600);
}

#[test]
fn a_store_that_cannot_be_reached_is_69_and_its_password_is_not_printed() {
    // Nothing listens on port 1.
    for url in ["redis://:hunter2@127.0.0.1:1", "postgres://me:hunter2@127.0.0.1:1/db"] {
        let hidden = |args: &[&str], env: Option<&str>| {
            let mut command = bare(args);
            command.envs(env.map(|url| ("LOCKSTEP_STORE", url)));
            let done = Running::start(command).finish();
            assert_eq!(done.code, Some(69), "{args:?}: {}", done.err);
            assert!(!format!("{done:?}").contains("hunter2"), "{args:?}: {done:?}");
            assert!(done.err.contains("127.0.0.1:1"), "{args:?}: {}", done.err);
            done.err
        };
        let warning = "other users can see a password";
        let lock = ["-vvv", "lock", "job", "--", "true"];
        assert!(!hidden(&lock, Some(url)).contains(warning));
        assert!(hidden(&[&["--store", url], &lock[..]].concat(), None).contains(warning));
        assert!(hidden(&["locks", "facts", "--markdown", url], Some("memory:")).contains(warning));
    }
}

#[test]
fn a_password_where_no_url_belongs_is_not_printed() {
    let url = "redis://:hunter2@h";
    let in_option = format!("--stroe={url}");
    for args in [
        &["migrate", url][..],
        &[url],
        &["completions", url],
        &["lock", "--ttl", url, "job", "--", "true"],
        &["lock", "--permits", url, "job", "--", "true"],
        &["locks", "ls", "job", &in_option],
        &["locks", "show", "job", "postgres://me:hunter%32@h/db"],
    ] {
        let done = Running::start(bare(args)).finish();
        assert_eq!(done.code, Some(64), "{args:?}: {}", done.err);
        assert!(done.err.starts_with("error: "), "{args:?}: {}", done.err);
        let told = format!("{done:?}");
        assert!(!told.contains("hunter2") && !told.contains("hunter%32"), "{args:?}: {told}");
    }
    for args in [
        &["lock", "--try", url, "--", "true"][..],
        &["-v", "lock", url, "--", "true"],
        &["locks", "show", url],
        &["locks", "ls", url],
        &["locks", "break", url, "--reason", "the host is gone"],
    ] {
        let done = World::new().run(args);
        assert_eq!(done.code, Some(64), "{args:?}: {}", done.err);
        assert!(done.err.contains("a URL with a password is no name"), "{args:?}: {}", done.err);
        assert!(!format!("{done:?}").contains("hunter2"), "{args:?}: {done:?}");
    }
    let done = Running::start(bare(&["migrate", url])).finish();
    assert!(done.err.contains("unexpected argument 'redis://:***@h' found"), "{}", done.err);
}

/// It may be a word that says something else there.
#[test]
fn facts_are_told_as_they_are_whatever_the_password_is() {
    let args = ["--maxmemory-policy", "allkeys-lru"].map(str::to_owned).to_vec();
    let password = Some("server".to_owned());
    let options = RedisOptions { args, password, ..RedisOptions::default() };
    let server = RedisServer::start(options).expect("a server");
    for args in [["locks", "facts", "--json"], ["locks", "facts", "--markdown"]] {
        let mut command = bare(&args);
        command.env("LOCKSTEP_STORE", server.url());
        let done = Running::start(command).finish();
        assert_eq!(done.code, Some(0), "{}", done.err);
        assert!(done.out.contains("the Redis server's"), "{}", done.out);
        // What a server says may hold anything.
        let warnings = match serde_json::from_str::<Value>(&done.out) {
            Ok(facts) => facts["warnings"].to_string(),
            Err(_) => done.err,
        };
        assert!(warnings.contains("the *** may evict"), "{warnings}");
    }
}

#[test]
fn the_password_is_not_in_the_commands_arguments() {
    let world = World::new();
    let url = format!("{}?prefix=hunter2", world.store());
    let script = "echo in; read line";
    let mut command = bare(&["lock", "job", "--", "sh", "-c", script]);
    command.env("LOCKSTEP_STORE", &url);
    let mut holder = Running::start(command);
    assert_eq!(holder.line(), "in");
    let pid = holder.pid().as_raw_pid().to_string();
    let list = Command::new("ps").args(["-o", "args=", "--pid", &pid, "--ppid", &pid]).output();
    let list = String::from_utf8(list.unwrap().stdout).unwrap();
    assert!(list.contains(script) && !list.contains("hunter2"), "{list}");
    holder.say("go on");
    assert_eq!(holder.finish().code, Some(0));
}
