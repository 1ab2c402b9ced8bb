//! Guards of a store that is not the database.

use lockstep_lock::memory::Memory;
use lockstep_lock::{Guard, Locks};
use lockstep_sql::tx::VerifyError;

/// A holder that was replaced, and who replaced it. Their store must live as long as they do.
pub async fn late_and_next(key: &str) -> (Guard, Guard, Locks) {
    let locks = Locks::open(Memory::new()).await.unwrap();
    let late = locks.lock(key).await.unwrap();
    assert!(locks.break_lock_now(key, "test").await.unwrap());
    let next = locks.lock(key).await.unwrap();
    (late, next, locks)
}

pub fn stale(result: Result<(), VerifyError>) -> (u64, u64) {
    match result {
        Err(VerifyError::Stale { token, seen, .. }) => (token.get(), seen.get()),
        other => panic!("expected a stale guard, got {other:?}"),
    }
}
