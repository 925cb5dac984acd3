//! What can go wrong with a lab, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::shape::Fault;
use crate::wire::Status;

/// A lab could not be set up, booted or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A file or device on the host.
    #[error("cannot {verb} {}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// No shape of that name.
    #[error("no shape is called {name}")]
    NoShape {
        /// The name asked for.
        name: String,
    },
    /// The description is not TOML, or a value has the wrong type.
    #[error("shape {name} cannot be read")]
    ShapeSyntax {
        /// The shape's name or path.
        name: String,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// The description contradicts itself or what QEMU can do.
    #[error("shape {name} has {} faults:{}", faults.len(), list(faults))]
    ShapeFaults {
        /// The shape's name or path.
        name: String,
        /// All of them.
        faults: Vec<Fault>,
    },
    /// The setup installs packages and cannot here.
    #[error("the lab's setup needs {missing}")]
    CannotInstall {
        /// What is missing.
        missing: String,
    },
    /// The host's apt names no Debian mirror.
    #[error("apt on this host has no source of Debian's main component")]
    NoMirror,
    /// No kernel of the wanted kind.
    #[error("trixie-backports has no package {pattern}")]
    NoKernel {
        /// Name pattern looked for.
        pattern: String,
    },
    /// A program of the host failed.
    #[error("{program} {arguments} failed with {status}: {stderr}")]
    Tool {
        /// The program.
        program: String,
        /// Its arguments.
        arguments: String,
        /// How it ended.
        status: String,
        /// The last lines of its standard error.
        stderr: String,
    },
    /// A fetched file is not what it should be.
    #[error("{}: {what}", path.display())]
    Asset {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The assets were not fetched yet, or by an older recipe.
    #[error("the lab's assets are not in {}", dir.display())]
    AssetsMissing {
        /// Where they would be.
        dir: PathBuf,
    },
    /// The node did not come up.
    #[error("the node did not boot: {reason}; console: {}\n{tail}", console.display())]
    Boot {
        /// Whether it may come up when tried again.
        stalled: bool,
        /// What happened instead.
        reason: String,
        /// The kept console.
        console: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// The node ended while it was in use.
    #[error("the node is gone; console: {}\n{tail}", console.display())]
    Gone {
        /// The kept console.
        console: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A command did not end in time.
    #[error("{command}: no end after {seconds} s; console: {}\n{tail}", console.display())]
    Timeout {
        /// The command.
        command: String,
        /// The limit.
        seconds: u64,
        /// The kept console.
        console: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A command that had to succeed did not.
    #[error("{command}: {status}\n{stderr}")]
    Command {
        /// The command.
        command: String,
        /// How it ended.
        status: Status,
        /// Its standard error.
        stderr: String,
    },
    /// The agent refused a request.
    #[error("the node's agent: {message}")]
    Agent {
        /// Its words.
        message: String,
    },
    /// Output was not what the caller wanted to read.
    #[error("output is not JSON")]
    Json(#[source] serde_json::Error),
}

impl LabError {
    /// The next step for whoever met the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoShape { .. } => Some(format!(
                "known shapes: {}; a path to a .toml file works too",
                crate::shape::NAMES.join(", ")
            )),
            Self::CannotInstall { .. } => Some(
                "run `cargo xtask lab setup` as root on Debian 12, or install the packages and \
                 set PODRAIL_LAB_DIR to a folder where a setup has run"
                    .into(),
            ),
            Self::NoMirror => Some("add a Debian source to apt and run `apt-get update`".into()),
            Self::AssetsMissing { .. } => Some("run `cargo xtask lab setup` once".into()),
            Self::Boot { .. } | Self::Gone { .. } => {
                Some("read the console; PODRAIL_LAB_ACCEL=kvm is off unless asked for".into())
            }
            Self::Tool { program, .. } if program == "apt-get" => {
                Some("check the network and free disk space, then run the setup again".into())
            }
            _ => None,
        }
    }

    /// The whole story for a person: the error, its causes and the hint, a line each.
    pub fn report(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(inner) = cause {
            text.push_str(&format!("\ncaused by: {inner}"));
            cause = inner.source();
        }
        if let Some(hint) = self.hint() {
            text.push_str(&format!("\nhint: {hint}"));
        }
        text
    }

    pub(crate) fn io(
        verb: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { verb, path, source }
    }

    pub(crate) fn asset(path: &Path, what: impl Into<String>) -> Self {
        Self::Asset {
            path: path.into(),
            what: what.into(),
        }
    }
}

fn list(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}
