//! A store against the table that says what it must do ([`Table`]): the same random verbs go to both,
//! and both must answer, tell and show the same. Nobody waits: time passes by ending leases earlier.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Key, Label, Owner, Token};
use lockstep_lock::queue::{Now, Table, Told};
use lockstep_lock::store::{Answer, Claim, Connect, LockStore, LockView, Page, Query, Release};
use lockstep_lock::{Inbox, Share, Signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Leases differ by far more than a test takes.
const STEP: Duration = Duration::from_secs(1000);
/// How long a signal may take that shall come at all.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to listen for signals that shall not come.
const SILENCE: Duration = Duration::from_millis(300);

const NAMES: [&str; 3] = ["whole", "permits", "either"];

/// What a test does to the server behind the store's back.
pub trait Server {
    /// Lets every lease of the store end that much earlier.
    fn let_time_pass(&mut self, by: Duration) -> BoxFuture<'_, ()>;

    /// Looks whether what the store has written makes sense; called after every verb.
    fn audit(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// What a store may say otherwise than the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Says {
    /// Whether it tells holders that they were broken at once.
    pub breaks: bool,
    /// Whether it may tell a holder once more what its own answer has said.
    pub repeats: bool,
    /// Whether it may count the dead among those ahead, as long as one of them lives.
    pub counts_dead: bool,
}

/// One comparison, from a seed.
pub struct Comparison<S> {
    seed: u64,
    random: Random,
    server: S,
    store: Arc<dyn LockStore>,
    signals: UnboundedReceiver<Signal>,
    says: Says,
    table: Table,
    now: Now,
    tokens: Tokens,
}

impl<S: Server> Comparison<S> {
    /// A store that nobody else uses, seen through a lane of its own.
    ///
    /// # Panics
    /// If the store cannot be opened.
    pub async fn new(seed: u64, store: &dyn Connect, server: S, says: Says) -> Self {
        let (send, signals) = unbounded_channel();
        let inbox = Inbox::tapped(move |signal| {
            let _ = send.send(signal);
        });
        let store = store.open(Some(inbox)).await.expect("the store opens");
        let now = Now { moment: Moment::ZERO, wall_ms: 0 };
        let (random, table, tokens) = (Random(seed), Table::default(), Tokens::default());
        Self { seed, random, server, store, signals, says, table, now, tokens }
    }

    /// Sends so many random verbs to both.
    ///
    /// # Panics
    /// At the first difference.
    pub async fn run(mut self, verbs: usize) {
        for step in 0..verbs {
            let at = format!("seed {}, step {step}", self.seed);
            let told = self.act(&at).await;
            self.hear(told, &at).await;
            self.server.audit().await;
            // To list is expensive where it means to look through everything.
            self.look(step % 8 == 0, &at).await;
        }
        tokio::time::sleep(SILENCE).await;
        while let Ok(signal) = self.signals.try_recv() {
            let again = self.says.repeats && self.is_held(&signal);
            assert!(again || signal == Signal::AskAllAgain, "seed {}: {signal:?}", self.seed);
        }
    }

    async fn act(&mut self, at: &str) -> Vec<Told> {
        let claim = self.claim();
        match self.random.below(20) {
            0..11 => {
                let (mut answer, told) = self.table.acquire(self.now, &claim);
                let mut got = self.store.acquire(&claim).await.expect("an answer");
                self.level(&claim.key, &mut got, &mut answer, at);
                assert_eq!(got, answer, "{at}: {claim:?}");
                told
            }
            kind @ 11..16 => {
                let what = match kind {
                    11..14 => Release::Mine(claim.hold()),
                    14 => Release::Downgrade(claim.hold()),
                    _ => {
                        let now = self.random.below(2) == 0;
                        Release::Break { key: claim.key.clone(), reason: at.to_owned(), now }
                    }
                };
                let (released, told) = self.table.release(self.now, &what);
                let got = self.store.release(&what).await.expect("an answer");
                assert_eq!(got, released, "{at}: {what:?}");
                told
            }
            16..18 => {
                let holds = [claim.hold()];
                let renewed = self.table.renew(self.now, &holds[0]);
                let got = self.store.renew(&holds).await.expect("an answer");
                assert_eq!(got, [renewed], "{at}: {claim:?}");
                vec![]
            }
            _ => {
                let steps = STEP * self.random.below(4) as u32;
                self.now.moment = self.now.moment + steps;
                if steps > Duration::ZERO {
                    self.server.let_time_pass(steps).await;
                }
                vec![]
            }
        }
    }

    /// One lock has readers and writers, one is made of permits, and about one claims do not agree.
    /// A claim never changes what it wants.
    fn claim(&mut self) -> Claim {
        let lock = self.random.below(NAMES.len() as u64);
        let number = self.random.below(8);
        let whole = match NAMES[lock] {
            "either" => number.is_multiple_of(2),
            name => (name == "whole") != (number == 7),
        };
        let share = match (whole, number as u32 % 3) {
            (true, 0) => Share::Exclusive,
            (true, _) => Share::Read,
            (false, count) => Share::Permits { count: count + 1, of: 4 },
        };
        Claim {
            id: ClaimId::from_u128((16 * lock + number + 1) as u128),
            key: Key::new(NAMES[lock]).expect("a good name"),
            owner: Owner::from_u128(100 + number as u128 / 2),
            label: Label::new(format!("label {number}")),
            share,
            ttl: STEP * (1 + 2 * (number as u32 / 3)),
            wait: self.random.below(5) > 0,
        }
    }

    /// All who were told must hear of it, and nobody else, before the next verb.
    async fn hear(&mut self, told: Vec<Told>, at: &str) {
        let mut expected: Vec<(Key, Signal)> = told
            .into_iter()
            .filter(|told| self.says.breaks || matches!(told, Told::Granted(..)))
            .map(|told| match told {
                Told::Granted(claim, token) => {
                    (claim.key, Signal::Granted { claim: claim.id, token: Some(token) })
                }
                Told::Lost(claim, reason) => (claim.key, Signal::Lost { claim: claim.id, reason }),
            })
            .collect();
        while !expected.is_empty() {
            let heard = tokio::time::timeout(PATIENCE, self.signals.recv()).await;
            let heard = heard.unwrap_or_else(|_| panic!("{at}: {expected:?} are not told"));
            let mut heard = heard.expect("the lane is open");
            let place = expected.iter().position(|(_, signal)| about(signal) == about(&heard));
            if place.is_none() && self.says.repeats && self.is_held(&heard) {
                continue;
            }
            let Some(place) = place else { panic!("{at}: {heard:?} instead of {expected:?}") };
            let (key, signal) = expected.remove(place);
            if let (Signal::Granted { token: got, .. }, Signal::Granted { token, .. }) =
                (&mut heard, &signal)
            {
                self.tokens.level(&key, *token, got, at);
            }
            assert_eq!(heard, signal, "{at}");
        }
    }

    fn is_held(&self, signal: &Signal) -> bool {
        let locks = NAMES.map(|name| Query::One(Key::new(name).expect("a good name")));
        let pages = locks.map(|lock| self.table.inspect(self.now, &lock).locks);
        let mut holders = pages.iter().flatten().flat_map(|lock| &lock.holders);
        holders.any(|holder| Some(holder.claim) == about(signal))
    }

    async fn look(&mut self, list: bool, at: &str) {
        let names = NAMES.map(|name| Query::One(Key::new(name).expect("a good name")));
        let owners = (100..104).map(|number| Query::WaitedForBy(Owner::from_u128(number)));
        let all = [("", 1), ("p", 5)];
        let all = all.map(|(prefix, limit)| Query::All { prefix: prefix.into(), limit });
        let all = all.into_iter().filter(|_| list);
        let queries: Vec<Query> = names.into_iter().chain(owners).chain(all).collect();
        let looks = queries.iter().map(|query| self.store.inspect(query));
        let pages = try_join_all(looks).await.expect("an answer");
        for (query, got) in queries.iter().zip(pages) {
            let (mut got, page) = (plain(got), plain(self.table.inspect(self.now, query)));
            for (got, lock) in got.locks.iter_mut().zip(&page.locks) {
                for (got, holder) in got.holders.iter_mut().zip(&lock.holders) {
                    self.tokens.level(&lock.key, holder.token, &mut got.token, at);
                }
            }
            assert_eq!(got, page, "{at}: {query:?}");
        }
    }

    /// Makes equal what may differ.
    fn level(&mut self, key: &Key, got: &mut Answer, answer: &mut Answer, at: &str) {
        for answer in [&mut *got, &mut *answer] {
            if let Answer::Queued { holder_left, .. } = answer {
                *holder_left = rounded(*holder_left);
            }
        }
        if let (Answer::Queued { ahead: got, .. }, Answer::Queued { ahead, .. }) =
            (&mut *got, &*answer)
            && self.says.counts_dead
            && (1..=*got).contains(ahead)
        {
            *got = *ahead;
        }
        match (got, answer) {
            (Answer::Granted { token: got }, Answer::Granted { token })
            | (Answer::Queued { behind: got, .. }, Answer::Queued { behind: token, .. }) => {
                self.tokens.level(key, *token, got, at);
            }
            _ => {}
        }
    }
}

fn about(signal: &Signal) -> Option<ClaimId> {
    match signal {
        Signal::Granted { claim, .. } | Signal::AskAgain { claim } | Signal::Lost { claim, .. } => {
            Some(*claim)
        }
        Signal::AskAllAgain => None,
    }
}

/// Which token of the reference is which of the store's: they may count differently, in the same order.
#[derive(Default)]
struct Tokens(BTreeMap<(Key, Option<Token>), Option<Token>>);

impl Tokens {
    fn level(&mut self, key: &Key, token: Option<Token>, got: &mut Option<Token>, at: &str) {
        let place = (key.clone(), token);
        assert_eq!(self.0.entry(place.clone()).or_insert(*got), got, "{at}: another token");
        let of_key = |entry: &(&(Key, Option<Token>), &Option<Token>)| entry.0.0 == *key;
        let before = self.0.range(..place.clone()).next_back().filter(of_key);
        let after = self.0.range(place..).nth(1).filter(of_key);
        assert!(before.is_none_or(|(_, before)| before < got), "{at}: the token is too small");
        assert!(after.is_none_or(|(_, after)| *got < *after), "{at}: the token is too large");
        *got = token;
    }
}

/// Real time passes too: a lease is known to the step.
fn rounded(left: Duration) -> Duration {
    STEP * (left.as_secs_f64() / STEP.as_secs_f64()).round() as u32
}

fn plain(mut page: Page) -> Page {
    let plain = |lock: &mut LockView| {
        for holder in &mut lock.holders {
            holder.left = rounded(holder.left);
            holder.since_ms = 0;
        }
        lock.waiters.iter_mut().for_each(|waiter| waiter.since_ms = 0);
    };
    page.locks.iter_mut().for_each(plain);
    page
}

/// SplitMix64: the same run for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % end) as usize
    }
}
