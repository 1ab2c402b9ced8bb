//! What an error of the connection or of etcd means to who asked.

use lockstep_core::{Effect, ErrorKind, StoreError};
use tonic::{Code, Status};

/// This store's name in errors and facts.
pub(crate) const STORE: &str = "etcd";

/// Why a call has no answer.
pub(crate) enum Failure {
    /// The lease that was named is gone: run out or revoked.
    LeaseGone,
    /// Anything else.
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => error,
            Failure::LeaseGone => Self::new(
                STORE,
                ErrorKind::Unavailable,
                Effect::None,
                "the lease of this handle is gone, and so is the one that replaced it",
            ),
        }
    }
}

/// Whether the connection had better be given up: it, or the member at its end, does not serve.
pub(crate) fn is_the_connections_fault(status: &Status) -> bool {
    match status.code() {
        Code::PermissionDenied
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::ResourceExhausted
        | Code::AlreadyExists
        | Code::Unimplemented => false,
        // An old token is replaced by dialing anew.
        Code::InvalidArgument => status.message().contains("auth token"),
        _ => true,
    }
}

/// A call was sent, and came back like this.
pub(crate) fn answered(status: &Status, address: &str) -> Failure {
    let told = status.message();
    let says = |words: &str| told.contains(words);
    let (kind, effect, message) = match status.code() {
        Code::NotFound if says("lease not found") => return Failure::LeaseGone,
        Code::PermissionDenied => (
            ErrorKind::Denied,
            Effect::None,
            format!(
                "{address}: the user lacks a right ({told}); it needs to read and write the keys under the lock's name"
            ),
        ),
        Code::InvalidArgument | Code::Unauthenticated if says("auth token") => (
            ErrorKind::Unavailable,
            Effect::None,
            format!("{address}: the login has run out ({told}) and is repeated"),
        ),
        Code::InvalidArgument if says("user name is empty") => (
            ErrorKind::Denied,
            Effect::None,
            format!("{address} wants a user: write etcd://user:password@…"),
        ),
        Code::InvalidArgument | Code::Unauthenticated | Code::FailedPrecondition
            if says("auth") || says("user") =>
        {
            (ErrorKind::Denied, Effect::None, format!("{address} refused the login: {told}"))
        }
        Code::ResourceExhausted => {
            (ErrorKind::Busy, Effect::None, format!("{address} cannot take more now: {told}"))
        }
        Code::Unimplemented => (
            ErrorKind::Config,
            Effect::None,
            format!("{address} does not answer like etcd 3.4 or newer ({told}): check the URL"),
        ),
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition | Code::NotFound => {
            (ErrorKind::Foreign, Effect::Unknown, format!("{address} refused the request: {told}"))
        }
        _ => (
            ErrorKind::Unavailable,
            Effect::Unknown,
            format!("{address} did not carry it out: {}", words(status)),
        ),
    };
    Failure::Store(StoreError::new(STORE, kind, effect, message))
}

/// The words of a status; those of a broken connection are in what caused it.
fn words(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// No answer came in time.
pub(crate) fn silent(address: &str) -> StoreError {
    let message = format!("{address} did not answer in time");
    StoreError::new(STORE, ErrorKind::Unavailable, Effect::Unknown, message)
}

/// A connection could not be made; nothing of ours was sent.
pub(crate) fn unreachable(message: impl Into<String>) -> StoreError {
    StoreError::new(STORE, ErrorKind::Unavailable, Effect::None, message)
}

/// There is something that we did not write and cannot wait for.
pub(crate) fn foreign(message: impl Into<String>) -> StoreError {
    StoreError::new(STORE, ErrorKind::Foreign, Effect::None, message)
}

/// etcd answered what we do not understand.
pub(crate) fn baffled(what: &str) -> StoreError {
    StoreError::new(STORE, ErrorKind::Foreign, Effect::Unknown, format!("no {what} in the answer"))
}
