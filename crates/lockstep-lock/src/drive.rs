//! Drives an [`Acquisition`]: the one place where a caller's future asks, waits and sleeps.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use lockstep_core::time::{Clock, Moment};
use lockstep_core::{Effect, ErrorKind, Lease, StoreError, Token};
use metrics::counter;

use crate::acquisition::{Acquisition, Event, Step, Terms};
use crate::error::{LockError, Lost, LostCause};
use crate::inbox::{Mailbox, Note};
use crate::locks::Inner;
use crate::meters::Waits;
use crate::stake::Stake;
use crate::store::{Answer, Claim, Release};

/// A sleep is cut into slices, because timers stop while the machine sleeps and leases do not.
const SLICE: Duration = Duration::from_millis(500);

/// What came of an acquisition that did not fail.
pub(crate) enum Outcome {
    Held { stake: Stake, token: Option<Token>, lease: Lease },
    Busy,
}

/// Somebody who waits.
struct InLine {
    /// When the store last said that it is our turn, or may be.
    told_at: Option<Moment>,
    _counted: Waits,
}

impl InLine {
    fn new(inner: &Inner) -> Box<Self> {
        Box::new(Self { told_at: None, _counted: inner.meters.waits() })
    }
}

/// Asks until the machine is done. Dropping this future at any await gives back what the store
/// may have for the claim, through the stake.
#[expect(clippy::manual_async_fn, reason = "`async fn` keeps its arguments twice")]
pub(crate) fn acquire(
    inner: &Inner,
    claim: &Claim,
    started: Moment,
    deadline: Option<Moment>,
) -> impl Future<Output = Result<Outcome, LockError>> {
    async move {
        let mailbox = claim.wait.then(|| inner.inbox.subscribe(claim.id));
        let mut stake = Stake::new(inner.keeper.clone(), claim.hold());
        let terms = Terms { ttl: claim.ttl, drift: inner.drift, deadline, push: inner.facts.push };
        let mut machine = Acquisition::new(terms);
        let mut event = Event::Start;
        // Boxed, as all that a lock that is free does not need.
        let mut in_line: Option<Box<InLine>> = None;
        loop {
            let now = inner.clock.now();
            let random =
                claim.id.as_u128() as u64 ^ now.as_nanos().wrapping_mul(0x9E37_79B9_7F4A_7C15);
            event = match machine.step(now, event, random) {
                Step::Ask => {
                    stake.asking();
                    let limit = deadline.map_or(inner.op_timeout, |at| at.since(now));
                    let limit = limit.clamp(Duration::from_millis(1), inner.op_timeout);
                    let answer =
                        bounded(inner.facts.store, limit, inner.store.acquire(claim)).await;
                    stake.answered(&answer);
                    if matches!(answer, Ok(Answer::Queued { .. })) {
                        in_line.get_or_insert_with(|| InLine::new(inner)).told_at = None;
                    }
                    Event::Answered(answer)
                }
                Step::Wait(until) => match Box::pin(wait(inner, mailbox.as_ref(), until)).await {
                    Some((event, came_at)) => {
                        // A pause after a failed ask ends by itself, and it is still our turn.
                        if came_at.is_some() {
                            in_line.get_or_insert_with(|| InLine::new(inner)).told_at = came_at;
                        }
                        event
                    }
                    None => return Err(Box::pin(closed(inner, stake)).await),
                },
                Step::Held { .. } if inner.keeper.is_closed() => {
                    return Err(Box::pin(closed(inner, stake)).await);
                }
                Step::Held { token, lease } => {
                    inner.meters.granted(now.since(started));
                    if let Some(told_at) = in_line.and_then(|in_line| in_line.told_at) {
                        inner.meters.handed_over(now.since(told_at));
                    }
                    return Ok(Outcome::Held { stake, token, lease });
                }
                Step::Busy => {
                    stake.settled();
                    return Ok(Outcome::Busy);
                }
                Step::Differs(of) => {
                    stake.settled();
                    return Err(LockError::Differs {
                        key: claim.key.clone(),
                        asked: claim.share.of(),
                        of,
                    });
                }
                Step::TimedOut { ahead } => {
                    let waited = inner.clock.now().since(started);
                    counter!("lockstep_timeouts_total", "store" => inner.facts.store).increment(1);
                    return Err(LockError::TimedOut { key: claim.key.clone(), waited, ahead });
                }
                Step::Broken(reason) => {
                    let cause = LostCause::Broken(reason);
                    return Err(Lost { key: claim.key.clone(), cause }.into());
                }
                Step::Failed(error) => return Err(error.into()),
            }
        }
    }
}

/// What the machine waits for, and when it came if the store sent it; nothing, if the handle is closed
/// meanwhile.
async fn wait(
    inner: &Inner,
    mailbox: Option<&Mailbox>,
    until: Moment,
) -> Option<(Event, Option<Moment>)> {
    let next_note = async {
        match mailbox {
            Some(mailbox) => mailbox.next().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = inner.keeper.closed() => None,
        (note, came_at) = next_note => Some(match note {
            Note::Granted(token) => (Event::Pushed(token), came_at),
            Note::AskAgain => (Event::Hinted, came_at),
        }),
        () = sleep_until(&*inner.clock, until) => Some((Event::Woke, None)),
    }
}

/// A closed handle's keeper gives nothing back any more, so it is done here.
async fn closed(inner: &Inner, mut stake: Stake) -> LockError {
    let what = Release::Mine(stake.hold().clone());
    let verb = inner.store.release(&what);
    if bounded(inner.facts.store, inner.op_timeout, verb).await.is_ok() {
        stake.settled();
    }
    LockError::Closed
}

/// No verb of a store takes longer than `limit`: after that its outcome is unknown.
pub(crate) fn bounded<T>(
    store: &'static str,
    limit: Duration,
    verb: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    // Not an `async` block, whose future would be the larger by what it captures.
    tokio::time::timeout(limit, verb).map(move |answer| {
        answer.unwrap_or_else(|_| {
            let message = format!("no answer within {limit:?}");
            Err(StoreError::new(store, ErrorKind::Unavailable, Effect::Unknown, message))
        })
    })
}

/// Sleeps until a moment of *our* clock, which does not stop when timers do.
pub(crate) async fn sleep_until(clock: &dyn Clock, until: Moment) {
    loop {
        let left = until.since(clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}
