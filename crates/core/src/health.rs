//! Which slots the kubelet may hand out: as many as there are usable rail shares.
//!
//! A slot is no rail until it is bound, so no slot is the one of a broken rail. What counts is the
//! number, and the choice of the unhealthy ones spares slots that pods hold: after a reboot the
//! kubelet refuses a pod of which a device is unhealthy ("previously allocated devices are no longer
//! healthy"), although its rails may be fine.

use crate::binding;
use crate::ids::SlotId;
use crate::topology::Topology;
use std::collections::BTreeSet;

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
pub fn usable_shares(topology: &Topology, ground: Ground, shares_per_rail: u16) -> u16 {
    if !(ground.netns_shared && ground.ipvlan) {
        return 0;
    }
    let unusable = binding::unusable(topology);
    let usable = topology.rails.iter();
    let usable = usable.filter(|rail| !unusable.contains_key(&rail.index));
    let usable = u16::try_from(usable.count()).unwrap_or(u16::MAX);
    usable.saturating_mul(shares_per_rail)
}

/// All slots in order, each with its health. `busy` are those that are allocated or bound.
///
/// # Guarantees
/// Exactly `slots - usable_shares` are unhealthy (none if more shares are usable than there are
/// slots): first those that are not busy, the highest number first, then the busy ones likewise.
/// More usable shares never turn a slot unhealthy.
#[must_use]
pub fn slot_health(slots: u16, usable_shares: u16, busy: &BTreeSet<SlotId>) -> Vec<(SlotId, bool)> {
    let all = || (0..slots).map(SlotId);
    let is_busy = |slot: &SlotId| busy.contains(slot);
    let free = all().rev().filter(|slot| !is_busy(slot));
    let unhealthy: BTreeSet<SlotId> = free
        .chain(all().rev().filter(is_busy))
        .take(usize::from(slots.saturating_sub(usable_shares)))
        .collect();
    all()
        .map(|slot| (slot, !unhealthy.contains(&slot)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PciAddr, RailIndex, RootId};
    use crate::topology::{LinkState, PciPath, Rail, RailFault};
    use proptest::prelude::*;

    const GOOD: Ground = Ground {
        netns_shared: true,
        ipvlan: true,
    };

    fn rail(index: u16, link: LinkState, faults: Vec<RailFault>) -> Rail {
        let function = PciAddr::parse(&format!("0000:{index:02x}:00.0")).unwrap();
        Rail {
            index: RailIndex(index),
            path: PciPath {
                root: RootId::parse("0000:00").unwrap(),
                bridges: vec![],
                function,
                numa: None,
            },
            pci_id: (0x15b3, 0x101d),
            nic: function.nic(),
            netdev: None,
            ifindex: None,
            rdma: None,
            port: 1,
            uverbs: None,
            umad: None,
            issm: None,
            guid: None,
            mac: None,
            mtu: None,
            speed_mbps: None,
            link,
            faults,
        }
    }

    fn unhealthy(slots: u16, usable: u16, busy: &[u16]) -> Vec<u16> {
        let busy = busy.iter().copied().map(SlotId).collect();
        slot_health(slots, usable, &busy)
            .into_iter()
            .filter_map(|(slot, healthy)| (!healthy).then_some(slot.0))
            .collect()
    }

    #[test]
    fn a_rail_without_link_or_with_a_fault_is_not_counted() {
        let topology = Topology {
            rails: vec![
                rail(0, LinkState::Up, vec![]),
                rail(1, LinkState::Down, vec![]),
                rail(2, LinkState::Up, vec![RailFault::NoRdmaDevice]),
                rail(3, LinkState::Unknown, vec![]),
            ],
            ..Topology::default()
        };
        assert_eq!(usable_shares(&topology, GOOD, 1), 2);
        assert_eq!(usable_shares(&topology, GOOD, 3), 6);
        assert_eq!(usable_shares(&topology, GOOD, u16::MAX), u16::MAX);
        for ground in [
            Ground {
                netns_shared: false,
                ..GOOD
            },
            Ground {
                ipvlan: false,
                ..GOOD
            },
        ] {
            assert_eq!(usable_shares(&topology, ground, 1), 0);
        }
    }

    #[test]
    fn free_slots_turn_unhealthy_first_and_the_highest_before_the_others() {
        assert_eq!(unhealthy(4, 4, &[]), [] as [u16; 0]);
        assert_eq!(unhealthy(4, 9, &[]), [] as [u16; 0]);
        assert_eq!(unhealthy(4, 3, &[]), [3]);
        assert_eq!(unhealthy(4, 3, &[3]), [2]);
        assert_eq!(unhealthy(4, 1, &[2, 3]), [0, 1, 3]);
        assert_eq!(unhealthy(4, 0, &[0, 1]), [0, 1, 2, 3]);
        assert_eq!(unhealthy(2, 1, &[7]), [1]);
        assert_eq!(unhealthy(0, 0, &[0]), [] as [u16; 0]);
    }

    proptest! {
        #[test]
        fn the_number_is_exact_and_busy_slots_are_spared(
            slots in 0u16..80,
            usable in 0u16..100,
            busy in proptest::collection::btree_set((0u16..90).prop_map(SlotId), 0..40),
        ) {
            let health = slot_health(slots, usable, &busy);
            let order: Vec<SlotId> = health.iter().map(|(slot, _)| *slot).collect();
            prop_assert_eq!(order, (0..slots).map(SlotId).collect::<Vec<_>>());
            let bad = health.iter().filter(|(_, healthy)| !healthy).count();
            prop_assert_eq!(bad, usize::from(slots.saturating_sub(usable)));
            let free_left = health.iter().any(|(slot, healthy)| *healthy && !busy.contains(slot));
            let busy_hit = health.iter().any(|(slot, healthy)| !healthy && busy.contains(slot));
            prop_assert!(!(free_left && busy_hit));
        }

        #[test]
        fn one_more_usable_share_heals_one_slot_at_most_and_harms_none(
            slots in 0u16..60,
            usable in 0u16..60,
            busy in proptest::collection::btree_set((0u16..60).prop_map(SlotId), 0..40),
        ) {
            let before = slot_health(slots, usable, &busy);
            let after = slot_health(slots, usable + 1, &busy);
            let changed: Vec<_> = before.iter().zip(&after).filter(|(b, a)| b != a).collect();
            prop_assert!(changed.len() <= 1);
            prop_assert!(changed.iter().all(|(_, (_, healthy))| *healthy));
        }
    }
}
