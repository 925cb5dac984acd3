//! Which slots the kubelet may hand out: as many as there are usable rail shares.
//!
//! A slot is no rail until it is bound, so no free slot is the one of a broken rail. What counts is
//! the number, and the choice of the unhealthy ones spares slots that pods have: whenever the kubelet
//! admits a pod anew (it was started anew, the node has booted), it refuses it for good if a device
//! of it is unhealthy ("previously allocated devices are no longer healthy"). A slot that waits is
//! never unhealthy: its pod may get any rail, and after a boot links come up later than pods.

use crate::binding;
use crate::config::RailSettings;
use crate::ids::SlotId;
use crate::topology::Topology;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What the whole node needs before any rail can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ground {
    /// Network namespaces share the RDMA devices (`netns_mode` of `ib_core`).
    pub netns_shared: bool,
    /// The kernel has IPvlan, or can load it.
    pub ipvlan: bool,
}

/// How many pods could hold a rail at the same time: usable rails times shares.
#[must_use]
pub fn usable_shares(topology: &Topology, ground: Ground, rails: &RailSettings) -> u16 {
    if !(ground.netns_shared && ground.ipvlan) {
        return 0;
    }
    let unusable = binding::unusable(topology, rails.mtu);
    let usable = topology.rails.iter();
    let usable = usable.filter(|rail| !unusable.contains_key(&rail.index));
    let usable = u16::try_from(usable.count()).unwrap_or(u16::MAX);
    usable.saturating_mul(rails.shares)
}

/// What pods have of the slots. A slot that is in both waits: its new pod has no rail yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// Bound in this boot; whether the slot's own rail is usable.
    pub bound: BTreeMap<SlotId, bool>,
    /// Allocated and not bound. After a boot, all slots of pods that have not come back yet.
    pub waiting: BTreeSet<SlotId>,
}

impl Held {
    /// Whether a pod has it.
    #[must_use]
    pub fn has(&self, slot: SlotId) -> bool {
        self.bound.contains_key(&slot) || self.waiting.contains(&slot)
    }

    /// Place in the order in which slots turn unhealthy; none: never.
    fn turn(&self, slot: SlotId) -> Option<Turn> {
        if self.waiting.contains(&slot) {
            return None;
        }
        Some(match self.bound.get(&slot) {
            None => Turn::Free,
            Some(false) => Turn::Broken,
            Some(true) => Turn::Sound,
        })
    }
}

/// In this order slots turn unhealthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// No pod has it.
    Free,
    /// Bound to a rail that is not usable.
    Broken,
    /// Bound to a rail that is usable.
    Sound,
}

/// Whether new pods may be given slots at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// They may.
    Open,
    /// They would get no rails, and be stuck: the runtime does not ask the plugin twice.
    Shut,
}

/// All slots in order, each with its health.
///
/// # Guarantees
/// As many as `slots - usable_shares` are unhealthy, or fewer if the others wait: first free ones,
/// then bound ones with an unusable rail, then other bound ones, of each the highest number first.
/// While the door is shut all free slots are. More usable shares never turn a slot unhealthy.
#[must_use]
pub fn slot_health(slots: u16, usable_shares: u16, held: &Held, door: Door) -> Vec<(SlotId, bool)> {
    let all = || (0..slots).map(SlotId);
    let free = all().filter(|slot| !held.has(*slot)).count();
    let at_least = match door {
        Door::Open => 0,
        Door::Shut => free,
    };
    let count = usize::from(slots.saturating_sub(usable_shares)).max(at_least);
    let mut order: Vec<(Turn, Reverse<SlotId>)> = all()
        .filter_map(|slot| Some((held.turn(slot)?, Reverse(slot))))
        .collect();
    order.sort_unstable();
    let first = order.into_iter().take(count);
    let unhealthy: BTreeSet<SlotId> = first.map(|(_, Reverse(slot))| slot).collect();
    all()
        .map(|slot| (slot, !unhealthy.contains(&slot)))
        .collect()
}

#[cfg(test)]
mod tests;
