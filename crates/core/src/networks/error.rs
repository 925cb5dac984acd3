//! What can be wrong with the annotation, and what to do about it.

use super::{ANNOTATION, Place};
use crate::config::RailRef;
use crate::ids::{BadId, IfName, RailIndex};
use crate::words::BadJson;

/// What is wrong with an annotation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworksError {
    /// Too large to be an annotation, or to be served.
    #[error("the annotation is too large: at most {most} {what}")]
    TooLarge {
        /// The limit.
        most: usize,
        /// Of what.
        what: &'static str,
    },
    /// Neither grammar.
    #[error("the annotation is neither a comma list of networks nor a JSON list of objects")]
    NotJson {
        /// Where and why JSON ends.
        #[source]
        source: BadJson,
    },
    /// An element that cannot be read.
    #[error("{place} cannot be read: {reason}")]
    Unreadable {
        /// Which.
        place: Place,
        /// Why.
        reason: String,
    },
    /// The interface of a rail cannot have that name.
    #[error("{place}: field interface")]
    Interface {
        /// Which.
        place: Place,
        /// Why.
        #[source]
        source: BadId,
    },
    /// The interface is there in every pod.
    #[error("{place}: field interface: every pod has an interface {interface} already")]
    OfThePod {
        /// Which.
        place: Place,
        /// The interface.
        interface: IfName,
    },
    /// The kernel makes another name of it, or has a sysctl tree of that name already.
    #[error("{place}: field interface: {interface} is no plain name to the kernel")]
    NotPlain {
        /// Which.
        place: Place,
        /// The interface.
        interface: IfName,
    },
    /// A rail network takes only name, namespace and interface.
    #[error("{place}: field {field} asks for what a rail network does not give")]
    NotGiven {
        /// Which.
        place: Place,
        /// The field.
        field: String,
    },
    /// The node has no such rail.
    #[error("{place}: the node has no {rail} (it has {on_node} rails)")]
    NoSuchRail {
        /// Which.
        place: Place,
        /// The rail as the configuration names it.
        rail: RailRef,
        /// Rails of the node.
        on_node: usize,
    },
    /// The same rail twice.
    #[error("{first} and {second} are both rail {rail}")]
    RailTwice {
        /// The earlier one.
        first: Place,
        /// The later one.
        second: Place,
        /// The rail.
        rail: RailIndex,
    },
    /// The same interface twice.
    #[error("{first} and {second} would both be interface {interface}")]
    InterfaceTwice {
        /// The earlier one.
        first: Place,
        /// The later one.
        second: Place,
        /// The name.
        interface: String,
    },
}

impl NetworksError {
    /// The next step for whoever wrote the annotation.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::TooLarge { .. } | Self::NotJson { .. } | Self::Unreadable { .. } => format!(
                "write the pod's annotation {ANNOTATION} as 'rdma-ipvlan-0,rdma-ipvlan-1@name' or \
                 as a JSON list of objects with a name each"
            ),
            Self::Interface { .. }
            | Self::OfThePod { .. }
            | Self::NotPlain { .. }
            | Self::InterfaceTwice { .. } => {
                format!(
                    "give each network of the pod's annotation {ANNOTATION} an interface of its own"
                )
            }
            Self::NotGiven { .. } => {
                "leave the field out: a rail takes a name, a namespace and an interface; its \
                 address comes from the node's pool"
                    .into()
            }
            Self::NoSuchRail { .. } => {
                "see 'podrail topo' for the rails of this node, and 'networks' in its configuration"
                    .into()
            }
            Self::RailTwice { .. } => "name each rail once".into(),
        }
    }
}
