//! Rows into answers.

use lockstep_core::StoreError;
use lockstep_lock::store::{Answer, LockView, Renewal};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::error;
pub(super) use crate::answer::{end_of, integer, micros};
use crate::view::{self, Seen};

pub(super) fn uuid(id: u128) -> Uuid {
    Uuid::from_u128(id)
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

pub(super) fn answer(text: &str) -> Result<Answer, StoreError> {
    crate::answer::answer(text).ok_or_else(|| error::foreign(format!("unknown answer {text:?}")))
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

/// The locks that the rows of `view.sql` describe.
pub(super) fn locks(rows: &[Row], tenant: &str) -> Result<Vec<LockView>, StoreError> {
    let seen = rows.iter().map(seen).collect::<Result<Vec<Seen>, StoreError>>()?;
    view::locks(seen, tenant).map_err(error::foreign)
}

fn seen(row: &Row) -> Result<Seen, StoreError> {
    let id = |column| -> Result<u128, StoreError> {
        Ok(get::<Option<Uuid>>(row, column)?.map_or(0, |id| id.as_u128()))
    };
    Ok(Seen {
        kind: get::<i32>(row, "kind")?.into(),
        key: get(row, "key")?,
        claim: id("claim")?,
        owner: id("owner")?,
        label: get::<Option<String>>(row, "label")?.unwrap_or_default(),
        weight: get::<i32>(row, "weight")?.into(),
        total: get::<i32>(row, "total")?.into(),
        token: get(row, "token")?,
        since_ms: get(row, "since_ms")?,
        left_us: get(row, "left_us")?,
        broken: get(row, "broken")?,
        waiting: get(row, "waiting")?,
    })
}
