//! Rows into answers.

use lockstep_core::{ClaimId, Key, StoreError, Token};
use lockstep_lock::store::{Answer, Hold, LockView, Renewal};
use mysql_async::Row;
use mysql_async::prelude::FromValue;

use super::error;
use super::pool::Reply;
use crate::answer;
use crate::view::{self, Seen};

pub(super) fn bytes(id: u128) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

pub(super) fn only(reply: Reply) -> Result<Row, StoreError> {
    let mut rows = reply.rows.into_iter();
    match (rows.next(), rows.next()) {
        (Some(row), None) => Ok(row),
        _ => Err(error::foreign("expected one row")),
    }
}

pub(super) fn get<T: FromValue>(row: &Row, column: &str) -> Result<T, StoreError> {
    match row.get_opt(column) {
        Some(Ok(value)) => Ok(value),
        _ => Err(error::foreign(format!("cannot read the column {column}"))),
    }
}

pub(super) fn answer(reply: Reply) -> Result<Answer, StoreError> {
    let text: String = get(&only(reply)?, "answer")?;
    answer::answer(&text).ok_or_else(|| error::foreign(format!("unknown answer {text:?}")))
}

/// A hold as `lockstep_renew_v1` reads it.
pub(super) fn packed(tenant: &str, hold: &Hold) -> String {
    let key = key(tenant, &hold.key);
    let ttl_us = answer::micros(hold.ttl).min(9_999_999_999_999_999);
    format!("{:032x}{ttl_us:016}{:04}{key}", hold.id.as_u128(), key.len())
}

pub(super) fn key(tenant: &str, key: &Key) -> String {
    format!("{tenant}{key}")
}

pub(super) fn renewals(text: &str) -> Result<Vec<Renewal>, StoreError> {
    let unknown = || error::foreign(format!("unknown renewals {text:?}"));
    text.split_terminator(',')
        .map(|answer| match answer {
            "renewed" => Ok(Renewal::Renewed),
            "lost" => Ok(Renewal::Lost),
            broken => {
                let reason = broken.strip_prefix("broken ").and_then(unhex).ok_or_else(unknown)?;
                Ok(Renewal::Broken { reason })
            }
        })
        .collect()
}

fn unhex(text: &str) -> Option<String> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// A grant that was seen.
#[derive(Debug, PartialEq)]
pub(super) struct Grant {
    pub(super) claim: ClaimId,
    pub(super) token: Token,
    /// Whoever granted it says that it is on the disk.
    pub(super) told: bool,
}

/// What the listening statement has found: `<claim> <token> <0 or 1>;` for each. A server may shorten
/// a long text; what is not whole is found again.
pub(super) fn grants(text: &str) -> Result<Vec<Grant>, StoreError> {
    let whole = text.rfind(';').map_or("", |end| &text[..end]);
    let grants: Option<Vec<Grant>> = whole.split(';').map(grant).collect();
    grants.ok_or_else(|| error::foreign(format!("unknown grants {text:?}")))
}

fn grant(text: &str) -> Option<Grant> {
    let mut words = text.split(' ');
    let claim = ClaimId::from_u128(u128::from_str_radix(words.next()?, 16).ok()?);
    let token = Token::new(words.next()?.parse().ok()?);
    let told = words.next()? == "1";
    words.next().is_none().then_some(Grant { claim, token, told })
}

/// The locks that the rows of `view.sql` describe.
pub(super) fn locks(rows: &[Row], tenant: &str) -> Result<Vec<LockView>, StoreError> {
    let seen = rows.iter().map(seen).collect::<Result<Vec<Seen>, StoreError>>()?;
    view::locks(seen, tenant).map_err(error::foreign)
}

fn seen(row: &Row) -> Result<Seen, StoreError> {
    Ok(Seen {
        kind: get(row, "kind")?,
        key: get(row, "lock_key")?,
        claim: id(row, "claim")?,
        owner: id(row, "owner")?,
        label: get::<Option<String>>(row, "label")?.unwrap_or_default(),
        weight: get(row, "weight")?,
        total: get(row, "total")?,
        token: get(row, "token")?,
        since_ms: get(row, "since_ms")?,
        left_us: get(row, "left_us")?,
        broken: get(row, "broken")?,
        waiting: get(row, "waiting")?,
    })
}

/// 0 where there is none.
fn id(row: &Row, column: &str) -> Result<u128, StoreError> {
    let Some(bytes) = get::<Option<Vec<u8>>>(row, column)? else { return Ok(0) };
    let bytes =
        bytes.try_into().map_err(|_| error::foreign(format!("{column} has no 16 bytes")))?;
    Ok(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_and_what_was_cut_off_is_left() {
        let grant = |claim, token, told| Grant {
            claim: ClaimId::from_u128(claim),
            token: Token::new(token),
            told,
        };
        let (one, two) = ("0".repeat(31) + "A 7 1;", "F".repeat(32) + " 8 0;");
        let both = [grant(10, 7, true), grant(u128::MAX, 8, false)];
        assert_eq!(grants(&format!("{one}{two}")).unwrap(), both);
        assert_eq!(grants(&format!("{one}{}", &two[..34])).unwrap(), both[..1]);
        for nonsense in ["2", "", ";", "A 7;", "A 7 1 1;", "x 7 1;"] {
            assert!(grants(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn renewals_are_read_and_nonsense_is_not() {
        let broken = |reason: &str| Renewal::Broken { reason: reason.to_owned() };
        assert_eq!(
            renewals("renewed,lost,broken C3B62C,broken ,").unwrap(),
            [Renewal::Renewed, Renewal::Lost, broken("ö,"), broken("")]
        );
        assert_eq!(renewals("").unwrap(), []);
        for nonsense in ["x,", "renewed,,", "broken xy,", "broken FF,"] {
            assert!(renewals(nonsense).is_err(), "{nonsense}");
        }
    }
}
