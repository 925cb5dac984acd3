//! From rails and pods to the health of slots.

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

fn held(sound: &[u16], broken: &[u16], waiting: &[u16]) -> Held {
    let bound = |slots: &[u16], usable| -> BTreeMap<SlotId, bool> {
        slots.iter().map(|slot| (SlotId(*slot), usable)).collect()
    };
    let mut all = bound(sound, true);
    all.extend(bound(broken, false));
    Held {
        bound: all,
        waiting: waiting.iter().copied().map(SlotId).collect(),
    }
}

fn unhealthy(slots: u16, usable: u16, held: &Held, door: Door) -> Vec<u16> {
    slot_health(slots, usable, held, door)
        .into_iter()
        .filter_map(|(slot, healthy)| (!healthy).then_some(slot.0))
        .collect()
}

fn any_held() -> impl Strategy<Value = Held> {
    let slot = || (0u16..90).prop_map(SlotId);
    let bound = proptest::collection::btree_map(slot(), any::<bool>(), 0..40);
    let waiting = proptest::collection::btree_set(slot(), 0..20);
    (bound, waiting).prop_map(|(bound, waiting)| Held { bound, waiting })
}

fn shares(shares: u16) -> RailSettings {
    RailSettings {
        shares,
        ..RailSettings::default()
    }
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
    assert_eq!(usable_shares(&topology, GOOD, &shares(1)), 2);
    let mut small = topology.clone();
    small.rails[0].mtu = Some(1400);
    small.rails[3].mtu = Some(1500);
    let asked = RailSettings {
        mtu: Some(1500),
        ..shares(1)
    };
    assert_eq!(usable_shares(&small, GOOD, &asked), 1);
    assert_eq!(usable_shares(&small, GOOD, &shares(1)), 2);
    assert_eq!(usable_shares(&topology, GOOD, &shares(3)), 6);
    assert_eq!(usable_shares(&topology, GOOD, &shares(u16::MAX)), u16::MAX);
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
        assert_eq!(usable_shares(&topology, ground, &shares(1)), 0);
    }
}

#[test]
fn free_slots_turn_unhealthy_first_then_those_of_broken_rails_then_other_bound_ones() {
    let nobody = Held::default();
    assert_eq!(unhealthy(4, 4, &nobody, Door::Open), [] as [u16; 0]);
    assert_eq!(unhealthy(4, 9, &nobody, Door::Open), [] as [u16; 0]);
    assert_eq!(unhealthy(4, 3, &nobody, Door::Open), [3]);
    assert_eq!(
        unhealthy(0, 0, &held(&[0], &[], &[]), Door::Open),
        [] as [u16; 0]
    );
    assert_eq!(unhealthy(2, 1, &held(&[7], &[], &[8]), Door::Open), [1]);
    let some = held(&[1, 3], &[0, 4], &[2]);
    let in_turn: Vec<_> = (0..=6)
        .rev()
        .map(|usable| unhealthy(6, usable, &some, Door::Open))
        .collect();
    let expected: [&[u16]; 7] = [
        &[],
        &[5],
        &[4, 5],
        &[0, 4, 5],
        &[0, 3, 4, 5],
        &[0, 1, 3, 4, 5],
        &[0, 1, 3, 4, 5],
    ];
    assert_eq!(in_turn, expected);
}

#[test]
fn a_slot_that_waits_is_never_unhealthy() {
    // A full node after a boot, no link is up yet.
    let back = held(&[], &[], &[0, 1, 2, 3]);
    assert_eq!(unhealthy(4, 0, &back, Door::Shut), [] as [u16; 0]);
    // Allocated anew, while an old sandbox still has it.
    assert_eq!(unhealthy(2, 0, &held(&[], &[0], &[0]), Door::Open), [1]);
}

#[test]
fn behind_a_shut_door_free_slots_are_unhealthy_and_others_as_before() {
    assert_eq!(unhealthy(3, 3, &Held::default(), Door::Shut), [0, 1, 2]);
    let some = held(&[1], &[3], &[2]);
    assert_eq!(unhealthy(5, 5, &some, Door::Shut), [0, 4]);
    assert_eq!(unhealthy(5, 2, &some, Door::Shut), [0, 3, 4]);
}

proptest! {
    #[test]
    fn the_number_is_exact_but_for_those_that_wait(
        slots in 0u16..80,
        usable in 0u16..100,
        held in any_held(),
    ) {
        let health = slot_health(slots, usable, &held, Door::Open);
        let order: Vec<SlotId> = health.iter().map(|(slot, _)| *slot).collect();
        prop_assert_eq!(order, (0..slots).map(SlotId).collect::<Vec<_>>());
        let waits = |slot: &SlotId| held.waiting.contains(slot);
        let waiting = health.iter().filter(|(slot, _)| waits(slot)).count();
        let bad = health.iter().filter(|(_, healthy)| !healthy).count();
        let wanted = usize::from(slots.saturating_sub(usable));
        prop_assert_eq!(bad, wanted.min(usize::from(slots) - waiting));
        prop_assert!(health.iter().all(|(slot, healthy)| *healthy || !waits(slot)));
        let any = |good: bool, turn| {
            health.iter().any(|(slot, healthy)| *healthy == good && held.turn(*slot) == Some(turn))
        };
        prop_assert!(!(any(true, Turn::Free) && any(false, Turn::Broken)));
        prop_assert!(!(any(true, Turn::Broken) && any(false, Turn::Sound)));
    }

    #[test]
    fn one_more_usable_share_heals_one_slot_at_most_and_harms_none(
        slots in 0u16..60,
        usable in 0u16..60,
        held in any_held(),
        shut in any::<bool>(),
    ) {
        let door = if shut { Door::Shut } else { Door::Open };
        let before = slot_health(slots, usable, &held, door);
        let after = slot_health(slots, usable + 1, &held, door);
        let changed: Vec<_> = before.iter().zip(&after).filter(|(b, a)| b != a).collect();
        prop_assert!(changed.len() <= 1);
        prop_assert!(changed.iter().all(|(_, (_, healthy))| *healthy));
    }
}
