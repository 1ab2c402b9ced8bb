//! Fences and row locks in a user's own tx on databases that keep no locks of ours: rusqlite, and
//! mysql_async, which needs `LOCKSTEP_TEST_MARIADB`. PostgreSQL's are in `postgres/tx.rs`.

#![expect(clippy::unwrap_used, reason = "what is unexpected here fails the test")]
#![expect(unreachable_pub, reason = "a test has no outside")]

#[path = "tx/guards.rs"]
mod guards;
#[path = "tx/mysql.rs"]
mod mysql;
#[path = "tx/sqlite.rs"]
mod sqlite;
