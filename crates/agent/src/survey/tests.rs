//! From a topology to the list for the kubelet, on a state file of its own.

use super::*;
use podrail_core::ids::{NicId, PciAddr, RailIndex, RootId};
use podrail_core::topology::{PciPath, Rail, RailFault};
use podrail_host::{KernelModule, NetnsMode, NodeFacts};
use serde_json::json;

fn rail(index: u16, link: LinkState) -> Rail {
    let function = PciAddr::parse(&format!("0000:0{index}:00.0")).unwrap();
    Rail {
        index: RailIndex(index),
        path: PciPath {
            root: RootId::parse("0000:00").unwrap(),
            bridges: vec![],
            function,
            numa: None,
        },
        pci_id: (0x15b3, 0x1021),
        nic: NicId::parse(&format!("0000:0{index}:00")).unwrap(),
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
        faults: vec![],
    }
}

fn discovery(rails: Vec<Rail>, netns_mode: NetnsMode) -> Discovery {
    Discovery {
        topology: Topology {
            rails,
            ..Topology::default()
        },
        node: NodeFacts {
            netns_mode,
            ipvlan: KernelModule::Loaded,
            kernel_release: None,
            boot_id: None,
            ofed: None,
        },
        notes: vec![],
    }
}

fn unhealthy(slots: &[Slot]) -> Vec<u16> {
    let sick = slots.iter().filter(|slot| !slot.healthy);
    sick.map(|slot| slot.id.0).collect()
}

#[test]
fn rails_that_fail_and_recover_are_slots_that_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir.path().join("state.db")).unwrap();
    let board = Board::new();
    let document = json!({
        "rails": {"shares": 2},
        "pool": {"name": "p", "subnets": ["10.0.0.0/28"], "exclude": ["10.0.0.7"]},
    });
    let settings = Settings::from_document(document, &[]).unwrap();
    let mut see = |rails: Vec<Rail>, mode| {
        keep(&board, &mut store, &settings, &discovery(rails, mode)).unwrap()
    };
    let up = |index| rail(index, LinkState::Up);
    let slots = see(vec![up(0), up(1)], NetnsMode::Shared);
    assert_eq!((slots.len(), unhealthy(&slots)), (4, vec![]));
    let down = vec![up(0), rail(1, LinkState::Down)];
    assert_eq!(unhealthy(&see(down.clone(), NetnsMode::Shared)), [2, 3]);
    let values = board.values(std::time::Instant::now());
    assert_eq!(
        values.rails,
        RailCounts {
            usable: 1,
            down: 1,
            faulty: 0
        }
    );
    assert_eq!((values.slots.free, values.slots.unhealthy), (2, 2));
    let addresses = AddressCounts {
        used: 0.0,
        total: 13.0,
    };
    assert_eq!(values.addresses, [("ipv4", addresses)].into());
    assert!(values.topology_age.is_some());
    // A rail that is gone takes its health, not its slots.
    let slots = see(vec![up(0)], NetnsMode::Shared);
    assert_eq!((slots.len(), unhealthy(&slots)), (4, vec![2, 3]));
    let mut faulty = up(1);
    faulty.faults.push(RailFault::MacvlanParent);
    assert_eq!(
        unhealthy(&see(vec![up(0), faulty], NetnsMode::Shared)),
        [2, 3]
    );
    let slots = see(vec![up(0), up(1)], NetnsMode::Exclusive);
    assert_eq!((slots.len(), unhealthy(&slots)), (4, vec![0, 1, 2, 3]));
    let told = board.conditions();
    let (_, holds, reason) = told.iter().find(|told| told.0 == DISCOVERED).unwrap();
    assert!(!holds && reason.contains("exclusive"), "{reason}");
    assert_eq!(
        unhealthy(&see(vec![up(0), up(1)], NetnsMode::Shared)),
        [0u16; 0]
    );
}
