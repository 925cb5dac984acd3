//! What can go wrong while rails are attached or taken away, and what to do about it.

use podrail_core::ids::{IfName, RailIndex, SandboxId};
use podrail_netlink::{Errno, NetNsError, NetlinkError, Refusal};
use std::io;
use std::path::PathBuf;

/// Why rails could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Seen before anything was changed.
    #[error("rail {rail} cannot be attached: {problem}")]
    NotPossible {
        /// The rail.
        rail: RailIndex,
        /// What is in the way.
        problem: Problem,
    },
    /// A step failed; everything before it was undone, except what `left` lists.
    #[error(
        "cannot attach rail {rail} ({parent}) as {child}{}",
        left_in_words(left)
    )]
    Step {
        /// The rail whose step failed.
        rail: RailIndex,
        /// Its interface on the host.
        parent: IfName,
        /// Its child.
        child: IfName,
        /// What could not be undone.
        left: Vec<UndoFailure>,
        /// What the kernel said.
        #[source]
        source: Refusal,
    },
    /// A sysctl could not be set; everything before it was undone, except what `left` lists.
    #[error("cannot set sysctl {path}{}", left_in_words(left))]
    Sysctl {
        /// Path below `/proc/sys`.
        path: String,
        /// What could not be undone.
        left: Vec<UndoFailure>,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What an earlier run left could not be removed.
    #[error("what an earlier attach left of this sandbox could not be removed")]
    Leftovers(#[from] TeardownError),
    /// The kernel could not be asked.
    #[error("cannot read the state of the network")]
    Netlink(#[from] NetlinkError),
    /// The namespace could not be entered.
    #[error("cannot enter the network namespace")]
    NetNs(#[from] NetNsError),
    /// A fault that a test asked for.
    #[error("fault injected at {point}{}", left_in_words(left))]
    Injected {
        /// Where.
        point: String,
        /// What could not be undone.
        left: Vec<UndoFailure>,
    },
}

/// What is in the way of a rail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The host has no such interface.
    #[error("the host has no interface {0}")]
    NoParent(IfName),
    /// The interface is down.
    #[error("its interface {0} is down")]
    ParentDown(IfName),
    /// A macvlan hangs on it.
    #[error("the macvlan {macvlan} hangs on its interface {parent}")]
    MacvlanParent {
        /// The rail's interface.
        parent: IfName,
        /// The macvlan.
        macvlan: String,
    },
    /// It is a port of a bridge, bond or team.
    #[error("its interface {0} is a port of another interface")]
    Enslaved(IfName),
    /// IPvlan children in another mode hang on it; a new child would change their mode.
    #[error("the IPvlan {ipvlan} on its interface {parent} is not in mode L2")]
    OtherMode {
        /// The rail's interface.
        parent: IfName,
        /// The other child.
        ipvlan: String,
    },
    /// The name is taken in the pod.
    #[error("the namespace has an interface {0} already")]
    NameTaken(IfName),
    /// The name is taken in the pod by a rail of another sandbox.
    #[error("the namespace has the interface {child} of {} already", owner_in_words(sandbox.as_ref()))]
    OfOther {
        /// The name.
        child: IfName,
        /// Who made it; none if it was killed before it could say so.
        sandbox: Option<SandboxId>,
    },
    /// The namespace is the one of the rails themselves.
    #[error("the namespace is the host's own")]
    HostNamespace,
}

impl Problem {
    /// The next step for whoever meets this.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoParent(_) => "was it renamed or moved? see 'ip link' and 'podrail topo'",
            Self::ParentDown(_) => "set it up (ip link set <interface> up) and check the cable",
            Self::MacvlanParent { .. } => {
                "the kernel allows either macvlan or IPvlan on one interface: remove the macvlan"
            }
            Self::Enslaved(_) => "take it out of the bridge or bond, or exclude it (rails.exclude)",
            Self::OtherMode { .. } => "IPvlan's mode is one per parent and RoCE needs L2",
            Self::NameTaken(_) => {
                "another program made it (Multus?): remove it, or let only one of them attach rails"
            }
            Self::OfOther { .. } => {
                "run 'podrail detach' for that sandbox first ('podrail status' lists them)"
            }
            Self::HostNamespace => "give the pod's or job's own namespace (ip netns add <name>)",
        }
    }
}

/// One thing that could not be undone or taken away.
#[derive(Debug, thiserror::Error)]
pub enum UndoFailure {
    /// The kernel refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kernel could not be asked.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The namespace could not be entered.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// A sysctl could not be set back.
    #[error("cannot set sysctl {} back: {source}", path.display())]
    Sysctl {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A fault that a test asked for.
    #[error("fault injected at {0}")]
    Injected(String),
}

/// Teardown went on to its end, and these steps failed.
#[derive(Debug, thiserror::Error)]
#[error("{} of the steps to take the rails away failed{}", failures.len(), left_in_words(failures))]
pub struct TeardownError {
    /// Each failure, in the order met; never empty.
    pub failures: Vec<UndoFailure>,
}

impl AttachError {
    /// Whether something of the plan may still be in the kernel.
    #[must_use]
    pub fn left_something(&self) -> bool {
        match self {
            Self::NotPossible { .. } => false,
            Self::Step { left, .. } | Self::Sysctl { left, .. } | Self::Injected { left, .. } => {
                !left.is_empty()
            }
            Self::Leftovers(_) | Self::Netlink(_) | Self::NetNs(_) => true,
        }
    }

    /// Whether the kernel's answer means that the node, or this rail of it, cannot have IPvlan
    /// children as it is.
    #[must_use]
    pub fn node_is_not_ready(&self) -> bool {
        match self {
            Self::NotPossible { .. } => true,
            Self::Step { source, .. } => {
                matches!(source.errno(), Some(Errno::EOPNOTSUPP | Errno::EBUSY))
            }
            _ => false,
        }
    }

    /// The next step for whoever meets this.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotPossible { problem, .. } => Some(problem.hint()),
            Self::Step { source, .. } => step_hint(source),
            Self::Sysctl { .. } => Some("/proc/sys must be writable: run this on the host as root"),
            Self::Leftovers(_) => Some("run 'podrail detach' for this id, then attach again"),
            Self::Netlink(_) | Self::NetNs(_) => {
                Some("run this on the host as root, and try again")
            }
            Self::Injected { .. } => None,
        }
    }
}

fn step_hint(refusal: &Refusal) -> Option<&'static str> {
    match refusal.errno()? {
        Errno::EOPNOTSUPP => Some(
            "this kernel lacks IPvlan: 'modprobe ipvlan', or install the kernel's modules package",
        ),
        Errno::EBUSY => Some(
            "something else uses the rail's interface: a macvlan of another pod, or a bond or bridge",
        ),
        Errno::EPERM | Errno::EACCES => {
            Some("this needs CAP_NET_ADMIN on the host: run it as root")
        }
        Errno::EEXIST => Some("another program made the same object: see 'ip link', 'ip rule'"),
        _ => None,
    }
}

fn owner_in_words(sandbox: Option<&SandboxId>) -> String {
    match sandbox {
        Some(sandbox) => format!("sandbox {sandbox}"),
        None => "another sandbox, whose attach was killed,".into(),
    }
}

/// What is left, as the end of a sentence; nothing if nothing is.
fn left_in_words(left: &[UndoFailure]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let list: Vec<String> = left.iter().map(ToString::to_string).collect();
    format!(" (not undone: {})", list.join("; "))
}
