//! The same attachment twice, a damaged one, and two at the same time.

use super::{assert_same, attach, detach, in_pod, picture_in_use, rails};
use crate::support::{CONFIG, Node};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn attach_twice_is_attach_once(node: &Node) {
    let first = attach(node, "pod1", "--gpus 0,1 --rails 4");
    let before = picture_in_use(node);
    assert_eq!(attach(node, "pod1", "--gpus 0,1 --rails 4"), first);
    assert_same(&picture_in_use(node), &before);
    detach(node, "pod1");
}

pub(super) fn a_lost_interface_is_repaired(node: &Node) {
    let first = attach(node, "pod1", "--rails 16");
    let before = picture_in_use(node);
    in_pod(node, "pod1", "ip link del net5");
    assert_eq!(attach(node, "pod1", "--rails 16"), first);
    assert_same(&picture_in_use(node), &before);
    // What is there and is not as it should be counts as lost.
    in_pod(
        node,
        "pod1",
        "ip link set net7 mtu 1500; ip rule del priority 30103",
    );
    assert_eq!(attach(node, "pod1", "--rails 16"), first);
    assert_same(&picture_in_use(node), &before);
    detach(node, "pod1");
}

/// Both want the rails of the same GPU, so that they meet at every step.
pub(super) fn two_at_once_share_nothing(node: &Node) {
    node.configure(CONFIG);
    let command = |pod: &str| {
        let words = format!(
            "podrail attach --netns /run/netns/{pod} --id {pod} --gpus 0 --rails 8 -o json"
        );
        let command = node.lab.cmd(words.split(' '));
        let command = command.env("PODRAIL_ROOT", "/lab/root");
        command
            .env("PODRAIL_NODE_ADDRESS", "10.140.67.66")
            .spawn()
            .unwrap()
    };
    let both = ["pod1", "pod2"].map(command);
    let both: Vec<Value> = both
        .map(|process| process.wait().unwrap())
        .iter()
        .map(|output| {
            output
                .json()
                .unwrap_or_else(|_| panic!("{}", output.stderr_text()))
        })
        .collect();
    let all: BTreeSet<u64> = both.iter().flat_map(rails).collect();
    assert_eq!(all, (0..16).collect());
    let addresses = both.iter().flat_map(|job| job["rails"].as_array().unwrap());
    let addresses: BTreeSet<String> = addresses
        .map(|rail| rail["addresses"].to_string())
        .collect();
    assert_eq!(addresses.len(), 16, "{addresses:?}");
    detach(node, "pod1");
    detach(node, "pod2");
}
