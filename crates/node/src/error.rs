//! What can go wrong on a node, and what to do about it.

use crate::attach::HookError;
use podrail_attach::{AttachError, TeardownError};
use podrail_core::attachment::DecideError;
use podrail_core::binding::BindError;
use podrail_core::words::{BadJson, visible};
use podrail_host::HostError;
use podrail_netlink::{NetNsError, NetlinkError};
use podrail_store::{ReserveError, StoreError};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::path::PathBuf;

/// Why something failed on the node. `Display` is one layer; the cause is the source.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Facts of the node cannot be read.
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
    /// The path names another namespace than the one that was attached.
    #[error("{} is another network namespace than the one that sandbox {sandbox} was attached to", path.display())]
    NetnsReplaced {
        /// As given.
        path: PathBuf,
        /// The sandbox.
        sandbox: String,
    },
    /// The path no longer leads to the namespace that was opened.
    #[error("the network namespace at {} was taken away meanwhile", path.display())]
    NetnsGone {
        /// As given.
        path: PathBuf,
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
    /// Rails are in use that the state file knows nothing of.
    #[error(
        "the state file is new, and {count} sandboxes have rails on this node already, {sandbox} \
         among them: the earlier file is lost"
    )]
    StateLost {
        /// One of them.
        sandbox: String,
        /// How many there are.
        count: usize,
    },
    /// The state file could not be built anew.
    #[error("the state file could not be built anew")]
    Rebuild(#[source] Box<ReserveError<Infallible>>),
    /// A plan in the state file is not one of ours.
    #[error("the state file holds no valid plan for sandbox {sandbox}")]
    BadPlan {
        /// The sandbox.
        sandbox: String,
        /// Where and why.
        source: BadJson,
    },
    /// The topology in the state file is not one of ours.
    #[error("the state file holds no valid topology of this node")]
    BadTopology(#[source] BadJson),
    /// The lock of a sandbox cannot be had at all.
    #[error("cannot lock sandbox {sandbox}")]
    Lock {
        /// The sandbox.
        sandbox: String,
        /// Why.
        source: io::Error,
    },
    /// Others kept the lock of a sandbox, or of its namespace, for too long.
    #[error(
        "sandbox {sandbox} waited too long for {what}{}",
        holder_in_words(holder)
    )]
    Busy {
        /// The sandbox.
        sandbox: String,
        /// Which lock.
        what: &'static str,
        /// Who has it, as far as it said so.
        holder: String,
    },
    /// A marker beside the state file cannot be made, read or removed.
    #[error("cannot use the marker {}", path.display())]
    Marker {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Rails could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Rails could not be taken away.
    #[error(transparent)]
    Teardown(#[from] TeardownError),
    /// The devices could not be shown to the containers.
    #[error("cannot give the containers of sandbox {sandbox} their devices")]
    Expose {
        /// The sandbox.
        sandbox: String,
        /// Why.
        source: HookError,
    },
    /// The devices could not be taken back.
    #[error("cannot take the devices back from the containers of sandbox {sandbox}")]
    Conceal {
        /// The sandbox.
        sandbox: String,
        /// Why.
        source: HookError,
    },
    /// A fault that a test asked for.
    #[error("fault injected at {0}")]
    Injected(String),
}

impl From<ReserveError<DecideError>> for NodeError {
    fn from(error: ReserveError<DecideError>) -> Self {
        match error {
            ReserveError::Store(error) => Self::Store(error),
            // It says itself for which sandbox.
            ReserveError::Decide { source, .. } => Self::Decide(Box::new(source)),
            other => Self::Reserve(Box::new(other)),
        }
    }
}

impl NodeError {
    /// The next step, where there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Injected(_) => return None,
            Self::Host(error) => return Some(error.hint().to_owned()),
            Self::NotReady { hint, .. } => hint,
            Self::NetNs(error) => netns_hint(error),
            Self::HostNamespace { .. } => {
                "give the pod's or job's own namespace (ip netns add <name>)"
            }
            Self::NetnsGone { .. } => {
                "nothing is attached; a pod that was deleted needs nothing more"
            }
            Self::NetnsReplaced { .. } => "run 'podrail detach' for this id, then attach again",
            Self::Netlink(NetlinkError::NoRdma) => {
                "load the driver of the NICs (modprobe mlx5_ib) and try again"
            }
            Self::Netlink(_) | Self::Teardown(_) => "run this on the host as root, and try again",
            Self::Store(error) => return Some(error.hint()),
            Self::Decide(error) => return Some(error.hint()),
            Self::Reserve(error) => return reserve_hint(error),
            Self::StateLost { .. } => {
                "stop the agent, and run 'podrail state rebuild --force': it takes over what is in \
                 the kernel, so that no address is given out twice"
            }
            Self::Rebuild(error) => return error.hint(),
            Self::BadPlan { .. } => "keep the state file for a report, and detach this id",
            Self::BadTopology(_) => "restart the agent: it looks at the node again",
            Self::Lock { source, .. } => file_hint(source, "run this on the host as root"),
            Self::Busy { .. } => {
                "try again; if it stays so, look what the process that has it is waiting for"
            }
            Self::Marker { source, .. } => file_hint(
                source,
                "run this on the host as root, with a state file that is its own",
            ),
            Self::Attach(error) => return error.hint().map(str::to_owned),
            Self::Expose { .. } | Self::Conceal { .. } => {
                "see that the directory of CDI files is writable and has room"
            }
        };
        Some(text.to_owned())
    }

    /// Whether the same request may succeed later with nobody doing anything about it.
    #[must_use]
    pub fn retryable(&self) -> bool {
        let busy = matches!(
            self,
            Self::Busy { .. } | Self::Store(StoreError::Busy { .. })
        );
        let given_away = matches!(
            self,
            Self::Reserve(error) if matches!(**error, ReserveError::GivenAway { .. })
        );
        busy || given_away || self.is_short()
    }

    /// Whether rails or addresses are there, and others hold them.
    #[must_use]
    pub fn is_short(&self) -> bool {
        match self {
            Self::Decide(error) => matches!(
                **error,
                DecideError::Addresses { .. }
                    | DecideError::Rails {
                        source: BindError::NotEnoughFree { .. },
                        ..
                    }
            ),
            _ => false,
        }
    }
}

/// For a file beside the state file.
fn file_hint(source: &io::Error, usual: &'static str) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on the file system of the state file, and try again"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "remount the file system of the state file writable, or give another state file"
        }
        _ => usual,
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

fn holder_in_words(holder: &str) -> String {
    match holder {
        "" => String::new(),
        holder => format!(", which {holder} has"),
    }
}

/// A failure with its causes and its hint, as it is printed once, at the top.
#[must_use]
pub fn in_words(failure: &dyn Error, hint: Option<String>) -> String {
    let mut text = format!("error: {failure}");
    let mut cause = failure.source();
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
    if let Some(hint) = hint {
        text.push_str(&format!("\nhint: {hint}"));
    }
    // SQLite and others repeat what they found in a file.
    visible(&text)
}
