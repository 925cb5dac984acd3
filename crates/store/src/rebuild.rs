//! A new state file in place of one that is damaged or gone. The old one is moved aside, never
//! deleted and never changed.

use crate::error::{ReserveError, StoreError};
use crate::file::{self, BESIDE};
use crate::rows;
use crate::store::Store;
use crate::types::{BootId, Decision, Request};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use podrail_core::ids::SlotId;
use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where SQLite's shared locks are (`SHARED_FIRST`, `SHARED_SIZE` in `os_unix.c`): in WAL mode every
/// open connection holds one.
const SHARED: (i64, i64) = (0x4000_0000 + 2, 510);

const WRITING: &str = "writing what was found";

/// What a new file is to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Sandboxes with their rails and addresses, the oldest first.
    pub held: Vec<Held>,
    /// Slots that wait to be bound, from `at` on.
    pub waiting: Vec<SlotId>,
    /// How many slots the kubelet was told of, at least.
    pub slots: u16,
    /// GPUs and rails as they are now, as JSON text.
    pub topology: Option<String>,
    /// Now, in seconds since 1970.
    pub at: i64,
}

/// What one sandbox holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Who.
    pub request: Request,
    /// What.
    pub decision: Decision,
    /// Attached to its end; else it counts as pending.
    pub ready: bool,
}

impl Store {
    /// Makes a new file with this content in place of the one at `path`, if there is one. That one
    /// and the files beside it get `suffix` behind their names. Returns their new paths.
    ///
    /// To be called while no sandbox is being attached or detached.
    ///
    /// # Guarantees
    /// The old files are moved, not changed. Half-way (killed, power loss): the old file is at its
    /// place, or there is none (a log that is left alone is refused by [`Store::open`]), or the new
    /// one is there whole; never a part of it. Twice: what the first one made is moved aside too.
    ///
    /// # Errors
    /// The new file could not be made, with the old one at its place; another process has the old
    /// one open; a file could not be moved.
    pub fn rebuild(
        path: &Path,
        boot: &BootId,
        content: &Content,
        suffix: &str,
    ) -> Result<Vec<PathBuf>, ReserveError<Infallible>> {
        let dir = file::directory(path)?;
        let name = path.file_name().ok_or_else(|| StoreError::NotAFile {
            path: path.to_owned(),
        })?;
        let path = dir.join(name);
        let new = file::beside(&path, ".new");
        make(&new, boot, content)?;
        // Until here nothing of the old file was touched.
        let claim = Claim::on(&path)?;
        let moved = move_aside(&path, suffix)?;
        rename(&new, &path)?;
        sync(&dir, &path)?;
        drop(claim);
        Ok(moved)
    }

    /// Writes the content into a new file, in one transaction.
    fn fill(&mut self, content: &Content) -> Result<(), ReserveError<Infallible>> {
        let Self { conn, at } = self;
        let fail = |error| at.fail(WRITING, error);
        let tx = at.begin(conn, WRITING)?;
        for one in &content.held {
            let sandbox = &one.request.sandbox;
            rows::decision(&tx, &one.request, &one.decision, &at.boot)
                .map_err(|refused| at.refused(sandbox, refused))?;
            if one.ready {
                rows::mark_ready(&tx, sandbox).map_err(fail)?;
            }
        }
        rows::wait(&tx, &content.waiting, content.at).map_err(fail)?;
        rows::grow_slots(&tx, &at.boot, content.slots).map_err(fail)?;
        if let Some(text) = &content.topology {
            rows::keep_topology(&tx, &at.boot, text).map_err(fail)?;
        }
        Ok(tx.commit().map_err(fail)?)
    }
}

/// Makes the new file whole, and leaves nothing beside it: closing it copies the log.
fn make(new: &Path, boot: &BootId, content: &Content) -> Result<(), ReserveError<Infallible>> {
    for suffix in BESIDE {
        remove(&file::beside(new, suffix))?;
    }
    let mut made = Store::open(new, boot)?.store;
    made.fill(content)?;
    drop(made);
    match file::find(&file::beside(new, "-wal"))? {
        None => Ok(()),
        Some(_) => Err(StoreError::LogWithoutFile {
            log: file::beside(new, "-wal"),
        }
        .into()),
    }
}

/// What a killed rebuild left under the name of a new file, which nobody else has.
fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::Prepare {
            path: path.to_owned(),
            source: error,
        }),
        _ => Ok(()),
    }
}

/// Sees to it that nobody has the database open, and that nobody starts to use it: whoever opens it
/// now waits for its lock.
struct Claim(#[expect(dead_code, reason = "held for its lock")] Option<File>);

impl Claim {
    fn on(path: &Path) -> Result<Self, StoreError> {
        if file::find(path)?.is_none() {
            return Ok(Self(None));
        }
        let failed = |source| StoreError::Prepare {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC);
        let found = options.open(path).map_err(failed)?;
        match fcntl(&found, FcntlArg::F_OFD_SETLK(&shared_lock())) {
            Ok(_) => Ok(Self(Some(found))),
            Err(Errno::EAGAIN | Errno::EACCES) => Err(StoreError::InUse {
                path: path.to_owned(),
                process: holder(&found),
            }),
            Err(errno) => Err(failed(errno.into())),
        }
    }
}

fn shared_lock() -> nix::libc::flock {
    nix::libc::flock {
        l_type: nix::libc::F_WRLCK as i16,
        l_whence: nix::libc::SEEK_SET as i16,
        l_start: SHARED.0,
        l_len: SHARED.1,
        l_pid: 0,
    }
}

/// Who holds a lock; none if it is gone by now, or not seen from this PID namespace.
fn holder(file: &File) -> Option<i32> {
    let mut lock = shared_lock();
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).ok()?;
    let held = i32::from(lock.l_type) != nix::libc::F_UNLCK;
    (held && lock.l_pid > 0).then_some(lock.l_pid)
}

/// The database first: without it nobody takes the files beside it for its own.
fn move_aside(path: &Path, suffix: &str) -> Result<Vec<PathBuf>, StoreError> {
    let free = free_name(path, suffix);
    let mut moved = vec![];
    for part in BESIDE {
        let from = file::beside(path, part);
        if file::find(&from)?.is_some() {
            let to = file::beside(&free, part);
            rename(&from, &to)?;
            moved.push(to);
        }
    }
    Ok(moved)
}

/// A name that no file has: an earlier one is not written over.
fn free_name(path: &Path, suffix: &str) -> PathBuf {
    let taken = |name: &PathBuf| {
        let mut parts = BESIDE.iter();
        parts.any(|part| fs::symlink_metadata(file::beside(name, part)).is_ok())
    };
    let mut name = file::beside(path, suffix);
    for number in 2_u32.. {
        if !taken(&name) {
            break;
        }
        name = file::beside(path, &format!("{suffix}-{number}"));
    }
    name
}

fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(|source| StoreError::Move {
        path: from.to_owned(),
        to: to.to_owned(),
        source,
    })
}

fn sync(dir: &Path, path: &Path) -> Result<(), StoreError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|source| StoreError::Prepare {
        path: path.to_owned(),
        source,
    })
}
