//! The tables against the reference: the same random verbs at the same moments must get the same
//! answers and tell the same claims.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Label, Owner, Token};
use lockstep_lock::queue;

use lockstep_lock::{Share, Signal};

use super::*;

#[derive(Default)]
struct Dial(AtomicU64);

impl Clock for Dial {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A small generator of our own: a failing seed is the whole story.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn key(&mut self) -> Key {
        Key::new(["a", "a/b"][self.roll(2) as usize]).unwrap()
    }

    /// One lock has readers, the other is made of permits; now and then somebody is wrong.
    fn share(&mut self, key: &Key) -> Share {
        match (key.as_str(), self.roll(16)) {
            (_, 0) => Share::Permits { count: 1, of: 7 },
            ("a", 1..8) => Share::Exclusive,
            ("a", _) => Share::Read,
            _ => Share::Permits { count: 1 + self.roll(3) as u32, of: 4 },
        }
    }

    fn ttl(&mut self) -> Duration {
        Duration::from_nanos(20 + self.roll(60))
    }

    fn claim(&mut self) -> Claim {
        let number = u128::from(self.roll(6)) + 1;
        let key = self.key();
        Claim {
            id: ClaimId::from_u128(number),
            share: self.share(&key),
            key,
            owner: Owner::from_u128(number),
            label: Label::new(format!("claim {number}")),
            ttl: self.ttl(),
            wait: self.roll(4) > 0,
        }
    }

    fn release(&mut self) -> Release {
        match self.roll(5) {
            0 => {
                let reason = format!("because of {}", self.roll(9));
                Release::Break { key: self.key(), reason, now: self.roll(2) == 0 }
            }
            1 => Release::Downgrade(self.claim().hold()),
            _ => Release::Mine(self.claim().hold()),
        }
    }
}

/// The file is of the first epoch; the reference counts from 1.
fn counted(token: &mut Option<Token>) {
    *token = token.map(|token| Token::new(token.get() - (1 << 32)));
}

fn told(told: impl IntoIterator<Item = Told>) -> Vec<(ClaimId, Signal)> {
    let mut told: Vec<_> = told.into_iter().map(|told| (told.claim, told.signal)).collect();
    for (_, signal) in &mut told {
        if let Signal::Granted { token, .. } = signal {
            counted(token);
        }
    }
    told
}

fn expected(told: impl IntoIterator<Item = queue::Told>) -> Vec<(ClaimId, Signal)> {
    let signal = |told| match told {
        queue::Told::Granted(claim, token) => {
            (claim.id, Signal::Granted { claim: claim.id, token: Some(token) })
        }
        queue::Told::Lost(claim, reason) => (claim.id, Signal::Lost { claim: claim.id, reason }),
    };
    told.into_iter().map(signal).collect()
}

/// Without what the wall clock says.
fn shown(mut page: Page) -> Page {
    for lock in &mut page.locks {
        lock.holders.iter_mut().for_each(|holder| holder.since_ms = 0);
        lock.waiters.iter_mut().for_each(|waiter| waiter.since_ms = 0);
    }
    page
}

fn compare(seed: u64, verbs: u32) {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::at(&folder.path().join("locks.db")).unwrap();
    let dial = Arc::new(Dial::default());
    let opened = open::open(&config, "boot").map_err(|failure| format!("{failure:?}")).unwrap();
    let mut ours = Table::new(opened, config, dial.clone(), "boot".to_owned());
    let mut reference = queue::Table::default();
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for step in 0..verbs {
        let moment = dial.0.fetch_add(dice.roll(12), Ordering::Relaxed);
        let now = Now { moment: dial.now(), wall_ms: 0 };
        let here = format!("seed {seed}, step {step}, after moment {moment}");
        match dice.roll(10) {
            0..5 => {
                let claim = dice.claim();
                let (mut answer, tell) = ours.acquire(&claim, None).unwrap();
                if let Answer::Granted { token } | Answer::Queued { behind: token, .. } =
                    &mut answer
                {
                    counted(token);
                }
                let (right, right_told) = reference.acquire(now, &claim);
                assert_eq!(answer, right, "{here}: {claim:?}");
                assert_eq!(told(tell), expected(right_told), "{here}: {claim:?}");
            }
            5..7 => {
                let hold = dice.claim().hold();
                let renewals = ours.renew(std::slice::from_ref(&hold)).unwrap();
                assert_eq!(renewals, [reference.renew(now, &hold)], "{here}: {hold:?}");
            }
            7..9 => {
                let what = dice.release();
                let (released, tell) = ours.release(&what).unwrap();
                let (right, right_told) = reference.release(now, &what);
                assert_eq!(released, right, "{here}: {what:?}");
                assert_eq!(told(tell), expected(right_told), "{here}: {what:?}");
            }
            _ => {
                let query = match dice.roll(3) {
                    1 => Query::WaitedForBy(dice.claim().owner),
                    0 => Query::One(dice.key()),
                    _ => Query::All { prefix: "a".into(), limit: dice.roll(3) as usize },
                };
                let mut page = shown(ours.inspect(&query).unwrap());
                for holder in page.locks.iter_mut().flat_map(|lock| &mut lock.holders) {
                    counted(&mut holder.token);
                }
                assert_eq!(page, shown(reference.inspect(now, &query)), "{here}: {query:?}");
            }
        }
    }
}

#[test]
fn the_tables_answer_like_the_reference() {
    for seed in 1..=20 {
        compare(seed, 500);
    }
}
