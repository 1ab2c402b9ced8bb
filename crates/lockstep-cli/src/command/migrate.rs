use std::time::Duration;

use crate::command::Context;
use crate::console;
use crate::exit::{Code, Failure};

/// Longer than any other operation: it may wait for other processes that do the same.
const LIMIT: Duration = Duration::from_secs(60);

/// Creates the tables of the store, or prints their SQL.
///
/// It may be run at any time, twice, and by several processes at once: what is there stays as it
/// is. Stores without tables need nothing.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lockstep --store postgres://app@db.example/app migrate
  lockstep --store postgres://app@db.example/app migrate --print | psql --username=admin app
  lockstep --store mysql://app@db.example/app migrate --print | mariadb --user=admin app")]
pub(crate) struct Args {
    /// Only prints the SQL, for people without the right to run it [default: runs it]
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Code, Failure> {
    let Context { store: chosen, console } = context;
    let store = chosen.store()?;
    let sql = store.schema_sql();
    match (args.print, sql) {
        (_, None) => console.say("this store has no tables; there is nothing to do"),
        (true, Some(sql)) => console::print(&format!("{}\n", sql.trim_end()))?,
        (false, Some(_)) => {
            let late = || Failure::new(Code::STORE, format!("no answer within {LIMIT:?}"));
            tokio::time::timeout(LIMIT, store.migrate())
                .await
                .map_err(|_| chosen.failed(late()))?
                .map_err(|error| chosen.failed(error.into()))?;
            console.say("the tables are there");
        }
    }
    Ok(Code::SUCCESS)
}
