//! The connections of one lane, and one bounded round trip on one of them.
//!
//! Not the driver's own pool: that one waits for what a dropped request left unread, and so hangs
//! on a peer that has gone silent.

use std::sync::Arc;

use futures_util::FutureExt;
use lockstep_core::StoreError;
use mysql_async::prelude::{Protocol, Queryable};
use mysql_async::{Conn, Error, Params, QueryResult, Row};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::config::{OPERATION, Purpose, Settings};
use super::error;

/// How often a statement that InnoDB has undone is sent again.
const UNDONE_MAX: u32 = 5;

pub(super) struct Connections {
    settings: Arc<Settings>,
    free: Semaphore,
    idle: Mutex<Vec<Conn>>,
}

/// What a statement was answered with.
pub(super) struct Reply {
    pub(super) rows: Vec<Row>,
    /// How many rows it changed.
    pub(super) changed: u64,
    /// What it gave to `LAST_INSERT_ID`.
    pub(super) number: Option<u64>,
}

impl Connections {
    /// Connects to nothing yet.
    pub(super) fn new(settings: Arc<Settings>, size: usize) -> Self {
        Self { settings, free: Semaphore::new(size), idle: Mutex::default() }
    }

    /// One round trip, committed when this returns. InnoDB may take two statements that insert and
    /// delete side by side for a circle and undo one of them, wholly: that one is sent again.
    pub(super) async fn ask(
        &self,
        sql: &str,
        parameters: impl Into<Params>,
    ) -> Result<Reply, StoreError> {
        let (deadline, parameters) = (Instant::now() + OPERATION, parameters.into());
        let mut undone = 0;
        loop {
            match self.send(deadline, sql, parameters.clone()).await? {
                Ok(reply) => return Ok(reply),
                Err(error) if error::is_undone(&error) && undone < UNDONE_MAX => undone += 1,
                Err(error) => return Err(error::answered(error)),
            }
        }
    }

    /// The inner error is the server's answer, or the connection broke.
    async fn send(
        &self,
        deadline: Instant,
        sql: &str,
        parameters: Params,
    ) -> Result<Result<Reply, Error>, StoreError> {
        let turn = timeout_at(deadline, self.free.acquire()).await;
        let _turn = turn.map_err(|_| error::all_in_use())?.map_err(|_| error::all_in_use())?;
        let idle = self.idle.lock().pop();
        let conn = match idle {
            Some(conn) => conn,
            None => timeout_at(deadline, self.settings.connect(Purpose::Verbs))
                .await
                .map_err(|_| error::no_connection())??,
        };
        let mut flight = Flight(Some(conn));
        let answer = timeout_at(deadline, send(flight.conn(), sql, parameters)).await;
        Ok(match answer.map_err(|_| error::no_answer())? {
            Ok(reply) => {
                self.idle.lock().extend(flight.land());
                Ok(reply)
            }
            // After any error the connection is closed: MySQL leaves the transaction of a procedure
            // that was interrupted open.
            Err(error) => {
                if error.is_fatal() {
                    // What broke this one has probably broken the others, and who asks again must
                    // not find them out one by one.
                    let others = std::mem::take(&mut *self.idle.lock());
                    others.into_iter().for_each(discard);
                }
                Err(error)
            }
        })
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.idle.get_mut().drain(..).for_each(discard);
    }
}

async fn send(conn: &mut Conn, sql: &str, parameters: Params) -> Result<Reply, Error> {
    read(conn.exec_iter(sql, parameters).await?).await
}

pub(super) async fn read<P: Protocol>(mut result: QueryResult<'_, '_, P>) -> Result<Reply, Error> {
    let rows = result.collect().await?;
    let (changed, number) = (result.affected_rows(), result.last_insert_id());
    result.drop_result().await?;
    Ok(Reply { rows, changed, number })
}

/// A connection whose answer is still to come. If nobody waits for it any more, it is closed: its
/// next reader would take the forgotten answer for its own.
struct Flight(Option<Conn>);

impl Flight {
    fn conn(&mut self) -> &mut Conn {
        self.0.as_mut().expect("taken only when the flight ends")
    }

    fn land(mut self) -> Option<Conn> {
        self.0.take()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(discard);
    }
}

/// Closes a connection now. Dropping it would start a task that reads what was left unread first,
/// for ever if nothing comes.
pub(super) fn discard(conn: Conn) {
    let _ = conn.disconnect().now_or_never();
}
