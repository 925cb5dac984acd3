//! What can go wrong in a stand-in, in words.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of a stand-in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or socket.
    #[error("{act} {}", path.display())]
    Io {
        /// What was tried, "read".
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A manifest is no YAML, or a field of it has the wrong shape.
    #[error("manifest is not usable: {0}")]
    Manifest(String),
    /// A file that the stand-in itself wrote.
    #[error("{} is not what was written", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The runtime refused a call, or cannot be reached.
    #[error("runtime: {call}: {message}")]
    Runtime {
        /// The call, "CreateContainer".
        call: &'static str,
        /// What it said.
        message: String,
    },
    /// A device plugin refused a call, or cannot be reached.
    #[error("device plugin of {resource}: {message}")]
    Plugin {
        /// Its resource.
        resource: String,
        /// What it said.
        message: String,
    },
    /// No such pod, container or setting.
    #[error("no {what} {name}")]
    Unknown {
        /// Kind of the thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The request is not possible now.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// For `map_err` on file operations.
    pub fn io(act: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { act, path, source }
    }
}

/// An error and its causes in one line.
pub fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
