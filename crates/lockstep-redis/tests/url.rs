//! What a URL may say, and that a password never comes out again. Needs no server.

use lockstep_core::{ErrorKind, StoreError};
use lockstep_redis::Redis;

const CANARY: &str = "c4n4ry";

fn refused(url: &str) -> String {
    let error: StoreError = Redis::from_url(url).expect_err(url);
    assert_eq!(error.kind(), ErrorKind::Config, "{url}");
    let everything = format!("{error} {error:?}");
    assert!(!everything.contains(CANARY), "{everything}");
    error.to_string()
}

fn shown(url: &str) -> String {
    let shown = format!("{:?}", Redis::from_url(url).expect(url));
    assert!(!shown.contains(CANARY), "{shown}");
    shown
}

#[test]
fn good_urls_are_read() {
    assert_eq!(shown("redis://localhost"), "Redis(redis://localhost:6379/0?prefix=lockstep)");
    assert_eq!(shown("redis://h:7000/3?prefix=a.b"), "Redis(redis://h:7000/3?prefix=a.b)");
    assert_eq!(shown("redis://[::1]:7000"), "Redis(redis://[::1]:7000/0?prefix=lockstep)");
    assert_eq!(shown("rediss://h"), "Redis(rediss://h:6379/0?prefix=lockstep)");
    assert_eq!(shown("redis://h?layout=lockstep"), "Redis(redis://h:6379/0?prefix=lockstep)");
    assert_eq!(shown("redis://h?layout=plain"), "Redis(redis://h:6379/0?layout=plain&prefix=)");
    let others = shown("redis://h?prefix=locks:&layout=plain");
    assert_eq!(others, "Redis(redis://h:6379/0?layout=plain&prefix=locks:)");
}

#[test]
fn secrets_are_never_shown() {
    shown(&format!("redis://:{CANARY}@h"));
    shown(&format!("redis://user:{CANARY}@h/1?prefix=x"));
    shown(&format!("rediss://user:{CANARY}%2F%3F%23%40@h"));
    for broken in [
        format!("redis://:{CANARY}@"),
        format!("redis://:{CANARY}@h:port"),
        format!("redis://:{CANARY}@h/first"),
        format!("redis://:{CANARY}@h?prefx=a"),
        format!("redis://:{CANARY}@h?prefix=a:b"),
        format!("redis://user:12?{CANARY}@h"),
        format!("redis://user:12/{CANARY}@h"),
        format!("redis://user:12#{CANARY}@h"),
        format!("redis://user:1/2{CANARY}?x@h"),
        format!("redis://{CANARY}@h"),
        format!("redis://:%ff{CANARY}@h"),
        format!("redis://:{CANARY}@h?password_file=/dev/null"),
        format!("http://:{CANARY}@h"),
        format!("redis+sentinel://:{CANARY}@h:1,h:2/primary"),
        CANARY.to_owned(),
    ] {
        refused(&broken);
    }
}

#[test]
fn refusals_say_what_to_do() {
    for scheme in ["redis-sentinel", "redis+sentinel", "redis-cluster", "redis+cluster"] {
        let message = refused(&format!("{scheme}://a:1,b:2"));
        assert!(message.contains("not supported yet") && message.contains("redis://"), "{message}");
    }
    let unknown = refused("redis://h?timeout=5");
    for word in ["timeout", "layout", "prefix", "password_file", "ca_file"] {
        assert!(unknown.contains(word), "{unknown}");
    }
    assert!(refused("redis://h?ca_file=/etc/ca.pem").contains("rediss://"));
    assert!(refused("redis://h?prefix=").contains("1 to 64"));
    let layouts = refused("redis://h?layout=plane");
    assert!(layouts.contains("lockstep") && layouts.contains("plain"), "{layouts}");
    assert!(refused("redis://h?layout=plain&on_disconnect=release").contains("on_disconnect"));
    assert!(refused("redis://h?layout=plain&prefix=a%0Ab").contains("control characters"));
    assert!(refused("redis:///0").contains("host"));
    assert!(refused("memory:").contains("redis://"));
}

#[test]
fn files_are_read_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let by_file = format!("redis://user@h?password_file={}", path.display());
    assert!(refused(&by_file).contains("password_file"));
    std::fs::write(&path, format!("{CANARY}\n")).unwrap();
    shown(&by_file);

    let with_ca = format!("rediss://h?ca_file={}", path.display());
    assert!(refused(&with_ca).contains("no PEM certificate"));
    assert!(refused("rediss://h?ca_file=/does/not/exist.pem").contains("ca_file"));
}
