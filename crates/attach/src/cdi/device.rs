//! Whether the device nodes of a rail are there, and still the rail's.

use podrail_core::cdi::SlotFile;
use podrail_core::ids::{RailIndex, RdmaName};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// Why a rail's devices cannot be given to a pod now. All of these may pass: udev makes the node, a
/// new look at the node finds the new number.
#[derive(Debug, thiserror::Error)]
pub enum DeviceProblem {
    /// There is no such node.
    #[error("the device node {} of rail {rail} ({rdma}) is not there", path.display())]
    NoNode {
        /// The rail.
        rail: RailIndex,
        /// Its RDMA device.
        rdma: RdmaName,
        /// The node.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The path is no device.
    #[error("{} of rail {rail} ({rdma}) is no character device", path.display())]
    NotADevice {
        /// The rail.
        rail: RailIndex,
        /// Its RDMA device.
        rdma: RdmaName,
        /// The path.
        path: PathBuf,
    },
    /// The number is another device's by now: its driver was loaded again.
    #[error(
        "{} is the node of {}, not of rail {rail} ({rdma})",
        path.display(),
        found.as_deref().unwrap_or("no RDMA device")
    )]
    OtherDevice {
        /// The rail.
        rail: RailIndex,
        /// Its RDMA device.
        rdma: RdmaName,
        /// The node.
        path: PathBuf,
        /// Whose node it is.
        found: Option<String>,
    },
}

impl DeviceProblem {
    /// The next step for whoever meets this.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoNode { .. } | Self::NotADevice { .. } => {
                "are ib_uverbs, rdma_ucm (and ib_umad, if asked for) loaded, and does udev run?"
            }
            Self::OtherDevice { .. } => {
                "the driver was loaded again: it passes when the node was looked at again"
            }
        }
    }
}

/// Checks the device nodes of all files, below `root` (`/` on a node).
///
/// # Errors
/// The first rail whose nodes are not there or belong to another RDMA device. Try again later.
pub fn check_devices(root: &Path, files: &[SlotFile]) -> Result<(), DeviceProblem> {
    for file in files {
        for node in &file.nodes {
            check_node(root, file, node)?;
        }
        if let Some(uverbs) = file.nodes.first() {
            check_owner(root, file, uverbs)?;
        }
    }
    Ok(())
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// A symlink is none either: runtimes do not follow it.
fn check_node(root: &Path, file: &SlotFile, node: &str) -> Result<(), DeviceProblem> {
    let (rail, rdma, path) = (file.rail, file.rdma.clone(), PathBuf::from(node));
    match fs::symlink_metadata(below(root, node)) {
        Ok(found) if found.file_type().is_char_device() => Ok(()),
        Ok(_) => Err(DeviceProblem::NotADevice { rail, rdma, path }),
        Err(source) => Err(DeviceProblem::NoNode {
            rail,
            rdma,
            path,
            source,
        }),
    }
}

fn check_owner(root: &Path, file: &SlotFile, uverbs: &str) -> Result<(), DeviceProblem> {
    let name = uverbs.rsplit('/').next().unwrap_or_default();
    let ibdev = below(root, &format!("sys/class/infiniband_verbs/{name}/ibdev"));
    let found = fs::read_to_string(ibdev).ok();
    let found = found.map(|text| text.trim().to_owned());
    if found.as_deref() == Some(file.rdma.as_str()) {
        return Ok(());
    }
    Err(DeviceProblem::OtherDevice {
        rail: file.rail,
        rdma: file.rdma.clone(),
        path: PathBuf::from(uverbs),
        found,
    })
}
