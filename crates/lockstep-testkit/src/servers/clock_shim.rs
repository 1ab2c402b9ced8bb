//! A server whose wall clock is wrong, and jumps when told to.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::programs;

const SOURCE: &str = include_str!("clock_shim.c");
/// The variable through which the shim finds its clock.
const CLOCK_FILE: &str = "LOCKSTEP_CLOCK_FILE";

/// A shared object that shifts the wall clock of a server it is preloaded into.
///
/// ```no_run
/// use lockstep_testkit::servers::{ClockShim, RedisOptions, RedisServer};
///
/// let folder = tempfile::tempdir()?;
/// let shim = ClockShim::build(folder.path())?;
/// let clock = shim.clock_file(folder.path().join("clock"))?;
/// clock.set(-5_000)?; // five seconds behind from the start
/// let server = RedisServer::start(RedisOptions {
///     preload: Some(shim.so.clone()),
///     env: vec![clock.env()],
///     ..RedisOptions::default()
/// })?;
/// clock.set(3_000)?; // and now three ahead
/// # drop(server);
/// # anyhow::Ok(())
/// ```
#[derive(Debug, Clone)]
pub struct ClockShim {
    /// The shared object, for a server's `preload`.
    pub so: PathBuf,
}

impl ClockShim {
    /// Compiles the shim into this folder.
    pub fn build(folder: &Path) -> Result<ClockShim> {
        Ok(ClockShim { so: programs::compile(folder, "clock_shim", SOURCE)? })
    }

    /// A clock, right at first, that lives in this file.
    pub fn clock_file(&self, path: impl Into<PathBuf>) -> Result<SkewedClock> {
        let path = path.into();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let clock = SkewedClock { path: path.canonicalize()?, file };
        clock.set(0)?;
        Ok(clock)
    }
}

/// How far the wall clock of a server is from the truth. Several servers may share one.
#[derive(Debug)]
pub struct SkewedClock {
    path: PathBuf,
    file: File,
}

impl SkewedClock {
    /// Steps the clock so that it now is this far ahead of the true one, or behind it.
    pub fn set(&self, millis: i64) -> Result<()> {
        // Never truncated and written anew: servers have it mapped, and would die of the gap.
        self.file.write_all_at(&millis.to_ne_bytes(), 0).context("cannot step the clock")
    }

    /// The environment variable that makes a server follow this clock.
    pub fn env(&self) -> (OsString, OsString) {
        (CLOCK_FILE.into(), self.path.clone().into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;
    use crate::servers::{RedisOptions, RedisServer};

    /// Milliseconds that the server's clock is ahead; the answer takes far less than a second.
    fn ahead(server: &RedisServer) -> i64 {
        let answer = server.ask(&["TIME"]).unwrap();
        let numbers: Vec<i64> = answer.lines().filter_map(|line| line.parse().ok()).collect();
        let truth = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        numbers[0] * 1_000 + numbers[1] / 1_000 - i64::try_from(truth).unwrap()
    }

    fn assert_ahead(server: &RedisServer, millis: i64) {
        let ahead = ahead(server);
        assert!((ahead - millis).abs() < 1_000, "{ahead} ms ahead instead of {millis}");
    }

    #[test]
    fn a_server_starts_behind_and_is_stepped_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let shim = ClockShim::build(folder.path()).unwrap();
        let clock = shim.clock_file(folder.path().join("clock")).unwrap();
        clock.set(-5_000).unwrap();
        let mut server = RedisServer::start(RedisOptions {
            preload: Some(shim.so.clone()),
            env: vec![clock.env()],
            ..RedisOptions::default()
        })
        .unwrap();
        assert_ahead(&server, -5_000);
        clock.set(60_000).unwrap();
        assert_ahead(&server, 60_000);
        server.restart().unwrap();
        assert_ahead(&server, 60_000);

        // What it is for: an expiry that depends on the wall clock ends early or late.
        server.ask(&["SET", "key", "value", "PX", "30000"]).unwrap();
        assert_eq!(server.ask(&["EXISTS", "key"]).unwrap(), ":1\r\n");
        clock.set(100_000).unwrap();
        assert_eq!(server.ask(&["EXISTS", "key"]).unwrap(), ":0\r\n");

        clock.set(0).unwrap();
        assert_ahead(&server, 0);
    }

    #[test]
    fn a_shim_without_its_clock_refuses_to_run() {
        let folder = tempfile::tempdir().unwrap();
        let shim = ClockShim::build(folder.path()).unwrap();
        let error = RedisServer::start(RedisOptions {
            preload: Some(shim.so),
            env: vec![(CLOCK_FILE.into(), folder.path().join("nothing").into())],
            ..RedisOptions::default()
        });
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains("cannot open LOCKSTEP_CLOCK_FILE"), "{error}");
    }
}
