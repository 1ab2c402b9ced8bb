//! The connections and transactions of sqlx as [`Tx`].

use futures_util::future::BoxFuture;
use lockstep_sql::tx::{Dialect, Failure, Question, Tx};
use sqlx::Connection;

use crate::{Sqlx, error, run};

macro_rules! speaks {
    ($feature:literal: $database:ident, $connection:ident, $dialect:ident, $run:ident) => {
        #[cfg(feature = $feature)]
        impl Tx<Sqlx> for sqlx::$connection {
            type Reply<'a, R: Send + 'a>
                = BoxFuture<'a, R>
            where
                Self: 'a;

            const DIALECT: Dialect = Dialect::$dialect;

            fn ask<'a, R, F>(&'a mut self, question: Question, read: F) -> BoxFuture<'a, R>
            where
                R: Send + 'a,
                F: FnOnce(Result<Option<String>, Failure>) -> R + Send + 'a,
            {
                Box::pin(async move {
                    if !self.is_in_transaction() {
                        return read(Err(Failure::not_in_a_tx(Dialect::$dialect)));
                    }
                    let answer = run::$run(self, question).await;
                    read(answer.map_err(|error| failure(Dialect::$dialect, error)))
                })
            }

            fn ready<'a, R: Send + 'a>(&'a mut self, answer: R) -> BoxFuture<'a, R> {
                Box::pin(std::future::ready(answer))
            }
        }

        #[cfg(feature = $feature)]
        impl Tx<Sqlx> for sqlx::Transaction<'_, sqlx::$database> {
            type Reply<'a, R: Send + 'a>
                = BoxFuture<'a, R>
            where
                Self: 'a;

            const DIALECT: Dialect = Dialect::$dialect;

            fn ask<'a, R, F>(&'a mut self, question: Question, read: F) -> BoxFuture<'a, R>
            where
                R: Send + 'a,
                F: FnOnce(Result<Option<String>, Failure>) -> R + Send + 'a,
            {
                (**self).ask(question, read)
            }

            fn ready<'a, R: Send + 'a>(&'a mut self, answer: R) -> BoxFuture<'a, R> {
                (**self).ready(answer)
            }
        }
    };
}

speaks!("postgres": Postgres, PgConnection, Postgres, postgres);
speaks!("mysql": MySql, MySqlConnection, Mysql, mysql);
speaks!("sqlite": Sqlite, SqliteConnection, Sqlite, sqlite);

fn failure(dialect: Dialect, error: sqlx::Error) -> Failure {
    let code = error::code(&error).map(|(_, code)| code);
    Failure::new(dialect, code.as_deref(), error)
}
