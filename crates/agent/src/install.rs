//! Puts the CNI plugin and its chained configuration on the node, follows the cluster's
//! configuration, and takes both away again. Blocking.
//!
//! Reading order: [`plan()`] decides on the content of a directory, [`Installer`] carries it out.

mod binary;
mod conflist;
mod dir;
mod plan;
mod standing;

pub use conflist::PLUGIN;
pub use plan::{ConfFile, Plan, Step, plan, unplan};
pub use standing::{Standing, Why};

use dir::Dir;
use podrail_node::Places;
use std::io;
use std::path::PathBuf;

/// Why something could not be put on the node or taken away.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file or directory could not be used.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried, in words that follow "cannot".
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory is not one of configurations.
    #[error("{}: more than 1000 configurations", path.display())]
    TooMany {
        /// The directory.
        path: PathBuf,
    },
    /// The program to be installed is none.
    #[error("{}: no program: it is empty, or no plain file", path.display())]
    NoProgram {
        /// The path given.
        path: PathBuf,
    },
}

impl InstallError {
    /// What an operator can do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "mount the runtime's directories of CNI programs and configurations into the \
                 agent, and name them if they are not /opt/cni/bin and /etc/cni/net.d"
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "the agent has to run as root, with these directories mounted for writing"
            }
            Self::Io { .. } => "look at the file system: is it full or read-only?",
            Self::TooMany { .. } => "name the directory of CNI configurations, /etc/cni/net.d",
            Self::NoProgram { .. } => "name the podrail-cni of this release",
        }
    }
}

/// What became of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// It was there.
    Unchanged,
    /// It is new or was replaced.
    Written,
}

/// What became of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chained {
    /// What was changed.
    pub steps: Vec<Step>,
    /// How Podrail stands in the chain now.
    pub standing: Standing,
}

/// What is left after an uninstallation, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// A plain copy of the cluster's configuration, which Multus names as its own.
    pub copy_for_multus: Option<String>,
    /// The program.
    pub program: bool,
}

/// What to do with the program on uninstallation.
///
/// CRI-O keeps the configuration that a pod was started with and calls its plugins when the pod
/// ends (libcni's cache); without the program those calls fail, and the pods stay `Terminating`.
/// So it goes only when it is certain that no such pod is left: on a drained node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// It stays.
    Keep,
    /// The node is drained: it goes.
    Remove,
}

/// Where things go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installer {
    /// `podrail-cni` as it was delivered.
    pub source: PathBuf,
    /// The runtime's directory of CNI programs.
    pub bin_dir: PathBuf,
    /// The runtime's directory of CNI configurations.
    pub conf_dir: PathBuf,
    /// What the plugin is told.
    pub places: Places,
}

impl Installer {
    /// Puts the program in its place. To be done before [`chain`](Self::chain): runtimes refuse a
    /// configuration whose program is missing.
    ///
    /// # Guarantees
    /// The program is there as a whole at every instant. Nothing is written if it is the same.
    ///
    /// # Errors
    /// [`InstallError`]; what stood there stands.
    pub fn place(&self) -> Result<Placed, InstallError> {
        binary::place(&self.source, &self.bin_dir)
    }

    /// Makes the configuration follow the cluster's.
    ///
    /// # Guarantees
    /// Twice is as once. Half-way: each file is there as a whole or not at all. Agents at the same
    /// time take turns. Files of others are not touched.
    ///
    /// # Errors
    /// [`InstallError`]; the steps before the failed one are done.
    pub fn chain(&self) -> Result<Chained, InstallError> {
        let dir = Dir::open(&self.conf_dir)?;
        dir.sweep_all(&plan::all_names())?;
        let Plan { steps, standing } = plan(&dir.configurations()?, &self.places);
        steps.iter().try_for_each(|step| dir.carry_out(step))?;
        Ok(Chained { steps, standing })
    }

    /// Takes away the configuration, and then the program if that is asked for and Multus does
    /// not call it.
    ///
    /// # Guarantees
    /// Twice is as once. No configuration of ours names a program that is gone.
    ///
    /// # Errors
    /// As of [`chain`](Self::chain).
    pub fn uninstall(&self, program: Program) -> Result<Left, InstallError> {
        let dir = Dir::open(&self.conf_dir)?;
        dir.sweep_all(&plan::all_names())?;
        let files = dir.configurations()?;
        let (steps, copy_for_multus) = unplan(&files);
        steps.iter().try_for_each(|step| dir.carry_out(step))?;
        let keep = program == Program::Keep || plan::calls_ours(&dir.configurations()?);
        if !keep {
            binary::remove(&self.bin_dir)?;
        }
        Ok(Left {
            copy_for_multus,
            program: keep,
        })
    }
}

#[cfg(test)]
mod tests;
