//! An election is a lease on a key, and its token is the term.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::ops::Deref;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream::unfold;
use lockstep_core::{Label, Owner, Token};

use crate::drive::sleep_until;
use crate::error::LockError;
use crate::facts::{Fencing, Need};
use crate::guard::Guard;
use crate::locks::Locks;
use crate::request::{Request, options};
use crate::share::Share;

/// How often an observer looks unless it is told otherwise.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An election; see [`Locks::election`].
#[derive(Clone)]
pub struct Election {
    locks: Locks,
    name: String,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Who it is.
    pub owner: Owner,
    /// What it calls itself: the label it campaigned with.
    pub name: Label,
    /// Its term: a later leader has a larger one.
    pub term: Token,
}

impl Election {
    pub(crate) fn new(locks: &Locks, name: &str) -> Self {
        Self { locks: locks.clone(), name: name.to_owned() }
    }

    /// Waits to become the leader, in the order of arrival. The label is the name that observers
    /// see: an address, perhaps.
    pub fn campaign(&self) -> Campaign {
        Campaign(Request::new(&self.locks, &self.name, Share::Exclusive, true))
    }

    /// Who leads now.
    ///
    /// # Errors
    /// As for [`Locks::inspect`], and the store cannot count.
    pub async fn leader(&self) -> Result<Option<Leader>, LockError> {
        can_count(&self.locks)?;
        let seen = self.locks.inspect(&self.name).await?;
        Ok(seen.and_then(|lock| {
            let holder = lock.holders.into_iter().find(|h| h.share == Share::Exclusive)?;
            Some(Leader { owner: holder.owner, name: holder.label, term: holder.token? })
        }))
    }

    /// Who leads, now and whenever that changes. It looks every second: no store tells those who do
    /// not want the lock themselves. A leader that came and went between two looks is not seen, and
    /// what is seen is a moment old: act on it only where the [term](Leader::term) is checked.
    ///
    /// A look that fails is told once, and then it goes on looking.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let locks = lockstep_lock::Locks::open(lockstep_lock::memory::Memory::new()).await?;
    /// use futures_util::StreamExt;
    ///
    /// let election = locks.election("scheduler");
    /// let leadership = election.campaign().label("10.0.0.7:8080").await?;
    /// let mut leaders = Box::pin(election.observe());
    /// let leader = leaders.next().await.unwrap()?.unwrap();
    /// assert_eq!((leader.name.as_str(), leader.term), ("10.0.0.7:8080", leadership.term()));
    /// leadership.resign().await?;
    /// assert_eq!(leaders.next().await.unwrap()?, None);
    /// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
    /// ```
    pub fn observe(
        &self,
    ) -> impl Stream<Item = Result<Option<Leader>, LockError>> + Send + 'static {
        self.observe_every(LOOK_EVERY)
    }

    /// The same, looking at other intervals.
    pub fn observe_every(
        &self,
        pause: Duration,
    ) -> impl Stream<Item = Result<Option<Leader>, LockError>> + Send + 'static {
        let start = (self.clone(), Told::Nothing);
        unfold(start, move |(election, told)| async move {
            loop {
                if told != Told::Nothing {
                    let clock = election.locks.clock();
                    sleep_until(&**clock, clock.now() + pause).await;
                }
                let seen = election.leader().await;
                let news = match &seen {
                    Ok(leader) => Told::Leader(leader.clone()),
                    Err(_) => Told::Failure,
                };
                if news != told {
                    return Some((seen, (election, news)));
                }
            }
        })
    }
}

/// What an observer has told last. After a failure the same leader is told again: that it is still
/// there is news.
#[derive(PartialEq)]
enum Told {
    Nothing,
    Leader(Option<Leader>),
    Failure,
}

/// The term must tell leaders apart.
fn can_count(locks: &Locks) -> Result<(), LockError> {
    locks.require(Need::Fencing(Fencing::ClockBound)).map(drop)
}

/// A candidate: set what matters, then `.await` it.
///
/// # Cancel safety
/// Dropping the future is withdrawing.
#[must_use = "a candidate does nothing until it is awaited"]
pub struct Campaign(Request);

options!(Campaign);

impl Campaign {
    /// Waits at most this long, store and all; the default is for ever.
    pub fn within(mut self, limit: Duration) -> Self {
        self.0.within = Some(limit);
        self
    }
}

impl IntoFuture for Campaign {
    type Output = Result<Leadership, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async {
            can_count(&self.0.locks)?;
            self.0.acquire_or_wait().await.map(Leadership)
        })
    }
}

/// Being the leader, for as long as its [`Guard`], to which it dereferences, is trusted. Dropping
/// it resigns without blocking, in the background.
#[must_use = "leadership is given up when this is dropped"]
pub struct Leadership(Guard);

impl Leadership {
    /// The term: send it along with everything that a leader decides.
    pub fn term(&self) -> Token {
        self.0.token().expect("invariant: only stores that count may elect")
    }

    /// Leads until the work is done or leadership is lost; see [`Guard::run`].
    ///
    /// # Errors
    /// [`Lost`](crate::Lost), if leadership ended before the work did.
    pub async fn lead<F: Future>(&self, work: F) -> Result<F::Output, crate::Lost> {
        self.0.run(work).await
    }

    /// Gives it up and waits until the store has it; the next candidate leads at once.
    ///
    /// # Errors
    /// As for [`Guard::release`].
    pub async fn resign(self) -> Result<(), LockError> {
        self.0.release().await
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.0).finish()
    }
}
