//! Which boot of the machine this is, and what follows from it: whose leases are void, and where
//! tokens go on.
//!
//! Leases are moments of a clock that starts with the machine (it does not stop in sleep and
//! nobody can set it), so they mean something only together with the identity of the boot. After a
//! restart no holder or waiter of the old boot can be alive: all are void.
//!
//! # Why a token never repeats, even when the power fails
//!
//! With `synchronous=normal` a commit survives the crash of every process, but the last commits
//! before a power failure may be gone, and with them the last tokens. A token is therefore
//! `epoch << 32 | counter`. The counter is the row's, as durable as any other commit; the epoch is
//! raised once per boot, and *that* commit is synchronised to the disk before anything is granted.
//! Losing power begins a new boot, so whatever counters were lost belong to an epoch that is over.
//! For the same reason the row of a free lock, which is kept for its token alone, can go whenever
//! the epoch is raised: all later tokens are larger.
//!
//! A commit that is visible need not be durable: whoever raised the epoch may have been killed
//! between write and synchronisation. So the raise leaves the state *raised*, and only who has
//! itself synchronised a commit after it makes that *settled*; nothing is granted before.

use std::path::Path;

use lockstep_core::StoreError;
use rusqlite::{Connection, OptionalExtension};

use super::config::Synchronous;
use super::error::{Failure, STORE};
use super::file;
use super::tx::Tx;

/// The epoch is in the upper half of a token.
pub(super) const EPOCH_SHIFT: u32 = 32;

/// Tokens are kept as SQLite's signed integers.
const LAST_EPOCH: i64 = i64::MAX >> EPOCH_SHIFT;

/// What to do if the file belongs to another boot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherBoot {
    /// When a lane is opened: the machine was restarted since.
    Void,
    /// On a lane that has already seen its own boot there: a second kernel uses the file.
    Refuse,
}

struct Mark {
    boot: String,
    epoch: i64,
    state: i64,
}

const USED_UP: i64 = 0;
const SETTLED: i64 = 2;

/// Makes sure that the file belongs to this boot and that its epoch is durable; answers the epoch.
pub(super) fn settle(
    conn: &Connection,
    boot: &str,
    folder: &Path,
    synchronous: Synchronous,
    other: OtherBoot,
) -> Result<i64, Failure> {
    loop {
        let mark = Mark::read(conn)?;
        if mark.is_settled(boot) {
            return Ok(mark.epoch);
        }
        conn.execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = 1;")?;
        let raised = raise(conn, boot, other);
        conn.execute_batch("PRAGMA fullfsync = 0;")?;
        conn.execute_batch(synchronous.pragma())?;
        let Some(epoch) = raised? else { continue };
        // The commit is on the disk; so must be the file's name, if the file is new.
        file::sync_folder(folder)?;
        conn.execute(include_str!("sql/boot_settle.sql"), (boot, epoch))?;
    }
}

/// Makes the next [`settle`] raise the epoch in the middle of a boot: because it has no tokens
/// left for some key, or because too many free locks are kept for the sake of theirs.
pub(super) fn use_up(conn: &Connection) -> Result<(), Failure> {
    conn.execute(include_str!("sql/boot_use_up.sql"), [])?;
    Ok(())
}

/// Raises the epoch, unless somebody else has done so meanwhile. If it is not known whether that
/// raise has reached the disk, this commit takes it along: raising again and again would let
/// processes that start together chase each other.
fn raise(conn: &Connection, boot: &str, other: OtherBoot) -> Result<Option<i64>, Failure> {
    let tx = Tx::write(conn)?;
    let mark = Mark::read(conn)?;
    let epoch = match mark.state {
        SETTLED if mark.boot == boot => return Ok(None),
        _ if mark.boot != boot => {
            if other == OtherBoot::Refuse {
                return Err(Failure::foreign(
                    "another kernel (a second machine, a virtual machine, a sandbox) has taken \
                     the file over; its clock and ours cannot judge the same leases",
                ));
            }
            conn.execute_batch(include_str!("sql/boot_void.sql"))?;
            mark.epoch + 1
        }
        USED_UP => {
            conn.execute(include_str!("sql/boot_prune.sql"), [])?;
            mark.epoch + 1
        }
        _ => mark.epoch,
    };
    if epoch > LAST_EPOCH {
        return Err(Failure::foreign("the file's tokens are used up: start with a new file"));
    }
    conn.execute(include_str!("sql/boot_raise.sql"), (boot, epoch))?;
    tx.commit()?;
    Ok(Some(epoch))
}

impl Mark {
    fn read(conn: &Connection) -> Result<Self, Failure> {
        conn.query_row(include_str!("sql/boot_load.sql"), [], |row| {
            Ok(Self { boot: row.get(0)?, epoch: row.get(1)?, state: row.get(2)? })
        })
        .optional()?
        .ok_or_else(|| Failure::foreign("the row of lockstep_meta is missing"))
    }

    fn is_settled(&self, boot: &str) -> bool {
        self.boot == boot && self.state == SETTLED
    }
}

/// The identity of this boot of the machine: another one after every restart, the same for all
/// processes of it, whatever is done to the wall clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn boot_id() -> Result<String, StoreError> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    match std::fs::read_to_string(PATH) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Ok(_) => Err(no_boot_id(format!("{PATH} is empty"))),
        Err(error) => Err(no_boot_id(format!("{PATH}: {error}"))),
    }
}

/// The same where there is no `/proc`: XNU names every boot.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn boot_id() -> Result<String, StoreError> {
    const NAME: &str = "kern.bootsessionuuid";
    let output = std::process::Command::new("/usr/sbin/sysctl")
        .args(["-n", NAME])
        .output()
        .map_err(|error| no_boot_id(format!("sysctl: {error}")))?;
    let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if id.is_empty() { Err(no_boot_id(format!("sysctl knows no {NAME}"))) } else { Ok(id) }
}

fn no_boot_id(why: String) -> StoreError {
    StoreError::config(STORE, format!("the identity of this boot cannot be read: {why}"))
}

/// A process with a time namespace of its own reads another clock than its neighbours.
pub(super) fn clock_warning() -> Option<String> {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").ok()?;
    let shifted = offsets.lines().any(|line| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("boottime" | "7")) && words.any(|number| number != "0")
    });
    shifted.then(|| {
        "this process has a time namespace with a clock of its own: it must not share the file \
         with processes outside of it"
            .to_owned()
    })
}
