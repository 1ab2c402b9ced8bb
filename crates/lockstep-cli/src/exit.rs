//! Exit codes, and errors as people read them.

use std::error::Error;
use std::process::ExitCode;

use lockstep::{ErrorKind, KeyError, LockError, StoreError};

use crate::duration;

/// For `--help`.
pub(crate) const TABLE: &str = "\
Exit status:
  the command's own; 128+N if signal N ended it
  64   wrong usage
  69   the store cannot be reached, or refuses
  75   the lock was not free in time
  76   the lease was lost: the command was stopped before the lock could pass on
  126  the command cannot be executed
  127  the command was not found";

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u8);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    /// As everywhere: nothing better fits.
    pub(crate) const CANNOT_PRINT: Self = Self(1);
    /// An operator asked for something that is not there.
    pub(crate) const NOTHING_THERE: Self = Self(1);
    pub(crate) const USAGE: Self = Self(64);
    pub(crate) const STORE: Self = Self(69);
    pub(crate) const NOT_ACQUIRED: Self = Self(75);
    pub(crate) const LOST: Self = Self(76);
    pub(crate) const CANNOT_EXECUTE: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// As shells tell of a process that a signal has ended.
    pub(crate) fn of_signal(number: i32) -> Self {
        Self(128_u8.saturating_add(u8::try_from(number).unwrap_or(u8::MAX)))
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}

/// Why a command did not do what was asked, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::USAGE, message)
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Store(error) => error.into(),
            LockError::Name(error) => error.into(),
            LockError::Ttl { ttl, min, max, store } => {
                let [ttl, min, max] = [ttl, min, max].map(duration::text);
                let message = format!("on {store} a ttl is between {min} and {max}, not {ttl}");
                Self::usage(message).hint("set it with `--ttl`")
            }
            LockError::TimedOut { .. } => Self::new(Code::NOT_ACQUIRED, error.to_string()),
            LockError::Unmet { .. } | LockError::Differs { .. } | LockError::Permits { .. } => {
                Self::usage(error.to_string())
            }
            LockError::Lost(_) | LockError::NotHeld { .. } => {
                Self::new(Code::LOST, error.to_string())
            }
            error => Self::new(Code::STORE, error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = if error.kind() == ErrorKind::Config { Code::USAGE } else { Code::STORE };
        let failure = Self::new(code, with_causes(&error));
        let hint = match error.kind() {
            ErrorKind::Unavailable => "is it running, and reachable from here?",
            ErrorKind::Busy => "try again in a moment",
            ErrorKind::Denied => "check the user, the password and the rights",
            ErrorKind::NotMigrated => "create the tables with `lockstep migrate`",
            ErrorKind::Config | ErrorKind::Foreign => return failure,
        };
        failure.hint(hint)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::usage(error.to_string())
    }
}

/// The error and what is below it, as far as that adds anything.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockstep::{Effect, Key, Lost, LostCause};

    use super::*;

    fn code(error: impl Into<Failure>) -> u8 {
        error.into().code.0
    }

    #[test]
    fn every_lock_error_has_the_code_of_the_contract() {
        let key = Key::new("job").unwrap();
        let second = Duration::from_secs(1);
        let timed_out = LockError::TimedOut { key: key.clone(), waited: second, ahead: Some(1) };
        assert_eq!(code(timed_out), 75);
        assert_eq!(code(LockError::Lost(Lost { key: key.clone(), cause: LostCause::Taken })), 76);
        assert_eq!(code(LockError::NotHeld { key }), 76);
        assert_eq!(code(LockError::Name(KeyError::Empty)), 64);
        let ttl = LockError::Ttl { ttl: second, min: second * 2, max: second * 3, store: "memory" };
        assert_eq!(code(ttl), 64);
        assert_eq!(code(LockError::Closed), 69);
    }

    #[test]
    fn every_store_error_is_69_but_for_a_url_that_can_never_work() {
        let of = |kind| StoreError::new("redis", kind, Effect::None, "no");
        for kind in [
            ErrorKind::Unavailable,
            ErrorKind::Busy,
            ErrorKind::Denied,
            ErrorKind::NotMigrated,
            ErrorKind::Foreign,
        ] {
            assert_eq!(code(of(kind)), 69, "{kind:?}");
        }
        assert_eq!(code(of(ErrorKind::Config)), 64);
        assert_eq!(code(LockError::Store(of(ErrorKind::Config))), 64);
    }

    #[test]
    fn signals_count_from_128() {
        assert_eq!(Code::of_signal(9), Code(137));
    }

    #[test]
    fn causes_are_told_once() {
        let cause = std::io::Error::other("connection refused");
        let error = StoreError::config("redis", "cannot connect").with_source(cause);
        assert_eq!(with_causes(&error), "redis: cannot connect: connection refused");
        let cause = std::io::Error::other("refused");
        let error = StoreError::config("redis", "refused").with_source(cause);
        assert_eq!(with_causes(&error), "redis: refused");
    }
}
