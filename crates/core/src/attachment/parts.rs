//! What a pod asks for: its containers' slots and GPUs.

use crate::binding::Demand;
use crate::ids::{SandboxId, SlotId};
use crate::networks::Wanted;
use std::collections::{BTreeMap, BTreeSet};

/// What the sandbox of a pod wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodWish {
    /// Who.
    pub sandbox: SandboxId,
    /// Its containers' shares, in any order.
    pub parts: Vec<Part>,
    /// Rails and interfaces that its annotation names.
    pub networks: Wanted,
    /// `net.ipv4.conf.all.rp_filter` of its namespace now, to go back to.
    pub previous_rp_filter: Option<String>,
}

/// What belongs together: GPUs, and rails next to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Containers that have all of it; none without Kubernetes.
    pub containers: Vec<String>,
    /// Plain init containers that have some of the slots before: the kubelet hands them on.
    pub lent: BTreeMap<SlotId, Vec<String>>,
    /// GPUs, as positions in [`Topology::gpus`](crate::topology::Topology::gpus).
    pub gpus: Vec<usize>,
    /// The slots that become rails; none without Kubernetes.
    pub slots: Vec<SlotId>,
    /// How many rails; with slots, as many as those.
    pub rails: u16,
}

impl PodWish {
    /// Rails of all parts together.
    pub(super) fn rails(&self) -> u16 {
        self.parts
            .iter()
            .fold(0, |sum, part| part.rails.saturating_add(sum))
    }

    /// GPUs of all parts, ascending, each once.
    pub(super) fn gpus(&self) -> BTreeSet<usize> {
        let gpus = self.parts.iter().flat_map(|part| &part.gpus);
        gpus.copied().collect()
    }

    /// The parts in the order of their choice, whatever order they were given in: those without
    /// GPUs last, since they go anywhere.
    pub(super) fn in_order(&self) -> Vec<&Part> {
        let mut parts: Vec<&Part> = self.parts.iter().collect();
        parts.sort_by_cached_key(|part| {
            let demand = part.demand();
            let none = demand.gpus.is_empty();
            (
                none,
                demand.gpus,
                part.sorted_slots(),
                part.containers_of(None),
            )
        });
        parts
    }
}

impl Part {
    /// For the choice of rails.
    #[must_use]
    pub fn demand(&self) -> Demand {
        let gpus: BTreeSet<usize> = self.gpus.iter().copied().collect();
        Demand {
            gpus: gpus.into_iter().collect(),
            rails: self.rails,
        }
    }

    pub(super) fn sorted_slots(&self) -> Vec<SlotId> {
        let slots: BTreeSet<SlotId> = self.slots.iter().copied().collect();
        slots.into_iter().collect()
    }

    /// Who has a slot: the part's own containers, then those that it is lent to; both in the
    /// order of names.
    #[must_use]
    pub fn containers_of(&self, slot: Option<SlotId>) -> Vec<String> {
        let lent = slot.and_then(|slot| self.lent.get(&slot));
        let own: BTreeSet<&String> = self.containers.iter().collect();
        let lent: BTreeSet<&String> = lent.into_iter().flatten().collect();
        let lent = lent.difference(&own);
        own.iter().chain(lent).copied().cloned().collect()
    }
}
