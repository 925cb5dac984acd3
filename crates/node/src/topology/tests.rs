//! A topology as it was seen, and links as they are now.

use super::*;
use podrail_core::ids::MacAddr;
use podrail_netlink::Parent;

const MAC: &str = "02:00:00:00:00:01";

/// One rail, `rdma0`, as an agent writes it.
fn seen() -> Topology {
    serde_json::from_value(serde_json::json!({
        "gpus": [], "excluded": [], "numa": [],
        "rails": [{
            "index": 0,
            "path": { "root": "0000:40", "bridges": [], "function": "0000:41:00.0", "numa": 0 },
            "pci_id": [0x15b3, 0x1021], "nic": "0000:41:00", "netdev": "rdma0", "ifindex": 3,
            "rdma": "mlx5_0", "port": 1, "uverbs": "uverbs0", "guid": null, "mac": MAC,
            "mtu": 9000, "speed_mbps": 400_000, "link": "up", "faults": ["no-rdma-device"],
        }],
    }))
    .unwrap()
}

fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.into(),
        altnames: vec![],
        kind: None,
        port_kind: None,
        parent: None,
        mtu: 9000,
        mac: MacAddr::parse(MAC).ok(),
        up: true,
        carrier: true,
        master: None,
        group: 0,
        alias: None,
        ipvlan: None,
        arp_type: 1,
        inet_conf: None,
    }
}

fn macvlan_on(index: u32, netnsid: Option<i32>) -> Link {
    Link {
        kind: Some("macvlan".into()),
        parent: Some(Parent { index, netnsid }),
        ..link(20, "mv0")
    }
}

fn rail(links: &[Link]) -> Rail {
    refreshed(seen(), links).unwrap().rails.remove(0)
}

#[test]
fn what_links_tell_is_renewed_and_the_rest_stays() {
    let now = Link {
        mtu: 1500,
        ..link(7, "rdma0")
    };
    let found = rail(&[link(1, "lo"), now]);
    assert_eq!((found.ifindex, found.mtu), (Some(7), Some(1500)));
    assert_eq!(found.link, LinkState::Up);
    assert_eq!(found.faults, [RailFault::NoRdmaDevice]);
    assert_eq!(found.uverbs.as_deref(), Some("uverbs0"));
}

#[test]
fn a_link_without_carrier_or_set_down_is_down() {
    for (up, carrier) in [(false, false), (true, false)] {
        let now = Link {
            up,
            carrier,
            ..link(3, "rdma0")
        };
        assert_eq!(rail(&[now]).link, LinkState::Down);
    }
}

#[test]
fn faults_of_links_come_and_go() {
    let enslaved = Link {
        master: Some(9),
        ..link(3, "rdma0")
    };
    let found = rail(&[enslaved, link(9, "bond0"), macvlan_on(3, None)]);
    let bond = RailFault::Enslaved(IfName::parse("bond0").unwrap());
    let mut all = vec![RailFault::NoRdmaDevice, RailFault::MacvlanParent, bond];
    assert_eq!(found.faults, all);
    let mut before = seen();
    before.rails[0].faults = all.clone();
    all.truncate(1);
    let links = [
        link(3, "rdma0"),
        macvlan_on(3, Some(0)),
        macvlan_on(4, None),
    ];
    assert_eq!(refreshed(before, &links).unwrap().rails[0].faults, all);
}

#[test]
fn an_interface_that_is_gone_or_another_one_needs_a_whole_look() {
    assert_eq!(refreshed(seen(), &[link(1, "lo")]), None);
    let other = Link {
        mac: MacAddr::parse("02:00:00:00:00:99").ok(),
        ..link(3, "rdma0")
    };
    assert_eq!(refreshed(seen(), &[other]), None);
}

#[test]
fn a_snapshot_that_is_none_is_named() {
    let settings = Settings::from_document(serde_json::json!({}), &[]).unwrap();
    // Only a node in shared RDMA mode looks at the snapshot at all.
    if is_shared(Path::new("/")) {
        let error = topology_now(Some("{}"), Path::new("/"), &settings).unwrap_err();
        assert!(matches!(error, NodeError::BadTopology(_)), "{error:?}");
    }
}
