//! Pods that name networks, as they do for Multus: which rails, and what the interfaces are called.

use crate::inside::{see, wait_for_words};
use crate::support::ok;
use podrail_lab::Lab;
use podrail_lab::kube::Pod;
use serde_json::{Value, json};

const KEY: &str = "k8s.v1.cni.cncf.io/networks";

/// A pod with that annotation.
pub(crate) fn named(pod: Pod, networks: &str) -> Pod {
    pod.with("/metadata/annotations", json!({ KEY: networks }))
}

/// The names of all sixteen rails, in this order.
pub(crate) fn all_names(rails: impl Iterator<Item = usize>) -> String {
    let names: Vec<String> = rails.map(|rail| format!("rdma-ipvlan-{rail}")).collect();
    names.join(",")
}

/// The rail of each interface, by what the kernel says it hangs on.
fn parents(lab: &Lab, pod: &str) -> Vec<(String, usize)> {
    let script = "cd /sys/class/net; for i in *; do echo $i $(<$i/iflink); done";
    let inside = ok(lab.kube().exec(pod, script).unwrap());
    let host = ok(lab
        .sh("cd /sys/class/net; for i in rdma*; do echo $i $(<$i/ifindex); done")
        .unwrap());
    let mut found = vec![];
    for (name, link) in inside.lines().filter_map(|line| line.split_once(' ')) {
        // eth0 hangs on a link of the host, lo on itself: neither is a rail.
        let mut rails = host.lines().filter_map(|line| line.split_once(' '));
        let rail = rails.find(|(_, index)| *index == link);
        if let Some((rail, _)) = rail {
            let index = rail.strip_prefix("rdma").unwrap().parse().unwrap();
            found.push((name.to_owned(), index));
        }
    }
    found.sort_by_key(|(_, rail)| *rail);
    found
}

/// The rails hang on the interfaces of these names.
pub(crate) fn assert_parents(lab: &Lab, pod: &str, rails: &[usize], names: &[String]) {
    let wanted: Vec<(String, usize)> = names.iter().cloned().zip(rails.iter().copied()).collect();
    assert_eq!(parents(lab, pod), wanted);
}

/// A JSON list; a network of somebody else in between keeps its place and its interface.
pub(crate) fn apply_json(lab: &Lab) {
    let list = json!([
        { "name": "rdma-ipvlan-9", "interface": "rail-a" },
        { "name": "storage", "namespace": "infra", "ips": ["10.1.2.3/24"] },
        { "name": "rdma-ipvlan-8", "namespace": "default" },
    ]);
    let kube = lab.kube();
    let pod = Pod::sleeping(kube, "json", &[4], 2);
    kube.apply(&named(pod, &list.to_string())).unwrap();
}

/// What [`apply_json`] asks for is there.
pub(crate) fn json_is_served(lab: &Lab) {
    lab.kube().wait("json", "ready").unwrap();
    let names = ["net3".to_owned(), "rail-a".to_owned()];
    assert_parents(lab, "json", &[8, 9], &names);
    see(lab, "json", "main").assert_interfaces(lab, "json", &names);
}

/// What cannot be served as written keeps the pod from starting, and its events say which element
/// and which field. Its slots serve the next pod that gets them.
pub(crate) fn wrong_names_are_named(lab: &Lab) {
    let kube = lab.kube();
    let fixed_address = json!([
        { "name": "rdma-ipvlan-0" },
        { "name": "rdma-ipvlan-1", "ips": ["10.239.255.77/24"] },
    ]);
    let wrong: [(&str, &str, &[&str]); 2] = [
        (
            "unknown",
            "rdma-ipvlan-0,rdma-ipvlan-99",
            &["element 2 (rdma-ipvlan-99)", "the node has no rail 99"],
        ),
        (
            "address",
            &fixed_address.to_string(),
            &["element 2 (rdma-ipvlan-1)", "field ips"],
        ),
    ];
    let pinned = |name: &str, slots: &[&str]| {
        let devices = json!({ "main": { "podrail.io/rail": slots } });
        let pod = Pod::sleeping(kube, name, &[], slots.len());
        pod.with("/podrail.test~1devices", devices)
    };
    let slots = ["slot-02", "slot-11"];
    for ((name, annotation, _), slot) in wrong.iter().zip(slots) {
        kube.apply(&named(pinned(name, &[slot]), annotation))
            .unwrap();
    }
    for (name, _, words) in wrong {
        wait_for_words(lab, name, words);
        let sandbox: Value = kube.get(name).unwrap()["sandbox"].clone();
        assert!(sandbox.is_null(), "{name} has a sandbox: {sandbox}");
        kube.delete(name).unwrap();
    }
    kube.run(&pinned("right", &slots)).unwrap();
}
