//! The file before SQLite opens it: where it may lie, whose it is, who may read it.
//!
//! The database file is never opened here. Closing any descriptor of it would drop the locks that
//! SQLite holds on it in this process (POSIX locks belong to the process, not to the descriptor).

use crate::StoreError;
use nix::sys::stat::{Mode, SFlag, mknod};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const OWN_DIRECTORY: u32 = 0o700;
const OWN_FILE: u32 = 0o600;
const WORLD_WRITE: u32 = 0o002;
const NOT_OURS: u32 = 0o077;

/// The database, and the files that SQLite has beside it.
pub(crate) const BESIDE: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// A file that is there and may be opened.
pub(crate) struct Prepared {
    /// Its path, without links.
    pub(crate) path: PathBuf,
    /// Its permission bits before they were tightened.
    pub(crate) loose: Option<u32>,
}

/// Makes the directory where it is missing; refuses it, or the file in it, where that is not safe.
pub(crate) fn directory(given: &Path) -> Result<PathBuf, StoreError> {
    let (parent, name) = split(given)?;
    let parent = own_directory(&parent)?;
    find(&parent.join(name))?;
    Ok(parent)
}

/// Makes directory and file where they are missing, and refuses what is not safe to use.
pub(crate) fn prepare(given: &Path) -> Result<Prepared, StoreError> {
    let (parent, name) = split(given)?;
    let parent = own_directory(&parent)?;
    let path = parent.join(name);
    if find(&path)?.is_none() {
        refuse_lone_log(&path)?;
        create(&path)?;
    }
    let mut loose = None;
    for suffix in BESIDE {
        loose = loose.or(tighten(&beside(&path, suffix))?);
    }
    Ok(Prepared { path, loose })
}

/// A log with something in it belongs to a database that was there.
pub(crate) fn refuse_lone_log(path: &Path) -> Result<(), StoreError> {
    let log = beside(path, "-wal");
    match find(&log)? {
        // Another process may be making both files at this moment.
        Some(found) if found.len() > 0 && find(path)?.is_none() => {
            Err(StoreError::LogWithoutFile { log })
        }
        _ => Ok(()),
    }
}

/// Refuses what others may have written, as [`prepare`] does, and changes nothing; the permission
/// bits that it would take away.
pub(crate) fn looseness(path: &Path) -> Result<Option<u32>, StoreError> {
    let mut loose = None;
    for suffix in BESIDE {
        if let Some(found) = find(&beside(path, suffix))? {
            loose = loose.or(trusted(&beside(path, suffix), &found)?);
        }
    }
    Ok(loose)
}

/// The path without links, of a file that is to be read only; none if there is none.
pub(crate) fn existing(given: &Path) -> Result<Option<PathBuf>, StoreError> {
    let (parent, name) = split(given)?;
    let path = match parent.canonicalize() {
        Ok(parent) => parent.join(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(StoreError::Directory {
                path: parent,
                source,
            });
        }
    };
    Ok(find(&path)?.map(|_| path))
}

/// The file beside the database whose name has `suffix` added.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// The file's metadata if it is there; links and anything but a file are refused.
pub(crate) fn find(path: &Path) -> Result<Option<Metadata>, StoreError> {
    let path = path.to_owned();
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_symlink() => Err(StoreError::Symlink { path }),
        Ok(found) if !found.is_file() => Err(StoreError::NotAFile { path }),
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::Prepare { path, source }),
    }
}

fn split(given: &Path) -> Result<(PathBuf, &std::ffi::OsStr), StoreError> {
    let name = given.file_name().ok_or_else(|| StoreError::NotAFile {
        path: given.to_owned(),
    })?;
    let parent = given
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), name))
}

/// Makes the directory, and returns its path without links.
fn own_directory(path: &Path) -> Result<PathBuf, StoreError> {
    let fail = |source| StoreError::Directory {
        path: path.to_owned(),
        source,
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(OWN_DIRECTORY);
    builder.create(path).map_err(fail)?;
    let real = path.canonicalize().map_err(fail)?;
    let found = real.metadata().map_err(fail)?;
    let (mode, owner) = (found.mode() & 0o7777, found.uid());
    if mode & WORLD_WRITE != 0 || (owner != 0 && owner != us()) {
        let path = real;
        return Err(StoreError::LooseDirectory { path, mode, owner });
    }
    Ok(real)
}

/// Makes an empty file without opening it; fine if another process was quicker.
fn create(path: &Path) -> Result<(), StoreError> {
    match mknod(path, SFlag::S_IFREG, Mode::from_bits_truncate(OWN_FILE), 0) {
        Ok(()) | Err(nix::Error::EEXIST) => Ok(()),
        Err(errno) => Err(StoreError::Prepare {
            path: path.to_owned(),
            source: errno.into(),
        }),
    }
}

/// Takes group and others their rights away; the bits before, if there was something to take.
fn tighten(path: &Path) -> Result<Option<u32>, StoreError> {
    let Some(found) = find(path)? else {
        return Ok(None);
    };
    let Some(mode) = trusted(path, &found)? else {
        return Ok(None);
    };
    let path = path.to_owned();
    match fs::set_permissions(&path, Permissions::from_mode(OWN_FILE)) {
        Ok(()) => Ok(Some(mode)),
        // A file beside the database goes away when the last process closes it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::Prepare { path, source }),
    }
}

/// Refuses a file that others may have written; its permission bits if group or others have any.
fn trusted(path: &Path, found: &Metadata) -> Result<Option<u32>, StoreError> {
    let (mode, owner, us) = (found.mode() & 0o7777, found.uid(), us());
    let path = path.to_owned();
    if owner != us {
        return Err(StoreError::Owner { path, owner, us });
    }
    if mode & WORLD_WRITE != 0 {
        return Err(StoreError::WorldWritable { path, mode });
    }
    Ok((mode & NOT_OURS != 0).then_some(mode))
}

fn us() -> u32 {
    nix::unistd::geteuid().as_raw()
}
