//! The fence: a guard's token against what the database knows.

use lockstep_core::{Effect, ErrorKind, Key, StoreError, Token};
use lockstep_lock::Guard;

use super::ask::{Failure, Tx};
use super::dialect::Pass;

/// Makes sure, in one round trip, that nobody has replaced the guard's holder, and that it stays so
/// until the tx ends. If the answer is an error, roll back; `?` does.
///
/// Two ways, told apart by the database itself:
///
/// - **The lock is kept in this very database, PostgreSQL, MySQL or MariaDB.** Whoever takes it over from a holder that did not
///   give it back waits until the tx has ended, and every verify of that holder afterwards is
///   refused (G1: whatever the timing, for as long as the database keeps its data). Renewals and
///   ordinary grants know nothing of it.
/// - **The lock is kept elsewhere** (Redis, memory, a SQLite file, another server). A row remembers the highest token
///   that a tx here has seen; a smaller one is refused, a larger one raises it, and the row stays
///   locked to the end of the tx (G3). A holder that was replaced is refused as soon as its successor has verified
///   once; so read what you decide by *after* `verify`, in the same tx (on MySQL, whose
///   snapshots begin with the first read, make it the first statement). Two stores that
///   share a name and a prefix share these rows: give them different prefixes.
///
/// **Commit before you release the guard.** A release is a promise that nothing of yours is under
/// way; after it the next holder neither waits for your tx nor shuts it out. If a commit has gone
/// out and its answer is lost, or its future was dropped, it may still be under way: then
/// [`leak`](Guard::leak) the guard instead, and whoever is next waits for the end of its lease and of your tx.
///
/// ```no_run
/// # async fn example(db: &mut tokio_postgres::Client, guard: lockstep_lock::Guard)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use lockstep_sql::tx as sql;
///
/// let mut tx = db.transaction().await?;
/// sql::verify(&mut tx, &guard).await?;
/// tx.execute("UPDATE ledger SET balance = balance - 5", &[]).await?;
/// tx.commit().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`VerifyError::Stale`] is the one that matters.
///
/// # Cancel safety
/// If the future is dropped the tx may or may not hold the row; roll back.
pub fn verify<'a, Via, T: Tx<Via>>(
    tx: &'a mut T,
    guard: &impl AsRef<Guard>,
) -> T::Reply<'a, Result<(), VerifyError>> {
    let guard = guard.as_ref();
    let key = guard.key().clone();
    let Some(token) = guard.token() else { return tx.ready(Err(VerifyError::NoToken { key })) };
    let origin = guard.origin();
    let pass =
        Pass { store: guard.store(), id: origin.id, prefix: &origin.prefix, key: &key, token };
    let Ok(number) = i64::try_from(pass.token.get()) else {
        let error = foreign(T::DIALECT.name(), format!("no column holds the token {token}"));
        return tx.ready(Err(error.into()));
    };
    let question = T::DIALECT.verify(&pass, number);
    tx.ask(question, move |answer| judge(T::DIALECT.name(), key, token, answer))
}

/// Why a tx may not go on with what the lock protects.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// Somebody else has, or has had, the lock since: do not write.
    #[error("lock `{key}` has passed on: this guard's token is {token}, and {seen} has been seen")]
    Stale {
        /// The key.
        key: Key,
        /// The guard's token.
        token: Token,
        /// The one that is in its way.
        seen: Token,
    },
    /// The guard's store does not count, so there is nothing to compare.
    #[error("lock `{key}` has no token: its store does not count, so nobody can tell who is late")]
    NoToken {
        /// The key.
        key: Key,
    },
    /// The database could not be asked, or said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn judge(
    store: &'static str,
    key: Key,
    token: Token,
    answer: Result<Option<String>, Failure>,
) -> Result<(), VerifyError> {
    let answer = answer.map_err(StoreError::from)?.unwrap_or_default();
    if answer == "ok" {
        return Ok(());
    }
    match answer.strip_prefix("stale ").and_then(|seen| seen.parse().ok()) {
        Some(seen) => Err(VerifyError::Stale { key, token, seen: Token::new(seen) }),
        None => Err(foreign(store, format!("unknown answer {answer:?}")).into()),
    }
}

fn foreign(store: &'static str, message: String) -> StoreError {
    StoreError::new(store, ErrorKind::Foreign, Effect::None, message)
}
