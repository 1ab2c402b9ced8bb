use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::duration::rough;

/// Milliseconds of this machine's wall clock, for display only.
pub(crate) fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A wall-clock moment as in RFC 3339: `2026-11-03T10:12:13.123Z`.
pub(crate) fn utc(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// How long ago that was, on this machine's clock.
pub(crate) fn age(since_ms: u64, now_ms: u64) -> String {
    match now_ms.checked_sub(since_ms) {
        Some(ms) => rough(Duration::from_millis(ms)),
        // The store's clock is ahead of ours: say nothing silly.
        None => rough(Duration::ZERO),
    }
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // 400 years are 146 097 days. A year that starts in March has its leap day at its end.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_793_700_733_123), "2026-11-03T10:12:13.123Z");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn days_follow_each_other_for_four_centuries() {
        let mut last = date(0);
        for day in 1..=146_097 {
            let next = date(day);
            let (year, month, first) = next;
            let follows = match next {
                (_, _, 1) => (month == 1 && last == (year - 1, 12, 31)) || last.1 + 1 == month,
                _ => last == (year, month, first - 1),
            };
            assert!(follows, "{last:?} then {next:?}");
            last = next;
        }
        assert_eq!(last, (2370, 1, 1));
    }

    #[test]
    fn a_clock_that_is_ahead_is_now() {
        assert_eq!(age(2_000, 1_000), "0ms");
        assert_eq!(age(1_000, 4_200), "3.2s");
    }
}
