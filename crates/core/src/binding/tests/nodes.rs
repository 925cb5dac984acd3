//! Nodes in code: real machines and their GPUs and rails.

use super::*;
use crate::ids::{IfName, PciAddr, RdmaName, RootId};
use crate::topology::{Gpu, GpuKind, NumaNode, PciPath, Rail};

/// A root complex with its GPUs and NICs.
pub(super) struct Root {
    pub(super) bus: &'static str,
    pub(super) numa: Option<u32>,
    pub(super) gpus: &'static [&'static str],
    pub(super) nics: &'static [&'static str],
}

pub(super) fn path(root: &str, numa: Option<u32>, function: &str, bridges: &[String]) -> PciPath {
    PciPath {
        root: RootId::parse(&format!("0000:{root}")).unwrap(),
        bridges: bridges
            .iter()
            .map(|bridge| PciAddr::parse(bridge).unwrap())
            .collect(),
        function: PciAddr::parse(function).unwrap(),
        numa,
    }
}

pub(super) fn gpu(path: PciPath) -> Gpu {
    Gpu {
        path,
        kind: GpuKind::Nvidia,
        uuid: None,
        model: None,
        aliases: vec![],
    }
}

pub(super) fn rail(index: u16, path: PciPath) -> Rail {
    Rail {
        index: RailIndex(index),
        pci_id: (0x15b3, 0x1021),
        nic: path.function.nic(),
        path,
        netdev: None,
        ifindex: None,
        rdma: None,
        port: 1,
        uverbs: None,
        umad: None,
        issm: None,
        guid: None,
        mac: None,
        mtu: None,
        speed_mbps: None,
        link: LinkState::Up,
        faults: vec![],
    }
}

/// Roots in PCI order; each GPU and NIC behind a root port of its own.
pub(super) fn machine(roots: &[Root], ports: u8, sockets: &[(u32, u32)]) -> Topology {
    let mut topology = Topology {
        numa: sockets
            .iter()
            .map(|&(id, socket)| NumaNode {
                id,
                socket: Some(socket),
            })
            .collect(),
        ..Topology::default()
    };
    for root in roots {
        let place = |bus: &str, function: u8, port: usize| {
            let bridge = format!("0000:{}:{:02x}.0", root.bus, port + 1);
            path(
                root.bus,
                root.numa,
                &format!("0000:{bus}:00.{function}"),
                &[bridge],
            )
        };
        for (port, bus) in root.gpus.iter().enumerate() {
            topology.gpus.push(gpu(place(bus, 0, port)));
        }
        for (port, bus) in root.nics.iter().enumerate() {
            for function in 0..ports {
                let index = u16::try_from(topology.rails.len()).unwrap();
                let place = place(bus, function, root.gpus.len() + port);
                topology.rails.push(rail(index, place));
            }
        }
    }
    topology
}

/// BM.GPU.B4.8: GPUs 0,1 and rdma0-3 on NUMA 3; 2,3 and rdma4-7 on 1; 4,5 and rdma8-11 on 7; 6,7
/// and rdma12-15 on 5.
pub(crate) fn b4_8() -> Topology {
    let root = |bus, numa, gpus, nics| Root {
        bus,
        numa: Some(numa),
        gpus,
        nics,
    };
    machine(
        &[
            root("0b", 3, &["0f", "15"], &["0c", "16"]),
            root("46", 1, &["51", "54"], &["47", "4b"]),
            root("88", 7, &["8d", "92"], &["89", "93"]),
            root("c2", 5, &["d6", "da"], &["c3", "d1"]),
        ],
        2,
        &[
            (0, 0),
            (1, 0),
            (2, 0),
            (3, 0),
            (4, 1),
            (5, 1),
            (6, 1),
            (7, 1),
        ],
    )
}

/// H100.8: eight roots, four per NUMA node, each with a GPU and a dual-port NIC.
pub(crate) fn h100_8() -> Topology {
    let root = |bus, numa, gpus, nics| Root {
        bus,
        numa: Some(numa),
        gpus,
        nics,
    };
    machine(
        &[
            root("0b", 0, &["0f"], &["0c"]),
            root("29", 0, &["2d"], &["2a"]),
            root("40", 0, &["44"], &["41"]),
            root("57", 0, &["5b"], &["58"]),
            root("85", 1, &["89"], &["86"]),
            root("a4", 1, &["a8"], &["a5"]),
            root("bf", 1, &["c3"], &["c0"]),
            root("d4", 1, &["d8"], &["d5"]),
        ],
        2,
        &[(0, 0), (1, 1)],
    )
}

/// With interfaces `rdma0`... of MTU 4220 and RDMA devices, as a live node has them.
pub(crate) fn live(mut topology: Topology) -> Topology {
    for rail in &mut topology.rails {
        let index = rail.index;
        rail.netdev = IfName::parse(&format!("rdma{index}")).ok();
        rail.rdma = RdmaName::parse(&format!("mlx5_{index}")).ok();
        rail.mtu = Some(4220);
    }
    topology
}

/// Roots whose GPUs and single-port NICs hang below switches.
pub(super) struct Switched {
    pub(super) roots: u8,
    pub(super) switches: u8,
    pub(super) gpus: u8,
    pub(super) nics: u8,
}

/// Half of the roots per socket; the counts are per root, and per switch.
pub(super) fn switched(shape: &Switched) -> Topology {
    let mut topology = machine(&[], 1, &[(0, 0), (1, 1)]);
    for root in 0..shape.roots {
        let bus = format!("{:02x}", root * 32);
        let numa = Some(u32::from(root >= shape.roots / 2));
        for switch in 0..shape.switches {
            let place = |slot: u8| {
                let bridges = [
                    format!("0000:{bus}:{:02x}.0", switch + 1),
                    format!("0000:{:02x}:00.0", root * 32 + 1 + switch),
                    format!("0000:{:02x}:{slot:02x}.0", root * 32 + 8 + switch),
                ];
                let function = format!("0000:{:02x}:{slot:02x}.0", root * 32 + 16 + switch);
                path(&bus, numa, &function, &bridges)
            };
            topology
                .gpus
                .extend((0..shape.gpus).map(|slot| gpu(place(slot))));
            for slot in shape.gpus..shape.gpus + shape.nics {
                let index = u16::try_from(topology.rails.len()).unwrap();
                topology.rails.push(rail(index, place(slot)));
            }
        }
    }
    topology
}

/// Eight single-port rails: four switches with two GPUs and two NICs each.
pub(super) fn s8() -> Topology {
    switched(&Switched {
        roots: 2,
        switches: 2,
        gpus: 2,
        nics: 2,
    })
}

/// 32 single-port NICs and eight GPUs below eight switches.
pub(super) fn dgx_32() -> Topology {
    switched(&Switched {
        roots: 4,
        switches: 2,
        gpus: 1,
        nics: 4,
    })
}

/// The same machine without any NUMA node known.
pub(super) fn without_numa(mut topology: Topology) -> Topology {
    topology.numa.clear();
    topology
        .gpus
        .iter_mut()
        .for_each(|gpu| gpu.path.numa = None);
    topology
        .rails
        .iter_mut()
        .for_each(|rail| rail.path.numa = None);
    topology
}

pub(crate) fn node(topology: &Topology) -> Node<'_> {
    Node {
        topology,
        overrides: &[],
        shares_per_rail: 1,
        unusable: unusable(topology, None),
        bound: vec![],
    }
}

pub(crate) fn demand(gpus: &[usize], rails: u16) -> Demand {
    Demand {
        gpus: gpus.to_vec(),
        rails,
    }
}

pub(crate) fn bound(name: &str, gpus: &[usize], rails: impl IntoIterator<Item = u16>) -> Bound {
    Bound {
        sandbox: SandboxId::parse(name).unwrap(),
        gpus: gpus.to_vec(),
        rails: rails.into_iter().map(RailIndex).collect(),
    }
}

pub(crate) fn indexes(choice: &Choice) -> Vec<u16> {
    choice.indexes().map(|rail| rail.0).collect()
}

/// Binds one pod after the other, each knowing those still to come.
pub(super) fn in_turn(node: &mut Node<'_>, demands: &[Demand]) -> Vec<Choice> {
    let mut choices = vec![];
    for (place, own) in demands.iter().enumerate() {
        let plan = bind(node, own, &demands[place + 1..]).unwrap();
        assert!(plan.exact);
        let rails = indexes(&plan.own);
        node.bound
            .push(bound(&format!("pod-{place}"), &own.gpus, rails));
        choices.push(plan.own);
    }
    choices
}
