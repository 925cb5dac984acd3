//! The post's two jobs, and each finding.

use super::*;
use crate::ids::{RootId, SandboxId};
use crate::plan::AttachPlan;
use crate::topology::{GpuKind, LinkState, NumaNode, PciPath};

/// BM.GPU.B4.8: four roots, each with two GPUs and two NICs of two ports.
const ROOTS: [(&str, u32, [&str; 2], [&str; 2]); 4] = [
    ("0b", 3, ["0f", "15"], ["0c", "16"]),
    ("46", 1, ["51", "54"], ["47", "4b"]),
    ("88", 7, ["8d", "92"], ["89", "93"]),
    ("c2", 5, ["d6", "da"], ["c3", "d1"]),
];

fn path(root: &str, numa: u32, bus: &str, function: u8) -> PciPath {
    PciPath {
        root: RootId::parse(&format!("0000:{root}")).unwrap(),
        bridges: vec![],
        function: PciAddr::parse(&format!("0000:{bus}:00.{function}")).unwrap(),
        numa: Some(numa),
    }
}

fn rail(index: u16, path: PciPath) -> Rail {
    Rail {
        index: RailIndex(index),
        pci_id: (0x15b3, 0x101d),
        nic: path.function.nic(),
        path,
        netdev: IfName::parse(&format!("rdma{index}")).ok(),
        ifindex: None,
        rdma: RdmaName::parse(&format!("mlx5_{index}")).ok(),
        port: 1,
        uverbs: None,
        umad: None,
        issm: None,
        guid: None,
        mac: None,
        mtu: None,
        speed_mbps: Some(100_000),
        link: LinkState::Up,
        faults: vec![],
    }
}

fn b4_8() -> Topology {
    let mut topology = Topology::default();
    for (root, numa, gpus, nics) in ROOTS {
        topology.gpus.extend(gpus.map(|bus| Gpu {
            path: path(root, numa, bus, 0),
            kind: GpuKind::Nvidia,
            uuid: None,
            model: None,
            aliases: vec![],
        }));
        for (bus, function) in nics.iter().flat_map(|bus| [(bus, 0), (bus, 1)]) {
            let index = u16::try_from(topology.rails.len()).unwrap();
            topology
                .rails
                .push(rail(index, path(root, numa, bus, function)));
        }
    }
    topology.numa = (0..8)
        .map(|id| NumaNode {
            id,
            socket: Some(id / 4),
        })
        .collect();
    topology
}

fn sandbox(name: &str) -> SandboxId {
    SandboxId::parse(name).unwrap()
}

fn attachment(topology: &Topology, gpus: &[usize], rails: &[u16]) -> Attachment {
    let held = |index: &u16| {
        let rail = topology.rail(RailIndex(*index)).unwrap();
        let mut held: HeldRail = serde_json::from_value(serde_json::json!({
            "index": index, "pci": rail.path.function, "port": 1, "netdev": rail.netdev,
            "rdma": rail.rdma, "uverbs": null, "interface": format!("net{}", index + 1),
            "addresses": [], "gpu": null, "distance": null,
        }))
        .unwrap();
        held.index = rail.index;
        held
    };
    Attachment {
        gpus: gpus
            .iter()
            .map(|&gpu| topology.gpus[gpu].path.function)
            .collect(),
        rails: rails.iter().map(held).collect(),
        exact: true,
        plan: AttachPlan::new(sandbox("job-1"), vec![], None).unwrap(),
    }
}

fn bound(name: &str, rails: &[u16]) -> Bound {
    Bound {
        sandbox: sandbox(name),
        gpus: vec![],
        rails: rails.iter().copied().map(RailIndex).collect(),
    }
}

fn explained(topology: &Topology, gpus: &[usize], rails: &[u16], bound: &[Bound]) -> Explanation {
    let around = Surroundings {
        topology,
        overrides: &[],
        bound,
    };
    explain(&around, &attachment(topology, gpus, rails))
}

fn words(explanation: &Explanation) -> Vec<String> {
    explanation
        .findings
        .iter()
        .map(Finding::to_string)
        .collect()
}

const FIRST: ([usize; 4], [u16; 8]) = ([2, 3, 4, 5], [1, 4, 5, 6, 12, 13, 14, 15]);
const SECOND: ([usize; 4], [u16; 8]) = ([0, 1, 6, 7], [0, 2, 3, 7, 8, 9, 10, 11]);

#[test]
fn the_posts_first_job_has_three_rails_that_count() {
    let other = [bound("job-1", &FIRST.1), bound("job-2", &SECOND.1)];
    let found = explained(&b4_8(), &FIRST.0, &FIRST.1, &other);
    assert_eq!(found.near.to_string(), "37.5 GB/s (3 rails)");
    assert_eq!(found.all.to_string(), "100.0 GB/s (8 rails)");
    let near: Vec<usize> = found.gpus.iter().map(|gpu| gpu.near.len()).collect();
    assert_eq!(near, [3, 3, 0, 0]);
    assert_eq!(
        words(&found),
        [
            "rails 1, 12-15 are on another root than every GPU of this pod: NCCL does not use \
             them with GPUDirect",
            "GPUs 0000:8d:00.0, 0000:92:00.0 have no rail on their root: their traffic goes \
             through CPU memory",
            "NIC 0000:0c:00 is split: rail 1 here, rail 0 with sandbox job-2",
            "NIC 0000:4b:00 is split: rail 6 here, rail 7 with sandbox job-2",
        ]
    );
}

#[test]
fn the_posts_second_job_has_three_rails_that_count() {
    let found = explained(&b4_8(), &SECOND.0, &SECOND.1, &[]);
    assert_eq!(found.near.gigabytes_per_second(), Some(37.5));
    assert_eq!(found.all.gigabytes_per_second(), Some(100.0));
    assert_eq!(
        words(&found),
        [
            "rails 7-11 are on another root than every GPU of this pod: NCCL does not use them \
             with GPUDirect",
            "GPUs 0000:d6:00.0, 0000:da:00.0 have no rail on their root: their traffic goes \
             through CPU memory",
        ]
    );
}

#[test]
fn rails_that_follow_the_gpus_leave_nothing_to_say() {
    let others = [bound("job-2", &[0, 1, 2, 3, 12, 13, 14, 15])];
    let found = explained(&b4_8(), &[2, 3, 4, 5], &[4, 5, 6, 7, 8, 9, 10, 11], &others);
    assert_eq!(found.near, found.all);
    assert_eq!(found.near.to_string(), "100.0 GB/s (8 rails)");
    assert_eq!(words(&found), [] as [&str; 0]);
    let levels: Vec<_> = found.rails.iter().map(|rail| rail.levels.clone()).collect();
    assert_eq!(levels[0][..2], [Some(Level::Root); 2]);
    assert_eq!(levels[0][2..], [Some(Level::Any); 2]);
    assert_eq!(levels[7][2..], [Some(Level::Root); 2]);
}

#[test]
fn an_override_comes_before_the_tree() {
    let topology = b4_8();
    let (gpu, nic) = (topology.gpus[0].path.function, topology.rails[8].nic);
    let overrides = [Override {
        gpu,
        nic,
        level: Level::Switch,
    }];
    let around = Surroundings {
        topology: &topology,
        overrides: &overrides,
        bound: &[],
    };
    let found = explain(&around, &attachment(&topology, &[0], &[8, 10]));
    assert_eq!(found.rails[0].nearest(), Some(Level::Switch));
    assert_eq!((found.near.rails, found.all.rails), (1, 2));
    assert_eq!(
        words(&found),
        [
            "rail 10 is on another root than every GPU of this pod: NCCL does not use it with \
          GPUDirect"
        ]
    );
}

#[test]
fn a_pod_without_gpus_has_no_near_rail() {
    let found = explained(&b4_8(), &[], &[0], &[bound("job-2", &[0, 1])]);
    assert_eq!(found.near.to_string(), "0.0 GB/s (0 rails)");
    assert_eq!(
        words(&found),
        [
            "no GPU of this pod is known: no rail is next to one",
            "NIC 0000:0c:00 is split: rail 0 here, rail 1 with sandbox job-2",
            "rail 0 is shared with sandbox job-2: each gets a part of the bandwidth",
        ]
    );
}

#[test]
fn what_changed_since_the_binding_is_said() {
    let topology = b4_8();
    let held = attachment(&topology, &[0, 1], &[0, 1, 2]);
    let mut now = topology;
    now.gpus.remove(1);
    now.rails[0].speed_mbps = None;
    now.rails[1].link = LinkState::Down;
    now.rails.remove(2);
    let around = Surroundings {
        topology: &now,
        overrides: &[],
        bound: &[],
    };
    let found = explain(&around, &held);
    assert_eq!(found.gpus[1].index, None);
    assert_eq!(found.rails[2].levels, [None, None]);
    assert_eq!(
        found.all.to_string(),
        "unknown (3 rails, speed of 2 unknown)"
    );
    assert_eq!(found.near.gigabytes_per_second(), None);
    assert_eq!(
        words(&found),
        [
            "the node no longer has GPU 0000:15:00.0",
            "the node no longer has rail 2",
            "rail 1 cannot be used: link down",
            "the driver does not say the speed of rails 0, 2: the ceiling is not known",
        ]
    );
}

#[test]
fn programs_read_kind_and_text() {
    let found = explained(&b4_8(), &[], &[0], &[]);
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["findings"][0]["kind"], "no-gpus");
    assert_eq!(json["all"]["mbps"], 100_000);
    assert_eq!(json["rails"][0]["pci"], "0000:0c:00.0");
}
