use lockstep::{Key, LockView};

use crate::command::{self, Context};
use crate::console;
use crate::duration::rough;
use crate::exit::{Code, Failure};
use crate::output::{and_others, safe};

/// Takes a lock away from its holder.
///
/// Its renewals are refused from now on; the holder is told, with the reason, when it next renews
/// (after a third of its ttl at most), and has what is left of its lease to stop. Only then does
/// the lock pass on, so two never hold it.
///
/// Exits with 1 if nobody holds the lock.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lockstep locks break nightly-report --reason 'host is gone, ticket 4711'
  lockstep locks break nightly-report --reason 'powered off by hand' --now")]
pub(crate) struct Args {
    /// The lock's name
    name: String,

    /// Why; the holder is told, and `locks show` shows it
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Passes the lock on at once. THIS WAIVES THE PROMISE: the holder may go on believing in its
    /// lock until it hears of the break, so for a while two may act [default: pass on when the
    /// lease runs out]
    #[arg(long)]
    now: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Code, Failure> {
    let key = command::key(&args.name)?;
    let reason = args.reason.trim();
    if reason.is_empty() {
        return Err(Failure::usage("a reason is needed: the holder, and others, will ask for it"));
    }
    let failed = |error: lockstep::LockError| context.store.failed(error.into());
    let locks = context.store.open().await?;
    // Only to say who it was; the break below decides.
    let before = locks.inspect(key.as_str()).await.map_err(failed)?;
    let broken = if args.now {
        locks.break_lock_now(key.as_str(), reason).await
    } else {
        locks.break_lock(key.as_str(), reason).await
    };
    if !broken.map_err(failed)? {
        let message = format!("nobody holds lock {:?}; nothing was done", key.as_str());
        return Err(Failure::new(Code::NOTHING_THERE, message));
    }
    console::print(&text(&key, before.as_ref(), args.now))?;
    Ok(Code::SUCCESS)
}

fn text(key: &Key, lock: Option<&LockView>, now: bool) -> String {
    let name = safe(key.as_str());
    let holder = lock.and_then(LockView::holder);
    let others = lock.map(and_others).unwrap_or_default();
    let whose = holder
        .map_or(String::new(), |h| format!(", held by {:?}{others},", safe(h.label.as_str())));
    if now {
        return format!(
            "lock {name:?}{whose} is broken and passes on now. The promise is waived: until its \
             holder hears of it, two may act.\n"
        );
    }
    let left = lock.and_then(|lock| lock.holders.iter().map(|holder| holder.left).max());
    let when = left.map_or(String::new(), |left| format!(", in {} at the latest", rough(left)));
    format!(
        "lock {name:?}{whose} is broken: renewals are refused, and it passes on when the lease \
         runs out{when}.\n"
    )
}
