//! Why the kubelet's checkpoint could not be read, and what to do about it.

use super::LARGEST_FILE;
use podrail_core::words::BadJson;
use std::io;
use std::path::{Path, PathBuf};

/// The checkpoint tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// There is none: the kubelet never gave a device out, or keeps its files elsewhere.
    #[error("the kubelet's checkpoint {path:?} does not exist")]
    Missing {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It cannot be read, or is no regular file.
    #[error("cannot read the kubelet's checkpoint {path:?}")]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is larger than any kubelet's.
    #[error("the kubelet's checkpoint {path:?} is larger than {} MiB", LARGEST_FILE >> 20)]
    TooLarge {
        /// The path.
        path: PathBuf,
    },
    /// It is not what a kubelet writes.
    #[error("the kubelet's checkpoint {path:?} is not in a known form")]
    Parse {
        /// The path.
        path: PathBuf,
        /// Where and why.
        source: BadJson,
    },
}

impl CheckpointError {
    pub(super) fn of_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path, source },
            _ => Self::Read { path, source },
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "is the kubelet's root directory /var/lib/kubelet? With another one, give the path \
                 in the configuration"
            }
            Self::Read { .. } => "run as root on the node, with the kubelet's own file at the path",
            Self::TooLarge { .. } | Self::Parse { .. } => {
                "is the path right? If it is, the file is damaged, or of a kubelet newer than this \
                 program: drain the node, stop the kubelet, remove the file, start the kubelet"
            }
        }
    }
}
