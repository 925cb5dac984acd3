//! The lab's shapes as topologies.
//!
//! The same tree that a virtual node shows in sysfs: every device below a root port of its own, a
//! switch with an upstream port and a downstream port for each device. The numbers of these ports
//! are not those of the emulator; no distance depends on them.

use anyhow::Result;
use podrail_core::ids::{IfName, PciAddr, RailIndex, RdmaName, RootId};
use podrail_core::topology::{Gpu, GpuKind, LinkState, NumaNode, PciPath, Rail, Topology};
use podrail_lab::{Device, Kind, Root, Shape};

/// GPUs, rails and NUMA nodes of a shape.
///
/// # Errors
/// None for a shape that was checked: its numbers make valid addresses.
pub(crate) fn topology(shape: &Shape) -> Result<Topology> {
    let mut topology = Topology {
        numa: (0..shape.numa_nodes)
            .map(|id| NumaNode {
                id,
                socket: Some(shape.socket(id)),
            })
            .collect(),
        ..Topology::default()
    };
    for root in &shape.roots {
        for (slot, device) in (1..).zip(&root.devices) {
            let port = PciAddr::parse(&format!("0000:{:02x}:{slot:02x}.0", root.bus))?;
            add(&mut topology, root, device, &[port])?;
        }
    }
    Ok(topology)
}

fn add(topology: &mut Topology, root: &Root, device: &Device, bridges: &[PciAddr]) -> Result<()> {
    match &device.kind {
        Kind::Nic(names) => {
            for (function, name) in names.iter().enumerate() {
                let path = path(root, device.bus, function, bridges)?;
                let rail = rail(topology.rails.len(), path, name)?;
                topology.rails.push(rail);
            }
        }
        Kind::Gpu => topology.gpus.push(Gpu {
            path: path(root, device.bus, 0, bridges)?,
            kind: GpuKind::Generic,
            uuid: None,
            model: None,
            aliases: vec![],
        }),
        Kind::FrontEnd(_) => {}
        Kind::Switch(below) => {
            let upstream = PciAddr::parse(&device.pci())?;
            for (slot, device) in (1_u8..).zip(below) {
                // Root port, upstream port, downstream port.
                let downstream = PciAddr::parse(&format!("0000:{:02x}:{slot:02x}.0", device.bus))?;
                let bridges = [bridges, &[upstream, downstream]].concat();
                add(topology, root, device, &bridges)?;
            }
        }
    }
    Ok(())
}

fn path(root: &Root, bus: u8, function: usize, bridges: &[PciAddr]) -> Result<PciPath> {
    Ok(PciPath {
        root: RootId::parse(&format!("0000:{:02x}", root.bus))?,
        bridges: bridges.to_vec(),
        function: PciAddr::parse(&format!("0000:{bus:02x}:00.{function}"))?,
        numa: Some(root.numa_node),
    })
}

fn rail(index: usize, path: PciPath, rdma: &str) -> Result<Rail> {
    Ok(Rail {
        index: RailIndex(u16::try_from(index)?),
        pci_id: (0, 0),
        nic: path.function.nic(),
        path,
        netdev: Some(IfName::parse(&format!("rdma{index}"))?),
        ifindex: None,
        rdma: Some(RdmaName::parse(rdma)?),
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
    })
}
