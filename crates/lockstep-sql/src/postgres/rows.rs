//! Rows into answers, and names into keys of the table.

use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner, StoreError, Token};
use lockstep_lock::store::{Answer, HolderView, LockView, Renewal, WaiterView};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::error;

pub(super) fn uuid(id: u128) -> Uuid {
    Uuid::from_u128(id)
}

/// Rounded up: the store's lease must not be the shorter one.
pub(super) fn micros(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX / 4)
}

/// The range of keys that start with `start`, which is never empty: from it to before what is
/// returned. UTF-8 sorts by code point.
pub(super) fn end_of(start: &str) -> String {
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

pub(super) fn only(rows: Vec<Row>) -> Result<Row, StoreError> {
    let mut rows = rows.into_iter();
    match (rows.next(), rows.next()) {
        (Some(row), None) => Ok(row),
        _ => Err(error::foreign("expected one row")),
    }
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, StoreError> {
    row.try_get(column).map_err(|error| {
        error::foreign(format!("cannot read the column {column}")).with_source(error)
    })
}

/// The text that `lockstep_acquire_v1` answers with.
pub(super) fn answer(text: &str) -> Result<Answer, StoreError> {
    let (outcome, rest) = text.split_once(' ').unwrap_or((text, ""));
    let numbers: Option<Vec<u64>> = rest.split(' ').map(|number| number.parse().ok()).collect();
    Ok(match (outcome, numbers.as_deref()) {
        ("granted", Some(&[token])) => Answer::Granted { token: Some(Token::new(token)) },
        ("queued", Some(&[behind, ahead, left_us])) => Answer::Queued {
            ahead,
            holder_left: Duration::from_micros(left_us),
            behind: Some(Token::new(behind)),
        },
        ("busy", _) => Answer::Busy,
        ("broken", _) => Answer::Broken { reason: rest.to_owned() },
        _ => return Err(error::foreign(format!("unknown answer {text:?}"))),
    })
}

pub(super) fn renewal(answer: Option<String>) -> Result<Renewal, StoreError> {
    Ok(match answer.as_deref() {
        None => Renewal::Lost,
        Some("renewed") => Renewal::Renewed,
        Some(text) => match text.strip_prefix("broken ") {
            Some(reason) => Renewal::Broken { reason: reason.to_owned() },
            None => return Err(error::foreign(format!("unknown renewal {text:?}"))),
        },
    })
}

/// One lock without its waiters.
pub(super) fn lock(row: &Row, tenant: &str, waiting: u64) -> Result<LockView, StoreError> {
    let key: &str = get(row, "key")?;
    let name = key.strip_prefix(tenant).unwrap_or(key);
    let holder = match get::<Option<Uuid>>(row, "claim")? {
        None => None,
        Some(claim) => Some(HolderView {
            claim: ClaimId::from_u128(claim.as_u128()),
            owner: Owner::from_u128(get::<Uuid>(row, "owner")?.as_u128()),
            label: Label::new(get::<&str>(row, "label")?),
            token: Some(token(row)?),
            since_ms: number(row, "since_ms")?,
            left: Duration::from_micros(number(row, "left_us")?),
            broken: get(row, "broken")?,
        }),
    };
    Ok(LockView {
        key: Key::new(name).map_err(|error| {
            error::foreign("a lock with a name that cannot be").with_source(error)
        })?,
        holder,
        waiting,
        waiters: vec![],
    })
}

/// The waiter of a row of `inspect_one.sql`, if it has one.
pub(super) fn waiter(row: &Row) -> Result<Option<WaiterView>, StoreError> {
    let Some(claim) = get::<Option<Uuid>>(row, "waiter")? else { return Ok(None) };
    Ok(Some(WaiterView {
        claim: ClaimId::from_u128(claim.as_u128()),
        owner: Owner::from_u128(get::<Uuid>(row, "waiter_owner")?.as_u128()),
        label: Label::new(get::<&str>(row, "waiter_label")?),
        since_ms: number(row, "waiter_since_ms")?,
    }))
}

pub(super) fn number(row: &Row, column: &str) -> Result<u64, StoreError> {
    let number: i64 = get(row, column)?;
    u64::try_from(number).map_err(|_| error::foreign(format!("{column} is {number}")))
}

fn token(row: &Row) -> Result<Token, StoreError> {
    Ok(Token::new(number(row, "token")?))
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
            ("broken two  words", Answer::Broken { reason: "two  words".to_owned() }),
            ("broken ", Answer::Broken { reason: String::new() }),
        ] {
            assert_eq!(answer(text).unwrap(), expected, "{text}");
        }
        for nonsense in ["", "granted", "granted x", "granted 1 2", "queued 1 2", "gone"] {
            assert!(answer(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_ttl_is_never_shortened() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::from_millis(20)), 20_000);
    }
}
