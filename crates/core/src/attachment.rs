//! From a request to a plan: rails for the GPUs, an address for each rail, names and numbers.
//!
//! This is the whole decision behind `attach`, made on values: what the node has, what is held,
//! what is asked. The store keeps the result as it stands here.

use crate::binding::{self, BindError, Bound, Chosen, Demand, Node};
use crate::config::RailSettings;
use crate::ids::{IfName, PciAddr, RailIndex, RdmaName, SandboxId, SlotId};
use crate::ipam::{self, Addresses, Cursors, Exhausted, Family, History, Pool};
use crate::networks::Wanted;
use crate::plan::{AttachPlan, PlanError, RailAttachment};
use crate::topology::{Level, Rail, Topology};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;

mod choice;
mod interfaces;
mod parts;

use choice::Picked;
pub use parts::{Part, PodWish};

/// What a sandbox without containers wants: one part, no annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Who.
    pub sandbox: SandboxId,
    /// Its GPUs, as positions in [`Topology::gpus`].
    pub gpus: Vec<usize>,
    /// How many rails.
    pub rails: u16,
    /// `net.ipv4.conf.all.rp_filter` of its namespace now, to go back to.
    pub previous_rp_filter: Option<String>,
}

/// The node's means: what it has and how it is configured.
#[derive(Debug, Clone, Copy)]
pub struct Means<'a> {
    /// GPUs and rails.
    pub topology: &'a Topology,
    /// How rails are handed out.
    pub settings: &'a RailSettings,
    /// Where addresses come from.
    pub pool: &'a Pool,
}

/// What is held already.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Sandboxes with their GPUs and rails.
    pub bound: Vec<Bound>,
    /// Leased addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Addresses that are free again, the oldest release first.
    pub freed: Vec<IpAddr>,
    /// Where the pool's first round stands.
    pub cursors: Cursors,
}

/// What a sandbox has: kept in the state file, printed by `attach` and `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Its GPUs.
    pub gpus: Vec<PciAddr>,
    /// Its rails, in rail order.
    pub rails: Vec<HeldRail>,
    /// Whether no better choice of rails existed.
    pub exact: bool,
    /// What was, or is to be, done in the kernel.
    pub plan: AttachPlan,
}

/// One rail of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldRail {
    /// Place among the node's rails.
    pub index: RailIndex,
    /// PCI function.
    pub pci: PciAddr,
    /// Port of the RDMA device.
    pub port: u32,
    /// Interface on the host.
    pub netdev: IfName,
    /// RDMA device.
    pub rdma: Option<RdmaName>,
    /// Character device of the RDMA device, `uverbs5`.
    pub uverbs: Option<String>,
    /// Interface in the pod.
    pub interface: IfName,
    /// Leased addresses with their prefix length.
    pub addresses: Vec<IpNet>,
    /// The GPU that it serves; none for a sandbox without GPUs.
    pub gpu: Option<PciAddr>,
    /// How far that GPU is.
    pub distance: Option<Level>,
    /// The slot that became this rail; none without Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<SlotId>,
    /// Containers that have the slot, the one that keeps it first; none without Kubernetes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
}

/// A decision, and what it changes in the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The result.
    pub attachment: Attachment,
    /// Where the pool's first round stands now.
    pub cursors: Cursors,
}

/// Why a wish cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// No rails.
    #[error("no rails for sandbox {sandbox}")]
    Rails {
        /// Who asked.
        sandbox: SandboxId,
        /// Why.
        #[source]
        source: BindError,
    },
    /// No addresses.
    #[error("no addresses for sandbox {sandbox}")]
    Addresses {
        /// Who asked.
        sandbox: SandboxId,
        /// Why.
        #[source]
        source: Exhausted,
    },
    /// The parts do not fit together.
    #[error("no plan for sandbox {sandbox}")]
    Plan {
        /// Who asked.
        sandbox: SandboxId,
        /// Why.
        #[source]
        source: PlanError,
    },
    /// A chosen rail has no interface or no known MTU: the topology is a dump, or stale.
    #[error("rail {rail} has no network interface")]
    NoInterface {
        /// The rail.
        rail: RailIndex,
    },
}

impl DecideError {
    /// The next step for whoever meets this.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Rails {
                source: BindError::MoreThanExist { .. },
                ..
            } => {
                "see 'podrail topo' for the rails of this node, and why other ports are none".into()
            }
            Self::Rails {
                source: BindError::NotEnoughFree { unusable, .. },
                ..
            } if unusable
                .iter()
                .any(|(_, reason)| choice::is_unnamed(reason)) =>
            {
                "name more rails in the pod's annotation, or none; 'podrail status' shows who \
                 holds those that it names"
                    .into()
            }
            Self::Rails {
                source: BindError::NotEnoughFree { unusable, .. },
                ..
            } if !unusable.is_empty() => {
                "make the unusable rails usable ('podrail topo' shows the interface of each), or \
                 ask for fewer rails"
                    .into()
            }
            Self::Rails {
                source: BindError::NotEnoughFree { .. },
                ..
            } => {
                "see 'podrail status' for who holds rails and 'podrail topo' for their state".into()
            }
            Self::Rails { .. } => "see 'podrail topo' for the GPUs of this node".into(),
            Self::Addresses { source, .. } => source.hint(),
            Self::Plan { .. } => "lower rails.mtu, or raise the MTU of the interface".into(),
            Self::NoInterface { .. } => "see 'podrail topo'; was the interface moved away?".into(),
        }
    }
}

impl Held {
    fn history(&self) -> History<'_> {
        History {
            used: &self.addresses,
            freed: &self.freed,
            cursors: self.cursors,
        }
    }
}

impl Attachment {
    /// How many rails share a root complex with the GPU that they serve.
    #[must_use]
    pub fn near(&self) -> usize {
        self.rails
            .iter()
            .filter(|rail| rail.distance.is_some_and(Level::is_near))
            .count()
    }
}

/// Decides for one sandbox, given what is held.
///
/// # Errors
/// [`DecideError`]; nothing is held then.
pub fn decide(means: &Means<'_>, held: &Held, wish: &Wish) -> Result<Decision, DecideError> {
    let part = Part {
        gpus: wish.gpus.clone(),
        rails: wish.rails,
        ..Part::default()
    };
    let wish = PodWish {
        sandbox: wish.sandbox.clone(),
        parts: vec![part],
        networks: Wanted::default(),
        previous_rp_filter: wish.previous_rp_filter.clone(),
    };
    decide_pod(means, held, &wish, &[])
}

/// Decides for a pod, given what is held and what the `others` wait for: all other admitted pods
/// that are not bound yet.
///
/// # Guarantees
/// Each rail once, however many containers. The slots of a part become its rails in order, the
/// lowest slot the lowest rail. Same inputs, same plan, in whatever order parts, GPUs, slots,
/// containers and others are given.
///
/// # Errors
/// [`DecideError`]; nothing is held then.
pub fn decide_pod(
    means: &Means<'_>,
    held: &Held,
    wish: &PodWish,
    others: &[Demand],
) -> Result<Decision, DecideError> {
    let sandbox = || wish.sandbox.clone();
    let node = Node {
        topology: means.topology,
        overrides: &means.settings.overrides,
        shares_per_rail: means.settings.shares,
        unusable: binding::unusable(means.topology, means.settings.mtu),
        bound: held.bound.clone(),
    };
    let picked = choice::choose(&node, wish, others).map_err(|source| DecideError::Rails {
        sandbox: sandbox(),
        source,
    })?;
    let leases = ipam::allocate(means.pool, held.history(), picked.rails.len());
    let leases = leases.map_err(|source| DecideError::Addresses {
        sandbox: sandbox(),
        source,
    })?;
    let rails = held_rails(means, wish, &picked, &leases.slots)?;
    let plan = plan(means, wish, &rails)?;
    let gpus = wish.gpus().into_iter();
    let attachment = Attachment {
        gpus: gpus
            .filter_map(|gpu| gpu_address(means.topology, gpu))
            .collect(),
        rails,
        exact: picked.exact,
        plan,
    };
    Ok(Decision {
        attachment,
        cursors: leases.cursors,
    })
}

fn gpu_address(topology: &Topology, gpu: usize) -> Option<PciAddr> {
    topology.gpus.get(gpu).map(|gpu| gpu.path.function)
}

/// The chosen rails with their addresses, names and slots, in rail order.
fn held_rails(
    means: &Means<'_>,
    wish: &PodWish,
    picked: &Picked<'_>,
    leases: &[Addresses],
) -> Result<Vec<HeldRail>, DecideError> {
    let indexes = picked.rails.iter().map(|given| given.chosen.rail);
    let names = interfaces::names(&indexes.collect(), &wish.networks);
    let rails = picked.rails.iter().zip(leases);
    rails
        .map(|(given, addresses)| {
            let held = held_rail(means, &given.chosen, addresses)?;
            Ok(HeldRail {
                interface: names.get(&held.index).unwrap_or(&held.interface).clone(),
                slot: given.slot,
                containers: given.part.containers_of(given.slot),
                ..held
            })
        })
        .collect()
}

/// A rail as the topology knows it, under its default name.
fn held_rail(
    means: &Means<'_>,
    chosen: &Chosen,
    addresses: &Addresses,
) -> Result<HeldRail, DecideError> {
    let missing = || DecideError::NoInterface { rail: chosen.rail };
    let rail: &Rail = means.topology.rail(chosen.rail).ok_or_else(missing)?;
    let serves = chosen.serves;
    Ok(HeldRail {
        index: rail.index,
        pci: rail.path.function,
        port: rail.port,
        netdev: rail.netdev.clone().ok_or_else(missing)?,
        rdma: rail.rdma.clone(),
        uverbs: rail.uverbs.clone(),
        interface: rail.index.default_interface(),
        addresses: addresses
            .iter()
            .filter_map(|address| with_prefix(means.pool, address))
            .collect(),
        gpu: serves.and_then(|served| gpu_address(means.topology, served.gpu)),
        distance: serves.map(|served| served.distance.level),
        slot: None,
        containers: vec![],
    })
}

fn with_prefix(pool: &Pool, address: IpAddr) -> Option<IpNet> {
    let subnet = pool.subnet(Family::of(address))?;
    IpNet::new(address, subnet.prefix_len()).ok()
}

fn plan(means: &Means<'_>, wish: &PodWish, rails: &[HeldRail]) -> Result<AttachPlan, DecideError> {
    let failed = |source| DecideError::Plan {
        sandbox: wish.sandbox.clone(),
        source,
    };
    let gateways: Vec<IpAddr> = means
        .pool
        .families()
        .filter_map(|family| means.pool.gateway(family))
        .collect();
    let attachments = rails
        .iter()
        .map(|rail| {
            let parent_mtu = means.topology.rail(rail.index).and_then(|rail| rail.mtu);
            let parent_mtu = parent_mtu.ok_or(DecideError::NoInterface { rail: rail.index })?;
            let asked = means.settings.mtu;
            let mtu = RailAttachment::child_mtu(rail.index, &rail.netdev, parent_mtu, asked)
                .map_err(failed)?;
            Ok(RailAttachment {
                rail: rail.index,
                parent: rail.netdev.clone(),
                child: rail.interface.clone(),
                mtu,
                addresses: rail.addresses.clone(),
                gateways: gateways.clone(),
            })
        })
        .collect::<Result<Vec<_>, DecideError>>()?;
    AttachPlan::new(
        wish.sandbox.clone(),
        attachments,
        wish.previous_rp_filter.clone(),
    )
    .map_err(failed)
}

#[cfg(test)]
mod tests;
