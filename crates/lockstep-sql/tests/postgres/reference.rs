//! The functions in the database against the table that says what they must do: the same random
//! verbs go to both, and both must answer, tell and show the same. Time passes by ending leases
//! earlier.

use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{ClaimId, Key, Label, Owner};
use lockstep_lock::queue::{Now, Table, Told};
use lockstep_lock::store::{Answer, Claim, LockView, Page, Query, Release};
use lockstep_lock::{Share, Signal};

use crate::support::{Place, let_time_pass};

/// Leases differ by far more than a test takes.
const STEP: Duration = Duration::from_secs(1000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_do_what_the_reference_does() {
    let runs = (0..4).map(|seed| tokio::spawn(run(seed, 500)));
    for run in futures_util::future::join_all(runs).await {
        run.unwrap();
    }
}

async fn run(seed: u64, verbs: usize) {
    let place = Place::new();
    let mut lane = place.lane().await;
    let admin = place.admin().await;
    let mut table = Table::default();
    let mut now = Now { moment: Moment::ZERO, wall_ms: 0 };
    let mut random = Random(seed);
    let mut expected: Vec<Signal> = vec![];

    for step in 0..verbs {
        let at = format!("seed {seed}, step {step}");
        let name = ["a", "b", "c"][random.below(3)];
        let key = Key::new(name).unwrap();
        let number = random.below(8) as u128 + 1;
        let claim = Claim {
            id: ClaimId::from_u128(number),
            key: key.clone(),
            owner: Owner::from_u128(number),
            label: Label::new(format!("label {number}")),
            share: share(name, number),
            ttl: STEP * (1 + 2 * random.below(3) as u32),
            wait: random.below(5) > 0,
        };
        match random.below(16) {
            0..8 => {
                let (mut answer, told) = table.acquire(now, &claim);
                let mut got = lane.ask(&claim).await;
                round(&mut answer);
                round(&mut got);
                assert_eq!(got, answer, "{at}: {claim:?}");
                expected.extend(told.into_iter().map(signal));
            }
            kind @ 8..12 => {
                let what = match kind {
                    8..10 => Release::Mine(claim.hold()),
                    10 => Release::Downgrade(claim.hold()),
                    _ => Release::Break { key, reason: at.clone(), now: random.below(2) == 0 },
                };
                let (released, told) = table.release(now, &what);
                assert_eq!(lane.store.release(&what).await.unwrap(), released, "{at}: {what:?}");
                expected.extend(told.into_iter().map(signal));
            }
            12..14 => {
                let holds = [claim.hold()];
                let renewed = table.renew(now, &holds[0]);
                assert_eq!(lane.store.renew(&holds).await.unwrap(), [renewed], "{at}");
            }
            _ => {
                let steps = STEP * random.below(4) as u32;
                now.moment = now.moment + steps;
                let_time_pass(&admin, &place, steps).await;
            }
        }
        for query in [
            Query::One(Key::new("a").unwrap()),
            Query::One(Key::new("b").unwrap()),
            Query::WaitedForBy(claim.owner),
            Query::All { prefix: String::new(), limit: 1 },
            Query::All { prefix: "b".into(), limit: 5 },
        ] {
            let seen = lane.store.inspect(&query).await.unwrap();
            assert_eq!(plain(seen), plain(table.inspect(now, &query)), "{at}: {query:?}");
        }
    }
    for expected in expected {
        assert_eq!(lane.signal().await, expected, "seed {seed}");
    }
    lane.assert_silent(&place, "end").await;
}

/// One lock is mostly written, one mostly read, and one is made of permits; one claim is always wrong
/// about that. A claim never changes what it wants.
fn share(name: &str, number: u128) -> Share {
    match (name, number) {
        (_, 8) => Share::Permits { count: 1, of: 7 },
        ("a", 1..=2) | ("b", 1..=4) => Share::Read,
        ("c", _) => Share::Permits { count: 1 + number as u32 % 3, of: 4 },
        _ => Share::Exclusive,
    }
}

fn signal(told: Told) -> Signal {
    match told {
        Told::Granted(claim, token) => Signal::Granted { claim: claim.id, token: Some(token) },
        Told::Lost(claim, reason) => Signal::Lost { claim: claim.id, reason },
    }
}

/// Real time passes too: a lease is known to the step.
fn round(answer: &mut Answer) {
    if let Answer::Queued { holder_left, .. } = answer {
        *holder_left = rounded(*holder_left);
    }
}

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
