//! Durations as people write and read them.

use std::time::Duration;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A whole number and a unit: `500ms`, `10s`, `2m`, `1h`, `1d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = |why: &str| {
        Err(format!("{why}; write a whole number and a unit: 500ms, 10s, 2m, 1h or 1d"))
    };
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return wrong("there is no number at its start");
    }
    let Some((_, ms)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return match unit {
            "" => wrong("there is no unit"),
            unit => wrong(&format!("`{unit}` is not a unit")),
        };
    };
    let total = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*ms));
    match total {
        Some(total) => Ok(Duration::from_millis(total)),
        None => wrong("that is too long"),
    }
}

/// Exactly, as [`parse`] reads it; below a millisecond it is cut.
pub(crate) fn text(duration: Duration) -> String {
    let total = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let exact = UNITS.iter().rev().find(|(_, ms)| total >= *ms && total.is_multiple_of(*ms));
    match exact {
        Some((unit, ms)) => format!("{}{unit}", total / ms),
        None => "0s".to_owned(),
    }
}

/// For reading: two figures that matter, `350ms`, `7.2s`, `75s`, `12m 3s`, `3h 4m`, `2d 5h`.
pub(crate) fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..10 => format!("{}.{}s", seconds, duration.subsec_millis() / 100),
        10..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m {}s", seconds / 60, seconds % 60),
        7_200..172_800 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_read() {
        for (text, ms) in
            [("0s", 0), ("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse("1d"), parse("24h"));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_units() {
        for (text, why) in [
            ("", "no number"),
            ("s", "no number"),
            ("-1s", "no number"),
            ("10", "no unit"),
            ("10 s", "` s` is not a unit"),
            ("1.5s", "`.5s` is not a unit"),
            ("10sec", "`sec` is not a unit"),
            ("99999999999999999999s", "too long"),
            ("18446744073709551615h", "too long"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.contains("500ms, 10s, 2m, 1h or 1d"), "{text}: {error}");
        }
    }

    #[test]
    fn exact_texts_are_read_back() {
        for ms in [0, 1, 999, 1_000, 1_500, 60_000, 90_000, 3_600_000, 86_400_000, 90_000_000] {
            let duration = Duration::from_millis(ms);
            assert_eq!(parse(&text(duration)), Ok(duration), "{ms}");
        }
        assert_eq!(text(Duration::from_millis(90_000)), "90s");
    }

    #[test]
    fn rough_texts_are_short() {
        for (ms, text) in [
            (5, "5ms"),
            (7_290, "7.2s"),
            (75_000, "75s"),
            (723_000, "12m 3s"),
            (11_040_000, "3h 4m"),
            (190_800_000, "2d 5h"),
        ] {
            assert_eq!(rough(Duration::from_millis(ms)), text);
        }
    }
}
