//! Nodes to draw.

use super::{Holder, holder};
use podrail_core::ids::{IfName, PciAddr, RailIndex, RdmaName, RootId};
use podrail_core::topology::{
    Excluded, Gpu, GpuKind, LinkState, NumaNode, PciPath, Rail, RailFault, Topology,
};

pub(super) fn pci(bus: u8, function: u8) -> PciAddr {
    PciAddr::parse(&format!("0000:{bus:02x}:00.{function}")).unwrap()
}

pub(super) fn path(root: u8, bridges: &[u8], numa: Option<u32>, function: PciAddr) -> PciPath {
    PciPath {
        root: RootId::parse(&format!("0000:{root:02x}")).unwrap(),
        bridges: bridges.iter().map(|bus| pci(*bus, 0)).collect(),
        function,
        numa,
    }
}

pub(super) fn gpu(path: PciPath, model: &str) -> Gpu {
    Gpu {
        path,
        kind: GpuKind::Nvidia,
        uuid: None,
        model: Some(model.to_owned()),
        aliases: vec![],
    }
}

pub(super) fn rail(index: u16, path: PciPath, rdma: u32) -> Rail {
    Rail {
        index: RailIndex(index),
        pci_id: (0x15b3, 0x101d),
        nic: path.function.nic(),
        path,
        netdev: Some(IfName::parse(&format!("rdma{index}")).unwrap()),
        ifindex: Some(10 + u32::from(index)),
        rdma: Some(RdmaName::parse(&format!("mlx5_{rdma}")).unwrap()),
        port: 1,
        uverbs: Some(format!("uverbs{rdma}")),
        umad: None,
        issm: None,
        guid: None,
        mac: None,
        mtu: Some(4220),
        speed_mbps: Some(100_000),
        link: LinkState::Up,
        faults: Vec::new(),
    }
}

fn front_end(path: PciPath, netdev: &str, rdma: &str) -> Excluded {
    Excluded {
        path,
        netdev: Some(IfName::parse(netdev).unwrap()),
        rdma: Some(RdmaName::parse(rdma).unwrap()),
        reason: "carries the default route".to_owned(),
    }
}

fn sockets(of_numa: &[(u32, u32)]) -> Vec<NumaNode> {
    of_numa
        .iter()
        .map(|(id, socket)| NumaNode {
            id: *id,
            socket: Some(*socket),
        })
        .collect()
}

/// The node of the post: 4 roots on 4 of 8 NUMA nodes, each with 2 GPUs and 2 NICs of 2 ports.
pub(super) fn b4_8() -> Topology {
    let roots = [
        (0x0b, 3, [0x0f, 0x15], [0x0c, 0x16]),
        (0x46, 1, [0x51, 0x54], [0x47, 0x4b]),
        (0x88, 7, [0x8d, 0x92], [0x89, 0x93]),
        (0xc2, 5, [0xd6, 0xda], [0xc3, 0xd1]),
    ];
    let mut rdma = [5, 6, 7, 8, 1, 2, 3, 4, 14, 15, 16, 17, 9, 10, 11, 12].into_iter();
    let mut node = Topology {
        numa: sockets(&[(1, 0), (3, 0), (5, 1), (7, 1)]),
        ..Topology::default()
    };
    for (root, numa, gpus, nics) in roots {
        for bus in gpus {
            let path = path(root, &[bus - 1], Some(numa), pci(bus, 0));
            node.gpus.push(gpu(path, "NVIDIA A100-SXM4-40GB"));
        }
        for (bus, function) in nics.into_iter().flat_map(|bus| [(bus, 0), (bus, 1)]) {
            let path = path(root, &[bus - 1], Some(numa), pci(bus, function));
            node.rails
                .push(rail(node.rails.len() as u16, path, rdma.next().unwrap()));
        }
    }
    node.excluded = vec![
        front_end(path(0x46, &[0x6a], Some(1), pci(0x6b, 0)), "eth0", "mlx5_0"),
        front_end(
            path(0x88, &[0xa9], Some(7), pci(0xaa, 0)),
            "eth1",
            "mlx5_13",
        ),
    ];
    node
}

/// 8 roots on 2 NUMA nodes; below each a switch with one GPU and one NIC of 2 ports.
pub(super) fn h100_8() -> Topology {
    let roots = [0x06, 0x24, 0x3b, 0x52, 0x80, 0x9f, 0xb7, 0xcf];
    let mut node = Topology {
        numa: sockets(&[(0, 0), (1, 1)]),
        ..Topology::default()
    };
    for (at, root) in roots.into_iter().enumerate() {
        let numa = Some(at as u32 / 4);
        let (port, switch) = (root + 1, root + 2);
        let gpu_path = path(root, &[port, switch, root + 7], numa, pci(root + 9, 0));
        node.gpus.push(gpu(gpu_path, "NVIDIA H100 80GB HBM3"));
        for function in [0, 1] {
            let path = path(
                root,
                &[port, switch, root + 4],
                numa,
                pci(root + 6, function),
            );
            let index = node.rails.len() as u16;
            let mut rail = rail(index, path, 18 + u32::from(index));
            rail.speed_mbps = Some(200_000);
            node.rails.push(rail);
        }
    }
    let path = path(0x70, &[], Some(0), pci(0x75, 0));
    node.excluded = vec![front_end(path, "eth0", "mlx5_0")];
    node
}

/// Two roots; below each a switch with two switches below it, each with a GPU and a NIC, and a NIC
/// straight at the root.
pub(super) fn switches() -> Topology {
    let mut node = Topology {
        numa: sockets(&[(0, 0), (1, 1)]),
        ..Topology::default()
    };
    for (root, numa) in [(0x10, 0), (0x80, 1)] {
        for lower in [0x20, 0x30] {
            let bridges = |device: u8| {
                [
                    root + 1,
                    root + 2,
                    root + lower,
                    root + lower + 1,
                    root + lower + device,
                ]
            };
            let place = |device| {
                path(
                    root,
                    &bridges(device),
                    Some(numa),
                    pci(root + lower + device + 1, 0),
                )
            };
            node.gpus.push(gpu(place(2), "NVIDIA L40S"));
            node.rails.push(rail(
                node.rails.len() as u16,
                place(4),
                node.rails.len() as u32,
            ));
        }
        let path = path(root, &[root + 8], Some(numa), pci(root + 9, 0));
        node.rails
            .push(rail(node.rails.len() as u16, path, node.rails.len() as u32));
    }
    node
}

/// NUMA unknown, and every way in which a rail can be wrong or unknown.
pub(super) fn faulty() -> Topology {
    let mut node = Topology::default();
    node.gpus
        .push(gpu(path(0, &[], None, pci(1, 0)), "NVIDIA A100-SXM4-40GB"));
    node.gpus.push(Gpu {
        model: None,
        aliases: vec![],
        ..gpu(path(0, &[], None, pci(2, 0)), "")
    });
    for index in 0..6 {
        node.rails.push(rail(
            index,
            path(0, &[], None, pci(0x10 + index as u8 / 2, index as u8 % 2)),
            index.into(),
        ));
    }
    let bond = RailFault::Enslaved(IfName::parse("bond0").unwrap());
    let states = [
        (LinkState::Up, vec![]),
        (LinkState::Down, vec![]),
        (LinkState::Up, vec![RailFault::MacvlanParent]),
        (LinkState::Down, vec![bond, RailFault::NotEthernet]),
        (LinkState::Unknown, vec![RailFault::NoRdmaDevice]),
        (LinkState::Up, vec![]),
    ];
    for (rail, (link, faults)) in node.rails.iter_mut().zip(states) {
        (rail.link, rail.faults) = (link, faults);
    }
    node.rails[4].rdma = None;
    node.rails[4].netdev = Some(IfName::parse("enp193s0f1np1").unwrap());
    node.rails[4].mtu = None;
    node.rails[4].speed_mbps = Some(2500);
    node.rails[5].netdev = None;
    node.rails[5].speed_mbps = None;
    node
}

/// One holder per GPU with the rails of the same number.
pub(super) fn one_per_gpu(gpus: usize, rails: usize) -> Vec<Holder> {
    let rails_of = |at: usize| {
        (at * rails..(at + 1) * rails)
            .map(|rail| rail as u16)
            .collect::<Vec<_>>()
    };
    (0..gpus)
        .map(|at| holder(&format!("team-a/train-{at}"), &[at], &rails_of(at)))
        .collect()
}
