//! Which clock it is: the one that goes on while the machine sleeps. A machine cannot be put to sleep by a
//! test, but a process can be shown a machine that has slept for a day: a time namespace.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;
use lockstep_testkit::servers::after_a_sleep;

const ASLEEP: Duration = Duration::from_secs(86_400);
const MARK: &str = "it is now ";

/// Not a test by itself: what the other one runs.
#[test]
fn tells_the_time() {
    println!("{MARK}{}", SystemClock.now().as_nanos());
}

#[test]
fn the_clock_goes_on_while_the_machine_sleeps() {
    let mut child = after_a_sleep(ASLEEP);
    child.arg(std::env::current_exe().unwrap());
    child.args(["--exact", "tells_the_time", "--nocapture"]);
    let here = SystemClock.now();
    let done = child.output().unwrap();
    let (said, why) =
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap());
    assert!(done.status.success(), "{why}{said}");
    let told = said.split_once(MARK).and_then(|(_, rest)| rest.split_whitespace().next());
    let there: u64 = told.and_then(|nanos| nanos.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    let ahead = Duration::from_nanos(there - here.as_nanos());
    assert!(ahead >= ASLEEP && ahead < ASLEEP * 2, "{ahead:?} ahead after a day of sleep");
}
