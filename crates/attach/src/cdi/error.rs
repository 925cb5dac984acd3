//! What can go wrong with files in the CDI directory.

use podrail_core::cdi::BadFile;
use podrail_core::ids::SlotId;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file could not be written, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum CdiFileError {
    /// The directory cannot be used.
    #[error("cannot use the CDI directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file cannot be used.
    #[error("cannot {verb} {}", path.display())]
    File {
        /// `write`, `read` or `remove`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file has a name of ours and is not what we write.
    #[error("{} is no file of a slot", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: BadFile,
    },
    /// A file is of another slot than its name says.
    #[error("{} is the file of {slot}", path.display())]
    OtherSlot {
        /// The file.
        path: PathBuf,
        /// The slot in it.
        slot: SlotId,
    },
    /// Another process keeps the lock; trying again may help.
    #[error("another process keeps the CDI directory {} locked", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// A fault that a test asked for.
    #[error("fault injected at {0}")]
    Injected(String),
}

impl CdiFileError {
    pub(super) fn directory(path: &Path, source: io::Error) -> Self {
        Self::Directory {
            path: path.to_owned(),
            source,
        }
    }

    /// Whether something else than a directory stands at its path: a symlink, a file. None of our
    /// files can be in it.
    #[must_use]
    pub fn is_no_directory(&self) -> bool {
        matches!(self, Self::Directory { source, .. } if source.kind() == io::ErrorKind::NotADirectory)
    }

    /// The next step for whoever meets this.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Directory { source, .. } if source.kind() == io::ErrorKind::NotADirectory => {
                Some("it must be a directory, and no symlink to one")
            }
            Self::Directory { .. } | Self::File { .. } => {
                Some("it must be writable by root: see its owner, its mode and its file system")
            }
            Self::Content { .. } | Self::OtherSlot { .. } => {
                Some("remove the file: the agent and the plugin write what is missing")
            }
            Self::Busy { .. } => Some("see who holds it: fuser -v <directory>"),
            Self::Injected(_) => None,
        }
    }
}
