use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

/// A number that nobody protects: it is read, then everybody else may run, then it is written.
/// Under a lock that works it ends at the number of acknowledged increments.
#[derive(Debug)]
pub struct Counter(Place);

#[derive(Debug)]
enum Place {
    Memory(AtomicU64),
    File(PathBuf),
}

/// Increments that others have overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostUpdates {
    /// How many increments were acknowledged.
    pub acknowledged: u64,
    /// What the counter says.
    pub value: u64,
}

impl Counter {
    /// A counter for the tasks of one process.
    pub fn in_memory() -> Self {
        Self(Place::Memory(AtomicU64::new(0)))
    }

    /// A counter in a file, for several processes.
    pub fn in_file(path: impl Into<PathBuf>) -> Self {
        Self(Place::File(path.into()))
    }

    /// Reads, lets others run, writes.
    ///
    /// # Errors
    /// The file cannot be read or written, or another writer has left half a number in it.
    pub async fn increment(&self) -> Result<u64> {
        let value = self.value()? + 1;
        tokio::task::yield_now().await;
        self.write(value)?;
        Ok(value)
    }

    /// Writes what an earlier [`value`](Self::value) led to.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, value: u64) -> Result<()> {
        match &self.0 {
            Place::Memory(cell) => cell.store(value, Ordering::Relaxed),
            Place::File(path) => std::fs::write(path, value.to_string())
                .with_context(|| format!("cannot write {}", path.display()))?,
        }
        Ok(())
    }

    /// What it says now.
    ///
    /// # Errors
    /// The file cannot be read, or another writer has left half a number in it.
    pub fn value(&self) -> Result<u64> {
        match &self.0 {
            Place::Memory(cell) => Ok(cell.load(Ordering::Relaxed)),
            Place::File(path) if !path.exists() => Ok(0),
            Place::File(path) => {
                let text = std::fs::read_to_string(path)?;
                text.parse().with_context(|| format!("half a number: {text:?}"))
            }
        }
    }

    /// Whether every acknowledged increment is in it.
    ///
    /// # Errors
    /// [`LostUpdates`], or the counter cannot be read.
    pub fn check(&self, acknowledged: u64) -> Result<()> {
        let value = self.value()?;
        if value != acknowledged {
            return Err(LostUpdates { acknowledged, value }.into());
        }
        Ok(())
    }
}

impl fmt::Display for LostUpdates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, value } = self;
        write!(f, "{acknowledged} increments were acknowledged, and the counter says {value}")
    }
}

impl std::error::Error for LostUpdates {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a lock the counter must lose something, or it could not show that a lock works.
    #[tokio::test]
    async fn two_without_a_lock_lose_an_update() {
        let folder = tempfile::tempdir().unwrap();
        for counter in [Counter::in_memory(), Counter::in_file(folder.path().join("n"))] {
            let (one, other) = tokio::join!(counter.increment(), counter.increment());
            assert_eq!((one.unwrap(), other.unwrap()), (1, 1));
            let error = counter.check(2).unwrap_err();
            let lost = LostUpdates { acknowledged: 2, value: 1 };
            assert_eq!(error.downcast_ref(), Some(&lost));
            counter.check(1).unwrap();
        }
    }
}
