//! Changes to the lines of locks, which go together when there are many: a transaction of transactions is one
//! write to etcd's log.
//!
//! Only changes to different lines do. All keys that one write makes have the same create revision, which is
//! the order of the line and the token; and whether the parts happen is decided before the first of them
//! does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;

use crate::error;
use crate::group::{Group, Limits};
use crate::link::{TXN, Unanswered, Wire};
use crate::proto::{Op, Reply, RequestOp, TxnRequest, TxnResponse};

/// So many requests are under way at once: one that is being written, and one that is on its way.
const WIDTH: usize = 2;
/// etcd takes 128 operations at once, unless told otherwise.
const MOST: usize = 32;

/// A transaction that changes one line.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) line: Vec<u8>,
    pub(crate) request: TxnRequest,
}

pub(crate) type Changes = Group<Change, Result<TxnResponse, Unanswered>>;

/// The changes that go through one connection.
pub(crate) fn group(home: Handle, wire: Wire, patience: Duration) -> Arc<Changes> {
    let limits = Limits {
        width: WIDTH,
        most: MOST,
        together: |batch: &[Change], one| batch.iter().all(|other| other.line != one.line),
    };
    let carry = move |batch: Vec<Change>| {
        let wire = wire.clone();
        Box::pin(async move { carry(&wire, patience, batch).await }) as _
    };
    Group::new(home, limits, Box::new(carry))
}

async fn carry(
    wire: &Wire,
    patience: Duration,
    batch: Vec<Change>,
) -> Vec<Result<TxnResponse, Unanswered>> {
    let alone = |change: Change| wire.within(patience, TXN, change.request);
    if batch.len() == 1 {
        return join_all(batch.into_iter().map(alone)).await;
    }
    let parts = batch.iter().map(|change| RequestOp { op: Some(Op::Txn(change.request.clone())) });
    let all = TxnRequest { success: parts.collect(), ..TxnRequest::default() };
    match wire.within::<_, TxnResponse>(patience, TXN, all).await {
        Ok(answer) => apart(answer, batch.len()),
        // Nothing was done, because of one of them: whose fault it is shows when each goes by itself.
        Err(Some(status)) if !error::is_the_connections_fault(&status) => {
            join_all(batch.into_iter().map(alone)).await
        }
        Err(unanswered) => batch.iter().map(|_| Err(unanswered.clone())).collect(),
    }
}

/// The answers of the parts; only the whole says at which revision.
fn apart(answer: TxnResponse, count: usize) -> Vec<Result<TxnResponse, Unanswered>> {
    let header = answer.header;
    let part = |reply| match reply {
        Some(Reply::Txn(part)) => Ok(TxnResponse { header: header.clone(), ..part }),
        // Something else than etcd answers; nobody knows what it did.
        _ => Err(None),
    };
    let mut parts: Vec<_> = answer.responses.into_iter().map(|op| part(op.reply)).collect();
    parts.resize(count, Err(None));
    parts
}
