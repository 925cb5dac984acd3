//! What `podrail topo` tells of a node, and which rails its GPUs get.

use super::{attach, detach, rails};
use crate::support::Node;
use serde_json::{Value, json};

/// Places as sysfs has them, names as the node was made.
pub(super) fn topo_tells_what_the_node_is(node: &Node) {
    let told = node.podrail_json("topo");
    let list = |name: &str| told["topology"][name].as_array().unwrap().iter();
    let place = |item: &Value| json!([item["path"]["root"], item["path"]["numa"]]);
    let rail = |rail: &Value| {
        json!([
            rail["path"]["function"],
            rail["netdev"],
            rail["rdma"],
            place(rail)
        ])
    };
    let gpu = |gpu: &Value| json!([gpu["path"]["function"], gpu["uuid"], place(gpu)]);
    let shape = node.lab.shape();
    let (rails, gpus) = (shape.rails(), shape.gpus());
    let rail_places = places(node, rails.iter().map(|port| port.pci.as_str()));
    let gpu_places = places(node, gpus.iter().map(|gpu| gpu.pci.as_str()));
    let wanted = rails.iter().zip(&rail_places);
    let wanted = wanted.map(|(port, place)| json!([port.pci, port.netdev, port.rdma, place]));
    assert_eq!(
        list("rails").map(rail).collect::<Vec<_>>(),
        wanted.collect::<Vec<_>>()
    );
    let wanted = gpus.iter().zip(&gpu_places);
    let wanted = wanted.map(|(gpu, place)| json!([gpu.pci, gpu.uuid, place]));
    assert_eq!(
        list("gpus").map(gpu).collect::<Vec<_>>(),
        wanted.collect::<Vec<_>>()
    );
    let out: Vec<&str> = list("excluded")
        .map(|port| port["netdev"].as_str().unwrap())
        .collect();
    assert_eq!(out, ["fe0", "fe1"]);
}

/// Root complex and NUMA node of each PCI function: `/sys/devices/pci0000:0b/…` and its file.
fn places<'a>(node: &Node, functions: impl Iterator<Item = &'a str>) -> Vec<Value> {
    let read = |pci| {
        let device = format!("/sys/bus/pci/devices/{pci}");
        format!("echo $(readlink -f {device}) $(cat {device}/numa_node)\n")
    };
    let seen = node.sh(&functions.map(read).collect::<String>());
    let place = |line: &str| {
        let (path, numa) = line.split_once(' ').unwrap();
        let root = path
            .split('/')
            .find_map(|part| part.strip_prefix("pci"))
            .unwrap();
        json!([root, numa.parse::<u32>().unwrap()])
    };
    seen.lines().map(place).collect()
}

pub(super) fn the_picture_is_whole(node: &Node) {
    attach(node, "pod1", "--gpus 0 --rails 2");
    let picture = node.podrail_ok("topo -o svg");
    let document = roxmltree::Document::parse(&picture).unwrap();
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let texts = document
        .descendants()
        .filter(|node| node.is_text())
        .filter_map(|node| node.text());
    let texts: String = texts.collect();
    for port in node.lab.shape().rails() {
        assert!(texts.contains(&port.rdma), "{} in {texts}", port.rdma);
    }
    assert!(texts.contains("pod1"), "{texts}");
    detach(node, "pod1");
}

/// Two of the eight NICs, where each NUMA node has four.
pub(super) fn case_26_roots_tell_what_numa_cannot(node: &Node) {
    let job = attach(node, "pod1", "--gpus 0,1 --rails 4");
    let functions: Vec<&str> = job["rails"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rail| rail["pci"].as_str().unwrap())
        .collect();
    assert_eq!(
        functions,
        [
            "0000:0c:00.0",
            "0000:0c:00.1",
            "0000:2a:00.0",
            "0000:2a:00.1"
        ]
    );
    let levels: Vec<&Value> = job["rails"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rail| &rail["distance"])
        .collect();
    assert_eq!(levels, ["root"; 4]);
    detach(node, "pod1");
}

/// By number, by UUID in any case, by PCI address.
pub(super) fn a_gpu_has_three_names(node: &Node) {
    let gpus = node.lab.shape().gpus();
    let list =
        |name: fn(&podrail_lab::Gpu) -> String| [2, 5].map(|at: usize| name(&gpus[at])).join(",");
    let names = [
        list(|gpu| gpu.minor.to_string()),
        list(|gpu| gpu.uuid.clone()),
        list(|gpu| gpu.pci.clone()),
    ];
    for name in names {
        let job = attach(node, "pod1", &format!("--gpus {name} --rails 4"));
        assert_eq!(rails(&job), [4, 5, 10, 11], "{name}");
        assert_eq!(job["near"], 4, "{name}");
        detach(node, "pod1");
    }
}

/// Each rail with the GPU that it serves and their distance.
pub(super) fn a_switch_is_nearer_than_a_root(node: &Node) {
    // GPU 5 has a switch of its own; the rail of the other switch of its root has a lower index.
    let cases: [(&str, &[u64], &str); 4] = [
        ("--gpus 5 --rails 1", &[5], "switch"),
        ("--gpus 0,1 --rails 2", &[0, 1], "switch"),
        ("--gpus 2,3 --rails 2", &[2, 3], "root"),
        ("--gpus 7 --rails 1", &[7], "root"),
    ];
    for (words, wanted, distance) in cases {
        let job = attach(node, "pod1", words);
        assert_eq!(rails(&job), wanted, "{words}");
        let mut levels = job["rails"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rail| &rail["distance"]);
        assert!(levels.all(|level| level == distance), "{words}: {job}");
        detach(node, "pod1");
    }
}
