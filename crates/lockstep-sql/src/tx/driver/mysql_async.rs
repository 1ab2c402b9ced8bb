//! mysql_async.

use std::error::Error as StdError;

use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use mysql_async::{Error, Row, Transaction};

use super::super::ask::{Failure, Question, Tx};
use super::super::dialect::Dialect;

/// The driver mysql_async.
#[derive(Debug)]
pub enum MysqlAsync {}

impl Tx<MysqlAsync> for Transaction<'_> {
    type Reply<'a, R: Send + 'a>
        = BoxFuture<'a, R>
    where
        Self: 'a;

    const DIALECT: Dialect = Dialect::Mysql;

    fn ask<'a, R, F>(&'a mut self, question: Question, read: F) -> BoxFuture<'a, R>
    where
        R: Send + 'a,
        F: FnOnce(Result<Option<String>, Failure>) -> R + Send + 'a,
    {
        Box::pin(async move { read(first(self, question.text).await.map_err(failure)) })
    }

    fn ready<'a, R: Send + 'a>(&'a mut self, answer: R) -> BoxFuture<'a, R> {
        Box::pin(std::future::ready(answer))
    }
}

async fn first(tx: &mut Transaction<'_>, text: String) -> Result<Option<String>, Error> {
    // Not a prepared statement: to prepare it would be a round trip of its own.
    let mut results = tx.query_iter(text).await?;
    let mut answer = None;
    loop {
        let rows: Vec<Row> = results.collect().await?;
        answer = answer.or(rows.into_iter().next().and_then(|mut row| row.take(0)));
        if results.is_empty() {
            return Ok(answer);
        }
    }
}

fn failure(error: Error) -> Failure {
    Failure::new(Dialect::Mysql, code(&error).as_deref(), error)
}

fn code(error: &Error) -> Option<String> {
    match error {
        Error::Server(error) => Some(error.code.to_string()),
        _ => None,
    }
}

pub(super) fn says_conflict(error: &(dyn StdError + 'static)) -> bool {
    let code = error.downcast_ref::<Error>().and_then(code);
    code.is_some_and(|code| Dialect::Mysql.is_conflict(&code))
}
