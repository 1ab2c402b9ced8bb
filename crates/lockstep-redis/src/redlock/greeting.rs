//! What a node is asked on every new connection, before it is asked for anything else.

use std::sync::Arc;

use lockstep_core::time::Clock;
use lockstep_core::{Effect, ErrorKind, StoreError};
use lockstep_lock::clock::SystemClock;
use redis::{Cmd, FromRedisValue, Value};

use super::config::STORE;
use super::standing::{Fsync, Greeting, Reading};
use crate::line::Line;
use crate::link::PATIENCE;
use crate::probe;

/// Who the node is, and what is worth knowing about it.
///
/// # Errors
/// It does not say, or is no server of its own.
pub(super) async fn ask(
    line: &Arc<Line>,
    address: &str,
) -> Result<(Greeting, Vec<String>), StoreError> {
    let unable = |why: String| {
        let message = format!("{address}: {why}");
        StoreError::new(STORE, ErrorKind::Unavailable, Effect::None, message)
    };
    let info = call(line, &redis::cmd("INFO")).await;
    let info = info.and_then(|info| String::from_redis_value(info).ok());
    let info = info.ok_or_else(|| {
        unable("it does not answer INFO, without which its vote cannot count".into())
    })?;
    if let Some(what) = probe::unfit(&info) {
        return Err(unable(format!("it is {what}: each node must be a single server")));
    }
    let fsync = fsync(line).await;
    let clock = read_clock(line).await.ok_or_else(|| unable("it does not tell its TIME".into()))?;
    let run_id = probe::field(&info, "run_id").unwrap_or_default().to_owned();
    let uptime = probe::field(&info, "uptime_in_seconds").and_then(|text| text.parse().ok());
    let (Some(uptime), false) = (uptime, run_id.is_empty()) else {
        return Err(unable("INFO does not say which run it is, and for how long".into()));
    };
    let greeting = Greeting {
        run_id,
        uptime: std::time::Duration::from_secs(uptime),
        fsync,
        replica: probe::field(&info, "role") == Some("slave"),
        clock,
    };
    Ok((greeting, probe::read(&info)))
}

/// Its clock.
async fn read_clock(line: &Arc<Line>) -> Option<Reading> {
    let asked_at = SystemClock.now();
    let told = call(line, &redis::cmd("TIME")).await?;
    reading(asked_at, &told)
}

/// What TIME, asked at `asked_at` and just answered, says.
pub(super) fn reading(asked_at: lockstep_core::time::Moment, told: &Value) -> Option<Reading> {
    let number = |value: &Value| match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let Value::Array(parts) = told else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let micros = number(seconds)? * 1_000_000 + number(micros)?;
    Some(Reading { asked_at, answered_at: SystemClock.now(), micros })
}

/// Whether every write is on disk before it is answered. What it does not tell counts as no.
async fn fsync(line: &Arc<Line>) -> Fsync {
    // With the last one, writes are not synced while the file is rewritten.
    let wanted =
        [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
    let mut all = Fsync::EveryWrite;
    for (name, value) in wanted {
        let mut get = redis::cmd("CONFIG");
        let told = call(line, get.arg("GET").arg(name)).await;
        let told = told.and_then(|told| <Vec<(String, String)>>::from_redis_value(told).ok());
        match told.as_deref() {
            Some([(_, told)]) if told == value => {}
            Some([_]) => return Fsync::Less,
            _ => all = Fsync::Unknown,
        }
    }
    all
}

async fn call(line: &Arc<Line>, command: &Cmd) -> Option<Value> {
    match line.send(command)?.within(PATIENCE).await {
        Ok(Value::ServerError(_)) | Err(_) => None,
        Ok(value) => Some(value),
    }
}
