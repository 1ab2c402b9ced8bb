//! What SQLite's errors mean to a caller.

use lockstep_core::{Effect, ErrorKind, StoreError};
use rusqlite::ErrorCode;

/// The store's name in errors and facts.
pub(super) const STORE: &str = "sqlite";

/// Why a step on the file did not come to its end.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody else writes; nothing was changed. Worth another try in a moment.
    Locked,
    /// The epoch is not the one that this lane has seen settled; nothing was changed.
    Unsettled,
    /// The epoch has no token left for this key; nothing was changed.
    Exhausted,
    /// For the caller.
    Store(StoreError),
}

impl Failure {
    /// What a failed COMMIT means: its frames may have reached the log.
    pub(super) fn of_commit(error: rusqlite::Error) -> Self {
        match Self::from(error) {
            Self::Store(error) => {
                let message = format!("commit failed: {error}");
                let unknown = StoreError::new(STORE, error.kind(), Effect::Unknown, message);
                Self::Store(unknown.with_source(error))
            }
            other => other,
        }
    }

    pub(super) fn foreign(message: impl Into<String>) -> Self {
        Self::Store(StoreError::new(STORE, ErrorKind::Foreign, Effect::None, message))
    }

    pub(super) fn io(kind: ErrorKind, what: &str, error: std::io::Error) -> Self {
        let message = format!("{what}: {error}");
        Self::Store(StoreError::new(STORE, kind, Effect::None, message).with_source(error))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Every statement but COMMIT runs in a transaction that is rolled back: no effect.
impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let (kind, advice) = match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed,
            ) => return Self::Locked,
            Some(ErrorCode::DiskFull) => (ErrorKind::Busy, "the disk is full"),
            Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
                (ErrorKind::Unavailable, "the system cannot read or write the file")
            }
            Some(
                ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly
                | ErrorCode::AuthorizationForStatementDenied,
            ) => (ErrorKind::Denied, "the file and its folder must be writable"),
            Some(ErrorCode::CannotOpen) => {
                (ErrorKind::Denied, "the file or its folder cannot be opened")
            }
            _ => (ErrorKind::Foreign, "the file is not as this store writes it"),
        };
        let message = format!("{advice} ({error})");
        Self::Store(StoreError::new(STORE, kind, Effect::None, message).with_source(error))
    }
}
