//! One transaction, which ends with its value.

use rusqlite::Connection;

use super::error::Failure;

/// A transaction on a connection: rolled back when dropped, unless it was committed.
pub(super) struct Tx<'a> {
    conn: &'a Connection,
    open: bool,
}

impl<'a> Tx<'a> {
    /// Begins with the write lock, so that nothing that is read can change before the end.
    pub(super) fn write(conn: &'a Connection) -> Result<Self, Failure> {
        Self::begin(conn, "BEGIN IMMEDIATE")
    }

    /// Begins a look at one state of the file.
    pub(super) fn read(conn: &'a Connection) -> Result<Self, Failure> {
        Self::begin(conn, "BEGIN DEFERRED")
    }

    fn begin(conn: &'a Connection, how: &str) -> Result<Self, Failure> {
        // Prepared once: parsing BEGIN each time costs as much as running it.
        conn.prepare_cached(how)?.execute([])?;
        Ok(Self { conn, open: true })
    }

    pub(super) fn conn(&self) -> &'a Connection {
        self.conn
    }

    pub(super) fn commit(mut self) -> Result<(), Failure> {
        self.conn.prepare_cached("COMMIT")?.execute([]).map_err(Failure::of_commit)?;
        self.open = false;
        Ok(())
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        // After some errors SQLite has rolled back by itself.
        if self.open
            && !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "a transaction could not be rolled back");
        }
    }
}
