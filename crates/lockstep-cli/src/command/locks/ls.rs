use std::time::Duration;

use lockstep::{LockView, Page, Share};
use serde_json::json;

use crate::command::{self, Context};
use crate::console;
use crate::duration::rough;
use crate::exit::{Code, Failure};
use crate::output::{self, Table, age, and_others, lock_json, safe, wall_ms};

/// Lists the locks that are held or waited for.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lockstep locks ls
  lockstep locks ls order: --limit 1000
  lockstep locks ls --json | jq -r '.locks[].name'")]
pub(crate) struct Args {
    /// Only names that start like this [default: all]
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// At most this many, in the order of their names
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Prints JSON: {"locks": [...], "more": false}
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Code, Failure> {
    command::refuse_password(&args.prefix)?;
    let locks = context.store.open().await?;
    let page = locks.list(&args.prefix, args.limit).await;
    let page = page.map_err(|error| context.store.failed(error.into()))?;
    if args.json {
        let locks: Vec<_> = page.locks.iter().map(lock_json).collect();
        console::print(&output::json(&json!({ "locks": locks, "more": page.more })))?;
        return Ok(Code::SUCCESS);
    }
    console::print(&text(&page, &args.prefix, wall_ms()))?;
    if page.more {
        let more = format!("there are more than {}; see them with `--limit N`", args.limit);
        context.console.say(&more);
    }
    Ok(Code::SUCCESS)
}

fn text(page: &Page, prefix: &str, now_ms: u64) -> String {
    if page.locks.is_empty() {
        return match prefix {
            "" => "no locks are held\n".to_owned(),
            prefix => format!("no locks are held whose names start with {:?}\n", safe(prefix)),
        };
    }
    let mut table =
        Table::new(["NAME", "HOLDER", "SHARE", ">TOKEN", ">HELD", ">LEASE", ">WAITING"]);
    for lock in &page.locks {
        table.push(row(lock, now_ms));
    }
    table.to_string()
}

fn row(lock: &LockView, now_ms: u64) -> [String; 7] {
    let name = safe(lock.key.as_str());
    let waiting = lock.waiting.to_string();
    let Some(holder) = lock.holder() else {
        let none = || "-".to_owned();
        return [name, "(passing on)".to_owned(), none(), none(), none(), none(), waiting];
    };
    let broken = if holder.broken.is_some() { " (broken)" } else { "" };
    [
        name,
        format!("{}{}{broken}", safe(holder.label.as_str()), and_others(lock)),
        share(lock),
        holder.token.map_or("-".to_owned(), |token| token.to_string()),
        if holder.since_ms == 0 { "-".to_owned() } else { age(holder.since_ms, now_ms) },
        if holder.left == Duration::MAX { "no end".to_owned() } else { rough(holder.left) },
        waiting,
    ]
}

/// What those who hold the lock have of it together.
fn share(lock: &LockView) -> String {
    let taken: u32 = lock.holders.iter().map(|holder| holder.share.weight()).sum();
    match lock.holder().map(|holder| holder.share) {
        Some(Share::Permits { of, .. }) => Share::Permits { count: taken, of }.to_string(),
        share => share.map_or_else(String::new, |share| share.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use lockstep::{ClaimId, HolderView, Key, Label, Owner, Token};

    use super::*;

    fn lock(name: &str, holders: Vec<HolderView>, waiting: u64) -> LockView {
        LockView { key: Key::new(name).unwrap(), holders, waiting, waiters: vec![] }
    }

    #[test]
    fn an_empty_list_is_a_sentence() {
        assert_eq!(text(&Page::default(), "", 0), "no locks are held\n");
        let named = text(&Page::default(), "job:", 0);
        assert_eq!(named, "no locks are held whose names start with \"job:\"\n");
    }

    #[test]
    fn a_list_is_aligned() {
        let holder = HolderView {
            claim: ClaimId::from_u128(1),
            owner: Owner::from_u128(2),
            label: Label::new("db1 4711 report.sh"),
            share: Share::Exclusive,
            token: Some(Token::new(12)),
            since_ms: 1_000,
            left: Duration::from_millis(7_200),
            broken: Some("gone".to_owned()),
        };
        let some = HolderView {
            share: Share::Permits { count: 2, of: 5 },
            broken: None,
            ..holder.clone()
        };
        let unknown = HolderView {
            label: Label::new("a stranger"),
            share: Share::Exclusive,
            token: None,
            since_ms: 0,
            left: Duration::MAX,
            ..some.clone()
        };
        let locks = vec![
            lock("nightly-report", vec![holder], 2),
            lock("pool", vec![some.clone(), some], 0),
            lock("theirs", vec![unknown], 0),
            lock("x", vec![], 1),
        ];
        let expected = "\
NAME            HOLDER                         SHARE      TOKEN  HELD   LEASE  WAITING
nightly-report  db1 4711 report.sh (broken)    exclusive     12   64s    7.2s        2
pool            db1 4711 report.sh and 1 more  4/5           12   64s    7.2s        0
theirs          a stranger                     exclusive      -     -  no end        0
x               (passing on)                   -              -     -       -        1
";
        assert_eq!(text(&Page { locks, more: false }, "", 65_000), expected);
    }
}
