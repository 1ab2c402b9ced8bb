//! What the functions of a database server say, and what its tables are asked with: the same words
//! on PostgreSQL and MySQL.

use std::time::Duration;

use lockstep_core::Token;
use lockstep_lock::store::Answer;

/// Rounded up: the store's lease must not be the shorter one.
pub(crate) fn micros(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX / 4)
}

/// A number of a share as a column has it: none is larger.
pub(crate) fn integer(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The range of keys that start with `start`, which is never empty: from it to before what is
/// returned. UTF-8 sorts by code point.
pub(crate) fn end_of(start: &str) -> String {
    let mut end = start.to_owned();
    while let Some(last) = end.pop() {
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(last as u32 + 1),
        };
        if let Some(next) = next {
            end.push(next);
            return end;
        }
    }
    end
}

/// The text that `lockstep_acquire_v1` answers with; `None` if it cannot have.
pub(crate) fn answer(text: &str) -> Option<Answer> {
    let (outcome, rest) = text.split_once(' ').unwrap_or((text, ""));
    let numbers: Option<Vec<u64>> = rest.split(' ').map(|number| number.parse().ok()).collect();
    Some(match (outcome, numbers.as_deref()) {
        ("granted", Some(&[token])) => Answer::Granted { token: Some(Token::new(token)) },
        ("queued", Some(&[behind, ahead, left_us])) => Answer::Queued {
            ahead,
            holder_left: Duration::from_micros(left_us),
            behind: Some(Token::new(behind)),
        },
        ("busy", _) => Answer::Busy,
        ("differs", Some(&[of])) => Answer::Differs { of: u32::try_from(of).ok()? },
        ("broken", _) => Answer::Broken { reason: rest.to_owned() },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_after_everything_that_starts_so() {
        assert_eq!(end_of("p/"), "p0");
        assert_eq!(end_of("p/a"), "p/b");
        assert_eq!(end_of("p/\u{d7ff}"), "p/\u{e000}");
        assert_eq!(end_of("p/\u{10ffff}"), "p0");
        for (start, inside) in [("p/", "p/ö"), ("p/a", "p/a\u{10ffff}z"), ("p/ö", "p/ö")] {
            assert!(start <= inside && inside < end_of(start).as_str());
        }
    }

    #[test]
    fn answers_are_read_and_nonsense_is_not() {
        let behind = Some(Token::new(7));
        let holder_left = Duration::from_micros(1500);
        for (text, expected) in [
            ("granted 7", Answer::Granted { token: behind }),
            ("queued 7 3 1500", Answer::Queued { ahead: 3, holder_left, behind }),
            ("busy", Answer::Busy),
            ("differs 5", Answer::Differs { of: 5 }),
            ("broken two  words", Answer::Broken { reason: "two  words".to_owned() }),
            ("broken ", Answer::Broken { reason: String::new() }),
        ] {
            assert_eq!(answer(text).unwrap(), expected, "{text}");
        }
        for nonsense in ["", "granted", "granted x", "granted 1 2", "queued 1 2", "gone"] {
            assert!(answer(nonsense).is_none(), "{nonsense}");
        }
    }

    #[test]
    fn a_ttl_is_never_shortened() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::from_millis(20)), 20_000);
    }
}
