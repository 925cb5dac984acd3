//! Settings of the children, seen half-way: the program is killed right behind a step.

use super::{detach, in_pod};
use crate::support::{Node, code};

/// Exit code of a program that was ended by SIGKILL.
const KILLED: i32 = 137;

/// arp_announce, arp_filter, arp_ignore, rp_filter, accept_local, and accept_ra of IPv6.
const WANTED: &str = "2 1 1 0 1 0";

pub(super) fn case_19_sysctls_before_links_are_up(node: &Node) {
    // Not what the attachment wants, so that it must be set.
    in_pod(
        node,
        "pod1",
        "echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter",
    );
    attach_and_die(node, "sysctl:15:kill");
    assert_settings(node);
    assert_eq!(up(node), Vec::<String>::new());
    detach(node, "pod1");
    assert_eq!(
        in_pod(node, "pod1", "cat /proc/sys/net/ipv4/conf/all/rp_filter"),
        "2"
    );
    // The very next step: the first link is up, and all the others are not.
    attach_and_die(node, "up:0:kill");
    assert_settings(node);
    assert_eq!(up(node), ["net1"]);
    detach(node, "pod1");
    assert_eq!(
        in_pod(node, "pod1", "cat /proc/sys/net/ipv4/conf/all/rp_filter"),
        "2"
    );
}

fn attach_and_die(node: &Node, fault: &str) {
    let attach = "attach --netns /run/netns/pod1 --id pod1 --rails 16";
    let output = node.podrail_with(attach, &[("PODRAIL_FAULT", fault)]);
    assert_eq!(code(&output), KILLED, "{fault}: {}", output.stderr_text());
}

fn assert_settings(node: &Node) {
    let seen = in_pod(
        node,
        "pod1",
        "cd /proc/sys/net/ipv4/conf; echo all $(cat all/rp_filter); for n in $(seq 16); do \
         echo net$n $(cat net$n/{arp_announce,arp_filter,arp_ignore,rp_filter,accept_local} \
         /proc/sys/net/ipv6/conf/net$n/accept_ra); done",
    );
    let wanted: Vec<String> = (1..=16).map(|n| format!("net{n} {WANTED}")).collect();
    assert_eq!(seen, format!("all 0\n{}", wanted.join("\n")));
}

/// Rail interfaces of the pod that are up.
fn up(node: &Node) -> Vec<String> {
    let links = node.ip("-n pod1 link");
    let is_up =
        |link: &&serde_json::Value| link["flags"].as_array().unwrap().contains(&"UP".into());
    let all: Vec<_> = links
        .as_array()
        .unwrap()
        .iter()
        .filter(|l| super::number(l).is_some())
        .collect();
    assert_eq!(all.len(), 16, "{links}");
    all.into_iter()
        .filter(is_up)
        .map(|link| link["ifname"].as_str().unwrap().to_owned())
        .collect()
}
