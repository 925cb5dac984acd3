//! Which GPUs the kubelet gave: device ids of the GPU plugins -> positions of GPUs.
//!
//! | plugin | resources | ids |
//! |---|---|---|
//! | NVIDIA | `nvidia.com/gpu`, `nvidia.com/mig-*`, each maybe with `.shared` | `GPU-<uuid>`, `MIG-<uuid>`, `MIG-GPU-<uuid>/<gi>/<ci>` (drivers before 470), an index; each maybe with `::<replica>` (time slicing, MPS) |
//! | AMD | `amd.com/gpu`, `amd.com/cpx_nps4` and so on | PCI address, `amdgpu_xcp_<n>` (compute partition); each maybe with `-slice-<n>` |
//! | Intel | `gpu.intel.com/i915`, `gpu.intel.com/xe` | `card<n>-<share>` |
//!
//! A PCI address is understood for every GPU resource. Parts and shares of a GPU count as that GPU,
//! once. What is not understood is reported, never guessed.

use crate::ids::{GpuUuid, PciAddr};
use crate::pods::DeviceGrant;
use crate::topology::{Gpu, GpuKind, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most characters of an id that are looked at or repeated: ids come from other plugins.
const LONGEST_ID: usize = 128;
/// Most unknown ids that are kept.
const MOST_UNKNOWN: usize = 64;

/// What a device id names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuId {
    /// The GPU at this position in [`Topology::gpus`], or a part or a share of it.
    Found(usize),
    /// A MIG device of some GPU; only the NVIDIA driver knows which. Without replica suffix.
    NeedsMigParent(String),
    /// The resource is one of GPUs, and no GPU of the node is named so.
    Unknown,
    /// The resource is not one of GPUs.
    NotAGpu,
}

/// MIG device -> PCI function of its GPU, as far as the driver told.
pub type MigParents = BTreeMap<String, PciAddr>;

/// All GPUs of some grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantedGpus {
    /// Positions in [`Topology::gpus`], ascending, each once.
    pub gpus: Vec<usize>,
    /// MIG devices whose GPU is not known yet: ask the driver, then look again.
    pub mig: BTreeSet<String>,
    /// Ids that name no GPU of this node, in order, at most 64.
    pub unknown: Vec<UnknownGpu>,
}

impl GrantedGpus {
    /// Whether every device is known. If not, a choice by the known ones alone would be wrong.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.mig.is_empty() && self.unknown.is_empty()
    }
}

/// A device of a GPU resource that names no GPU of this node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnknownGpu {
    /// Resource.
    pub resource: String,
    /// Id, cut to 128 characters.
    pub id: String,
}

impl fmt::Display for UnknownGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.resource, self.id)
    }
}

/// Whose plugin a GPU resource is of; none for other resources.
#[must_use]
pub fn maker(resource: &str) -> Option<GpuKind> {
    let (domain, name) = resource.split_once('/')?;
    let plain = name.strip_suffix(".shared").unwrap_or(name);
    match domain {
        "nvidia.com" if plain == "gpu" || plain.starts_with("mig-") => Some(GpuKind::Nvidia),
        "amd.com" if plain == "gpu" || is_partition_type(plain) => Some(GpuKind::Amd),
        // `i915_monitoring` and `xe_monitoring` have the one id `all` and are no GPU.
        "gpu.intel.com" if ["i915", "xe"].contains(&plain) => Some(GpuKind::Intel),
        _ => None,
    }
}

/// Compute and memory partitioning, `cpx_nps4`.
fn is_partition_type(name: &str) -> bool {
    name.split_once("_nps").is_some_and(|(compute, memory)| {
        ["spx", "dpx", "tpx", "qpx", "cpx"].contains(&compute) && is_number(memory)
    })
}

/// Looks one device id up.
#[must_use]
pub fn lookup(topology: &Topology, resource: &str, id: &str) -> GpuId {
    let Some(maker) = maker(resource) else {
        return GpuId::NotAGpu;
    };
    if id.len() > LONGEST_ID {
        return GpuId::Unknown;
    }
    let id = without_share(maker, id);
    let found = match maker {
        GpuKind::Nvidia => nvidia(topology, id),
        GpuKind::Amd | GpuKind::Intel | GpuKind::Generic => position(topology, |gpu| {
            gpu.kind == maker && gpu.aliases.iter().any(|alias| alias == id)
        }),
    };
    let by_address = || {
        let address = PciAddr::parse(id).ok()?;
        position(topology, |gpu| gpu.path.function == address)
    };
    match found.or_else(by_address) {
        Some(position) => GpuId::Found(position),
        None if maker == GpuKind::Nvidia && is_mig(id) => GpuId::NeedsMigParent(id.to_owned()),
        None => GpuId::Unknown,
    }
}

/// The device of a share.
fn without_share(maker: GpuKind, id: &str) -> &str {
    let mark = match maker {
        GpuKind::Nvidia => "::",
        GpuKind::Amd => "-slice-",
        GpuKind::Intel => "-",
        GpuKind::Generic => return id,
    };
    match id.rsplit_once(mark) {
        Some((device, share)) if is_number(share) => device,
        _ => id,
    }
}

fn nvidia(topology: &Topology, id: &str) -> Option<usize> {
    if is_number(id) {
        return of_index(topology, id.parse().ok()?);
    }
    let old_mig = || id.strip_prefix("MIG-")?.split('/').next();
    let uuid = GpuUuid::parse(id).ok();
    let uuid = uuid.or_else(|| GpuUuid::parse(old_mig()?).ok())?;
    position(topology, |gpu| gpu.uuid.as_ref() == Some(&uuid))
}

/// The driver counts its own GPUs in PCI order.
fn of_index(topology: &Topology, index: usize) -> Option<usize> {
    let gpus = topology.gpus.iter().enumerate();
    let mut nvidia = gpus.filter(|(_, gpu)| gpu.kind == GpuKind::Nvidia);
    nvidia.nth(index).map(|(position, _)| position)
}

/// `MIG-<uuid>` of drivers from 470 on.
fn is_mig(id: &str) -> bool {
    id.strip_prefix("MIG-").is_some_and(|uuid| {
        (1..=60).contains(&uuid.len()) && uuid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn position(topology: &Topology, wanted: impl Fn(&Gpu) -> bool) -> Option<usize> {
    topology.gpus.iter().position(wanted)
}

/// Looks all devices of some grants up. Grants of other resources are passed over.
#[must_use]
pub fn granted(topology: &Topology, grants: &[DeviceGrant], parents: &MigParents) -> GrantedGpus {
    let mut found = GrantedGpus::default();
    let mut gpus = BTreeSet::new();
    for grant in grants {
        for id in &grant.ids {
            match lookup(topology, &grant.resource, id) {
                GpuId::Found(position) => _ = gpus.insert(position),
                GpuId::NotAGpu => break,
                GpuId::Unknown => found.add_unknown(&grant.resource, id),
                GpuId::NeedsMigParent(mig) => match parents.get(&mig) {
                    None => _ = found.mig.insert(mig),
                    Some(parent) => match position(topology, |gpu| gpu.path.function == *parent) {
                        Some(position) => _ = gpus.insert(position),
                        None => found.add_unknown(&grant.resource, id),
                    },
                },
            }
        }
    }
    found.gpus = gpus.into_iter().collect();
    found
}

impl GrantedGpus {
    fn add_unknown(&mut self, resource: &str, id: &str) {
        let unknown = UnknownGpu {
            resource: resource.to_owned(),
            id: id.chars().take(LONGEST_ID).collect(),
        };
        if self.unknown.len() < MOST_UNKNOWN && !self.unknown.contains(&unknown) {
            self.unknown.push(unknown);
        }
    }
}

#[cfg(test)]
mod tests;
