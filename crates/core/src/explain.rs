//! Why a pod gets the bandwidth that it gets: how far its rails are from its GPUs.
//!
//! The ceiling is what the links next to the pod's GPUs carry in one direction. NCCL uses a rail
//! with GPUDirect RDMA only if it is near the GPU; the others carry traffic through CPU memory, if
//! they are used at all. It is a bound on the wire, not a forecast: protocol headers, PCIe and the
//! fabric take their part. And it is no bound on what `all_reduce_perf` prints as busbw, which is
//! computed for a ring: with n GPUs in all, a tree over two nodes moves up to 2(n-1)/n times less
//! over the wire than a ring, so busbw may exceed the wire rate by that factor.

use crate::attachment::{Attachment, HeldRail};
use crate::binding::Bound;
use crate::config::Override;
use crate::ids::{IfName, PciAddr, RailIndex, RdmaName};
use crate::topology::{Gpu, Level, Rail, Topology};
use serde::Serialize;
use std::fmt;

mod finding;
pub use finding::Finding;

/// What the pod stands in.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// GPUs and rails of the node.
    pub topology: &'a Topology,
    /// Distances that come before those of the PCIe tree; the first that fits counts.
    pub overrides: &'a [Override],
    /// All sandboxes with rails; the explained one may be among them.
    pub bound: &'a [Bound],
}

/// Rails and GPUs of a pod against each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Its GPUs, in the order of the attachment.
    pub gpus: Vec<GpuView>,
    /// Its rails, in the order of the attachment.
    pub rails: Vec<RailView>,
    /// What the rails next to its GPUs carry.
    pub near: Ceiling,
    /// What all its rails carry: the ceiling if all were near.
    pub all: Ceiling,
    /// What is wrong, the gravest first; empty if nothing is.
    pub findings: Vec<Finding>,
}

/// A GPU of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuView {
    /// PCI function.
    pub pci: PciAddr,
    /// Its index on the node; none if the node no longer has it.
    pub index: Option<usize>,
    /// The pod's rails next to it.
    pub near: Vec<RailIndex>,
}

/// A rail of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RailView {
    /// Place among the node's rails.
    pub index: RailIndex,
    /// PCI function.
    pub pci: PciAddr,
    /// Port of the RDMA device, from 1.
    pub port: u32,
    /// Interface on the host.
    pub netdev: IfName,
    /// RDMA device.
    pub rdma: Option<RdmaName>,
    /// Speed of its link in Mbit/s, where known.
    pub speed_mbps: Option<u32>,
    /// How far each GPU is, in the order of [`Explanation::gpus`]; none if the GPU or the rail is
    /// gone.
    pub levels: Vec<Option<Level>>,
}

impl RailView {
    /// Distance of the nearest GPU.
    #[must_use]
    pub fn nearest(&self) -> Option<Level> {
        self.levels.iter().flatten().min().copied()
    }

    fn is_near(&self) -> bool {
        self.nearest().is_some_and(Level::is_near)
    }
}

/// Sum of link speeds, per direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Ceiling {
    /// How many rails.
    pub rails: usize,
    /// How many of them have no known speed; they are not in the sum.
    pub unknown_speed: usize,
    /// Sum of the known speeds, in Mbit/s.
    pub mbps: u64,
}

impl Ceiling {
    fn of<'a>(rails: impl Iterator<Item = &'a RailView>) -> Self {
        rails.fold(Self::default(), |sum, rail| Self {
            rails: sum.rails + 1,
            unknown_speed: sum.unknown_speed + usize::from(rail.speed_mbps.is_none()),
            mbps: sum.mbps + u64::from(rail.speed_mbps.unwrap_or(0)),
        })
    }

    /// GB/s (10^9 bytes), the unit of NCCL's tests; none if a speed is not known.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> Option<f64> {
        let mbps = u32::try_from(self.mbps).ok().map(f64::from)?;
        (self.unknown_speed == 0).then_some(mbps / 8000.0)
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.rails == 1 { "" } else { "s" };
        let unknown = self.unknown_speed;
        match self.gigabytes_per_second() {
            Some(rate) => write!(f, "{rate:.1} GB/s ({} rail{plural})", self.rails),
            None => write!(
                f,
                "unknown ({} rail{plural}, speed of {unknown} unknown)",
                self.rails
            ),
        }
    }
}

/// Explains one attachment.
#[must_use]
pub fn explain(around: &Surroundings<'_>, attachment: &Attachment) -> Explanation {
    let gpus: Vec<Option<&Gpu>> = attachment
        .gpus
        .iter()
        .map(|pci| around.gpu(*pci).map(|(_, gpu)| gpu))
        .collect();
    let rails: Vec<RailView> = attachment
        .rails
        .iter()
        .map(|held| around.rail_view(held, &gpus))
        .collect();
    let gpus: Vec<GpuView> = attachment
        .gpus
        .iter()
        .enumerate()
        .map(|(at, pci)| around.gpu_view(at, *pci, &rails))
        .collect();
    Explanation {
        near: Ceiling::of(rails.iter().filter(|rail| rail.is_near())),
        all: Ceiling::of(rails.iter()),
        findings: finding::all(around, &attachment.plan.sandbox, (&gpus, &rails)),
        gpus,
        rails,
    }
}

impl<'a> Surroundings<'a> {
    fn gpu(&self, pci: PciAddr) -> Option<(usize, &'a Gpu)> {
        let mut gpus = self.topology.gpus.iter().enumerate();
        gpus.find(|(_, gpu)| gpu.path.function == pci)
    }

    /// The index may be another rail's by now; the function and the port stay.
    fn rail(&self, pci: PciAddr, port: u32) -> Option<&'a Rail> {
        let mut rails = self.topology.rails.iter();
        rails.find(|rail| rail.path.function == pci && rail.port == port)
    }

    fn rail_view(&self, held: &HeldRail, gpus: &[Option<&Gpu>]) -> RailView {
        let rail = self.rail(held.pci, held.port);
        RailView {
            index: held.index,
            pci: held.pci,
            port: held.port,
            netdev: held.netdev.clone(),
            rdma: held.rdma.clone(),
            speed_mbps: rail.and_then(|rail| rail.speed_mbps),
            levels: gpus
                .iter()
                .map(|gpu| Some(self.level((*gpu)?, rail?)))
                .collect(),
        }
    }

    fn gpu_view(&self, at: usize, pci: PciAddr, rails: &[RailView]) -> GpuView {
        let is_near = |rail: &&RailView| {
            let level = rail.levels.get(at).copied().flatten();
            level.is_some_and(Level::is_near)
        };
        GpuView {
            pci,
            index: self.gpu(pci).map(|(index, _)| index),
            near: rails
                .iter()
                .filter(is_near)
                .map(|rail| rail.index)
                .collect(),
        }
    }

    fn level(&self, gpu: &Gpu, rail: &Rail) -> Level {
        let mut overrides = self.overrides.iter();
        let known = overrides.find(|known| known.gpu == gpu.path.function && known.nic == rail.nic);
        known.map_or_else(
            || self.topology.distance(&gpu.path, &rail.path).level,
            |known| known.level,
        )
    }
}

#[cfg(test)]
mod tests;
