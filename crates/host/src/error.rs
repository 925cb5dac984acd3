//! What stops a whole read; smaller faults are notes.

use podrail_core::words::brief;
use std::path::PathBuf;

/// A read that cannot go on. `Display` names the object and not the cause, which is the source.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No sysfs below the root.
    #[error("no sysfs at {}", path.display())]
    NoSysfs {
        /// Where it was looked for.
        path: PathBuf,
        /// Answer of the kernel.
        source: std::io::Error,
    },
    /// A file that is needed cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Answer of the kernel.
        source: std::io::Error,
    },
    /// A file is larger than anything that Podrail reads.
    #[error("{} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Largest size that is read, in bytes.
        limit: u64,
    },
    /// A file is not UTF-8 text.
    #[error("{} is not UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// A file lacks the line that is looked for.
    #[error("{} has no valid line {line:?}", path.display())]
    NoLine {
        /// The file.
        path: PathBuf,
        /// Start of the line.
        line: &'static str,
    },
    /// A dump is not well-formed XML.
    #[error("{} is not well-formed XML", path.display())]
    Xml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: BadXml,
    },
    /// A dump defines entities.
    #[error("{} has a DOCTYPE with definitions, which is refused", path.display())]
    Entities {
        /// The file.
        path: PathBuf,
    },
    /// A dump is nested deeper than any PCIe tree.
    #[error("{} is nested deeper than {limit} elements", path.display())]
    TooDeep {
        /// The file.
        path: PathBuf,
        /// Deepest nesting that is read.
        limit: usize,
    },
    /// A dump has namespaces, or an element with more attributes than any dump.
    #[error("{} has namespaces, or an element with more than {limit} attributes", path.display())]
    Attributes {
        /// The file.
        path: PathBuf,
        /// Most attributes that are read.
        limit: usize,
    },
    /// A dump is neither NCCL's nor hwloc's.
    #[error("{} starts with <{element}>: neither an NCCL topology nor an hwloc one", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Name of its root element, cut to 40 characters.
        element: String,
    },
}

/// XML that cannot be read: where and why, in bounded words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadXml(String);

impl From<roxmltree::Error> for BadXml {
    /// The parser repeats names of any length.
    fn from(error: roxmltree::Error) -> Self {
        Self(brief(&error.to_string()))
    }
}

impl HostError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoSysfs { .. } => "mount the host's /sys there, or give another root",
            Self::Read { .. } => "check that the path exists and may be read by this user",
            Self::TooLarge { .. } => "this is not the kind of file that is expected here",
            Self::NotText { .. } => "save it as UTF-8; a binary dump cannot be read",
            Self::NoLine { .. } => "check that the process still exists and /proc is the host's",
            Self::Xml { .. } | Self::Attributes { .. } | Self::UnknownFormat { .. } => {
                "write it with NCCL_TOPO_DUMP_FILE=topo.xml, or with: lstopo --of xml topo.xml"
            }
            Self::Entities { .. } => "remove the part in [...] from the DOCTYPE line",
            Self::TooDeep { .. } => "write the dump again: no PCIe tree is that deep",
        }
    }
}
