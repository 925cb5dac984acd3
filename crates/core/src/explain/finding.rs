//! What is wrong with a pod's rails, in words.

use super::{GpuView, RailView, Surroundings};
use crate::binding::{self, Bound, Unusable};
use crate::ids::{NicId, PciAddr, RailIndex, SandboxId};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::collections::BTreeSet;
use std::fmt;

/// Something that costs bandwidth. Serialised as `kind` and `text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The node no longer has some of the pod's GPUs.
    GpusGone(Vec<PciAddr>),
    /// The node no longer has some of the pod's rails.
    RailsGone(Vec<RailIndex>),
    /// A rail cannot be used.
    RailUnusable(RailIndex, Unusable),
    /// There is nothing that rails could be next to.
    NoGpus,
    /// Rails next to none of the GPUs.
    RemoteRails(Vec<RailIndex>),
    /// GPUs without a rail next to them.
    GpusWithoutRail(Vec<PciAddr>),
    /// Ports of one NIC are another pod's.
    SplitNic {
        /// The NIC.
        nic: NicId,
        /// Its rails of this pod.
        own: Vec<RailIndex>,
        /// Its rails of the other.
        others: Vec<RailIndex>,
        /// The other.
        sandbox: SandboxId,
    },
    /// The same rails are another pod's as well.
    SharedRails {
        /// The rails.
        rails: Vec<RailIndex>,
        /// The other.
        sandbox: SandboxId,
    },
    /// Link speeds that the driver does not say.
    UnknownSpeed(Vec<RailIndex>),
}

impl Finding {
    /// Short name, for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::GpusGone(_) => "gpus-gone",
            Self::RailsGone(_) => "rails-gone",
            Self::RailUnusable(..) => "rail-unusable",
            Self::NoGpus => "no-gpus",
            Self::RemoteRails(_) => "remote-rails",
            Self::GpusWithoutRail(_) => "gpus-without-rail",
            Self::SplitNic { .. } => "split-nic",
            Self::SharedRails { .. } => "shared-rails",
            Self::UnknownSpeed(_) => "unknown-speed",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GpusGone(gpus) => write!(f, "the node no longer has {}", gpu_list(gpus)),
            Self::RailsGone(rails) => write!(f, "the node no longer has {}", rail_list(rails)),
            Self::RailUnusable(rail, why) => write!(f, "rail {rail} cannot be used: {why}"),
            Self::NoGpus => f.write_str("no GPU of this pod is known: no rail is next to one"),
            Self::RemoteRails(rails) => {
                let (is, it) = by_count(rails, ("is", "it"), ("are", "them"));
                write!(
                    f,
                    "{} {is} on another root than every GPU of this pod: NCCL does not use {it} \
                     with GPUDirect",
                    rail_list(rails)
                )
            }
            Self::GpusWithoutRail(gpus) => {
                let (has, its) = by_count(gpus, ("has", "its"), ("have", "their"));
                write!(
                    f,
                    "{} {has} no rail on {its} root: {its} traffic goes through CPU memory",
                    gpu_list(gpus)
                )
            }
            Self::SplitNic {
                nic,
                own,
                others,
                sandbox,
            } => write!(
                f,
                "NIC {nic} is split: {} here, {} with sandbox {sandbox}",
                rail_list(own),
                rail_list(others)
            ),
            Self::SharedRails { rails, sandbox } => write!(
                f,
                "{} {} shared with sandbox {sandbox}: each gets a part of the bandwidth",
                rail_list(rails),
                by_count(rails, "is", "are")
            ),
            Self::UnknownSpeed(rails) => write!(
                f,
                "the driver does not say the speed of {}: the ceiling is not known",
                rail_list(rails)
            ),
        }
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Finding", 2)?;
        fields.serialize_field("kind", self.kind())?;
        fields.serialize_field("text", &self.to_string())?;
        fields.end()
    }
}

fn by_count<T, W>(items: &[T], one: W, several: W) -> W {
    if items.len() == 1 { one } else { several }
}

/// `rail 3`, `rails 0, 2-5`.
fn rail_list(rails: &[RailIndex]) -> String {
    let mut runs: Vec<(u16, u16)> = vec![];
    for rail in rails.iter().copied().collect::<BTreeSet<_>>() {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rail.0) => *last = rail.0,
            _ => runs.push((rail.0, rail.0)),
        }
    }
    let run = |&(first, last): &(u16, u16)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let runs: Vec<String> = runs.iter().map(run).collect();
    format!("{} {}", by_count(rails, "rail", "rails"), runs.join(", "))
}

fn gpu_list(gpus: &[PciAddr]) -> String {
    let list: Vec<String> = gpus.iter().map(PciAddr::to_string).collect();
    format!("{} {}", by_count(gpus, "GPU", "GPUs"), list.join(", "))
}

/// All findings of a pod with these GPUs and rails.
pub(super) fn all(
    around: &Surroundings<'_>,
    own: &SandboxId,
    (gpus, rails): (&[GpuView], &[RailView]),
) -> Vec<Finding> {
    let mut found = of_node(around, gpus, rails);
    found.extend(of_distance(gpus, rails));
    for other in around.bound.iter().filter(|other| other.sandbox != *own) {
        found.extend(split_nics(around, rails, other));
        found.extend(shared(rails, other));
    }
    let unknown = rails.iter().filter(|rail| rail.speed_mbps.is_none());
    found.extend(unless_empty(
        unknown.map(|rail| rail.index),
        Finding::UnknownSpeed,
    ));
    found
}

fn unless_empty<T>(
    items: impl Iterator<Item = T>,
    finding: impl FnOnce(Vec<T>) -> Finding,
) -> Option<Finding> {
    let items: Vec<T> = items.collect();
    (!items.is_empty()).then(|| finding(items))
}

fn of_node(around: &Surroundings<'_>, gpus: &[GpuView], rails: &[RailView]) -> Vec<Finding> {
    let known = |rail: &RailView| around.rail(rail.pci, rail.port);
    let gpus_gone = gpus.iter().filter(|gpu| gpu.index.is_none());
    let rails_gone = rails.iter().filter(|rail| known(rail).is_none());
    let unusable = binding::unusable(around.topology, None);
    let reason = |rail: &RailView| {
        let reason = unusable.get(&known(rail)?.index)?.clone();
        Some(Finding::RailUnusable(rail.index, reason))
    };
    unless_empty(gpus_gone.map(|gpu| gpu.pci), Finding::GpusGone)
        .into_iter()
        .chain(unless_empty(
            rails_gone.map(|rail| rail.index),
            Finding::RailsGone,
        ))
        .chain(rails.iter().filter_map(reason))
        .collect()
}

fn of_distance(gpus: &[GpuView], rails: &[RailView]) -> Vec<Finding> {
    let known = |gpu: &&GpuView| gpu.index.is_some();
    if gpus.iter().filter(known).count() == 0 {
        return vec![Finding::NoGpus];
    }
    let remote = rails
        .iter()
        .filter(|rail| rail.nearest().is_some() && !rail.is_near());
    let lonely = gpus.iter().filter(known).filter(|gpu| gpu.near.is_empty());
    unless_empty(remote.map(|rail| rail.index), Finding::RemoteRails)
        .into_iter()
        .chain(unless_empty(
            lonely.map(|gpu| gpu.pci),
            Finding::GpusWithoutRail,
        ))
        .collect()
}

fn split_nics(around: &Surroundings<'_>, rails: &[RailView], other: &Bound) -> Vec<Finding> {
    let nic = |index: RailIndex| around.topology.rail(index).map(|rail| rail.nic);
    let own: BTreeSet<RailIndex> = rails.iter().map(|rail| rail.index).collect();
    let foreign: BTreeSet<RailIndex> = other.rails.iter().copied().collect();
    let nics: BTreeSet<NicId> = own.iter().filter_map(|index| nic(*index)).collect();
    let of = |rails: &BTreeSet<RailIndex>, of: NicId| -> Vec<RailIndex> {
        rails
            .iter()
            .copied()
            .filter(|rail| nic(*rail) == Some(of))
            .collect()
    };
    let only_theirs = &foreign - &own;
    nics.into_iter()
        .filter_map(|nic| {
            let others = of(&only_theirs, nic);
            (!others.is_empty()).then(|| Finding::SplitNic {
                nic,
                own: of(&own, nic),
                others,
                sandbox: other.sandbox.clone(),
            })
        })
        .collect()
}

fn shared(rails: &[RailView], other: &Bound) -> Option<Finding> {
    let both = rails.iter().map(|rail| rail.index);
    let both = both.filter(|rail| other.rails.contains(rail));
    unless_empty(both, |rails| Finding::SharedRails {
        rails,
        sandbox: other.sandbox.clone(),
    })
}
