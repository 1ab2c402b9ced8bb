//! Opens a connection on a file that is ours, or becomes ours, and on no other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockstep_core::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::boot::{self, OtherBoot};
use super::config::{Config, Synchronous};
use super::error::{Failure, STORE};
use super::file::{self, FileId};
use super::tx::Tx;

pub(super) const SCHEMA: &str = include_str!("sql/schema.sql");
const FROM_1: &str = include_str!("sql/from_1.sql");
const APPLICATION_ID: i64 = 0x4C73_7470;
const LAYOUT: i64 = 2;

/// Older SQLites can lose commits when two connections checkpoint the log at once.
const OLDEST_SQLITE: i32 = 3_051_003;

/// A lock row is short and a commit writes whole pages: half of SQLite's usual size is faster.
const PAGE_BYTES: u32 = 2048;

/// Where the committing connection itself checkpoints the log, in pages. A lane that must not
/// wait for the disk leaves that to a thread (see `store.rs`), except when the log grows anyway.
const CHECKPOINT_AT: u32 = 1_000;
const CHECKPOINT_AT_LAST: u32 = 4_000;

/// From this size on (32 MiB) the rows of free locks are removed when a lane is opened.
const PRUNE_AT_PAGES: i64 = 16_384;

/// On a thread that may wait.
const PATIENCE: Duration = Duration::from_millis(200);

/// An open file whose epoch is settled.
pub(super) struct Opened {
    pub(super) conn: Connection,
    pub(super) path: PathBuf,
    pub(super) file: FileId,
    pub(super) epoch: i64,
}

enum Found {
    Empty,
    /// Of an earlier layout.
    Earlier,
    Ours,
}

/// Opens the file, makes it ours if it is empty, and settles the epoch of this boot.
pub(super) fn open(config: &Config, boot: &str) -> Result<Opened, Failure> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        let message = format!(
            "SQLite 3.51.3 or newer is needed (older ones can lose commits); this is {}",
            rusqlite::version()
        );
        return Err(StoreError::config(STORE, message).into());
    }
    let path = file::ensure(&config.path)?;
    let before = FileId::of(&path);
    let conn = connect(&path)?;
    conn.busy_timeout(PATIENCE)?;
    conn.set_prepared_statement_cache_capacity(32);
    // Closing a stranger's database must not even clean up its log.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    if matches!(recognise(&conn)?, Found::Empty) {
        conn.execute_batch(&format!("PRAGMA page_size = {PAGE_BYTES}"))?;
    }
    write_ahead(&conn)?;
    conn.execute_batch("PRAGMA synchronous = FULL")?;
    create_tables(&conn)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    let pages = |sql| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    if pages("PRAGMA page_count")? - pages("PRAGMA freelist_count")? > PRUNE_AT_PAGES {
        boot::use_up(&conn)?;
    }
    let folder = file::folder_of(&path);
    let epoch = boot::settle(&conn, boot, folder, config.synchronous, OtherBoot::Void)?;
    use_disk(&conn, config.synchronous)?;
    conn.busy_handler(Some(short_patience))?;
    match FileId::of(&path) {
        Some(file) if before == Some(file) => Ok(Opened { conn, path, file, epoch }),
        // Deleted or replaced between two of our steps: begin again.
        _ => Err(Failure::Locked),
    }
}

/// How commits of this connection use the disk from now on.
pub(super) fn use_disk(conn: &Connection, synchronous: Synchronous) -> rusqlite::Result<()> {
    let checkpoint_at = match synchronous {
        Synchronous::Normal => CHECKPOINT_AT_LAST,
        Synchronous::Full => CHECKPOINT_AT,
    };
    let level = synchronous.pragma();
    conn.execute_batch(&format!("{level}; PRAGMA wal_autocheckpoint = {checkpoint_at}"))
}

/// A connection to a file that exists. The flags exclude SQLite's own URLs, its creating of files
/// and its mutex: ours is enough.
pub(super) fn connect(path: &Path) -> Result<Connection, Failure> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(path, flags)?)
}

/// Moves the log into the database, through a connection of its own, so that no verb waits for the
/// disk. At first without standing in anybody's way; what was written meanwhile, and is therefore
/// little, while writers wait, or the log of a busy file would never end. And a log must not be
/// long: our few pages are in it again and again, and SQLite looks through all their versions.
pub(super) fn checkpoint(path: &Path) -> Result<(), Failure> {
    let conn = connect(path)?;
    let (log, done): (i64, i64) =
        conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get(1)?, row.get(2)?)))?;
    if done < log {
        conn.busy_timeout(PATIENCE)?;
        conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))?;
    }
    Ok(())
}

/// Reads, and changes nothing.
fn recognise(conn: &Connection) -> Result<Found, Failure> {
    // In one transaction, lest somebody creates the tables between two reads.
    let tx = Tx::read(conn)?;
    let number = |sql| tx.conn().query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id")?;
    let layout = number("PRAGMA user_version")?;
    let objects = number("SELECT count(*) FROM sqlite_schema")?;
    tx.commit()?;
    match (application, layout, objects) {
        (APPLICATION_ID, LAYOUT, _) => Ok(Found::Ours),
        (APPLICATION_ID, 1, _) => Ok(Found::Earlier),
        (APPLICATION_ID, newer, _) if newer > LAYOUT => {
            let message = format!(
                "the file has layout {newer}, written by a newer Lockstep; this one knows {LAYOUT}"
            );
            Err(StoreError::config(STORE, message).into())
        }
        (0, 0, 0) => Ok(Found::Empty),
        _ => Err(Failure::foreign(
            "the file is a database of something else; nothing was changed. Name another file",
        )),
    }
}

fn write_ahead(conn: &Connection) -> Result<(), Failure> {
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    let message = "the file system does not let SQLite write ahead (no shared memory); choose a \
                   local one";
    Err(StoreError::config(STORE, message).into())
}

fn create_tables(conn: &Connection) -> Result<(), Failure> {
    if matches!(recognise(conn)?, Found::Ours) {
        return Ok(());
    }
    let tx = Tx::write(conn)?;
    // Again, now that nobody else can write.
    let number = |sql| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    match (number("SELECT count(*) FROM sqlite_schema")?, number("PRAGMA user_version")?) {
        (0, _) => conn.execute_batch(SCHEMA)?,
        (_, 1) => conn.execute_batch(FROM_1)?,
        _ => {}
    }
    tx.commit()
}

/// How a verb waits for another's write, which takes some microseconds: about 1 ms at most,
/// because an executor's thread stands still meanwhile. Longer waits are the caller's, with a timer.
fn short_patience(tries: i32) -> bool {
    const YIELDS: i32 = 10;
    const SLEEPS: i32 = 8;
    if tries < YIELDS {
        std::thread::yield_now();
    } else if tries < YIELDS + SLEEPS {
        // With the timers' slack this is about 0.1 ms.
        #[expect(clippy::disallowed_methods, reason = "SQLite's callback cannot await")]
        std::thread::sleep(Duration::from_micros(50));
    }
    tries < YIELDS + SLEEPS
}
