//! What a command can fail with: one exit code and one next step for each.

use podrail_attach::{AttachError, Problem, TeardownError};
use podrail_core::attachment::DecideError;
use podrail_core::binding::BindError;
use podrail_core::config::Faults;
use podrail_core::gpus::GpuError;
use podrail_core::ids::BadId;
use podrail_host::HostError;
use podrail_netlink::{NetNsError, NetlinkError};
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
    /// Facts of the node or a dump cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The node cannot have rails as it is.
    #[error("this node is not ready for rails: {reason}")]
    NotReady {
        /// What is missing.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// The namespace cannot be used.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// The namespace is the host's own.
    #[error("{} is the network namespace of the host itself", path.display())]
    HostNamespace {
        /// As given.
        path: PathBuf,
    },
    /// The path cannot stand in the state file.
    #[error("the path {} of the network namespace is not UTF-8", path.display())]
    NetnsPath {
        /// As given.
        path: PathBuf,
    },
    /// The path names another namespace than the one that was attached.
    #[error("{} is another network namespace than the one that sandbox {sandbox} was attached to", path.display())]
    NetnsReplaced {
        /// As given.
        path: PathBuf,
        /// The sandbox.
        sandbox: String,
    },
    /// Netlink failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The state file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The wish cannot be met.
    #[error(transparent)]
    Decide(Box<DecideError>),
    /// Rails could not be reserved.
    #[error(transparent)]
    Reserve(Box<ReserveError<DecideError>>),
    /// A plan in the state file is not one of ours.
    #[error("the state file holds no valid plan for sandbox {sandbox}")]
    BadPlan {
        /// The sandbox.
        sandbox: String,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The sandbox is being attached or detached by another process.
    #[error("cannot lock sandbox {sandbox}")]
    Lock {
        /// The sandbox.
        sandbox: String,
        /// Why.
        source: io::Error,
    },
    /// Rails could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Rails could not be taken away.
    #[error(transparent)]
    Teardown(#[from] TeardownError),
    /// Limits of this process cannot be read.
    #[error("cannot read the limits of this process")]
    Limits(#[source] nix::errno::Errno),
    /// Output could not be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// A fault that a test asked for.
    #[error("fault injected at {0}")]
    Injected(String),
}

impl From<ReserveError<DecideError>> for Failure {
    fn from(error: ReserveError<DecideError>) -> Self {
        match error {
            ReserveError::Store(error) => Self::Store(error),
            // It says itself for which sandbox.
            ReserveError::Decide { source, .. } => Self::Decide(Box::new(source)),
            other => Self::Reserve(Box::new(other)),
        }
    }
}

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
            Self::Id(_) | Self::GpuName(_) | Self::Gpu(_) | Self::NetnsPath { .. } => Exit::Usage,
            Self::ConfigRead { .. }
            | Self::ConfigSyntax { .. }
            | Self::ConfigFaults { .. }
            | Self::NoPool { .. } => Exit::Config,
            Self::Host(error) => host_exit(error),
            Self::NotReady { .. } => Exit::NotReady,
            Self::NetNs(_) | Self::HostNamespace { .. } => Exit::Namespace,
            Self::NetnsReplaced { .. } => Exit::Conflict,
            Self::Store(_) | Self::BadPlan { .. } | Self::Lock { .. } => Exit::State,
            Self::Decide(error) => decide_exit(error),
            Self::Reserve(error) => reserve_exit(error),
            Self::Attach(error) => attach_exit(error),
            Self::Netlink(_)
            | Self::Teardown(_)
            | Self::Limits(_)
            | Self::Output(_)
            | Self::Injected(_) => Exit::Kernel,
        }
    }

    /// The next step, where there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Check | Self::Injected(_) => return None,
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
            Self::Host(error) => return Some(error.hint().to_owned()),
            Self::NotReady { hint, .. } => hint,
            Self::NetNs(error) => netns_hint(error),
            Self::HostNamespace { .. } => {
                "give the pod's or job's own namespace (ip netns add <name>)"
            }
            Self::NetnsPath { .. } => "give another path, such as /proc/<pid>/ns/net",
            Self::NetnsReplaced { .. } => "run 'podrail detach' for this id, then attach again",
            Self::Netlink(NetlinkError::NoRdma) => {
                "load the driver of the NICs (modprobe mlx5_ib) and try again"
            }
            Self::Netlink(_) | Self::Teardown(_) => "run this on the host as root, and try again",
            Self::Store(error) => return Some(error.hint()),
            Self::Decide(error) => return Some(error.hint()),
            Self::Reserve(error) => return reserve_hint(error),
            Self::BadPlan { .. } => "keep the state file for a report, and detach this id",
            Self::Lock { .. } => "run this on the host as root",
            Self::Attach(error) => return error.hint().map(str::to_owned),
            Self::Limits(_) => "is /proc mounted here?",
        };
        Some(text.to_owned())
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
        ReserveError::Conflict { .. } | ReserveError::Store(_) => Exit::State,
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

fn reserve_hint(error: &ReserveError<DecideError>) -> Option<String> {
    match error {
        ReserveError::Decide { source, .. } => Some(source.hint()),
        ReserveError::OtherArguments { sandbox, .. } => Some(format!(
            "run 'podrail detach --id {sandbox}' first, or use another id"
        )),
        other => other.hint(),
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

fn netns_hint(error: &NetNsError) -> &'static str {
    match error {
        NetNsError::Missing { .. } => "see 'ip netns' or /proc/<pid>/ns/net for the right path",
        NetNsError::NotANetNs { .. } => {
            "see 'ip netns' or /proc/<pid>/ns/net for the right path; a plain file may be left over \
             from a namespace that is gone (a reboot): make a new one"
        }
        _ => "run this on the host as root",
    }
}

/// The failure with its causes and its hint, as it is printed once, at the top.
#[must_use]
pub fn in_words(failure: &Failure) -> String {
    let mut text = format!("error: {failure}");
    let mut cause = std::error::Error::source(failure);
    let mut last = String::new();
    while let Some(error) = cause {
        let words = error.to_string();
        // SQLite's errors say the same on two layers.
        if last.is_empty() || !words.ends_with(&last) {
            text.push_str(&format!("\n  because: {words}"));
            last = words;
        }
        cause = error.source();
    }
    if let Some(hint) = failure.hint() {
        text.push_str(&format!("\nhint: {hint}"));
    }
    text
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
