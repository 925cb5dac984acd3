//! Pools of IPv6, alone and beside IPv4.

use super::{MapLine, attach, detach, in_pod, settled_map};
use crate::support::Node;
use std::net::{IpAddr, Ipv6Addr};

const V6: &str = "\
gpus: { generic: true }
pool: { name: six, subnets: ['fd00:77::/64'], blockSize: 64 }
";
const BOTH: &str = "\
gpus: { generic: true }
pool:
  name: both
  subnets: [10.77.0.0/24, 'fd00:77::/64']
  gateways: [10.77.0.1, 'fd00:77::1']
  blockSize: 32
";

pub(super) fn addresses_of_ipv6_alone(node: &Node) {
    node.configure(V6);
    attach(node, "pod1", "--gpus 0 --rails 4");
    let map = settled_map(node, "pod1");
    assert_eq!(map.len(), 4);
    assert!(
        map.iter().all(|line| line.address.starts_with("fd00:77::")),
        "{map:?}"
    );
    assert_gids_and_ways(node, &map);
    detach(node, "pod1");
}

/// IPv4 first; the gateway of each family in the rail's table only.
pub(super) fn addresses_of_both_families(node: &Node) {
    node.configure(BOTH);
    attach(node, "pod1", "--gpus 0 --rails 4");
    let map = settled_map(node, "pod1");
    assert_eq!(map.len(), 8);
    let is_v6 = |line: &MapLine| line.address.contains(':');
    let families: Vec<bool> = map.iter().map(is_v6).collect();
    assert_eq!(families, [false, true].repeat(4), "{map:?}");
    assert_gids_and_ways(node, &map);
    for line in &map {
        let (elsewhere, gateway) = if is_v6(line) {
            ("2001:db8::7", "fd00:77::1")
        } else {
            ("192.0.2.7", "10.77.0.1")
        };
        let way = way(node, elsewhere, &line.address);
        assert_eq!(way["dev"], line.interface, "{line:?}: {way}");
        assert_eq!(way["gateway"], gateway, "{line:?}: {way}");
    }
    for family in ["-4", "-6"] {
        let main = node.ip(&format!("-n pod1 {family} route show table main default"));
        assert_eq!(main.as_array().unwrap().len(), 0, "{main}");
    }
    detach(node, "pod1");
}

/// Each address has its GID at the told place, and leaves by its own interface.
fn assert_gids_and_ways(node: &Node, map: &[MapLine]) {
    for line in map {
        let port = format!("/sys/class/infiniband/{}/ports/1", line.device);
        let gid = in_pod(node, "pod1", &format!("cat {port}/gids/{}", line.index));
        assert_eq!(
            gid.parse::<Ipv6Addr>().unwrap(),
            gid_of(&line.address),
            "{line:?}"
        );
        let far = if line.address.contains(':') {
            "fd00:77::ffff"
        } else {
            "10.77.0.200"
        };
        let way = way(node, far, &line.address);
        assert_eq!(way["dev"], line.interface, "{line:?}: {way}");
    }
}

fn gid_of(address: &str) -> Ipv6Addr {
    match address.parse().unwrap() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn way(node: &Node, to: &str, from: &str) -> serde_json::Value {
    node.ip(&format!("-n pod1 route get {to} from {from}"))[0].take()
}
