//! How good a choice of devices is, by the PCIe tree alone.
//!
//! "Near" is the project's word: at most the root complex between the two, so that GPUDirect RDMA
//! stays off the CPU's memory.

use super::{Grant, Machine};
use podrail_core::topology::Topology;

/// Rails of a pod, one bit each, in the grant's order.
type Rails = u64;

/// What one pod got.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Score {
    /// Its rails.
    pub(crate) rails: usize,
    /// Rails that are near to one of its GPUs.
    pub(crate) near: usize,
    /// GPUs without a near rail.
    pub(crate) remote_gpus: usize,
    /// NICs of which another pod has a port too, at the moment the pod starts.
    pub(crate) shared_nics: usize,
    /// What near rails can carry if each GPU sends an equal share of the pod's traffic, in rails.
    pub(crate) carried: f64,
}

impl Score {
    /// Of devices that were free until now.
    pub(crate) fn of(machine: &Machine<'_>, grant: &Grant) -> Self {
        let reach = reach(machine.topology, grant);
        let used = machine.used_nics();
        Self {
            rails: grant.rails.len(),
            near: count(reach.iter().fold(0, |all, near| all | near)),
            remote_gpus: reach.iter().filter(|near| **near == 0).count(),
            shared_nics: machine.nics(grant).intersection(&used).count(),
            carried: share(carried(&reach, grant.rails.len()), grant.gpus.len()),
        }
    }

    /// What near rails can carry, as a share of what all rails can.
    pub(crate) fn ceiling(&self) -> f64 {
        self.carried / share(self.rails.max(1), 1)
    }
}

/// The near rails of each GPU.
fn reach(topology: &Topology, grant: &Grant) -> Vec<Rails> {
    let gpus = grant.gpus.iter().filter_map(|gpu| topology.gpus.get(*gpu));
    gpus.map(|gpu| {
        let near = |rail| topology.distance(&gpu.path, rail).level.is_near();
        let rails = grant.rails.iter().zip((0..).map(|bit| 1 << bit));
        rails
            .filter(|(rail, _)| topology.rail(**rail).is_some_and(|rail| near(&rail.path)))
            .fold(0, |all, (_, bit): (_, Rails)| all | bit)
    })
    .collect()
}

/// The largest flow from GPUs (as many parts each as there are rails) to near rails (as many parts
/// each as there are GPUs). It is the smallest cut: of each set of GPUs either the GPU is cut off, or
/// all rails that it reaches are.
fn carried(reach: &[Rails], rails: usize) -> usize {
    let gpus = reach.len();
    let cut = |set: u64| {
        let inside = reach.iter().zip(0..).filter(|(_, gpu)| set >> gpu & 1 == 1);
        let reached = inside.fold(0, |all, (near, _): (_, u32)| all | near);
        (gpus - count(set)) * rails + count(reached) * gpus
    };
    (0..1 << gpus).map(cut).min().unwrap_or(0)
}

/// One number in terms of another; 0 of nothing.
pub(crate) fn share(part: usize, whole: usize) -> f64 {
    let as_float = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    as_float(part) / as_float(whole.max(1))
}

fn count(bits: u64) -> usize {
    usize::try_from(bits.count_ones()).unwrap_or_default()
}
