//! Which rails the slots of a pod become: the choice that is made once its GPUs are known.
//!
//! The caller gives all pods that are admitted and not yet bound, its own first. They are planned
//! together, so that an early pod does not take the rails next to the GPUs of a later one; only the
//! own part of the plan is meant to be carried out.
//!
//! # What is best
//! Compared in this order, over all pods of the plan together:
//! 0. *unmet*: rails that other pods ask for and that are not there (a link went down). The own pod
//!    gets all that it asks for, or an error.
//! 1. *distance*: each GPU of a pod gets an equal share of the pod's rails, each rail gives as much
//!    as any other, and every bit of traffic costs the [`Level`] that it crosses (0 to 4). Each
//!    rail counts 1, however many GPUs share it.
//! 2. *load*: other sandboxes on each chosen rail (only with more than one share per rail).
//! 3. *split*: NICs of which a pod gets some ports and not all; then those that were wholly free
//!    before. "Before" is meant: two pods that are planned together and break a NIC each count two,
//!    although they could fill one, since that makes the cost a sum over pods. The pod that binds
//!    second sees the broken NIC and fills it.
//! 4. *hops*: bridges on the way, within equal levels.
//! 5. *harm*: the distance between the GPUs that no pod has and the shares that nobody took: each
//!    free GPU wants `usable shares / GPUs` of the node (at least 1), and one it cannot get costs 5.
//! 6. *order*: the lowest rail indexes for the own pod.
//!
//! # Guarantees
//! The result does not depend on the order of the GPUs in a demand, nor on that of the other
//! demands. There is never a "no" while enough usable rails have a free share: far rails cost more,
//! and nothing else. A pod never gets a rail twice.
//!
//! # How
//! NICs at the same distance from every GPU form a class; a *pattern* says how many rails a pod
//! takes from each class. A minimum-cost flow, which may cut rails into fractions, puts a price on
//! the rails of each class (`prices`). With the prices the pods no longer compete: the cheapest
//! pattern of each pod (`menu`, `patterns`) adds up to a bound that nothing can beat. Pod after pod, the own
//! first, patterns are tried in the order of their bounds, with new prices for what each leaves to
//! the others, until no bound is below the best plan (`search`). Inside a class the ports are dealt
//! out exactly (`ports`).

mod cost;
mod flow;
mod menu;
mod patterns;
mod ports;
mod prices;
mod problem;
mod report;
mod search;
mod shares;
mod standing;

use crate::config::Override;
use crate::ids::{RailIndex, SandboxId};
use crate::topology::{Distance, LinkState, RailFault, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// A node at the moment of the choice.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    /// Its GPUs and rails.
    pub topology: &'a Topology,
    /// Distances that come before those of the PCIe tree; the first that fits counts.
    pub overrides: &'a [Override],
    /// How many sandboxes may hold one rail.
    pub shares_per_rail: u16,
    /// Rails that cannot be handed out now; [`unusable`] gives those that the topology knows of.
    pub unusable: BTreeMap<RailIndex, Unusable>,
    /// Sandboxes that hold rails or GPUs already. Rails and GPUs that the node no longer has are
    /// ignored.
    pub bound: Vec<Bound>,
}

/// Why a rail cannot be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// The topology names a fault.
    Fault(RailFault),
    /// Its link is down.
    LinkDown,
    /// Its interface carries smaller packets than the configuration asks for.
    MtuTooSmall {
        /// What `rails.mtu` asks for.
        asked: u32,
        /// What the interface has.
        has: u32,
    },
    /// Any other reason, in words.
    Other(String),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fault(RailFault::MacvlanParent) => f.write_str("a macvlan hangs on it"),
            Self::Fault(RailFault::Enslaved(master)) => write!(f, "it is a port of {master}"),
            Self::Fault(RailFault::NotEthernet) => f.write_str("its link layer is not Ethernet"),
            Self::Fault(RailFault::NoRdmaDevice) => f.write_str("it has no RDMA device"),
            Self::Fault(RailFault::NoInterface) => {
                f.write_str("its interface is in another network namespace")
            }
            Self::Fault(RailFault::Gone) => f.write_str("its card or driver is gone"),
            Self::LinkDown => f.write_str("link down"),
            Self::MtuTooSmall { asked, has } => {
                write!(f, "its interface has MTU {has}, rails.mtu is {asked}")
            }
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

/// The rails of a topology that have a fault, no link, or a smaller MTU than is asked for, with the
/// first reason of each.
#[must_use]
pub fn unusable(topology: &Topology, asked_mtu: Option<u32>) -> BTreeMap<RailIndex, Unusable> {
    let too_small = |rail: &crate::topology::Rail| {
        let (asked, has) = (asked_mtu?, rail.mtu?);
        (asked > has).then_some(Unusable::MtuTooSmall { asked, has })
    };
    let reason = |rail: &crate::topology::Rail| match rail.faults.first() {
        Some(fault) => Some(Unusable::Fault(fault.clone())),
        None if rail.link == LinkState::Down => Some(Unusable::LinkDown),
        None => too_small(rail),
    };
    topology
        .rails
        .iter()
        .filter_map(|rail| Some((rail.index, reason(rail)?)))
        .collect()
}

/// A sandbox with its rails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Its id, for messages.
    pub sandbox: SandboxId,
    /// Its GPUs, as positions in [`Topology::gpus`].
    pub gpus: Vec<usize>,
    /// Its rails, one share of each.
    pub rails: Vec<RailIndex>,
}

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Its GPUs, as positions in [`Topology::gpus`], in any order; none for a pod without GPUs or
    /// with unknown ones.
    pub gpus: Vec<usize>,
    /// How many rails.
    pub rails: u16,
}

/// The choice for all pods of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The own pod's rails: as many as it asked for.
    pub own: Choice,
    /// What the other pods would get, in the order given; not a promise.
    pub others: Vec<Choice>,
    /// Whether nothing better exists. False only after the search was cut short (see [`bind`]).
    pub exact: bool,
    /// Candidates that were looked at, as a measure of the work.
    pub effort: usize,
}

/// The rails of one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Chosen rails, lowest index first.
    pub rails: Vec<Chosen>,
    /// Rails that were asked for and are not there; always 0 for the own pod.
    pub missing: u16,
}

/// A chosen rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The rail.
    pub rail: RailIndex,
    /// The GPU that gets the largest part of it in equal shares; none for a pod without GPUs.
    pub serves: Option<Served>,
}

/// A GPU that a rail is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Position in [`Topology::gpus`].
    pub gpu: usize,
    /// How far the rail is from it, overrides included.
    pub distance: Distance,
}

impl Choice {
    /// Indexes of the rails, lowest first.
    pub fn indexes(&self) -> impl Iterator<Item = RailIndex> {
        self.rails.iter().map(|chosen| chosen.rail)
    }

    /// How many rails serve a GPU of their own root complex.
    #[must_use]
    pub fn near(&self) -> usize {
        self.count(Level::is_near)
    }

    /// How many rails serve a GPU at exactly this level.
    #[must_use]
    pub fn at(&self, level: Level) -> usize {
        self.count(|served| served == level)
    }

    fn count(&self, wanted: impl Fn(Level) -> bool) -> usize {
        let served = self.rails.iter().filter_map(|chosen| chosen.serves);
        served
            .filter(|served| wanted(served.distance.level))
            .count()
    }
}

pub use crate::topology::Level;

/// Why there is no choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The node is too small, whatever is free.
    #[error("{asked} rails asked for, the node has {on_node}")]
    MoreThanExist {
        /// Rails asked for.
        asked: u16,
        /// Rails of the node.
        on_node: usize,
    },
    /// The rails exist and are held or unusable.
    #[error(
        "{asked} rails asked for, {free} can be had: held by {}; unusable: {}",
        list(.holders, |(count, holder)| format!("{count}x {holder}")),
        list(.unusable, |(rail, reason)| format!("rail {rail}: {reason}"))
    )]
    NotEnoughFree {
        /// Rails asked for.
        asked: u16,
        /// Usable rails with a free share.
        free: usize,
        /// How many rails of the node each sandbox holds.
        holders: Vec<(usize, SandboxId)>,
        /// Rails that cannot be handed out.
        unusable: Vec<(RailIndex, Unusable)>,
    },
    /// A demand names a GPU that the topology does not have.
    #[error("GPU {gpu} does not exist: the node has {on_node}")]
    UnknownGpu {
        /// The position given.
        gpu: usize,
        /// GPUs of the node.
        on_node: usize,
    },
    /// A demand names a GPU twice.
    #[error("GPU {gpu} is named twice")]
    DuplicateGpu {
        /// The position given.
        gpu: usize,
    },
}

fn list<T>(entries: &[T], in_words: impl Fn(&T) -> String) -> String {
    if entries.is_empty() {
        return "none".to_owned();
    }
    let texts: Vec<String> = entries.iter().map(in_words).collect();
    texts.join(", ")
}

/// Chooses the rails of the own pod, with all `others` that wait in mind.
///
/// # Guarantees
/// See the module. The work is bounded: after 50,000 candidates the best plan found is returned with
/// `exact` false; it is still complete for the own pod. Up to four pods on 16 rails, or on 32 with one
/// share each, stay below a tenth of that. What reaches it is a crowd of pods without GPUs in which
/// little tells one plan from another: four that want three rails each among broken NICs, or eight
/// and more. `exact` is false as well if other demands are left out: those beyond 31, and those
/// whose numbers of GPUs have no common multiple below 2^20. They get an empty choice.
///
/// # Errors
/// Every demand must name GPUs of the node, each once. The own one must ask for no more rails than
/// the node has, and than have a free share. Asking for none is an empty choice.
pub fn bind(node: &Node<'_>, own: &Demand, others: &[Demand]) -> Result<Plan, BindError> {
    for demand in std::iter::once(own).chain(others) {
        check_gpus(node.topology, demand)?;
    }
    let problem = problem::Problem::new(node, own, others);
    check_supply(node, own, &problem)?;
    let solution = search::solve(&problem);
    let asked = others.iter().map(|other| other.rails);
    Ok(report::plan(node.topology, &problem, &solution, asked))
}

fn check_gpus(topology: &Topology, demand: &Demand) -> Result<(), BindError> {
    let on_node = topology.gpus.len();
    let mut seen = BTreeSet::new();
    for &gpu in &demand.gpus {
        if gpu >= on_node {
            return Err(BindError::UnknownGpu { gpu, on_node });
        }
        if !seen.insert(gpu) {
            return Err(BindError::DuplicateGpu { gpu });
        }
    }
    Ok(())
}

fn check_supply(
    node: &Node<'_>,
    own: &Demand,
    problem: &problem::Problem,
) -> Result<(), BindError> {
    let (asked, on_node) = (own.rails, node.topology.rails.len());
    if usize::from(asked) > on_node {
        return Err(BindError::MoreThanExist { asked, on_node });
    }
    let free = problem.classes.iter().map(problem::Class::rails).sum();
    if usize::from(asked) > free {
        return Err(not_enough(node, asked, free));
    }
    Ok(())
}

fn not_enough(node: &Node<'_>, asked: u16, free: usize) -> BindError {
    let exists = |rail: &RailIndex| node.topology.rail(*rail).is_some();
    let holders = node.bound.iter().filter_map(|bound| {
        let count = bound.rails.iter().filter(|rail| exists(rail)).count();
        (count > 0).then(|| (count, bound.sandbox.clone()))
    });
    let unusable = node.unusable.iter().filter(|(rail, _)| exists(rail));
    BindError::NotEnoughFree {
        asked,
        free,
        holders: holders.collect(),
        unusable: unusable
            .map(|(rail, reason)| (*rail, reason.clone()))
            .collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
