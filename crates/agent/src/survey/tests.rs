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

fn with_pool() -> Settings {
    let pool = json!({"pool": {"name": "p", "subnets": ["10.0.0.0/28"]}});
    Settings::from_document(pool, &[]).unwrap()
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
        let found = discovery(rails, mode);
        keep(&board, &mut store, &settings, &found, None).unwrap()
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

#[test]
fn a_boot_with_a_rail_fewer_keeps_the_slots_that_pods_have() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let boot = podrail_store::BootId::parse("8b1e2b3c-0000-4000-8000-000000000001").unwrap();
    let mut earlier = Store::open(&path, &boot).unwrap().store;
    assert_eq!(earlier.grow_slots(3).unwrap(), 3);
    earlier.allocate(&[SlotId(2)], 1).unwrap();
    drop(earlier);
    let mut store = open(&path).unwrap();
    let settings = with_pool();
    let two = vec![rail(0, LinkState::Up), rail(1, LinkState::Up)];
    let found = discovery(two, NetnsMode::Shared);
    let slots = keep(&Board::new(), &mut store, &settings, &found, None).unwrap();
    assert_eq!((slots.len(), unhealthy(&slots)), (3, vec![1]));
}

/// Binds a slot to a rail of [`rail`], as the plugin does.
fn bind(store: &mut Store, slot: u16, index: u16) {
    let sandbox = format!("sandbox-{slot}");
    let request = podrail_store::Request {
        sandbox: sandbox.parse().unwrap(),
        fingerprint: String::new(),
        netns: format!("/run/netns/{sandbox}"),
        netns_id: None,
        gpus: vec![],
        pod: None,
        at: 0,
        seen: BTreeMap::new(),
    };
    let bound = BoundRail {
        index: RailIndex(index),
        pci: rail(index, LinkState::Up).path.function,
        port: 1,
        netdev: format!("rdma{index}").parse().unwrap(),
        share: 0,
        slot: Some(SlotId(slot)),
    };
    let decision = podrail_store::Decision {
        rails: vec![bound],
        ..podrail_store::Decision::default()
    };
    let decided = store.reserve(&request, |_| Ok::<_, std::io::Error>(decision));
    decided.unwrap();
}

#[test]
fn of_slots_that_pods_have_those_of_broken_rails_turn_unhealthy_and_those_that_wait_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir.path().join("state.db")).unwrap();
    bind(&mut store, 0, 2);
    bind(&mut store, 1, 1);
    bind(&mut store, 2, 0);
    store.allocate(&[SlotId(3)], 1).unwrap();
    let mut see = |down: &[u16], rails: u16| {
        let state = |index| match down.contains(&index) {
            true => LinkState::Down,
            false => LinkState::Up,
        };
        let rails = (0..rails).map(|index| rail(index, state(index)));
        let found = discovery(rails.collect(), NetnsMode::Shared);
        let slots = keep(&Board::new(), &mut store, &with_pool(), &found, None).unwrap();
        assert_eq!(slots.len(), 4);
        unhealthy(&slots)
    };
    assert_eq!(see(&[], 4), [0u16; 0]);
    assert_eq!(see(&[1], 4), [1]);
    assert_eq!(see(&[0, 1], 4), [1, 2]);
    // Rail 3 is nobody's yet: a slot of a sound rail stands for it.
    assert_eq!(see(&[2, 3], 4), [0, 2]);
    // Rails 2 and 3 are gone.
    assert_eq!(see(&[], 2), [0, 2]);
    assert_eq!(see(&[0, 1, 2, 3], 4), [0, 1, 2]);
}

#[test]
fn no_new_pod_is_let_in_without_a_way_to_the_plugin_or_without_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir.path().join("state.db")).unwrap();
    bind(&mut store, 0, 0);
    store.allocate(&[SlotId(1)], 1).unwrap();
    let board = Board::new();
    let rails = (0..4).map(|index| rail(index, LinkState::Up)).collect();
    let found = discovery(rails, NetnsMode::Shared);
    let mut see = |settings: &Settings, blocked| {
        let slots = keep(&board, &mut store, settings, &found, blocked).unwrap();
        let told = board.conditions();
        let (_, holds, reason) = told.into_iter().find(|told| told.0 == OFFERED).unwrap();
        (unhealthy(&slots), holds, reason)
    };
    let (sick, holds, _) = see(&with_pool(), None);
    assert_eq!((sick, holds), (vec![], true));
    let (sick, holds, reason) = see(&with_pool(), Some("not chained: x"));
    assert_eq!((sick, holds), (vec![2, 3], false));
    assert!(reason.contains("not chained: x"), "{reason}");
    let no_pool = Settings::from_document(json!({}), &[]).unwrap();
    let (sick, holds, reason) = see(&no_pool, None);
    assert_eq!((sick, holds), (vec![2, 3], false));
    assert!(reason.contains("address pool"), "{reason}");
}

#[test]
fn before_the_first_look_only_slots_that_pods_have_are_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = crate::options::Options {
        config: Some(dir.path().join("config.yaml")),
        ..crate::options::Options::default()
    };
    options.paths.state = dir.path().join("state.db");
    std::fs::write(dir.path().join("config.yaml"), "").unwrap();
    // Of an earlier boot: nobody has opened the file since.
    let boot = podrail_store::BootId::parse("8b1e2b3c-0000-4000-8000-000000000001").unwrap();
    let mut earlier = Store::open(&options.paths.state, &boot).unwrap().store;
    earlier.grow_slots(5).unwrap();
    bind(&mut earlier, 4, 0);
    earlier.allocate(&[SlotId(1)], 1).unwrap();
    drop(earlier);
    let look = remembered(&Context::new(options)).unwrap();
    assert_eq!(
        (look.slots.len(), unhealthy(&look.slots)),
        (5, vec![0, 2, 3])
    );
}
