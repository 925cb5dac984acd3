//! A node and the pods that run on it.

use podrail_core::binding::unusable;
use podrail_core::ids::{NicId, RailIndex};
use podrail_core::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};

/// A pod, numbered in order of arrival.
pub(crate) type PodId = u32;

/// The devices of a pod, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Positions in [`Topology::gpus`].
    pub(crate) gpus: Vec<usize>,
    /// Its rails.
    pub(crate) rails: Vec<RailIndex>,
}

impl Grant {
    /// Sorts what was drawn.
    pub(super) fn new(mut gpus: Vec<usize>, mut rails: Vec<RailIndex>) -> Self {
        gpus.sort_unstable();
        rails.sort_unstable();
        Self { gpus, rails }
    }
}

/// A node with its running pods.
#[derive(Debug, Clone)]
pub(crate) struct Machine<'a> {
    /// Its devices.
    pub(crate) topology: &'a Topology,
    running: BTreeMap<PodId, Grant>,
}

impl<'a> Machine<'a> {
    /// Nothing runs.
    pub(crate) fn new(topology: &'a Topology) -> Self {
        Self {
            topology,
            running: BTreeMap::new(),
        }
    }

    /// The pod runs with these devices.
    pub(crate) fn start(&mut self, pod: PodId, grant: Grant) {
        self.running.insert(pod, grant);
    }

    /// The pod is gone; nothing happens if it never ran.
    pub(crate) fn stop(&mut self, pod: PodId) {
        self.running.remove(&pod);
    }

    /// All pods with their devices.
    pub(crate) fn running(&self) -> impl Iterator<Item = (PodId, &Grant)> {
        self.running.iter().map(|(pod, grant)| (*pod, grant))
    }

    /// GPUs that no pod has.
    pub(crate) fn free_gpus(&self) -> Vec<usize> {
        let used: BTreeSet<usize> = self
            .grants()
            .flat_map(|grant| &grant.gpus)
            .copied()
            .collect();
        let all = 0..self.topology.gpus.len();
        all.filter(|gpu| !used.contains(gpu)).collect()
    }

    /// Rails that no pod has and that can be handed out.
    pub(crate) fn free_rails(&self) -> Vec<RailIndex> {
        let used: BTreeSet<RailIndex> = self
            .grants()
            .flat_map(|grant| &grant.rails)
            .copied()
            .collect();
        let broken = unusable(self.topology, None);
        let all = self.topology.rails.iter().map(|rail| rail.index);
        all.filter(|rail| !used.contains(rail) && !broken.contains_key(rail))
            .collect()
    }

    /// NICs of which some pod has a port.
    pub(crate) fn used_nics(&self) -> BTreeSet<NicId> {
        self.grants().flat_map(|grant| self.nics(grant)).collect()
    }

    /// NICs of which this grant has a port.
    pub(crate) fn nics(&self, grant: &Grant) -> BTreeSet<NicId> {
        let rails = grant.rails.iter();
        rails
            .filter_map(|rail| self.topology.rail(*rail))
            .map(|rail| rail.nic)
            .collect()
    }

    fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.running.values()
    }
}
