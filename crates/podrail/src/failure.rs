//! What a command can fail with: one exit code and one next step for each.

use podrail_agent::AgentError;
use podrail_agent::install::InstallError;
use podrail_attach::{AttachError, Problem};
use podrail_core::attachment::DecideError;
use podrail_core::binding::BindError;
use podrail_core::config::Faults;
use podrail_core::gpus::GpuError;
use podrail_core::ids::BadId;
use podrail_host::HostError;
use podrail_netlink::{NetNsError, NetlinkError};
use podrail_node::NodeError;
use podrail_store::{ReserveError, StoreError};
use std::io;
use std::path::PathBuf;

/// Exit codes, as `podrail --help` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// `podrail check` found something wrong.
    Check = 1,
    /// The command line is not understood.
    Usage = 2,
    /// The configuration or an input file is wrong.
    Config = 3,
    /// Not enough free rails or addresses.
    Exhausted = 4,
    /// In conflict with what is attached already.
    Conflict = 5,
    /// The node is not ready for rails.
    NotReady = 6,
    /// The network namespace is missing, is none, or may not be entered.
    Namespace = 7,
    /// The state file cannot be used.
    State = 8,
    /// The kernel refused a step.
    Kernel = 9,
}

/// Why a command failed. `Display` is one layer; the cause is the source.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The check found something wrong and has said so.
    #[error("the check failed")]
    Check,
    /// A text of the command line is no id.
    #[error(transparent)]
    Id(#[from] BadId),
    /// A text of the command line names no GPU.
    #[error(transparent)]
    GpuName(BadId),
    /// A GPU that the node does not have.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The configuration file cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    ConfigRead {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The configuration file is no YAML.
    #[error("the configuration {} is not valid YAML: {text}", path.display())]
    ConfigSyntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        text: String,
    },
    /// Fields of the configuration are wrong.
    #[error("the configuration {} is not valid:\n{faults}", path.display())]
    ConfigFaults {
        /// The file.
        path: PathBuf,
        /// All faults.
        faults: Faults,
    },
    /// There is no pool to take addresses from.
    #[error("there is no address pool: {}", config_in_words(path.as_ref()))]
    NoPool {
        /// The configuration that was read.
        path: Option<PathBuf>,
    },
    /// The path cannot stand in the state file.
    #[error("the path {} of the network namespace is not UTF-8", path.display())]
    NetnsPath {
        /// As given.
        path: PathBuf,
    },
    /// The node, its state file or its kernel.
    #[error(transparent)]
    Node(Box<NodeError>),
    /// A pod or sandbox that has no rails here.
    #[error("{asked} has no rails on this node")]
    NothingHeld {
        /// As given.
        asked: String,
    },
    /// There is nothing to rebuild.
    #[error("the state file {} is sound: there is nothing to rebuild", path.display())]
    Sound {
        /// The file.
        path: PathBuf,
    },
    /// The agent cannot run.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The CNI chain cannot be taken away.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// Limits of this process cannot be read.
    #[error("cannot read the limits of this process")]
    Limits(#[source] nix::errno::Errno),
    /// Output could not be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
}

/// Failures of single layers, as the node has them.
macro_rules! from_node {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::Node(Box::new(error.into()))
            }
        })*
    };
}
from_node!(NodeError, HostError, NetNsError, NetlinkError, StoreError);

fn config_in_words(path: Option<&PathBuf>) -> String {
    match path {
        Some(path) => format!("{} has no section 'pool'", path.display()),
        None => "there is no configuration file".into(),
    }
}

impl Failure {
    /// The exit code.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Check => Exit::Check,
            Self::Id(_)
            | Self::GpuName(_)
            | Self::Gpu(_)
            | Self::NetnsPath { .. }
            | Self::NothingHeld { .. } => Exit::Usage,
            Self::ConfigRead { .. }
            | Self::ConfigSyntax { .. }
            | Self::ConfigFaults { .. }
            | Self::NoPool { .. } => Exit::Config,
            Self::Sound { .. } => Exit::Conflict,
            Self::Node(error) => node_exit(error),
            Self::Agent(_) | Self::Install(_) | Self::Limits(_) | Self::Output(_) => Exit::Kernel,
        }
    }

    /// The next step, where there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Check => return None,
            Self::Output(_) => "what the command did stands: 'podrail status' shows who holds what",
            Self::Id(_) => "give the same --id to attach and detach, such as slurm-17",
            Self::GpuName(_) | Self::Gpu(_) => "see 'podrail topo' for the GPUs of this node",
            Self::ConfigRead { .. } => "give a readable file with --config, or none",
            Self::ConfigSyntax { .. } | Self::ConfigFaults { .. } => {
                "see docs/configuration.md for all fields"
            }
            Self::NoPool { .. } => {
                "write /etc/podrail/config.yaml with:  pool: { subnets: [10.239.255.0/24] }"
            }
            Self::NetnsPath { .. } => "give another path, such as /proc/<pid>/ns/net",
            Self::Node(error) => return error.hint(),
            Self::Sound { .. } => {
                "'podrail state check' compares it with the node; with --force it is built anew, and \
                 this one is kept beside it"
            }
            Self::NothingHeld { .. } => "see 'podrail status' for who holds rails",
            Self::Agent(error) => error.hint(),
            Self::Install(error) => error.hint(),
            Self::Limits(_) => "is /proc mounted here?",
        };
        Some(text.to_owned())
    }
}

fn node_exit(error: &NodeError) -> Exit {
    match error {
        NodeError::Host(error) => host_exit(error),
        NodeError::NotReady { .. } => Exit::NotReady,
        NodeError::NetNs(_) | NodeError::NetnsGone { .. } | NodeError::HostNamespace { .. } => {
            Exit::Namespace
        }
        NodeError::NetnsReplaced { .. } => Exit::Conflict,
        NodeError::Store(_)
        | NodeError::Rebuild(_)
        | NodeError::StateLost { .. }
        | NodeError::BadPlan { .. }
        | NodeError::BadTopology(_)
        | NodeError::Lock { .. }
        | NodeError::Busy { .. }
        | NodeError::Marker { .. } => Exit::State,
        NodeError::Decide(error) => decide_exit(error),
        NodeError::Reserve(error) => reserve_exit(error),
        NodeError::Attach(error) => attach_exit(error),
        NodeError::Netlink(_)
        | NodeError::Teardown(_)
        | NodeError::Expose { .. }
        | NodeError::Conceal { .. }
        | NodeError::Injected(_) => Exit::Kernel,
    }
}

fn host_exit(error: &HostError) -> Exit {
    match error {
        HostError::NoSysfs { .. } => Exit::NotReady,
        _ => Exit::Config,
    }
}

fn reserve_exit(error: &ReserveError<DecideError>) -> Exit {
    match error {
        ReserveError::OtherArguments { .. } => Exit::Conflict,
        ReserveError::Decide { source, .. } => decide_exit(source),
        ReserveError::Conflict { .. } | ReserveError::GivenAway { .. } | ReserveError::Store(_) => {
            Exit::State
        }
    }
}

fn decide_exit(error: &DecideError) -> Exit {
    match error {
        // With the unusable rails there would have been enough: it is the node that is not ready.
        DecideError::Rails {
            source:
                BindError::NotEnoughFree {
                    asked,
                    free,
                    unusable,
                    ..
                },
            ..
        } if free + unusable.len() >= usize::from(*asked) => Exit::NotReady,
        DecideError::Rails { .. } | DecideError::Addresses { .. } => Exit::Exhausted,
        DecideError::Plan { .. } => Exit::Config,
        DecideError::NoInterface { .. } => Exit::NotReady,
    }
}

fn attach_exit(error: &AttachError) -> Exit {
    match error {
        AttachError::NotPossible {
            problem: Problem::NameTaken(_) | Problem::OfOther { .. },
            ..
        } => Exit::Conflict,
        AttachError::NotPossible { .. } => Exit::NotReady,
        AttachError::NetNs(_) => Exit::Namespace,
        // Found out by trying, and undone: as if it had been seen before.
        AttachError::Step { .. } if error.node_is_not_ready() && !error.left_something() => {
            Exit::NotReady
        }
        _ => Exit::Kernel,
    }
}

/// The failure with its causes and its hint, as it is printed once, at the top.
#[must_use]
pub fn in_words(failure: &Failure) -> String {
    podrail_node::in_words(failure, failure.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_printed_once_with_the_hint_last() {
        let failure = Failure::ConfigRead {
            path: "/etc/podrail/config.yaml".into(),
            source: io::Error::new(io::ErrorKind::NotFound, "no such file"),
        };
        assert_eq!(
            in_words(&failure),
            "error: cannot read the configuration /etc/podrail/config.yaml\n  \
             because: no such file\n\
             hint: give a readable file with --config, or none"
        );
        assert_eq!(failure.exit() as u8, 3);
    }

    #[test]
    fn rails_that_are_down_make_the_node_not_ready_and_too_few_exhaust_it() {
        let error = |unusable: usize| DecideError::Rails {
            sandbox: podrail_core::ids::SandboxId::parse("a").unwrap(),
            source: BindError::NotEnoughFree {
                asked: 8,
                free: 7,
                holders: vec![],
                unusable: (0..unusable)
                    .map(|at| {
                        let index = podrail_core::ids::RailIndex(u16::try_from(at).unwrap());
                        (index, podrail_core::binding::Unusable::LinkDown)
                    })
                    .collect(),
            },
        };
        assert_eq!(decide_exit(&error(1)), Exit::NotReady);
        assert_eq!(decide_exit(&error(0)), Exit::Exhausted);
    }
}
