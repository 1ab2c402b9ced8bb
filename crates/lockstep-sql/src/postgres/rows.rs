//! Rows into answers, and names into keys of the table.

use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner, StoreError, Token};
use lockstep_lock::Share;
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
        ("differs", Some(&[of])) => Answer::Differs { of: of as u32 },
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

/// The locks that the rows of `view.sql` describe; those that nobody has are left out.
pub(super) fn locks(rows: &[Row], tenant: &str) -> Result<Vec<LockView>, StoreError> {
    let mut locks: Vec<LockView> = vec![];
    for row in rows {
        let kind: i32 = get(row, "kind")?;
        match (kind, locks.last_mut()) {
            (0, _) => locks.push(lock(row, tenant)?),
            (1, Some(lock)) => lock.holders.push(holder(row)?),
            (2, Some(lock)) => lock.waiters.push(waiter(row)?),
            _ => return Err(error::foreign(format!("a row of kind {kind}"))),
        }
    }
    locks.retain(|lock| !lock.holders.is_empty() || lock.waiting > 0);
    Ok(locks)
}

fn lock(row: &Row, tenant: &str) -> Result<LockView, StoreError> {
    let key: &str = get(row, "key")?;
    let name = key.strip_prefix(tenant).unwrap_or(key);
    let key = Key::new(name)
        .map_err(|error| error::foreign("a lock with a name that cannot be").with_source(error))?;
    Ok(LockView { key, holders: vec![], waiting: number(row, "waiting")?, waiters: vec![] })
}

fn holder(row: &Row) -> Result<HolderView, StoreError> {
    Ok(HolderView {
        claim: ClaimId::from_u128(get::<Uuid>(row, "claim")?.as_u128()),
        owner: Owner::from_u128(get::<Uuid>(row, "owner")?.as_u128()),
        label: Label::new(get::<&str>(row, "label")?),
        share: share(row)?,
        token: Some(token(row)?),
        since_ms: number(row, "since_ms")?,
        left: Duration::from_micros(number(row, "left_us")?),
        broken: get(row, "broken")?,
    })
}

fn waiter(row: &Row) -> Result<WaiterView, StoreError> {
    Ok(WaiterView {
        claim: ClaimId::from_u128(get::<Uuid>(row, "claim")?.as_u128()),
        owner: Owner::from_u128(get::<Uuid>(row, "owner")?.as_u128()),
        label: Label::new(get::<&str>(row, "label")?),
        share: share(row)?,
        since_ms: number(row, "since_ms")?,
    })
}

fn share(row: &Row) -> Result<Share, StoreError> {
    let (weight, total): (i32, i32) = (get(row, "weight")?, get(row, "total")?);
    let share = u32::try_from(weight).ok().zip(u32::try_from(total).ok());
    share
        .and_then(|(weight, total)| Share::from_numbers(weight, total))
        .ok_or_else(|| error::foreign(format!("a share of {weight}/{total}")))
}

/// A number of a share as a column has it: none is larger.
pub(super) fn integer(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn number(row: &Row, column: &str) -> Result<u64, StoreError> {
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
            ("differs 5", Answer::Differs { of: 5 }),
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
