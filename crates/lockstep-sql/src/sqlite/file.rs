//! The database file as a file: made, named, recognised.
//!
//! Nothing here opens an existing database: closing any descriptor of it would drop the locks that
//! SQLite holds on it for the whole process.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lockstep_core::{ErrorKind, StoreError};
use uuid::Uuid;

use super::error::{Failure, STORE};

/// Which file a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// `None` if there is nothing at the path.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let stat = rustix::fs::stat(path).ok()?;
        // The widths of these fields differ between systems.
        #[allow(clippy::unnecessary_cast)]
        Some(Self { device: stat.st_dev as u64, inode: stat.st_ino as u64 })
    }
}

/// Makes an empty file that only its owner can read, if there is none; answers its one true path.
pub(super) fn ensure(path: &Path) -> Result<PathBuf, Failure> {
    let folder = folder_of(path);
    if !folder.is_dir() {
        let message = format!("the folder {} does not exist; make it first", folder.display());
        return Err(StoreError::config(STORE, message).into());
    }
    if !path.exists() {
        if path.is_symlink() {
            let message = format!("{} is a link that leads nowhere", path.display());
            return Err(StoreError::config(STORE, message).into());
        }
        create(path).map_err(|error| {
            Failure::io(ErrorKind::Denied, &format!("cannot create {}", path.display()), error)
        })?;
    }
    // Every process must find the same log and the same wake-up pipes, by whichever link it came.
    path.canonicalize().map_err(|error| {
        Failure::io(ErrorKind::Denied, &format!("cannot find {}", path.display()), error)
    })
}

/// The file gets its name when its descriptor is closed again, so that no other connection of this
/// process can have had locks on it.
fn create(path: &Path) -> io::Result<()> {
    let private = |path: &Path| {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
    };
    let draft = folder_of(path).join(format!(".lockstep-{}.new", Uuid::new_v4().simple()));
    private(&draft)?;
    let linked = std::fs::hard_link(&draft, path);
    std::fs::remove_file(&draft)?;
    // Some file systems have no links.
    let made = linked.or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        _ => private(path),
    });
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Makes the missing folders above `path`, for their owner alone.
pub(super) fn create_folders(path: &Path) -> Result<(), StoreError> {
    let missing: Vec<&Path> =
        path.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        let made = match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
        made.and_then(|()| sync(folder_of(folder))).map_err(|error| {
            let message = format!("cannot create the folder {}: {error}", folder.display());
            StoreError::config(STORE, message).with_source(error)
        })?;
    }
    Ok(())
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Failure> {
    sync(folder).map_err(|error| {
        let what = format!("cannot synchronise {}", folder.display());
        Failure::io(ErrorKind::Unavailable, &what, error)
    })
}

fn sync(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some file systems cannot synchronise folders, and have nothing to synchronise.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

/// The folder of an absolute path.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Why the file system under `path` may not keep SQLite's promises.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn file_system_warning(path: &Path) -> Option<String> {
    let stat = rustix::fs::statfs(path).ok()?;
    #[allow(clippy::unnecessary_cast)]
    let name = match stat.f_type as u32 {
        0x0000_6969 => "NFS",
        0x0000_517B | 0xFE53_4D42 | 0xFF53_4D42 => "SMB/CIFS",
        0x0102_1997 => "9p",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x00C3_6400 => "Ceph",
        0x6573_5546 => "FUSE",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x7375_7245 => "Coda",
        0x786F_4256 => "a VirtualBox folder",
        _ => return None,
    };
    Some(format!(
        "{} is on {name}, which may be shared with other machines: SQLite's locks and ours hold \
         between the processes of one kernel only",
        path.display()
    ))
}

/// Elsewhere file systems have no numbers to know them by.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn file_system_warning(_: &Path) -> Option<String> {
    None
}
