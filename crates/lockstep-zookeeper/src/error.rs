//! What a failure means, and what one does about it.

use lockstep_core::{Effect, ErrorKind, StoreError};

use crate::client::Failure;
use crate::client::wire::Code;

pub(crate) const STORE: &str = "zookeeper";

/// The error for a request about `path`.
pub(crate) fn failed(failure: Failure, path: &str) -> StoreError {
    match failure {
        Failure::Lost { written, why } => {
            let effect = if written { Effect::Unknown } else { Effect::None };
            StoreError::new(STORE, ErrorKind::Unavailable, effect, format!("no connection: {why}"))
        }
        Failure::Expired => StoreError::new(
            STORE,
            ErrorKind::Unavailable,
            // Whatever it was, it went with the session.
            Effect::None,
            "the session is over; another is made for the next request",
        ),
        Failure::Denied => StoreError::new(
            STORE,
            ErrorKind::Denied,
            Effect::None,
            "the servers refuse this user name and password",
        ),
        Failure::Refused(code) => refused(code, path),
    }
}

fn refused(code: Code, path: &str) -> StoreError {
    let (kind, message) = match code {
        Code::NO_AUTH => (
            ErrorKind::Denied,
            format!("no permission for {path}: give this user all rights on it, or log in"),
        ),
        Code::INVALID_ACL => (
            ErrorKind::Denied,
            format!("the servers do not know this login, so nothing can be made at {path}"),
        ),
        Code::NO_NODE => (ErrorKind::Foreign, format!("{path} went away while it was in use")),
        Code::NO_CHILDREN_FOR_EPHEMERALS => (
            ErrorKind::Foreign,
            format!("{path} is below a node that somebody made ephemeral, so no lock can be there"),
        ),
        Code::UNIMPLEMENTED => (
            ErrorKind::Config,
            "ZooKeeper 3.5 or newer is needed: older ones have no containers".into(),
        ),
        Code::NOT_READ_ONLY => {
            (ErrorKind::Busy, "this server has lost its quorum and only reads".to_owned())
        }
        Code(code) => (ErrorKind::Foreign, format!("answer {code} for {path}")),
    };
    StoreError::new(STORE, kind, Effect::None, message)
}

/// Something that we did not write stands where only locks should be.
pub(crate) fn foreign(directory: &str, child: &str) -> StoreError {
    StoreError::new(
        STORE,
        ErrorKind::Foreign,
        Effect::None,
        format!(
            "{directory} has a child {child:?} that is not of the form this layout writes: whoever \
             made it may believe to hold the lock. Use one form for one path (?layout=)"
        ),
    )
}

/// The chroot of the URL is not there.
pub(crate) fn no_chroot(chroot: &str) -> StoreError {
    StoreError::config(
        STORE,
        format!("{chroot} does not exist: create it, or correct the URL's path"),
    )
}

/// An answer that does not belong to its question.
pub(crate) fn baffled(path: &str) -> StoreError {
    let message = format!("an answer about {path} that does not belong to the question");
    StoreError::new(STORE, ErrorKind::Foreign, Effect::Unknown, message)
}
