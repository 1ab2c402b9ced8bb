//! What an error of the driver or the server means to who asked.

use lockstep_core::{Effect, ErrorKind, StoreError};
use redis::{RedisError, ServerError};

use crate::line::Failure;

/// This store's name in errors and facts.
pub(crate) const STORE: &str = "redis";

/// A connection could not be made; nothing of ours was sent. `secret` is struck out of what
/// the server said: old servers repeat the arguments of commands they do not know.
pub(crate) fn unreachable(error: RedisError, address: &str, secret: Option<&str>) -> StoreError {
    use redis::ErrorKind::{Io, Parse};

    let told = match secret {
        Some(secret) if !secret.is_empty() => error.to_string().replace(secret, "…"),
        _ => error.to_string(),
    };
    let original = error.to_string();
    let says = |words: &str| original.contains(words);
    let (kind, message) = match error.kind() {
        Parse => {
            (ErrorKind::Config, format!("{address} does not answer like Redis: check the URL"))
        }
        Io if says("invalid peer certificate") => (
            ErrorKind::Config,
            format!(
                "TLS with {address} failed: {told}; for a private authority add \
                 ?ca_file=/path/ca.pem"
            ),
        ),
        Io if error.is_connection_refusal() => (
            ErrorKind::Unavailable,
            format!(
                "nothing listens at {address} (connection refused): start Redis there, or \
                 correct host and port in the URL"
            ),
        ),
        Io if error.is_timeout() => (
            ErrorKind::Unavailable,
            format!(
                "{address} did not answer in time: check host, port and firewall, and that the \
                 URL uses rediss:// only if the server uses TLS"
            ),
        ),
        Io if error.is_connection_dropped() => (
            ErrorKind::Unavailable,
            format!(
                "{address} closed the connection at once: is it Redis, and does the URL use \
                 rediss:// exactly if the server uses TLS?"
            ),
        ),
        Io => (ErrorKind::Unavailable, format!("cannot connect to {address}: {told}")),
        _ => match code(&error) {
            "NOAUTH" => denied(address, "it wants a password"),
            "WRONGPASS" => denied(address, "it refused user name or password"),
            "NOPERM" => denied(address, "the user lacks a right"),
            "DENIED" => denied(address, "it is in protected mode and takes local clients only"),
            "NOPROTO" => too_old(address),
            _ if says("HELLO") => too_old(address),
            "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" => {
                (ErrorKind::Busy, format!("{address} cannot serve now: {told}"))
            }
            _ if says("max number of clients") => {
                (ErrorKind::Busy, format!("{address} has too many connections: {told}"))
            }
            _ => (ErrorKind::Config, format!("{address} refused the connection: {told}")),
        },
    };
    StoreError::new(STORE, kind, Effect::None, message)
}

/// A request has no answer.
pub(crate) fn interrupted(failure: Failure, address: &str) -> StoreError {
    let message = match failure {
        Failure::Lost => format!("the connection to {address} was lost"),
        Failure::Silent => format!("{address} did not answer in time"),
    };
    StoreError::new(STORE, ErrorKind::Unavailable, Effect::Unknown, message)
}

/// The server answered with an error. `key` is the key that was asked about.
pub(crate) fn refused(error: &ServerError, key: &str) -> StoreError {
    let told = error.details().unwrap_or_default();
    let code = match error.code() {
        // As Redis 7.0 and as later ones say that a right is missing inside a script.
        "ERR" if told.contains("The user executing the script can't") => "NOPERM",
        "ERR" if told.contains("ACL failure in script") => "NOPERM",
        // Redis 6 wraps what a command inside a script said; the code is then within.
        "ERR" if told.contains("user_script") => {
            let inner = ["WRONGTYPE", "READONLY", "OOM", "NOREPLICAS", "MISCONF"];
            inner.into_iter().find(|code| told.contains(code)).unwrap_or("ERR")
        }
        code => code,
    };
    let busy = |message: String| (ErrorKind::Busy, Effect::None, message);
    let (kind, effect, message) = match code {
        "LOADING" => busy("the server is still loading its data".into()),
        "BUSY" => busy("the server is busy with somebody's script".into()),
        // The last two, like READONLY and OOM, refuse the first write of a script or none.
        "TRYAGAIN" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF" => {
            busy(format!("{code} {told}"))
        }
        "READONLY" => busy("this is a replica; point the URL at the primary".into()),
        "OOM" => busy("the server is out of memory: raise maxmemory".into()),
        "NOAUTH" | "WRONGPASS" => (
            ErrorKind::Denied,
            Effect::None,
            format!("the server wants other credentials ({code}): check user and password"),
        ),
        "NOPERM" => (
            ErrorKind::Denied,
            // A right that is missing inside a script may stop it half way.
            if told.contains("user_script") { Effect::Unknown } else { Effect::None },
            format!(
                "the user lacks a right ({told}); it needs scripts, strings, hashes, sorted \
                 sets and channels under the prefix"
            ),
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            ErrorKind::Config,
            Effect::None,
            "this is a Redis Cluster, which is not supported yet: use a single server".into(),
        ),
        "WRONGTYPE" | "FOREIGN" => (
            ErrorKind::Foreign,
            Effect::None,
            format!(
                "key {key} holds something that Lockstep did not write: remove it, or use \
                 another ?prefix="
            ),
        ),
        code => (ErrorKind::Foreign, Effect::Unknown, format!("about {key}: {code} {told}")),
    };
    StoreError::new(STORE, kind, effect, message)
}

/// The server answered what no script of ours answers.
pub(crate) fn baffled(key: &str, answer: impl std::fmt::Debug) -> StoreError {
    let message = format!("about {key}: answer not understood: {answer:?}");
    StoreError::new(STORE, ErrorKind::Foreign, Effect::Unknown, message)
}

/// The message without the store's name, which is put before it again.
pub(crate) fn words(error: &StoreError) -> String {
    let text = error.to_string();
    let named = format!("{}: ", error.store());
    text.strip_prefix(&named).unwrap_or(&text).to_owned()
}

fn code(error: &RedisError) -> &str {
    error.code().unwrap_or_default()
}

fn too_old(address: &str) -> (ErrorKind, String) {
    let message =
        format!("{address} does not speak RESP3: Lockstep needs Redis 6 or newer, or Valkey");
    (ErrorKind::Config, message)
}

fn denied(address: &str, why: &str) -> (ErrorKind, String) {
    (ErrorKind::Denied, format!("{address} let us not in: {why}; check user and password"))
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;

    fn said(line: &str) -> ServerError {
        match parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refusals_have_the_kind_of_what_one_does_about_them() {
        use ErrorKind::{Busy, Config, Denied, Foreign};

        let inside = "script: 5b0e, on @user_script:7.";
        for (line, kind, effect) in [
            ("LOADING Redis is loading the dataset in memory", Busy, Effect::None),
            ("BUSY Redis is busy running a script.", Busy, Effect::None),
            ("TRYAGAIN Multiple keys request during rehashing", Busy, Effect::None),
            ("MASTERDOWN Link with MASTER is down", Busy, Effect::None),
            ("NOREPLICAS Not enough good replicas to write.", Busy, Effect::None),
            ("MISCONF Errors writing to the AOF file: No space left", Busy, Effect::None),
            ("READONLY You can't write against a read only replica.", Busy, Effect::None),
            ("OOM command not allowed when used memory > 'maxmemory'.", Busy, Effect::None),
            ("NOAUTH Authentication required.", Denied, Effect::None),
            ("WRONGPASS invalid username-password pair", Denied, Effect::None),
            ("NOPERM this user has no permissions to run 'evalsha'", Denied, Effect::None),
            (
                &format!("ERR The user executing the script can't run this command {inside}"),
                Denied,
                Effect::Unknown,
            ),
            (
                &format!("ERR ACL failure in script: no permissions {inside}"),
                Denied,
                Effect::Unknown,
            ),
            ("MOVED 1 127.0.0.1:7001", Config, Effect::None),
            ("CROSSSLOT Keys in request don't hash to the same slot", Config, Effect::None),
            (&format!("WRONGTYPE Operation against a key {inside}"), Foreign, Effect::None),
            ("FOREIGN lockstep:1:{a}", Foreign, Effect::None),
            ("ERR something new", Foreign, Effect::Unknown),
            // As Redis 6 says them.
            (
                "ERR Error running script (call to f_5b0e): @user_script:7: WRONGTYPE Operation",
                Foreign,
                Effect::None,
            ),
            (
                "ERR Error running script (call to f_5b0e): @user_script:7: @user_script: 7: \
                 -READONLY You can't write against a read only replica.",
                Busy,
                Effect::None,
            ),
        ] {
            let error = refused(&said(line), "lockstep:1:{a}");
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{line}: {error}");
        }
    }

    #[test]
    fn messages_say_what_to_do() {
        assert!(refused(&said("READONLY x"), "k").to_string().contains("primary"));
        let foreign = refused(&said("WRONGTYPE x"), "shop:1:{a}").to_string();
        assert!(foreign.contains("shop:1:{a}"), "{foreign}");
    }

    #[test]
    fn a_server_that_repeats_the_password_is_cut_short() {
        let error = said("ERR unknown command, args: `AUTH` `default` `c4n4ry`").into();
        let error = unreachable(error, "h:1", Some("c4n4ry"));
        assert!(!format!("{error} {error:?}").contains("c4n4ry"), "{error:?}");
    }
}
