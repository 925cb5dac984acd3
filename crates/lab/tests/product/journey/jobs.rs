//! Which rails a job gets, and what its interfaces look like.

use super::{assert_same, attach, detach, rails};
use crate::support::Node;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

pub(super) fn case_26_27_two_jobs_get_near_rails(node: &Node) {
    let before = node.picture(&["pod1", "pod2"]);
    let one = attach(node, "pod1", "--gpus 0,1,6,7 --rails 8");
    let two = attach(node, "pod2", "--gpus 2,3,4,5 --rails 8");
    assert_eq!(rails(&one), [0, 1, 2, 3, 12, 13, 14, 15]);
    assert_eq!(rails(&two), [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(
        (one["near"].as_u64(), two["near"].as_u64()),
        (Some(8), Some(8))
    );
    detach(node, "pod1");
    detach(node, "pod2");
    assert_same(&node.picture(&["pod1", "pod2"]), &before);
}

pub(super) fn case_23_interfaces_are_as_their_rails(node: &Node) {
    attach(node, "pod1", "--rails 16");
    let (host, inside) = (node.ip("-d link"), node.ip("-n pod1 -d addr"));
    for (at, port) in node.lab.shape().rails().iter().enumerate() {
        let child = named(&inside, &format!("net{}", at + 1));
        assert_like_its_rail(
            child,
            named(&host, &port.netdev),
            &format!("podrail:pod1:{at}"),
        );
    }
    let children = || {
        inside
            .as_array()
            .unwrap()
            .iter()
            .filter(|link| super::number(link).is_some())
    };
    let groups: BTreeSet<_> = children().map(|link| link["group"].to_string()).collect();
    assert_eq!((children().count(), groups.len()), (16, 1), "{groups:?}");
    let addresses: BTreeSet<Ipv4Addr> = children().map(address).collect();
    assert_eq!(addresses.len(), 16);
    let block = Ipv4Addr::new(10, 239, 255, 1)..=Ipv4Addr::new(10, 239, 255, 32);
    assert!(
        addresses.iter().all(|address| block.contains(address)),
        "{addresses:?}"
    );
    detach(node, "pod1");
}

fn assert_like_its_rail(child: &Value, rail: &Value, alias: &str) {
    assert_eq!(child["mtu"], 4220, "{child}");
    assert_eq!(child["mtu"], rail["mtu"], "{child}");
    assert_eq!(child["address"], rail["address"], "{child}");
    assert_eq!(child["link_index"], rail["ifindex"], "{child}");
    assert_eq!(child["linkinfo"]["info_kind"], "ipvlan", "{child}");
    assert_eq!(child["linkinfo"]["info_data"]["mode"], "l2", "{child}");
    assert_eq!(child["ifalias"], alias, "{child}");
    assert_eq!(child["addr_info"][0]["prefixlen"], 24, "{child}");
    assert!(
        child["flags"].as_array().unwrap().contains(&"UP".into()),
        "{child}"
    );
}

fn named<'a>(links: &'a Value, name: &str) -> &'a Value {
    let found = links
        .as_array()
        .unwrap()
        .iter()
        .find(|link| link["ifname"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {links}"))
}

fn address(link: &Value) -> Ipv4Addr {
    link["addr_info"][0]["local"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// A child that is made in the host and moved could take the name of one of the host's links.
pub(super) fn children_never_stand_in_the_host(node: &Node) {
    let watch = ["bash", "-c", "exec ip -o monitor link > /root/links"];
    let watcher = node.lab.cmd(watch).spawn().unwrap();
    see(node, "fence0");
    attach(node, "pod1", "--rails 16");
    detach(node, "pod1");
    see(node, "fence1");
    drop(watcher);
    let seen = node.sh("cat /root/links");
    assert!(!seen.contains(": net"), "{seen}");
}

/// Makes a link until the watcher has seen it: then it has seen all that came before.
fn see(node: &Node, fence: &str) {
    node.sh(&format!(
        "for try in $(seq 100); do ip link add {fence} type dummy; ip link del {fence}; \
         if grep -q {fence} /root/links; then exit 0; fi; done; cat /root/links >&2; exit 1"
    ));
}
