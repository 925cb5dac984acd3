//! `podrail map` beside the script of the users, and both before the kernel's own GID tables.

use super::{MapLine, attach, detach, in_pod, interfaces, settled_map};
use crate::support::{CONFIG, Node};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The script that users of the plugin stack this replaces have in their test pods.
const SCRIPT: &str = include_str!("../fixtures/rail-map.sh");

/// For a busy machine; 6 s on a quiet one.
const SCRIPT_LIMIT: Duration = Duration::from_secs(240);

/// Both pods hold every rail.
pub(super) fn case_02_05_29_two_pods_on_one_rail(node: &Node) {
    node.lab
        .write_file("/root/rail-map.sh", 0o755, SCRIPT.as_bytes())
        .unwrap();
    node.configure(&format!("{CONFIG}rails: {{ shares: 2 }}\n"));
    attach(node, "pod1", "--rails 8");
    settled_map(node, "pod1");
    // Alone, the script is right and the two agree to the letter.
    assert_eq!(in_pod(node, "pod1", "podrail map"), script(node, "pod1"));
    attach(node, "pod2", "--rails 8");
    let (one, two) = (settled_map(node, "pod1"), settled_map(node, "pod2"));
    case_05_the_map_is_right(node, "pod1", &one);
    case_05_the_map_is_right(node, "pod2", &two);
    case_29_gids_are_distinct(&one, &two);
    // On a kernel that calls both pods' interfaces net1, the script takes one for the other.
    let lines: Vec<MapLine> = script(node, "pod1").lines().map(super::map_line).collect();
    let wrong = lines
        .iter()
        .zip(gids(node, "pod1", &lines))
        .filter(|(line, gid)| *gid != mapped(line));
    assert!(wrong.count() > 0, "the script has become right: {lines:?}");
    detach(node, "pod1");
    detach(node, "pod2");
}

/// What the script prints in a pod. It reads every place of every GID table: 9 times 1024.
fn script(node: &Node, pod: &str) -> String {
    let command = node.lab.in_netns(pod).cmd(["/root/rail-map.sh"]);
    command.timeout(SCRIPT_LIMIT).run_ok().unwrap().text()
}

/// Interfaces and addresses as `ip` has them, device as its rail's, GID as its address.
fn case_05_the_map_is_right(node: &Node, pod: &str, map: &[MapLine]) {
    let shown = |(name, address): (String, Ipv4Addr)| (name, address.to_string());
    let seen: Vec<(String, String)> = interfaces(node, pod).into_iter().map(shown).collect();
    let told: Vec<(String, String)> = map
        .iter()
        .map(|line| (line.interface.clone(), line.address.clone()))
        .collect();
    assert_eq!(told, seen);
    let devices: Vec<&str> = map.iter().map(|line| line.device.as_str()).collect();
    let rails = node.lab.shape().rails();
    assert_eq!(
        devices,
        rails
            .iter()
            .map(|port| port.rdma.as_str())
            .collect::<Vec<_>>()
    );
    let wanted: Vec<String> = map.iter().map(mapped).collect();
    assert_eq!(gids(node, pod, map), wanted);
}

fn case_29_gids_are_distinct(one: &[MapLine], two: &[MapLine]) {
    let gids = || {
        one.iter()
            .chain(two)
            .map(|line| (&line.device, &line.index))
    };
    let addresses = one.iter().chain(two).map(|line| &line.address);
    assert_eq!(gids().collect::<BTreeSet<_>>().len(), 16);
    assert_eq!(addresses.collect::<BTreeSet<_>>().len(), 16);
}

/// The GID of a line's IPv4 address, in the spelling of the kernel.
fn mapped(line: &MapLine) -> String {
    let [a, b, c, d] = line.address.parse::<Ipv4Addr>().unwrap().octets();
    format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x} RoCE v2")
}

/// GID and type that stand in the kernel's table at the place of each line.
fn gids(node: &Node, pod: &str, lines: &[MapLine]) -> Vec<String> {
    let read = |line: &MapLine| {
        let port = format!("/sys/class/infiniband/{}/ports/1", line.device);
        format!(
            "echo $(cat {port}/gids/{0}) $(cat {port}/gid_attrs/types/{0})\n",
            line.index
        )
    };
    let script: String = lines.iter().map(read).collect();
    in_pod(node, pod, &script)
        .lines()
        .map(str::to_owned)
        .collect()
}
