use std::fmt::Write;
use std::time::Duration;

use lockstep::LockView;
use serde_json::json;

use crate::command::{self, Context};
use crate::console;
use crate::duration::rough;
use crate::exit::{Code, Failure};
use crate::output::{self, age, holder_json, safe, utc, waiter_json, wall_ms};

/// Shows one lock: its holders, and who waits, in the order they will be served.
///
/// A lock that nobody holds is `free`, which is not an error.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lockstep locks show nightly-report
  lockstep locks show nightly-report --json | jq '.holders[0].token'")]
pub(crate) struct Args {
    /// The lock's name
    name: String,

    /// Prints JSON; a free lock has no holders
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Code, Failure> {
    let key = command::key(&args.name)?;
    let locks = context.store.open().await?;
    let lock = locks.inspect(key.as_str()).await;
    let lock = lock.map_err(|error| context.store.failed(error.into()))?;
    let lock = lock.unwrap_or(LockView { key, holders: vec![], waiting: 0, waiters: vec![] });
    let text = if args.json { as_json(&lock) } else { as_text(&lock, wall_ms()) };
    console::print(&text)?;
    Ok(Code::SUCCESS)
}

fn as_json(lock: &LockView) -> String {
    output::json(&json!({
        "name": lock.key.as_str(),
        "holders": lock.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "waiting": lock.waiting,
        "waiters": lock.waiters.iter().map(waiter_json).collect::<Vec<_>>(),
    }))
}

fn as_text(lock: &LockView, now_ms: u64) -> String {
    let mut text = String::new();
    let mut line = |what: &str, value: &str| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{what:<8}  {value}");
    };
    line("name", &safe(lock.key.as_str()));
    match (lock.holders.len(), lock.waiting) {
        (0, 0) => line("holder", "nobody: it is free"),
        (0, _) => line("holder", "nobody: it is passing on"),
        _ => {}
    }
    for holder in &lock.holders {
        line("holder", &safe(holder.label.as_str()));
        line("owner", &holder.owner.to_string());
        line("share", &holder.share.to_string());
        let token = holder.token.map_or("none: the store has none".to_owned(), |t| t.to_string());
        line("token", &token);
        if holder.since_ms > 0 {
            let (since, age) = (utc(holder.since_ms), age(holder.since_ms, now_ms));
            line("since", &format!("{since} ({age} ago)"));
        }
        let left = rough(holder.left);
        match &holder.broken {
            None if holder.left == Duration::MAX => {
                line("lease", "no end: whoever wrote it gave it none");
            }
            None => line("lease", &format!("{left} left unless renewed")),
            Some(reason) => {
                line("lease", &format!("{left} left, and then it passes on"));
                line("broken", &safe(reason));
            }
        }
    }
    line("waiting", &lock.waiting.to_string());
    for (place, waiter) in lock.waiters.iter().enumerate() {
        let (since, age) = (utc(waiter.since_ms), age(waiter.since_ms, now_ms));
        let (label, share) = (safe(waiter.label.as_str()), waiter.share);
        let text = format!("{label}, {share}, since {since} ({age} ago)");
        line(&format!("{:>7}.", place + 1), &text);
    }
    text
}

#[cfg(test)]
mod tests {
    use lockstep::{ClaimId, HolderView, Key, Label, Owner, Share, WaiterView};

    use super::*;

    #[test]
    fn a_free_lock_is_free() {
        let key = Key::new("job").unwrap();
        let lock = LockView { key, holders: vec![], waiting: 0, waiters: vec![] };
        assert_eq!(as_text(&lock, 0), "name      job\nholder    nobody: it is free\nwaiting   0\n");
        let json: serde_json::Value = serde_json::from_str(&as_json(&lock)).unwrap();
        assert!(json["holders"].as_array().unwrap().is_empty());
    }

    #[test]
    fn what_a_stranger_wrote_says_little() {
        let holder = HolderView {
            claim: ClaimId::from_u128(0),
            owner: Owner::from_u128(0),
            label: Label::new("worker-7"),
            share: Share::Exclusive,
            token: None,
            since_ms: 0,
            left: Duration::MAX,
            broken: None,
        };
        let key = Key::new("job").unwrap();
        let lock = LockView { key, holders: vec![holder], waiting: 0, waiters: vec![] };
        let text = as_text(&lock, 3_000);
        assert!(text.contains("lease     no end") && !text.contains("since"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&as_json(&lock)).unwrap();
        let holder = &json["holders"][0];
        assert!(holder["since"].is_null() && holder["lease_left_ms"].is_null(), "{json}");
    }

    #[test]
    fn a_held_lock_tells_all() {
        let holder = HolderView {
            claim: ClaimId::from_u128(1),
            owner: Owner::from_u128(2),
            label: Label::new("db1 4711 report.sh"),
            share: Share::Exclusive,
            token: None,
            since_ms: 1_000,
            left: Duration::from_secs(4),
            broken: Some("gone".to_owned()),
        };
        let waiter = WaiterView {
            claim: ClaimId::from_u128(3),
            owner: Owner::from_u128(4),
            label: Label::new("db2 12 report.sh"),
            share: Share::Read,
            since_ms: 2_000,
        };
        let key = Key::new("job").unwrap();
        let lock = LockView { key, holders: vec![holder], waiting: 1, waiters: vec![waiter] };
        let expected = "\
name      job
holder    db1 4711 report.sh
owner     00000000000000000000000000000002
share     exclusive
token     none: the store has none
since     1970-01-01T00:00:01.000Z (2.0s ago)
lease     4.0s left, and then it passes on
broken    gone
waiting   1
      1.  db2 12 report.sh, read, since 1970-01-01T00:00:02.000Z (1.0s ago)
";
        assert_eq!(as_text(&lock, 3_000), expected);
    }
}
