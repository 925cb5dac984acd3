//! The power goes, and everything comes back by itself.

use crate::restarts::admit;
use crate::support::{bare_node, ok, status};
use podrail_lab::Lab;
use podrail_lab::kube::Pod;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const RAIL: &str = "podrail.io/rail";
/// As many addresses as the node has rails: none is spare.
const CONFIG: &str = "\
gpus: { generic: true }
pool:
  name: rails
  subnets: [10.239.255.0/24]
  blockSize: 16
";
/// Name, GPUs, rails. They fill the node.
const PODS: [(&str, &[usize], usize); 3] = [
    ("first", &[2, 3, 4, 5], 8),
    ("second", &[0, 1, 6], 6),
    ("admitted", &[7], 2),
];

/// Case 7: pods that fill the node and its block come back with ADD alone, one that had only been
/// admitted too. The agent starts after the kubelet.
#[test]
#[ignore = "minutes of a quiet machine: make test-long"]
fn a_power_cut_takes_nothing_from_pods() {
    let Some(mut lab) = bare_node("B4.8", podrail_lab::Builder::disk) else {
        return;
    };
    lab.kube().configure(CONFIG).unwrap();
    start(&lab, "");
    // Images that are half on the disk are the runtime's matter.
    lab.sh("sync").unwrap();
    fill(&lab);
    // So is what it noted of each network: it does not flush that, and cannot end a sandbox of
    // which the note is empty. Ours is flushed by nobody but us.
    lab.sh(
        "for note in /var/lib/cni/results/*; do dd if=/dev/null of=$note conv=notrunc,fsync; done",
    )
    .unwrap();
    let before = facts(&lab);
    lab.power_cut_and_boot().unwrap();
    assert_eq!(
        lab.sh("ls /run/cdi 2>/dev/null || true").unwrap().text(),
        ""
    );
    start(&lab, "--set admission-delay-ms=30000");
    for (name, _, _) in PODS {
        lab.kube().wait(name, "ready").unwrap();
    }
    came_back(&lab, &before);
    let kube = lab.kube();
    for (name, _, _) in PODS {
        kube.delete(name).unwrap();
    }
    assert_eq!(status(&lab), Value::Array(vec![]));
    let left = lab
        .sh("ls /run/cdi /var/lib/podrail/waiting")
        .unwrap()
        .text();
    assert!(!left.contains("slot"), "{left}");
}

/// The agent comes last, as a DaemonSet does.
fn start(lab: &Lab, kubelet: &str) {
    let kube = lab.kube();
    lab.containerd().start().unwrap();
    kube.start_kubelet(kubelet).unwrap();
    kube.start_gpus().unwrap();
    kube.start_agent().unwrap();
    kube.wait_slots(RAIL, 16).unwrap();
}

fn fill(lab: &Lab) {
    let kube = lab.kube();
    let [first, second, (name, gpus, rails)] = PODS;
    for (name, gpus, rails) in [first, second] {
        kube.run(&Pod::sleeping(kube, name, gpus, rails)).unwrap();
    }
    admit(lab, &Pod::sleeping(kube, name, gpus, rails));
    assert_eq!(status(lab).as_array().unwrap().len(), 2);
}

/// What the kubelet says of each pod.
fn facts(lab: &Lab) -> BTreeMap<&'static str, Value> {
    let get = |(name, _, _)| (name, lab.kube().get(name).unwrap());
    PODS.map(get).into()
}

fn came_back(lab: &Lab, before: &BTreeMap<&'static str, Value>) {
    let kube = lab.kube();
    let log = kube.log("standin-kubelet").unwrap();
    assert!(!log.contains("Allocated"), "no Allocate: {log}");
    let lists = log
        .lines()
        .filter(|line| line.contains("podrail.io/rail lists"));
    assert!(
        lists.clone().count() > 0 && lists.clone().all(|l| l.contains("lists 16,")),
        "{log}"
    );
    let bindings = status(lab);
    let bindings = bindings.as_array().unwrap();
    let mut addresses = BTreeSet::new();
    for (name, after) in facts(lab) {
        let (old, rails) = (
            &before[name],
            PODS.iter().find(|pod| pod.0 == name).unwrap().2,
        );
        assert_eq!(
            after["devices"], old["devices"],
            "the kubelet's own checkpoint"
        );
        assert_ne!(after["sandbox"]["id"], old["sandbox"]["id"]);
        let of_pod = |b: &&Value| b["pod"]["name"] == name;
        let found: Vec<&Value> = bindings.iter().filter(of_pod).collect();
        let [binding] = found.as_slice() else {
            panic!("one sandbox of {name}: {bindings:?}");
        };
        assert_eq!(binding["sandbox"], after["sandbox"]["id"]);
        let held = binding["rails"].as_array().unwrap();
        assert_eq!(held.len(), rails);
        addresses.extend(
            held.iter()
                .flat_map(|rail| rail["addresses"].as_array().unwrap())
                .map(Value::to_string),
        );
        let seen = "ls /dev/infiniband | grep uverbs | sort";
        let mut devices: Vec<&str> = held
            .iter()
            .filter_map(|rail| rail["uverbs"].as_str())
            .collect();
        devices.sort_unstable();
        assert_eq!(ok(kube.exec(name, seen).unwrap()), devices.join("\n"));
        let netns = binding["netns"].as_str().unwrap();
        kube.podrail(&format!("check --netns {netns} --rails {rails}"))
            .unwrap();
    }
    assert_eq!((bindings.len(), addresses.len()), (3, 16));
    let files = lab.sh("ls /run/cdi | grep -c podrail").unwrap();
    assert_eq!(files.text(), "16");
}
