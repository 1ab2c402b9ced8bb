use std::fmt::Write;

use lockstep::{Fencing, StoreFacts};
use serde_json::{Value, json};

use crate::command::Context;
use crate::console::{self, Console};
use crate::duration;
use crate::exit::{Code, Failure};
use crate::output::{self, safe};
use crate::secrets::Secrets;
use crate::store::{Chosen, Origin};

/// Says what a store, as it is configured, can promise, and warns about this very server.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lockstep locks facts
  lockstep locks facts --json postgres://app@db.example/app redis://cache.example
  lockstep locks facts --markdown sqlite:/tmp/x.db redis://cache.example

The columns of --markdown are: store, fencing tokens, shared by, fair, readers and
permits, circles refused, told at once, clock, ttl, two holders if.")]
pub(crate) struct Args {
    /// The stores to look at [default: the one of --store]
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// Prints JSON: an object, or a list if URLs are given
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Prints a row of a Markdown table for each store, and its warnings on stderr
    #[arg(long)]
    markdown: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Code, Failure> {
    let chosen: Vec<Chosen> = match args.urls.as_slice() {
        [] => vec![context.store.clone()],
        urls => urls.iter().map(|url| argument(url)).collect(),
    };
    let secrets = Secrets::of(chosen.iter().map(|store| store.url.as_str()));
    let console = Console::new(secrets);
    let mut all = Vec::new();
    for store in &chosen {
        if !args.urls.is_empty() {
            store.warn_if_seen(&console);
        }
        match store.open().await {
            Ok(locks) => all.push(masked(locks.facts(), &console)),
            // Said here: the context's console does not know these passwords.
            Err(failure) => {
                console.failed(&failure);
                return Ok(failure.code);
            }
        }
    }
    let text = if args.json {
        let list: Vec<Value> = all.iter().map(as_json).collect();
        match (args.urls.is_empty(), list.as_slice()) {
            (true, [one]) => output::json(one),
            _ => output::json(&Value::from(list)),
        }
    } else if args.markdown {
        // A second look for the password would only find its like in the store's name.
        let plain = Console::default();
        for facts in &all {
            for warning in &facts.warnings {
                plain.say(&format!("{}: {}", facts.store, safe(warning)));
            }
        }
        all.iter().map(as_row).collect()
    } else {
        all.iter().map(as_text).collect::<Vec<_>>().join("\n")
    };
    console::print(&text)?;
    Ok(Code::SUCCESS)
}

/// Only the warnings hold what a server has said. The rest is our own words, and a password may be
/// one of them.
fn masked(facts: &StoreFacts, console: &Console) -> StoreFacts {
    let warnings = facts.warnings.iter().map(|warning| console.mask(warning)).collect();
    StoreFacts { warnings, ..facts.clone() }
}

fn argument(url: &str) -> Chosen {
    Chosen { url: url.to_owned(), origin: Origin::Argument }
}

fn as_text(facts: &StoreFacts) -> String {
    let mut text = String::new();
    let mut line = |what: &str, value: &str| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{what:<16}  {value}");
    };
    line("store", facts.store);
    line("fencing tokens", &format!("{}: {}", facts.fencing, worth(facts.fencing)));
    line("shared by", &facts.scope.to_string());
    line(
        "fair",
        yes(facts.fair, "yes: waiters are served in order", "no: waiters may overtake each other"),
    );
    line(
        "readers, permits",
        yes(facts.shared, "yes: several can hold a lock together", "no: one holder at a time"),
    );
    line(
        "circles",
        yes(
            facts.deadlocks,
            "refused: owners who wait for each other are found",
            "not found: they wait until their time is up",
        ),
    );
    line(
        "told at once",
        yes(facts.push, "yes: a waiter hears of its grant", "no: waiters ask at intervals"),
    );
    line(
        "lost connection",
        yes(
            facts.ends_with_connection,
            "the lock passes on at once, and its holder hears of it later",
            "changes nothing: the lease decides",
        ),
    );
    line(
        "handed over",
        yes(
            facts.hands_over,
            "can be: another handle or process may adopt a lock",
            "cannot be: a lock lives and dies with the handle that took it",
        ),
    );
    line("clock", facts.clock);
    line("ttl", &ttl(facts));
    line("two holders if", facts.two_holders_if);
    for warning in &facts.warnings {
        line("warning", &safe(warning));
    }
    text
}

fn as_row(facts: &StoreFacts) -> String {
    let flag = |yes| if yes { "yes" } else { "no" };
    let cells = [
        facts.store,
        &facts.fencing.to_string(),
        &facts.scope.to_string(),
        flag(facts.fair),
        flag(facts.shared),
        flag(facts.deadlocks),
        flag(facts.push),
        facts.clock,
        &ttl(facts),
        facts.two_holders_if,
    ];
    let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
    format!("| {} |\n", cells.join(" | "))
}

fn as_json(facts: &StoreFacts) -> Value {
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).ok();
    json!({
        "store": facts.store,
        "fencing": facts.fencing.to_string(),
        "scope": facts.scope.to_string(),
        "fair": facts.fair,
        "shared": facts.shared,
        "deadlocks": facts.deadlocks,
        "push": facts.push,
        "ends_with_connection": facts.ends_with_connection,
        "hands_over": facts.hands_over,
        "clock": facts.clock,
        "ttl_min_ms": ms(facts.ttl_min),
        "ttl_max_ms": ms(facts.ttl_max),
        "two_holders_if": facts.two_holders_if,
        "warnings": facts.warnings,
    })
}

fn worth(fencing: Fencing) -> &'static str {
    match fencing {
        Fencing::None => "there are none",
        Fencing::ClockBound => "they grow as long as the server's clock does not step back",
        Fencing::Strong => "they grow for as long as the store keeps its data",
    }
}

fn yes(flag: bool, then: &'static str, otherwise: &'static str) -> &'static str {
    if flag { then } else { otherwise }
}

fn ttl(facts: &StoreFacts) -> String {
    format!("{} to {}", duration::text(facts.ttl_min), duration::text(facts.ttl_max))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockstep::{Origin, Scope};

    use super::*;

    fn facts() -> StoreFacts {
        StoreFacts {
            store: "redis",
            fencing: Fencing::ClockBound,
            scope: Scope::Network,
            fair: true,
            shared: true,
            deadlocks: false,
            push: false,
            ends_with_connection: false,
            hands_over: true,
            clock: "the server's",
            ttl_min: Duration::from_millis(100),
            ttl_max: Duration::from_secs(86_400),
            two_holders_if: "a | b",
            warnings: vec!["evicts".to_owned()],
            origin: Origin::default(),
        }
    }

    #[test]
    fn a_row_is_a_row_whatever_is_in_it() {
        let expected = "| redis | clock-bound | network | yes | yes | no | no | the server's | \
                        100ms to 1d | a \\| b |\n";
        assert_eq!(as_row(&facts()), expected);
    }

    #[test]
    fn every_fact_is_told() {
        let expected = "\
store             redis
fencing tokens    clock-bound: they grow as long as the server's clock does not step back
shared by         network
fair              yes: waiters are served in order
readers, permits  yes: several can hold a lock together
circles           not found: they wait until their time is up
told at once      no: waiters ask at intervals
lost connection   changes nothing: the lease decides
handed over       can be: another handle or process may adopt a lock
clock             the server's
ttl               100ms to 1d
two holders if    a | b
warning           evicts
";
        assert_eq!(as_text(&facts()), expected);
        assert_eq!(as_json(&facts())["ttl_max_ms"], 86_400_000);
    }
}
