//! Files in the CDI directory: written whole or not at all, removed by their owner only.
//!
//! Runtimes watch the directory and read a file again when it is renamed, removed or written, so a
//! file is written under a name that they do not read (it ends in `.tmp`), synced, and renamed
//! inside the directory. Writers and removers exclude each other by a lock on the directory itself,
//! so the owner of a file cannot change between the look and the removal, and a temporary file that
//! is seen under the lock was left by a killed process.
//!
//! Deliberately absent: who should own a slot.

use crate::faults;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat, renameat};
use nix::poll::{PollTimeout, poll};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, fsync, mkdir, unlinkat};
use podrail_core::cdi::{self, Owner, SlotFile};
use podrail_core::ids::{SandboxId, SlotId};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

mod device;
mod error;

pub use device::{DeviceProblem, check_devices};
pub use error::CdiFileError;

/// Where runtimes look for files that change while the node runs; empty after a boot.
pub const DIRECTORY: &str = "/var/run/cdi";

/// Everybody may read, the owner may write: what runtimes expect.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);
const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o755);
/// Tries to get the lock, and the pause between them: five seconds, where a holder needs
/// milliseconds.
const LOCK_TRIES: u32 = 250;
const LOCK_PAUSE_MS: u8 = 20;
/// End of the names of temporary files.
const TEMPORARY: &str = ".tmp";

/// A CDI directory, resolved once: what happens later happens in this one, even if somebody puts
/// another at its path.
#[derive(Debug)]
pub struct CdiDir {
    fd: OwnedFd,
    path: PathBuf,
}

/// A file with a name of ours.
#[derive(Debug)]
pub struct Found {
    /// The slot that its name says.
    pub slot: SlotId,
    /// Its owner, or why it cannot be told.
    pub owner: Result<Owner, CdiFileError>,
}

/// What a removal found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// The file was there and is gone.
    Removed,
    /// There was none.
    Absent,
    /// It is of another sandbox (none if it cannot be read) and stays.
    OfAnother(Option<SandboxId>),
}

impl CdiDir {
    /// Opens the directory; makes it, with mode 0755, if it is missing.
    ///
    /// # Errors
    /// It cannot be made or opened, or is a symlink. Symlinks above it (`/var/run`) are followed.
    ///
    /// # Guarantees
    /// Twice: the second call finds what the first made. A directory that exists keeps its mode.
    pub fn create(path: &Path) -> Result<Self, CdiFileError> {
        if let Some(found) = Self::open(path)? {
            return Ok(found);
        }
        let failed = |source| CdiFileError::directory(path, source);
        if let Some(parent) = path.parent() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(DIRECTORY_MODE.bits());
            builder.create(parent).map_err(failed)?;
        }
        let made = match mkdir(path, DIRECTORY_MODE) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(errno) => return Err(failed(errno.into())),
        };
        let found = Self::open(path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        if made {
            // The umask may have taken bits away.
            fchmod(&found.fd, DIRECTORY_MODE).map_err(|errno| failed(errno.into()))?;
        }
        Ok(found)
    }

    /// Opens the directory, if it is there.
    ///
    /// # Errors
    /// It cannot be opened, or is a symlink.
    pub fn open(path: &Path) -> Result<Option<Self>, CdiFileError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match nix::fcntl::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self {
                fd,
                path: path.to_owned(),
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(CdiFileError::directory(path, errno.into())),
        }
    }

    /// Writes those files of a sandbox whose slots are its own, and returns the slots that are not.
    /// What stood under the names that are written is replaced, whoever owned it.
    ///
    /// `own` is asked under the lock of the directory. So a slot that is given away at this moment
    /// ends as its new owner wants it, if who gives it away or takes it notes that before coming to
    /// the directory: either `own` knows already, or the other one comes after this.
    ///
    /// # Guarantees
    /// - All or nothing: after an error none of these files is there (the former owner's are gone
    ///   too, since the slots are no longer its own). Files of slots that are not the sandbox's own
    ///   are not touched.
    /// - Twice: the same files.
    /// - Half-way (killed): each file is whole or absent; a temporary file may be left, which the
    ///   next write or removal of the slot, or [`sweep`](Self::sweep), removes.
    ///
    /// # Errors
    /// The failing file by its path; whatever `own` fails with, with nothing done.
    pub fn write<E: From<CdiFileError>>(
        &self,
        files: &[SlotFile],
        own: impl FnOnce() -> Result<BTreeSet<SlotId>, E>,
    ) -> Result<Vec<SlotId>, E> {
        let _lock = self.lock()?;
        let own = own()?;
        let is_own = |file: &&SlotFile| own.contains(&file.slot);
        let (ours, others): (Vec<&SlotFile>, Vec<_>) = files.iter().partition(is_own);
        self.write_all(&ours)?;
        Ok(others.into_iter().map(|file| file.slot).collect())
    }

    /// To be called with the lock held.
    fn write_all(&self, files: &[&SlotFile]) -> Result<(), CdiFileError> {
        let written = files
            .iter()
            .enumerate()
            .try_for_each(|(number, file)| self.write_one(number, file));
        let written = written.and_then(|()| self.sync());
        if written.is_err() {
            for file in files {
                // The first failure is told; a file that stays is removed with its sandbox.
                let _ = self.unlink(&file.name());
                let _ = self.unlink(&temporary(file.slot));
            }
        }
        written
    }

    fn write_one(&self, number: usize, file: &SlotFile) -> Result<(), CdiFileError> {
        let (temporary, name) = (temporary(file.slot), file.name());
        let failed = |source| self.error("write", &name, source);
        self.unlink(&temporary)?;
        self.write_text(&temporary, &file.text).map_err(failed)?;
        faults::reach("cdi-temporary", number).map_err(CdiFileError::Injected)?;
        renameat(&self.fd, temporary.as_str(), &self.fd, name.as_str())
            .map_err(|errno| failed(errno.into()))?;
        faults::reach("cdi", number).map_err(CdiFileError::Injected)
    }

    fn write_text(&self, name: &str, text: &str) -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let fd = openat(&self.fd, name, flags | OFlag::O_CLOEXEC, FILE_MODE)?;
        // The umask may have taken bits away.
        fchmod(&fd, FILE_MODE)?;
        let mut file = File::from(fd);
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Removes a slot's file, whoever owns it: for a slot that is given out anew. Whether there was
    /// one.
    ///
    /// # Errors
    /// The file cannot be removed.
    ///
    /// # Guarantees
    /// Twice: the second call finds nothing.
    pub fn remove(&self, slot: SlotId) -> Result<bool, CdiFileError> {
        Ok(self.remove_if(slot, |_| true)? == Removal::Removed)
    }

    /// Removes a slot's file if it is of this sandbox.
    ///
    /// # Errors
    /// The file cannot be removed. One that cannot be read is not of this sandbox.
    ///
    /// # Guarantees
    /// Twice: the second call finds nothing. A file that a newer sandbox wrote stays, even if it is
    /// written at this moment.
    pub fn remove_if_owner(
        &self,
        slot: SlotId,
        sandbox: &SandboxId,
    ) -> Result<Removal, CdiFileError> {
        self.remove_if(slot, |owner| owner == Some(sandbox))
    }

    /// Removes a slot's file if its owner cannot be told: damaged, or somebody else's under our
    /// name.
    ///
    /// # Errors
    /// The file cannot be removed.
    ///
    /// # Guarantees
    /// As of [`remove_if_owner`](Self::remove_if_owner).
    pub fn remove_if_damaged(&self, slot: SlotId) -> Result<Removal, CdiFileError> {
        self.remove_if(slot, |owner| owner.is_none())
    }

    fn remove_if(
        &self,
        slot: SlotId,
        wanted: impl FnOnce(Option<&SandboxId>) -> bool,
    ) -> Result<Removal, CdiFileError> {
        let _lock = self.lock()?;
        // No runtime reads it, so one that cannot be removed (EROFS comes before ENOENT) holds up nothing.
        let _ = self.unlink(&temporary(slot));
        let name = cdi::file_name(slot);
        let owner = match self.owner(&name) {
            Ok(None) => return Ok(Removal::Absent),
            Ok(Some(owner)) => Some(owner.sandbox),
            Err(_) => None,
        };
        if !wanted(owner.as_ref()) {
            return Ok(Removal::OfAnother(owner));
        }
        let removed = self.unlink(&name)?;
        faults::reach("cdi-removed", slot.0.into()).map_err(CdiFileError::Injected)?;
        self.sync()?;
        Ok(if removed {
            Removal::Removed
        } else {
            Removal::Absent
        })
    }

    /// All files with a name of ours, in the order of slots. Others are passed over.
    ///
    /// # Errors
    /// The directory cannot be read. A file that cannot is listed with the reason.
    pub fn list(&self) -> Result<Vec<Found>, CdiFileError> {
        let names = self.names()?;
        let mut slots: Vec<SlotId> = names.iter().filter_map(|n| cdi::slot_of_file(n)).collect();
        slots.sort_unstable();
        let found = |slot| {
            let owner = self.owner(&cdi::file_name(slot)).transpose()?;
            Some(Found { slot, owner })
        };
        Ok(slots.into_iter().filter_map(found).collect())
    }

    /// Removes temporary files that killed processes left; how many.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    ///
    /// # Guarantees
    /// Twice: the second call finds nothing. Files of running writers and of others stay.
    pub fn sweep(&self) -> Result<usize, CdiFileError> {
        let _lock = self.lock()?;
        let mut removed = 0;
        for name in self.names()?.iter().filter(|name| is_temporary(name)) {
            removed += usize::from(self.unlink(name)?);
            faults::reach("cdi-swept", removed).map_err(CdiFileError::Injected)?;
        }
        Ok(removed)
    }

    /// The owner of a file; none if there is no such file. A file that names another slot than its
    /// name does is damaged.
    fn owner(&self, name: &str) -> Result<Option<Owner>, CdiFileError> {
        let text = match self.read(name) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.error("read", name, error)),
        };
        let owner = cdi::parse(&text).map_err(|source| CdiFileError::Content {
            path: self.path.join(name),
            source,
        })?;
        match cdi::slot_of_file(name) == Some(owner.slot) {
            true => Ok(Some(owner)),
            false => Err(CdiFileError::OtherSlot {
                path: self.path.join(name),
                slot: owner.slot,
            }),
        }
    }

    /// At most one byte more than the longest document, which the parser then refuses.
    fn read(&self, name: &str) -> io::Result<String> {
        // Not blocking: opening a pipe would wait for its writer.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.fd, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let limit = u64::try_from(cdi::LARGEST + 1).unwrap_or(u64::MAX);
        let mut text = String::new();
        file.take(limit).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Names that are text; others are not ours.
    fn names(&self) -> Result<Vec<String>, CdiFileError> {
        let failed = |errno: Errno| CdiFileError::directory(&self.path, errno.into());
        let mut dir = Dir::from_fd(self.again()?).map_err(failed)?;
        let mut names = vec![];
        for entry in dir.iter() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str();
            let ours = name
                .ok()
                .filter(|n| is_temporary(n) || cdi::slot_of_file(n).is_some());
            names.extend(ours.map(str::to_owned));
        }
        Ok(names)
    }

    /// Whether there was such a file.
    fn unlink(&self, name: &str) -> Result<bool, CdiFileError> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(self.error("remove", name, errno.into())),
        }
    }

    fn sync(&self) -> Result<(), CdiFileError> {
        fsync(self.fd.as_fd()).map_err(|errno| CdiFileError::directory(&self.path, errno.into()))
    }

    /// Excludes all other writers and removers, of this process too, until it is dropped.
    fn lock(&self) -> Result<Flock<OwnedFd>, CdiFileError> {
        let mut fd = self.again()?;
        for _ in 0..LOCK_TRIES {
            fd = match Flock::lock(fd, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((fd, Errno::EWOULDBLOCK | Errno::EINTR)) => fd,
                Err((_, errno)) => return Err(CdiFileError::directory(&self.path, errno.into())),
            };
            // Waits for nothing but the time; a signal ends it early, which does no harm.
            let _ = poll(&mut [], PollTimeout::from(LOCK_PAUSE_MS));
        }
        Err(CdiFileError::Busy {
            path: self.path.clone(),
        })
    }

    /// The directory opened again: locks and read positions belong to an opening.
    fn again(&self) -> Result<OwnedFd, CdiFileError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        openat(&self.fd, ".", flags, Mode::empty())
            .map_err(|errno| CdiFileError::directory(&self.path, errno.into()))
    }

    fn error(&self, verb: &'static str, name: &str, source: io::Error) -> CdiFileError {
        CdiFileError::File {
            verb,
            path: self.path.join(name),
            source,
        }
    }
}

/// Name of a slot's temporary file; one is enough, since writers exclude each other.
fn temporary(slot: SlotId) -> String {
    format!(".{}{TEMPORARY}", cdi::file_name(slot))
}

fn is_temporary(name: &str) -> bool {
    let file = name
        .strip_prefix('.')
        .and_then(|n| n.strip_suffix(TEMPORARY));
    file.is_some_and(|file| cdi::slot_of_file(file).is_some())
}

#[cfg(test)]
mod tests;
