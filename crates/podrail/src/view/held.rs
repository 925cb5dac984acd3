//! Who holds a device, and how near each holder's rails are to its GPUs.

use super::Holder;
use super::text::{clean, count, ranges};
use podrail_core::ids::RailIndex;
use podrail_core::topology::{Gpu, Rail, Topology};
use std::borrow::Cow;

/// Positions in the list of holders of those who hold this GPU: more than one when it is shared.
pub(super) fn by_gpu(holders: &[Holder], gpu: usize) -> Vec<usize> {
    positions(holders, |holder| holder.gpus.contains(&gpu))
}

/// Positions in the list of holders of those who hold this rail: more than one when it is shared.
pub(super) fn by_rail(holders: &[Holder], rail: RailIndex) -> Vec<usize> {
    positions(holders, |holder| holder.rails.contains(&rail))
}

fn positions(holders: &[Holder], holds: impl Fn(&Holder) -> bool) -> Vec<usize> {
    let found = holders
        .iter()
        .enumerate()
        .filter(|(_, holder)| holds(holder));
    found.map(|(position, _)| position).collect()
}

/// Name of a holder as it may be shown.
pub(super) fn name(holder: &Holder) -> Cow<'_, str> {
    match clean(holder.name.trim()) {
        name if name.is_empty() => Cow::Borrowed("(no name)"),
        name => name,
    }
}

/// Names of the holders at these positions, joined; `free` if there are none.
pub(super) fn names(holders: &[Holder], positions: &[usize]) -> String {
    let names: Vec<_> = positions
        .iter()
        .filter_map(|p| holders.get(*p))
        .map(name)
        .collect();
    if names.is_empty() {
        "free".to_owned()
    } else {
        names.join(", ")
    }
}

/// How the rails of one holder lie to its GPUs.
pub(super) struct Nearness {
    /// Rails below the root of one of its GPUs.
    pub(super) near: usize,
    /// All its rails that the node has.
    pub(super) rails: usize,
    /// Its GPUs with none of its rails below their root.
    pub(super) bare: Vec<usize>,
}

impl Nearness {
    /// Measures one holder.
    pub(super) fn of(topology: &Topology, holder: &Holder) -> Self {
        let rails: Vec<_> = holder
            .rails
            .iter()
            .filter_map(|index| topology.rail(*index))
            .collect();
        let gpus: Vec<_> = holder
            .gpus
            .iter()
            .filter_map(|at| Some((*at, topology.gpus.get(*at)?)))
            .collect();
        let near =
            |gpu: &Gpu, rail: &Rail| topology.distance(&gpu.path, &rail.path).level.is_near();
        Self {
            near: rails
                .iter()
                .filter(|rail| gpus.iter().any(|(_, gpu)| near(gpu, rail)))
                .count(),
            rails: rails.len(),
            bare: gpus
                .iter()
                .filter(|(_, gpu)| !rails.iter().any(|rail| near(gpu, rail)))
                .map(|(at, _)| *at)
                .collect(),
        }
    }

    /// In words: `8 of 8 rails near`, `3 of 8 rails near, none near GPUs 4, 5`; empty where there
    /// is nothing to compare.
    pub(super) fn words(&self, holder: &Holder) -> String {
        if holder.gpus.is_empty() || self.rails == 0 {
            return String::new();
        }
        let near = format!("{} of {} near", self.near, count(self.rails, "rail"));
        match self.bare.len() {
            0 => near,
            bare => {
                let noun = if bare == 1 { "GPU" } else { "GPUs" };
                format!(
                    "{near}, none near {noun} {}",
                    ranges(self.bare.iter().copied())
                )
            }
        }
    }
}
