//! One file per driver: how it sends a text in a tx, and how its errors name their code.

mod mysql_async;
mod rusqlite;
mod tokio_postgres;

use std::error::Error;

pub use self::mysql_async::MysqlAsync;
pub use self::rusqlite::Rusqlite;
pub use self::tokio_postgres::TokioPostgres;

/// Whether it is the error of a driver, and another tx was in the way.
pub(super) fn says_conflict(error: &(dyn Error + 'static)) -> bool {
    mysql_async::says_conflict(error)
        || rusqlite::says_conflict(error)
        || tokio_postgres::says_conflict(error)
}
