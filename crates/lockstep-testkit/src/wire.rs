//! What the network can do to a store behind a [`Proxy`]: replies that are lost after the write,
//! pushes that never come, connections that are cut, partitions. One set for every networked store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockstep_core::Key;
use lockstep_lock::store::{Connect, LockView};
use lockstep_lock::{Fencing, Guard, Locks};

use crate::proxy::{Fault, Gate, Match, Protocol, Proxy, Request};
use crate::wrap::{Counting, Point, VerbName, Waiters};

/// A networked store, and how its verbs look on the wire.
pub struct Wire {
    /// Where the server listens.
    pub upstream: SocketAddr,
    /// What it speaks.
    pub protocol: Protocol,
    /// A client of the same tenant through this port of the loopback interface.
    pub connect: fn(port: u16) -> Arc<dyn Connect>,
    /// Matches an ask.
    pub acquire: fn() -> Match,
    /// Matches a release.
    pub release: fn() -> Match,
    /// Matches a renewal, if nothing else is asked meanwhile.
    pub renew: fn() -> Match,
    /// A lease that ends late enough for another renewal after one that is never answered.
    pub outlives_silence: Duration,
    /// What it costs.
    pub costs: Costs,
}

/// How many requests a handle needs that has done the same before.
#[derive(Clone, Copy)]
pub struct Costs {
    /// For a free lock.
    pub lock: usize,
    /// For a release that nobody waits for.
    pub release: usize,
    /// For a waiter that asks again.
    pub again: usize,
    /// From a release to the next holder, who waits in the same handle.
    pub hand_over: usize,
}

impl Costs {
    /// One round trip for everything.
    pub const ONE_EACH: Self = Self { lock: 1, release: 1, again: 1, hand_over: 1 };
}

/// Long enough for a slow machine, short enough for a person who waits for a failure.
const PATIENCE: Duration = Duration::from_secs(30);
/// A lease that is to run out in the test.
const SHORT: Duration = Duration::from_millis(1_500);

/// A client with the proxy before it, and one without.
struct Pair {
    proxy: Proxy,
    through: Locks,
    direct: Locks,
    /// Who of both waits, for stores that do not know.
    waiters: Waiters,
}

impl Pair {
    /// Returns when so many wait.
    async fn waiting(&self, name: &str, count: u64) -> Result<()> {
        let key = Key::new(name)?;
        until("the waiters", async || {
            let waiting = match self.direct.facts().deadlocks {
                true => self.direct.inspect(name).await?.map_or(0, |view| view.waiting),
                false => self.waiters.of(&key),
            };
            Ok(waiting == count)
        })
        .await
    }
}

impl Wire {
    async fn pair(&self) -> Result<Pair> {
        let proxy = Proxy::start(self.upstream, self.protocol);
        let waiters = Waiters::default();
        let connect = |port| open(waiters.watch((self.connect)(port)));
        let (through, direct) =
            (connect(proxy.port()).await?, connect(self.upstream.port()).await?);
        // What a server has to be told once should not be what a fault is tried on.
        direct.lock("warm").await?.release().await?;
        Ok(Pair { proxy, through, direct, waiters })
    }

    /// The grant was written and its reply lost: asking again returns the same grant.
    ///
    /// # Errors
    /// Anything else happened.
    pub async fn reply_lost_on_acquire(&self) -> Result<()> {
        let pair = self.pair().await?;
        let Pair { proxy, through, direct, .. } = &pair;
        let rule = proxy.rule((self.acquire)(), Fault::DropReplyAndCut);
        // So long that who takes its own grant for somebody else's would wait in vain for its end.
        let guard = soon("the lock", through.lock("lost-grant").ttl(2 * PATIENCE)).await??;
        ensure!(rule.fired() == 1, "the reply was not dropped");
        let seen = view(direct, "lost-grant").await?;
        let holder = seen.holder().context("nobody holds it")?;
        let mine = (guard.owner(), guard.token());
        ensure!((holder.owner, holder.token) == mine, "{holder:?} is not {guard:?}");
        ensure!(seen.waiting == 0, "the first ask left a second claim behind: {seen:?}");
        guard.release().await?;
        free(direct, "lost-grant").await
    }

    /// The place in the queue was written and its reply lost: there is one place, and it is served.
    ///
    /// # Errors
    /// Anything else happened.
    pub async fn reply_lost_while_queueing(&self) -> Result<()> {
        let pair = self.pair().await?;
        let Pair { proxy, through, direct, .. } = &pair;
        let holder = direct.lock("lost-place").await?;
        let rule = proxy.rule((self.acquire)(), Fault::DropReplyAndCut);
        let waiter = tokio::spawn(through.lock("lost-place").into_future());
        soon("the second ask", proxy.wait_for((self.acquire)(), 2)).await?;
        pair.waiting("lost-place", 1).await?;
        ensure!(rule.fired() == 1, "the reply was not dropped");
        holder.release().await?;
        let guard = soon("the waiter's turn", waiter).await???;
        guard.release().await?;
        free(direct, "lost-place").await
    }

    /// The release was carried out and its reply lost: that is success.
    ///
    /// # Errors
    /// Anything else happened.
    pub async fn reply_lost_on_release(&self) -> Result<()> {
        let pair = self.pair().await?;
        let Pair { proxy, through, direct, .. } = &pair;
        let guard = through.lock("lost-release").await?;
        let rule = proxy.rule((self.release)(), Fault::DropReplyAndCut);
        soon("the release", guard.release()).await??;
        ensure!(rule.fired() == 1, "the reply was not dropped");
        free(direct, "lost-release").await
    }

    /// Pushes never arrive: the waiter is served all the same.
    ///
    /// # Errors
    /// Anything else happened.
    pub async fn pushes_lost(&self) -> Result<()> {
        let pair = self.pair().await?;
        let Pair { proxy, through, direct, .. } = &pair;
        proxy.drop_pushes(true);
        let holder = direct.lock("no-push").await?;
        let waiter = tokio::spawn(through.lock("no-push").ttl(SHORT).into_future());
        pair.waiting("no-push", 1).await?;
        holder.release().await?;
        soon("the waiter's turn", waiter).await???.release().await?;
        Ok(())
    }

    /// A holder that is cut off stops trusting itself before the next one is granted.
    ///
    /// # Errors
    /// Anything else happened.
    pub async fn partition_ends_trust_first(&self) -> Result<()> {
        let pair = self.pair().await?;
        let Pair { proxy, through, direct, .. } = &pair;
        let guard = through.lock("partition").ttl(SHORT).await?;
        let waiter = tokio::spawn(direct.lock("partition").into_future());
        pair.waiting("partition", 1).await?;
        ensure!(guard.is_trusted(), "it was lost before anything happened");
        proxy.partition();
        let next = soon("the waiter's turn", waiter).await???;
        ensure!(!guard.is_trusted(), "both trust the lock");
        let counts = direct.facts().fencing != Fencing::None;
        ensure!(!counts || next.token() > guard.token(), "the token did not grow");
        proxy.heal();
        ensure!(!guard.is_trusted(), "a lost lock came back");
        drop(guard);
        still_held(direct, &next).await?;
        next.release().await?;
        Ok(())
    }

    /// Every connection is cut while the lock is held: it is renewed through new ones.
    ///
    /// # Errors
    /// Anything else happened.
    pub async fn cut_connections_cost_no_lock(&self) -> Result<()> {
        let pair = self.pair().await?;
        let Pair { proxy, through, .. } = &pair;
        let guard = through.lock("cut").ttl(Duration::from_secs(6)).await?;
        proxy.cut_all();
        renewed(&guard).await?;
        guard.release().await?;
        Ok(())
    }

    /// An ask that arrives after its asker has gone, and after what it left has been given back: the
    /// lock is free all the same, and not only when the lease ends.
    ///
    /// # Errors
    /// Anything else happened.
    pub async fn a_late_ask_is_given_back(&self) -> Result<()> {
        let Pair { proxy, direct, .. } = &self.pair().await?;
        let counting = Arc::new(Counting::new((self.connect)(proxy.port())));
        let through = open(counting.clone()).await?;
        let (mut first, mut second) = (
            counting.pause(Point::After(VerbName::Release), 1),
            counting.pause(Point::Before(VerbName::Release), 2),
        );
        let late = Gate::new();
        proxy.rule((self.acquire)(), Fault::Hold(late.clone()));
        let ask = tokio::spawn(through.lock("late").ttl(2 * PATIENCE).into_future());
        soon("the ask", late.wait_until_reached()).await?;
        ask.abort();
        soon("the first release", first.reached()).await?;
        first.resume();
        ensure!(direct.inspect("late").await?.is_none(), "the ask was not held");
        late.open();
        until("the late grant", async || Ok(direct.inspect("late").await?.is_some())).await?;
        soon("the second release", second.reached()).await?;
        second.resume();
        free(direct, "late").await
    }

    /// A renewal is never answered: the next goes over another connection, in time.
    ///
    /// # Errors
    /// Anything else happened.
    pub async fn an_unanswered_renewal_costs_no_lock(&self) -> Result<()> {
        let pair = self.pair().await?;
        let Pair { proxy, through, .. } = &pair;
        let guard = through.lock("unanswered").ttl(self.outlives_silence).await?;
        let rule = proxy.rule((self.renew)(), Fault::Mute);
        renewed(&guard).await?;
        ensure!(rule.fired() == 1, "the renewal was answered");
        guard.release().await?;
        Ok(())
    }

    /// A free lock, a release, a waiter that asks again and a hand-over cost what is said, and nothing
    /// is asked beside.
    ///
    /// # Errors
    /// They cost more, or less.
    pub async fn operations_cost_what_is_said(&self) -> Result<()> {
        let pair = self.pair().await?;
        let Pair { proxy, through, direct, .. } = &pair;
        let lock = || through.lock("cost").ttl(2 * PATIENCE);
        let Costs { lock: to_lock, release, again, hand_over } = self.costs;
        // The first round is there to prepare statements, to load scripts and to open what listens.
        for warm in [false, true] {
            proxy.clear_log();
            let guard = lock().await?;
            let locked = operations(proxy);
            guard.release().await?;
            let released = operations(proxy) - locked;

            let holder = direct.lock("cost").await?;
            let waiter = tokio::spawn(lock().ttl(2 * SHORT).into_future());
            pair.waiting("cost", 1).await?;
            quiet(proxy).await?;
            soon("two more asks", proxy.wait_for((self.acquire)(), 2)).await?;
            // In this order: what is asked between the two may only make it look cheaper.
            let asked_again = operations(proxy);
            let asks = proxy.count((self.acquire)());
            holder.release().await?;
            soon("the waiter's turn", waiter).await???.release().await?;

            let holder = lock().await?;
            let waiter = tokio::spawn(lock().into_future());
            pair.waiting("cost", 1).await?;
            quiet(proxy).await?;
            holder.release().await?;
            let guard = soon("the waiter's turn", waiter).await???;
            let handed_over = operations(proxy);
            guard.release().await?;
            if warm {
                ensure!(locked == to_lock, "{locked} requests for a free lock");
                ensure!(released == release, "{released} requests for a release");
                ensure!(asked_again <= asks * again, "{asked_again} requests for {asks} asks");
                ensure!(handed_over == hand_over, "{handed_over} requests for a hand-over");
            }
        }
        Ok(())
    }

    /// One release, one request, one push: nobody else is woken, and nothing is asked in between.
    ///
    /// # Errors
    /// Anything else happened.
    pub async fn a_hand_over_is_one_request(&self) -> Result<()> {
        let pair = self.pair().await?;
        let Pair { proxy, through, .. } = &pair;
        let holder = through.lock("herd").await?;
        let waiters: Vec<_> = (0..5)
            .map(|_| {
                let through = through.clone();
                tokio::spawn(async move { through.lock("herd").await?.release().await })
            })
            .collect();
        pair.waiting("herd", 5).await?;
        let before = proxy.count((self.acquire)());
        holder.release().await?;
        for waiter in waiters {
            soon("its turn", waiter).await???;
        }
        let asked = proxy.count((self.acquire)()) - before;
        ensure!(asked == 0, "{asked} asks for five hand-overs that were pushed");
        Ok(())
    }
}

/// The tests of a [`Wire`]: one each, so that a failure has a name.
#[macro_export]
macro_rules! wire_tests {
    ($wire:expr) => {
        $crate::wire_tests! { $wire;
            reply_lost_on_acquire
            reply_lost_while_queueing
            reply_lost_on_release
            pushes_lost
            partition_ends_trust_first
            cut_connections_cost_no_lock
            a_late_ask_is_given_back
            an_unanswered_renewal_costs_no_lock
            operations_cost_what_is_said
            a_hand_over_is_one_request
        }
    };
    ($wire:expr; $($story:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $story() {
            $wire.$story().await.unwrap();
        })+
    };
}

async fn open(connect: Arc<dyn Connect>) -> Result<Locks> {
    Ok(Locks::open_with(connect, lockstep_lock::Options::default()).await?)
}

async fn soon<F: IntoFuture>(what: &str, future: F) -> Result<F::Output> {
    let patient = tokio::time::timeout(PATIENCE, future.into_future());
    patient.await.with_context(|| format!("{what} did not come"))
}

async fn view(locks: &Locks, name: &str) -> Result<LockView> {
    locks.inspect(name).await?.context("nobody holds or waits")
}

/// Asks the store until it says what is expected.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let asking = async {
        while !holds().await? {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    soon(what, asking).await?
}

/// Returns when it is trusted longer than now, and not lost before.
async fn renewed(guard: &Guard) -> Result<()> {
    let before = guard.trusted_until();
    until("a renewal", async || {
        guard.check()?;
        Ok(guard.trusted_until() > before)
    })
    .await
}

/// How many requests have crossed, but for those with which a connection stays alive or listens.
fn operations(proxy: &Proxy) -> usize {
    let upkeep = |ask: &Request| {
        ask.name == "PING" || ask.sql == "SELECT 1" || ask.sql.contains("lockstep_listen")
    };
    proxy.count(Match::when(move |ask| !upkeep(ask)))
}

/// Returns, with an empty log, when what was begun is over.
async fn quiet(proxy: &Proxy) -> Result<()> {
    until("quiet", async || {
        proxy.clear_log();
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(operations(proxy) == 0)
    })
    .await
}

async fn free(locks: &Locks, name: &str) -> Result<()> {
    until("the free lock", async || Ok(locks.inspect(name).await?.is_none())).await
}

async fn still_held(locks: &Locks, guard: &Guard) -> Result<()> {
    let seen = view(locks, guard.key().as_str()).await?;
    let holder = seen.holder().map(|holder| (holder.owner, holder.token));
    ensure!(holder == Some((guard.owner(), guard.token())), "it was taken away");
    Ok(())
}
