//! Detach when the namespace is not what it was.

use super::{assert_same, attach, detach, in_pod};
use crate::support::Node;

const PATH: &str = "/run/netns/pod1";

pub(super) fn case_08_15_detach_without_a_namespace(node: &Node) {
    attach(node, "pod1", "--rails 8");
    node.sh("ip netns del pod1");
    detach(node, "pod1");
    assert_nothing_held(node);
    // Twice, and once more for an id that never was.
    let again = node.podrail_json("detach --id pod1");
    assert_eq!(again["rails"], 0, "{again}");
    detach(node, "never-attached");
    node.sh(&format!("test ! -e {PATH}"));
    node.pod("pod1");
}

/// The path is gone, the namespace is not: its addresses are up, and go before they are free.
pub(super) fn a_namespace_without_a_path_is_cleaned(node: &Node) {
    attach(node, "pod1", "--rails 8");
    let holder = node.sh(
        "ip netns exec pod1 sleep 1000 >/dev/null 2>&1 </dev/null & pid=$!
         for try in $(seq 500); do
             [ \"$(cat /proc/$pid/comm)\" = sleep ] && { echo $pid; exit; }
         done
         cat /proc/$pid/comm; exit 1",
    );
    node.sh(&format!("ip netns del pod1; test ! -e {PATH}"));
    let removed = node.podrail_json("detach --id pod1");
    assert_eq!(removed["interfaces"], 8, "{removed}");
    let pid = holder.trim();
    let left = node.sh(&format!(
        "nsenter -t {pid} -n ip -br link show type ipvlan; kill {pid}"
    ));
    assert_eq!(left, "");
    assert_nothing_held(node);
    node.pod("pod1");
}

pub(super) fn case_15_detach_after_a_flush_of_rules(node: &Node) {
    attach(node, "pod1", "--rails 8");
    in_pod(node, "pod1", "ip rule flush");
    let removed = node.podrail_json("detach --id pod1");
    assert_eq!(removed["interfaces"], 8, "{removed}");
    assert_eq!(in_pod(node, "pod1", "ls /sys/class/net"), "lo");
    assert_nothing_held(node);
}

pub(super) fn case_18_what_took_the_path_is_left_alone(node: &Node) {
    attach(node, "pod1", "--rails 2");
    // A plain file.
    node.sh(&format!("ip netns del pod1; echo precious > {PATH}"));
    detach(node, "pod1");
    assert_eq!(node.sh(&format!("cat {PATH}; rm {PATH}")), "precious");
    assert_nothing_held(node);
    // Another pod's namespace, with an interface and a rule that look like ours.
    node.pod("pod1");
    attach(node, "pod1", "--rails 2");
    node.sh("ip netns del pod1");
    node.pod("pod1");
    in_pod(
        node,
        "pod1",
        "ip link add net1 type dummy; ip rule add from 10.239.255.1 lookup 100",
    );
    let host_and_pod = || {
        node.picture(&["pod1"])
            .split("== leases")
            .next()
            .unwrap()
            .to_owned()
    };
    let before = host_and_pod();
    detach(node, "pod1");
    assert_same(&host_and_pod(), &before);
    assert_nothing_held(node);
}

fn assert_nothing_held(node: &Node) {
    assert_eq!(node.podrail_ok("status"), "no rails are held");
}
