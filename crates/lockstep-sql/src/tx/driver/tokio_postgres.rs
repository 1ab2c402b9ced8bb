//! tokio-postgres, and whatever hands out its transactions (deadpool, bb8).

use std::error::Error as StdError;

use futures_util::future::BoxFuture;
use tokio_postgres::{Error, SimpleQueryMessage, Transaction};

use super::super::ask::{Failure, Question, Tx};
use super::super::dialect::Dialect;

/// The driver tokio-postgres.
#[derive(Debug)]
pub enum TokioPostgres {}

impl Tx<TokioPostgres> for Transaction<'_> {
    type Reply<'a, R: Send + 'a>
        = BoxFuture<'a, R>
    where
        Self: 'a;

    const DIALECT: Dialect = Dialect::Postgres;

    fn ask<'a, R, F>(&'a mut self, question: Question, read: F) -> BoxFuture<'a, R>
    where
        R: Send + 'a,
        F: FnOnce(Result<Option<String>, Failure>) -> R + Send + 'a,
    {
        Box::pin(async move { read(first(self, &question.text).await.map_err(failure)) })
    }

    fn ready<'a, R: Send + 'a>(&'a mut self, answer: R) -> BoxFuture<'a, R> {
        Box::pin(std::future::ready(answer))
    }
}

async fn first(tx: &Transaction<'_>, text: &str) -> Result<Option<String>, Error> {
    let messages = tx.simple_query(text).await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    Ok(row.and_then(|row| row.get(0)).map(str::to_owned))
}

fn failure(error: Error) -> Failure {
    let code = error.code().map(|state| state.code().to_owned());
    Failure::new(Dialect::Postgres, code.as_deref(), error)
}

pub(super) fn says_conflict(error: &(dyn StdError + 'static)) -> bool {
    let state = error.downcast_ref::<Error>().and_then(Error::code);
    state.is_some_and(|state| Dialect::Postgres.is_conflict(state.code()))
}
