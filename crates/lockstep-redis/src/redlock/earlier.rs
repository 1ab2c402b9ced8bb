//! Connections that a newer one has replaced.
//!
//! What was sent over them may still be on its way, or lie unread at the server: a request to give back that
//! comes so late takes away what the claim has been granted since. So the server is told to close them
//! before a new connection is used for anything; what it has not read by then, it never does.

use std::sync::Arc;

use lockstep_core::{Effect, ErrorKind, StoreError};
use parking_lot::Mutex;
use redis::Value;

use super::config::STORE;
use crate::line::Line;
use crate::link::PATIENCE;

/// What came before the connection of one lane to one node.
#[derive(Default)]
pub(super) struct Earlier(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<Last>,
    /// Whether the server may still read from one that was replaced.
    open: bool,
}

/// The connection in use.
struct Last {
    /// The server that it leads to; another one knows nothing of it.
    run_id: String,
    id: Option<i64>,
}

impl Earlier {
    /// Lets `line`, which leads to this run of the server, take the place of the last one.
    ///
    /// # Errors
    /// The server has not said whether that one is closed; the last one stays the last.
    pub(super) async fn replace(
        &self,
        line: &Arc<Line>,
        run_id: &str,
        address: &str,
    ) -> Result<(), StoreError> {
        let replaced = {
            let state = self.0.lock();
            let same = state.last.as_ref().filter(|last| last.run_id == run_id);
            same.map(|last| (last.id, state.open))
        };
        let open = match replaced {
            None => false,
            Some((Some(id), was_open)) => !close(line, id, address).await? || was_open,
            Some((None, _)) => true,
        };
        let last = Some(Last { run_id: run_id.to_owned(), id: line.id() });
        *self.0.lock() = State { last, open };
        Ok(())
    }

    /// Whether nothing can come any more of what was sent before the connection in use was made.
    pub(super) fn are_closed(&self) -> bool {
        !self.0.lock().open
    }
}

/// Whether the server has closed the connection that it calls `id`, or had before.
async fn close(line: &Arc<Line>, id: i64, address: &str) -> Result<bool, StoreError> {
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(id);
    let unable = || {
        let message = format!("{address}: it does not say whether an earlier connection is closed");
        StoreError::new(STORE, ErrorKind::Unavailable, Effect::None, message)
    };
    let answer = line.send(&kill).ok_or_else(unable)?.within(PATIENCE).await;
    match answer.map_err(|_| unable())? {
        Value::Int(_) => Ok(true),
        refusal => {
            tracing::warn!(
                node = address,
                ?refusal,
                "without the right to CLIENT KILL, its vote rests for a ttl after some connections that break"
            );
            Ok(false)
        }
    }
}
