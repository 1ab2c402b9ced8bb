//! Waits for a lock as a person or a script would want it.

use std::future::IntoFuture;
use std::io::IsTerminal;
use std::pin::pin;
use std::time::Duration;

use lockstep::{Guard, Key, LockError, Locks, Share};
use rustix::process::Signal;

use crate::console::Console;
use crate::duration;
use crate::exit::{Code, Failure};
use crate::output::{held_by, wall_ms};
use crate::run::{Plan, Signals, name_of};

/// After this long a person wonders what is going on.
const WONDER: Duration = Duration::from_secs(2);
/// How long giving back the place in the queue may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// When somebody who wants to leave is told why it takes a while.
const HURRY: Duration = Duration::from_millis(500);
/// How often one looks whether a lease has been renewed.
const GLANCE: Duration = Duration::from_millis(10);

/// What is asked for.
pub(crate) struct Terms<'a> {
    pub(crate) key: &'a Key,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    pub(crate) within: Option<Duration>,
    pub(crate) once: bool,
    pub(crate) label: String,
}

pub(crate) enum Waited {
    Got(Guard),
    Interrupted(Signal),
}

/// Waits for the lock, and for a lease that is long enough to start under.
pub(crate) async fn for_lock(
    locks: &Locks,
    terms: &Terms<'_>,
    plan: &Plan,
    signals: &mut Signals,
    console: &Console,
) -> Result<Waited, Failure> {
    let mut asking = pin!(async {
        let guard = ask(locks, terms).await?;
        settle(locks, plan, guard).await
    });
    let mut wondering = pin!(async {
        if std::io::stderr().is_terminal() && !terms.once {
            tokio::time::sleep(WONDER).await;
            if let Some(holder) = holder(locks, terms.key).await {
                console.say(&format!("waiting for {:?}, {holder}", terms.key.as_str()));
            }
        }
        std::future::pending::<()>().await;
    });
    tokio::select! {
        biased;
        guard = &mut asking => guard.map(Waited::Got),
        signal = signals.next_to_end() => Ok(Waited::Interrupted(signal)),
        () = &mut wondering => unreachable!("it wonders for ever"),
    }
}

/// Gives back the place in the queue, or what was granted at the last moment. A second signal ends
/// the process at once.
pub(crate) async fn leave(locks: &Locks, signals: &mut Signals, console: &Console, ttl: Duration) {
    let mut leaving = pin!(async {
        let mut closing = pin!(locks.close());
        if tokio::time::timeout(HURRY, &mut closing).await.is_err() {
            console.say("giving back the place in the queue; once more to leave at once");
            closing.await;
        }
    });
    let free_in = duration::text(ttl);
    tokio::select! {
        biased;
        () = &mut leaving => {}
        signal = signals.next_to_end() => {
            console.say(&format!("{}: the place is free in {free_in}", name_of(signal)));
        }
        () = tokio::time::sleep(PATIENCE) => {
            console.say(&format!("the store does not answer; the place is free in {free_in}"));
        }
    }
}

async fn ask(locks: &Locks, terms: &Terms<'_>) -> Result<Guard, Failure> {
    let Terms { key, share, ttl, within, once, label } = terms;
    let busy = |message: String, holder: Option<String>| {
        Failure::new(
            Code::NOT_ACQUIRED,
            match holder {
                Some(holder) => format!("{message}: {holder}"),
                None => message,
            },
        )
    };
    if *once {
        let request = locks.try_share(key.as_str(), *share).ttl(*ttl).label(label);
        return match request.await? {
            Some(guard) => Ok(guard),
            None => {
                let message = format!("lock {:?} is not free", key.as_str());
                Err(busy(message, holder(locks, key).await))
            }
        };
    }
    let mut request = locks.share(key.as_str(), *share).ttl(*ttl).label(label);
    if let Some(within) = within {
        request = request.within(*within);
    }
    match (request.into_future().await, within) {
        (Err(LockError::TimedOut { .. }), Some(within)) => {
            let within = duration::text(*within);
            let message = format!("lock {:?} was not free within {within}", key.as_str());
            Err(busy(message, holder(locks, key).await))
        }
        (other, _) => Ok(other?),
    }
}

/// A grant whose answer took long may be nearly over; the renewal that is due brings more time.
async fn settle(locks: &Locks, plan: &Plan, guard: Guard) -> Result<Guard, Failure> {
    while !plan.has_time(locks.clock().now(), guard.trusted_until()) {
        if let Err(lost) = guard.check() {
            return Err(LockError::from(lost).into());
        }
        tokio::time::sleep(GLANCE).await;
    }
    Ok(guard)
}

/// Who has it, if that can be found out.
async fn holder(locks: &Locks, key: &Key) -> Option<String> {
    let lock = locks.inspect(key.as_str()).await.ok()??;
    held_by(&lock, wall_ms())
}
