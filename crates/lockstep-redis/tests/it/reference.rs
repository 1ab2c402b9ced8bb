//! The scripts against the table that says what they must do: the same random verbs go to both, and
//! both must answer, tell and show the same. Time passes by ending leases earlier, and keys with them.

use std::collections::BTreeMap;
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Key, Label, Owner, Token};
use lockstep_lock::queue::{Now, Table, Told};
use lockstep_lock::store::{Answer, Claim, LockView, Page, Query, Release};
use lockstep_lock::{Inbox, Share, Signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::Bench;

/// Leases differ by far more than a test takes.
const STEP: Duration = Duration::from_secs(1000);

const NAMES: [&str; 3] = ["whole", "permits", "either"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scripts_do_what_the_reference_does() {
    let runs = (0..8).map(|seed| tokio::spawn(Run::new(seed).go(600)));
    for run in futures_util::future::join_all(runs.collect::<Vec<_>>()).await {
        run.unwrap();
    }
}

struct Run {
    seed: u64,
    random: Random,
    table: Table,
    now: Now,
    tokens: Tokens,
    expected: Vec<(Key, Signal)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            random: Random(seed),
            table: Table::default(),
            now: Now { moment: Moment::ZERO, wall_ms: 0 },
            tokens: Tokens::default(),
            expected: vec![],
        }
    }

    async fn go(mut self, verbs: usize) {
        let (mut bench, mut signals) = open().await;
        for step in 0..verbs {
            let at = format!("seed {}, step {step}", self.seed);
            self.act(&mut bench, &at).await;
            assert_eq!(run(&mut bench, AUDIT, Duration::ZERO).await, [""; 0], "{at}");
            // To list is to scan the server, where others have keys too.
            self.look(&bench, step % 8 == 0, &at).await;
            for (key, expected) in std::mem::take(&mut self.expected) {
                let wait = tokio::time::timeout(Duration::from_secs(20), signals.recv());
                let mut signal = wait.await.expect("a signal was expected").unwrap();
                if let (Signal::Granted { token: got, .. }, Signal::Granted { token, .. }) =
                    (&mut signal, &expected)
                {
                    self.tokens.level(&key, *token, got, &at);
                }
                assert_eq!(signal, expected, "{at}");
            }
        }
        assert!(signals.try_recv().is_err(), "seed {}: somebody was told too much", self.seed);
    }

    async fn act(&mut self, bench: &mut Bench, at: &str) {
        let claim = self.claim();
        match self.random.below(20) {
            0..11 => {
                let (mut answer, told) = self.table.acquire(self.now, &claim);
                let mut got = bench.lane.acquire(&claim).await.unwrap();
                self.level(&claim.key, &mut got, &mut answer, at);
                assert_eq!(got, answer, "{at}: {claim:?}");
                self.expect(told);
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
                let got = bench.lane.release(&what).await.unwrap();
                assert_eq!(got, released, "{at}: {what:?}");
                self.expect(told);
            }
            16..18 => {
                let holds = [claim.hold()];
                let renewed = self.table.renew(self.now, &holds[0]);
                assert_eq!(bench.lane.renew(&holds).await.unwrap(), [renewed], "{at}: {claim:?}");
            }
            _ => {
                let steps = STEP * self.random.below(4) as u32;
                self.now.moment = self.now.moment + steps;
                if steps > Duration::ZERO {
                    run(bench, LET_TIME_PASS, steps).await;
                }
            }
        }
    }

    fn claim(&mut self) -> Claim {
        let name = NAMES[self.random.below(3)];
        let number = self.random.below(7) + 1;
        let whole = match name {
            "either" => self.random.below(2) == 0,
            name => (name == "whole") != (self.random.below(16) == 0),
        };
        let share = match (whole, self.random.below(3) as u32) {
            (true, 0) => Share::Exclusive,
            (true, _) => Share::Read,
            (false, count) => Share::Permits { count: count + 1, of: 4 },
        };
        Claim {
            id: ClaimId::from_u128(number as u128),
            key: Key::new(name).unwrap(),
            owner: Owner::from_u128(100 + number as u128 / 2),
            label: Label::new(format!("label {number}")),
            share,
            ttl: STEP * (1 + 2 * (number as u32 % 3)),
            wait: self.random.below(5) > 0,
        }
    }

    fn expect(&mut self, told: Vec<Told>) {
        self.expected.extend(told.into_iter().map(|told| match told {
            Told::Granted(claim, token) => {
                (claim.key, Signal::Granted { claim: claim.id, token: Some(token) })
            }
            Told::Lost(claim, reason) => (claim.key, Signal::Lost { claim: claim.id, reason }),
        }));
    }

    async fn look(&mut self, bench: &Bench, list: bool, at: &str) {
        let queries = NAMES.map(|name| Query::One(Key::new(name).unwrap())).into_iter();
        let owners = (100..104).map(|number| Query::WaitedForBy(Owner::from_u128(number)));
        let all = [("", 1), ("p", 5)];
        let all = all.map(|(prefix, limit)| Query::All { prefix: prefix.into(), limit });
        let all = all.into_iter().filter(|_| list);
        let queries: Vec<Query> = queries.chain(owners).chain(all).collect();
        let looks = queries.iter().map(|query| bench.lane.inspect(query));
        let pages = futures_util::future::try_join_all(looks).await.unwrap();
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
        match (got, answer) {
            (Answer::Granted { token: got }, Answer::Granted { token })
            | (Answer::Queued { behind: got, .. }, Answer::Queued { behind: token, .. }) => {
                self.tokens.level(key, *token, got, at);
            }
            _ => {}
        }
    }
}

/// Which token of the reference is which of the server's: they count differently, in the same order.
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

/// A bench whose signals are kept.
async fn open() -> (Bench, UnboundedReceiver<Signal>) {
    let (send, signals) = unbounded_channel();
    let mut bench = Bench::new().await;
    let tap = move |signal| {
        let _ = send.send(signal);
    };
    bench.lane = bench.another_lane(Some(Inbox::tapped(tap))).await;
    (bench, signals)
}

async fn run(bench: &mut Bench, script: &str, by: Duration) -> Vec<String> {
    let (prefix, by) = (bench.prefix.clone(), by.as_millis().to_string());
    bench.raw(&["EVAL", script, "0", &prefix, &by]).await
}

/// Every lease ends earlier, by a little more than was asked for, since a lease may last a millisecond
/// longer than it should; and so does every key, except that none goes: who waits would have asked
/// before that, and this test may not.
const LET_TIME_PASS: &str = "
    local call, by = redis.call, ARGV[2] + 5
    for _, key in ipairs(call('KEYS', ARGV[1] .. ':1:*')) do
      call('PEXPIRE', key, math.max(call('PTTL', key) - by, 500000))
      local kind = string.match(key, '}:(.)$') or string.match(key, ':(o):%x+$')
      if kind == 'e' or kind == 'o' then
        for _, member in ipairs(call('ZRANGE', key, 0, -1)) do
          call('ZINCRBY', key, -by * 1000, member)
        end
      elseif kind == 'w' then
        local found = call('HGETALL', key)
        for i = 1, #found, 2 do
          local asked, rest = string.match(found[i + 1], '^(%d+)(.*)$')
          call('HSET', key, found[i], string.format('%.0f', asked - by * 1000) .. rest)
        end
      end
    end
    return {}";

/// What must be true of the keys of every lock: none lives for ever, none ends before a lease in it,
/// and the sums are right.
const AUDIT: &str = "
    local call, wrong = redis.call, {}
    local time = call('TIME')
    local now = time[1] * 1000000 + time[2]
    local function must_live(key, until_us)
      if call('PTTL', key) + 2 < (until_us - now) / 1000 then
        table.insert(wrong, key .. ' ends before a lease in it')
      end
    end
    local locks, queues = {}, {}
    for _, key in ipairs(call('KEYS', ARGV[1] .. ':1:*')) do
      if call('PTTL', key) < 0 then
        table.insert(wrong, key .. ' is immortal')
      end
      local kind = string.match(key, '}(.*)$')
      if kind == '' then
        table.insert(locks, key)
      elseif kind == ':w' then
        table.insert(queues, key)
      end
    end
    for _, key in ipairs(queues) do
      local lock = string.sub(key, 1, -3)
      for _, waiter in ipairs(call('HVALS', key)) do
        local asked, ttl = string.match(waiter, '^(%d+) (%d+) ')
        must_live(lock .. ':w', asked + ttl * 1000)
        must_live(lock .. ':q', asked + ttl * 1000)
      end
      if call('HLEN', key) ~= call('ZCARD', lock .. ':q') then
        table.insert(wrong, key .. ' is not the queue')
      end
    end
    for _, lock in ipairs(locks) do
      local used = string.match(call('GET', lock), '^s%d+ %d+ %d+ (%d+) %d+$')
      if not used then
        if call('EXISTS', lock .. ':h', lock .. ':e') > 0 then
          table.insert(wrong, lock .. ' is held by one and by several')
        end
      else
        local ends = call('ZRANGE', lock .. ':e', 0, -1, 'WITHSCORES')
        for i = 2, #ends, 2 do
          for _, suffix in ipairs({'', ':h', ':e'}) do
            must_live(lock .. suffix, ends[i])
          end
        end
        local sum = 0
        for _, words in ipairs(call('HVALS', lock .. ':h')) do
          sum = sum + (string.match(words, '^%d+ %d+ %d+ (%d+)/') or 1)
        end
        if #ends > 0 and sum ~= tonumber(used) or call('HLEN', lock .. ':h') * 2 ~= #ends then
          table.insert(wrong, lock .. ' is not the sum of its holders')
        end
      end
    end
    return wrong";

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
