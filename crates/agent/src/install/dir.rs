//! A directory that others write as well: read within bounds, changed by rename, one agent at a
//! time.

use super::InstallError;
use super::plan::{ConfFile, Step};
use nix::fcntl::{Flock, FlockArg, OFlag};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most files that are looked at; a directory of configurations has a handful.
const MOST_FILES: usize = 1000;
/// Largest configuration, in bytes.
const LARGEST: u64 = 1024 * 1024;
/// What runtimes load.
const LOADED: [&str; 3] = ["conf", "conflist", "json"];

/// A directory that is locked against other agents. Others than agents are not held up.
#[derive(Debug)]
pub(super) struct Dir {
    path: PathBuf,
    handle: Flock<File>,
}

impl Dir {
    /// Opens and locks it, waiting for another agent's moment.
    pub(super) fn open(path: &Path) -> Result<Self, InstallError> {
        let fail = |source| failed("open the directory", path, source);
        let handle = File::open(path).map_err(fail)?;
        let handle = Flock::lock(handle, FlockArg::LockExclusive)
            .map_err(|(_, errno)| fail(io::Error::from(errno)))?;
        let path = path.to_owned();
        Ok(Self { path, handle })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The files that a runtime would load.
    pub(super) fn configurations(&self) -> Result<Vec<ConfFile>, InstallError> {
        let fail = |source| failed("list", &self.path, source);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let path = entry.path();
            let loaded = path.extension().and_then(|extension| extension.to_str());
            if !loaded.is_some_and(|extension| LOADED.contains(&extension)) {
                continue;
            }
            if found.len() == MOST_FILES {
                let path = self.path.clone();
                return Err(InstallError::TooMany { path });
            }
            // A directory is skipped, a link to one is not (Go's `DirEntry.IsDir`).
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            found.extend(configuration(&path));
        }
        Ok(found)
    }

    /// Carries a step out.
    pub(super) fn carry_out(&self, step: &Step) -> Result<(), InstallError> {
        match step {
            Step::Write { name, text } => {
                // Configurations may hold credentials.
                self.replace(name, 0o600, |file| file.write_all(text.as_bytes()))
            }
            Step::Remove { name } => self.remove(name),
        }
    }

    /// Makes or replaces a file at once; a link of that name is replaced, not followed.
    ///
    /// # Guarantees
    /// Half-way: the old file stands, and a temporary one that no runtime loads, which the next
    /// call replaces.
    pub(super) fn replace(
        &self,
        name: &str,
        mode: u32,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), InstallError> {
        let path = self.path(name);
        let temporary = self.temporary(name);
        let write = || {
            self.sweep(name)?;
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&temporary)?;
            fill(&mut file)?;
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
            file.sync_all()?;
            drop(file);
            fs::rename(&temporary, &path)?;
            self.handle.sync_all()
        };
        write().map_err(|source| failed("write", &path, source))
    }

    /// Removes a file; one that is gone is no fault.
    pub(super) fn remove(&self, name: &str) -> Result<(), InstallError> {
        let path = self.path(name);
        let gone = || {
            absent_is_fine(fs::remove_file(&path))?;
            self.handle.sync_all()
        };
        gone().map_err(|source| failed("remove", &path, source))
    }

    /// Removes what a killed run left of a file.
    pub(super) fn sweep(&self, name: &str) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.temporary(name)))
    }

    /// Removes what a killed run left of any of our files.
    pub(super) fn sweep_all(&self, names: &[&str]) -> Result<(), InstallError> {
        let swept = names.iter().try_for_each(|name| self.sweep(name));
        swept.map_err(|source| failed("clean", &self.path, source))
    }

    /// Its extension is none that runtimes load.
    fn temporary(&self, name: &str) -> PathBuf {
        self.path.join(format!(".{name}.podrail-new"))
    }
}

/// A file that vanished meanwhile is none.
fn configuration(path: &Path) -> Option<ConfFile> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let content = match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => return None,
        other => other.map_err(|error| error.to_string()),
    };
    Some(ConfFile { name, content })
}

/// A pipe or a device would keep the reader waiting for ever.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no plain file"));
    }
    let mut text = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST {
        let words = format!("larger than {LARGEST} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
    }
    Ok(text)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

pub(super) fn failed(doing: &'static str, path: &Path, source: io::Error) -> InstallError {
    let path = path.to_owned();
    InstallError::Io {
        doing,
        path,
        source,
    }
}
