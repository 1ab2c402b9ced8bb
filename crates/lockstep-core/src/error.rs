use std::error::Error;
use std::fmt;

/// What a store could not do, and what the caller may conclude from it.
///
/// It answers two questions: *may I ask again?* ([`may_retry`](Self::may_retry)) and *may it have
/// happened all the same?* ([`effect`](Self::effect)). An unknown outcome is its own answer, never
/// a failure.
#[derive(Debug)]
pub struct StoreError {
    kind: ErrorKind,
    effect: Effect,
    store: &'static str,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What kind of trouble it is, by what one does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The store did not answer in time, or the connection is gone: ask again.
    Unavailable,
    /// The store answered that it cannot now (loading, read only, too many connections, deadlock
    /// victim): ask again later.
    Busy,
    /// Wrong password or a missing right: a person must act.
    Denied,
    /// The tables are missing: run `lockstep migrate`.
    NotMigrated,
    /// A URL, option or combination that can never work.
    Config,
    /// The store holds something that we did not write, or answered what we do not understand.
    Foreign,
}

/// Whether the request may have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It certainly changed nothing.
    None,
    /// It may have been carried out.
    Unknown,
}

impl StoreError {
    /// An error of the store `store`; the message says what to do.
    pub fn new(
        store: &'static str,
        kind: ErrorKind,
        effect: Effect,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, effect, store, message: message.into(), source: None }
    }

    /// A URL or option that can never work; nothing was sent.
    pub fn config(store: &'static str, message: impl Into<String>) -> Self {
        Self::new(store, ErrorKind::Config, Effect::None, message)
    }

    /// The same with the driver's own error below it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the request may have taken effect.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Which store said it.
    pub fn store(&self) -> &'static str {
        self.store
    }

    /// Whether asking the same again can help.
    pub fn may_retry(&self) -> bool {
        self.kind.may_retry()
    }
}

impl ErrorKind {
    /// Whether asking the same again can help.
    pub fn may_retry(self) -> bool {
        matches!(self, Self::Unavailable | Self::Busy)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.store, self.message)?;
        if self.effect == Effect::Unknown {
            f.write_str(" (the request may have been carried out)")?;
        }
        Ok(())
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
