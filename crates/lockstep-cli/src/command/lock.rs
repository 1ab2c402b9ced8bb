use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockstep::{Guard, LockError, Locks, LostCause, MAX_PERMITS, Share};
use rustix::process::getpid;
use tokio::time::error::Elapsed;

use crate::command::{self, Context};
use crate::console::Console;
use crate::duration::{self, rough};
use crate::exit::{Code, Failure, TABLE};
use crate::log;
use crate::output::safe;
use crate::run::{Ended, Finished, Job, Notice, Plan, Signals, Start, Why, supervise};
use crate::wait::{self, Terms, Waited};

/// How long the end may be held up by a store that does not answer; and how long if the lock is
/// lost anyway.
const PATIENCE: Duration = Duration::from_secs(5);
const LITTLE_PATIENCE: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  lockstep lock nightly-report -- ./report.sh
  lockstep lock --try backup -- tar czf /backup/home.tgz /home
  lockstep lock --wait 30s --ttl 1m --grace 10s deploy -- make deploy
  lockstep lock --shared config -- ./read-config.sh
  lockstep lock --permits 1/3 backups -- ./backup.sh
  lockstep lock migrate-db -- sh -c 'echo \"token $LOCKSTEP_TOKEN\"'";

/// Runs a command while holding a lock.
///
/// Waits for the lock in the order of arrival, runs the command in a process group of its own,
/// renews the lease in the background, and gives the lock back when the command ends. Signals are
/// passed on to the command.
///
/// If the lease cannot be renewed, or an operator breaks the lock, the command and its process
/// group are stopped before anybody else can get the lock: SIGTERM, and SIGKILL after the grace.
///
/// What the lock cannot cover: processes that leave the group, and those that the command leaves
/// behind when it ends by itself. If lockstep is killed with SIGKILL the command is killed with it,
/// but not what the command has started, and not programs that gain rights (such as sudo). While
/// lockstep is stopped with SIGSTOP nobody watches the lease.
///
/// The command's environment has LOCKSTEP_LOCK (the name), LOCKSTEP_TOKEN (the fencing token, to
/// be sent with every write, where the store has tokens) and LOCKSTEP_OWNER.
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{TABLE}"))]
pub(crate) struct Args {
    /// How long the lock stays with a holder that vanishes; renewed after a third of it, so it
    /// does not limit the command
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    ttl: Duration,

    /// Gives up with status 75 if the lock is not free in time [default: waits for ever]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,

    /// Does not wait at all
    #[arg(long = "try", conflicts_with = "wait")]
    once: bool,

    /// Shares the lock with others that say the same: readers, while an ordinary lock is the writer
    #[arg(long)]
    shared: bool,

    /// Takes some of a fixed number of permits: at most OF are out at a time. All must say the same
    /// OF
    #[arg(long, value_name = "COUNT/OF", value_parser = permits, conflicts_with = "shared")]
    permits: Option<Share>,

    /// How long the command has between SIGTERM and SIGKILL when the lock is lost; at most half
    /// of the ttl
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration::parse)]
    grace: Duration,

    /// What others see when they ask who holds the lock [default: host, process and program]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// The lock's name
    name: String,

    /// The command, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn permits(text: &str) -> Result<Share, String> {
    match text.parse() {
        Ok(share @ Share::Permits { .. }) => Ok(share),
        _ => Err(format!(
            "expected COUNT/OF, such as 1/3: at least one permit, and at most all of {MAX_PERMITS}"
        )),
    }
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Code, Failure> {
    let console = &context.console;
    let key = command::key(&args.name)?;
    let plan = Plan::new(args.ttl, args.grace).map_err(|shortest| too_short(&args, shortest))?;
    let mut signals = Signals::listen().map_err(|error| {
        Failure::new(Code::CANNOT_EXECUTE, format!("cannot listen to signals: {error}"))
    })?;
    let locks = tokio::select! {
        locks = context.store.open() => locks?,
        signal = signals.next_to_end() => return Ok(Code::of_signal(signal.as_raw())),
    };
    // A person who tries it out should see what the server may do to a lock; what runs every night
    // has `lockstep locks facts`, and the log, which says it by itself.
    if io::stderr().is_terminal() && !log::is_on() {
        for warning in &locks.facts().warnings {
            console.say(&format!("warning: {}", safe(warning)));
        }
    }
    let terms = Terms {
        key: &key,
        share: match args.permits {
            Some(permits) => permits,
            None if args.shared => Share::Read,
            None => Share::Exclusive,
        },
        ttl: args.ttl,
        within: args.wait,
        once: args.once,
        label: args.label.clone().unwrap_or_else(|| default_label(&args.command)),
    };
    let guard = match wait::for_lock(&locks, &terms, &plan, &mut signals, console).await {
        Ok(Waited::Got(guard)) => guard,
        Ok(Waited::Interrupted(signal)) => {
            wait::leave(&locks, &mut signals, console, args.ttl).await;
            return Ok(Code::of_signal(signal.as_raw()));
        }
        Err(failure) => {
            // What may have arrived all the same is given back.
            let _ = tokio::time::timeout(PATIENCE, locks.close()).await;
            return Err(context.store.failed(failure));
        }
    };
    hold_and_run(args, guard, &locks, plan, &mut signals, console).await
}

async fn hold_and_run(
    args: Args,
    guard: Guard,
    locks: &Locks,
    plan: Plan,
    signals: &mut Signals,
    console: &Console,
) -> Result<Code, Failure> {
    let guard = Arc::new(guard);
    let name = safe(guard.key().as_str());
    tracing::info!(key = %guard.key(), token = ?guard.token(), "lock held");
    let finished = match Start::prepare(&args.command, &environment(&guard)) {
        Err(error) => Err(error),
        Ok(start) => {
            let tell = |notice: &Notice| console.say(&story(&name, notice));
            let (guard, clock) = (Arc::clone(&guard), Arc::clone(locks.clock()));
            let job = Job { start, guard, clock, plan, grace: args.grace, signals, tell: &tell };
            supervise(job).await
        }
    };
    let stopped = matches!(finished, Ok(Finished::Stopped));
    let patience = if stopped { LITTLE_PATIENCE } else { PATIENCE };
    // The supervision is over, and so nobody else has it.
    if let Some(guard) = Arc::into_inner(guard) {
        let released = tokio::time::timeout(patience, guard.release()).await;
        if let Some(warning) = about_release(released, &name, args.ttl, stopped) {
            console.say(&warning);
        }
    }
    // Whatever is still on its way has as long again.
    let _ = tokio::time::timeout(patience, locks.close()).await;
    match finished {
        Ok(Finished::Ended(Ended::Exited(code))) => Ok(Code(u8::try_from(code).unwrap_or(u8::MAX))),
        Ok(Finished::Ended(Ended::Signalled(number))) => Ok(Code::of_signal(number)),
        Ok(Finished::Stopped) => Ok(Code::LOST),
        Ok(Finished::NotStarted(error)) => Err(not_started(&args.command, &error)),
        Err(error) => {
            let message = format!("cannot start a process: {error}");
            Err(Failure::new(Code::CANNOT_EXECUTE, message).hint("the command was not run"))
        }
    }
}

fn environment(guard: &Guard) -> [(&'static str, Option<String>); 3] {
    [
        ("LOCKSTEP_LOCK", Some(guard.key().as_str().to_owned())),
        // Removed if there is none, lest one of an outer lock is taken for ours.
        ("LOCKSTEP_TOKEN", guard.token().map(|token| token.to_string())),
        ("LOCKSTEP_OWNER", Some(guard.owner().to_string())),
    ]
}

fn about_release(
    released: Result<Result<(), LockError>, Elapsed>,
    name: &str,
    ttl: Duration,
    stopped: bool,
) -> Option<String> {
    let why = match released {
        Ok(Ok(())) => return None,
        // It was lost, and that has been said.
        _ if stopped => return None,
        Ok(Err(LockError::NotHeld { .. })) => {
            return Some(format!(
                "warning: lock {name:?} was not held any more when the command ended; somebody \
                 else may have held it meanwhile"
            ));
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the store does not answer".to_owned(),
    };
    let ttl = duration::text(ttl);
    Some(format!("warning: lock {name:?} could not be given back ({why}); it is free in {ttl}"))
}

fn story(name: &str, notice: &Notice) -> String {
    let about = |why: &Why| match why {
        Why::NotRenewed => format!("the lease on {name:?} could not be renewed in time"),
        Why::Lost(LostCause::Broken(reason)) => {
            format!("lock {name:?} was broken by an operator ({:?})", safe(reason))
        }
        Why::Lost(cause) => format!("lock {name:?} is lost: {cause}"),
    };
    match notice {
        Notice::Terminated { why, kill_in } => {
            let kill_in = rough(*kill_in);
            let about = about(why);
            format!("{about}; stopping the command with SIGTERM, and with SIGKILL in {kill_in}")
        }
        Notice::Killed { why, result: Ok(()) } => {
            format!("{}; the command was killed", about(why))
        }
        Notice::Killed { why, result: Err(error) } => {
            format!("{}, and THE COMMAND COULD NOT BE KILLED: {error}", about(why))
        }
    }
}

fn too_short(args: &Args, shortest: Duration) -> Failure {
    let [ttl, grace, shortest, half] =
        [args.ttl, args.grace, shortest, args.ttl / 2].map(duration::text);
    let message = format!(
        "a ttl of {ttl} is too short for a grace of {grace}: the command could not be stopped \
         before the lock passes on"
    );
    Failure::usage(message)
        .hint(format!("use `--ttl {shortest}` or longer, or `--grace {half}` or shorter"))
}

fn not_started(command: &[OsString], error: &io::Error) -> Failure {
    let program = command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let program = safe(&program);
    if error.kind() == io::ErrorKind::NotFound {
        Failure::new(Code::NOT_FOUND, format!("command not found: {program}"))
    } else {
        let error = error.to_string();
        let error = error.split(" (os error").next().unwrap_or_default();
        Failure::new(Code::CANNOT_EXECUTE, format!("cannot execute {program}: {error}"))
    }
}

/// Host, process and program: not the arguments, which may be nobody's business.
fn default_label(command: &[OsString]) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    format!("{host} {} {}", getpid().as_raw_pid(), program.to_string_lossy())
}
