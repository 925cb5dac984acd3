//! NCCL's topology dump: `<system><cpu numaid><pci busid class><nic><net name port guid/>`.
//!
//! NCCL (`src/graph/xml.cc`) walks from a device up its sysfs path and keeps every second bridge,
//! so a switch is one `<pci>` and root ports are lost; the walk ends in `<cpu>`, so root complexes
//! are lost as well. Each bus below a `<cpu>` therefore counts as a root of its own: devices whose
//! root ports share a complex come out as far apart as their NUMA nodes, never nearer. The functions
//! of a NIC are folded into function 0 and numbered by `port` (`ncclIbGetPciPath`).

use super::xml::{elements, number};
use crate::gpu::{self, Class};
use crate::rails;
use crate::select::{Candidate, Selectors};
use crate::tree::{Notes, hex};
use podrail_core::ids::{NicId, PciAddr, RailIndex, RdmaName};
use podrail_core::topology::{
    Excluded, Gpu, GpuKind, LinkState, NumaNode, PciPath, Rail, Topology,
};
use roxmltree::Node;
use std::collections::BTreeMap;

/// Reads `<system>`.
pub(super) fn read(system: Node<'_, '_>, select: &Selectors, notes: &Notes) -> Topology {
    let mut reader = Reader {
        select,
        notes,
        topology: Topology::default(),
        nics: BTreeMap::new(),
    };
    notes.add(
        "NCCL dump",
        "PCIe roots and sockets are not in it: each bus below a CPU counts as one root",
    );
    notes.add(
        "NCCL dump",
        "functions of a NIC are shown as ports of function 0",
    );
    // With NVLink between machines, a dump has the CPUs of all of them: the first is meant.
    let host = |cpu: Node<'_, '_>| cpu.attribute("host_hash").map(str::to_owned);
    let first = elements(system, "cpu").next().and_then(host);
    for cpu in elements(system, "cpu") {
        if host(cpu) == first {
            reader.cpu(cpu);
        } else {
            notes.add("NCCL dump", "has several machines: only the first is read");
        }
    }
    let mut topology = reader.topology;
    topology.gpus.sort_by_key(|gpu| gpu.path.function);
    topology.numa.sort_by_key(|node| node.id);
    topology.numa.dedup_by_key(|node| node.id);
    rails::number(&mut topology.rails);
    topology
}

struct Reader<'a> {
    select: &'a Selectors,
    notes: &'a Notes,
    topology: Topology,
    /// GUID -> NIC: nets with one GUID are ports of one NIC, whatever their function.
    nics: BTreeMap<u64, NicId>,
}

impl Reader<'_> {
    fn cpu(&mut self, cpu: Node<'_, '_>) {
        let numa = number::<i64>(cpu, "numaid").and_then(|id| u32::try_from(id).ok());
        if let Some(id) = numa {
            self.topology.numa.push(NumaNode { id, socket: None });
        }
        for pci in elements(cpu, "pci") {
            let Some(function) = self.address(pci) else {
                continue;
            };
            let path = PciPath {
                root: super::root_of_bus(function),
                bridges: Vec::new(),
                function,
                numa,
            };
            self.pci(pci, &path);
        }
        for net in elements(cpu, "nic").flat_map(|nic| elements(nic, "net")) {
            let name = net.attribute("name").unwrap_or("net");
            self.notes.add(name, "hangs on no PCI function, no rail");
        }
    }

    /// Depth is bounded by the parser.
    fn pci(&mut self, pci: Node<'_, '_>, path: &PciPath) {
        self.gpu(pci, path);
        for net in elements(pci, "nic").flat_map(|nic| elements(nic, "net")) {
            self.net(pci, net, path);
        }
        for child in elements(pci, "pci") {
            let Some(function) = self.address(child) else {
                continue;
            };
            let mut path = path.clone();
            path.bridges.push(path.function);
            path.function = function;
            self.pci(child, &path);
        }
    }

    fn address(&self, pci: Node<'_, '_>) -> Option<PciAddr> {
        let text = pci.attribute("busid").unwrap_or_default();
        let address = PciAddr::parse(text).ok();
        if address.is_none() {
            let text = format!("busid {text:?} is no PCI address, skipped with all below it");
            self.notes.add("<pci>", text);
        }
        address
    }

    /// A `<gpu>`, or a display class: a dump that was written for `NCCL_TOPO_FILE` has no `<gpu>`.
    fn gpu(&mut self, pci: Node<'_, '_>, path: &PciPath) {
        let class = pci.attribute("class").and_then(hex).unwrap_or(0) >> 8;
        let judged = gpu::classify(id(pci), class, path.function, self.select.generic_gpus);
        let marked = elements(pci, "gpu").next().is_some();
        let kind = match judged {
            Some(Class::Gpu(kind)) => kind,
            _ if marked => GpuKind::Nvidia,
            Some(Class::Not(why)) => return self.notes.add(path.function, why),
            None => return,
        };
        self.topology.gpus.push(Gpu {
            path: path.clone(),
            kind,
            uuid: None,
            model: None,
            aliases: vec![],
        });
    }

    fn net(&mut self, pci: Node<'_, '_>, net: Node<'_, '_>, path: &PciPath) {
        let name = net.attribute("name").unwrap_or_default();
        // A dump lists physical devices only (`ncclTopoProcessNet`): a merged name (`mlx5_5+mlx5_6`)
        // or one of a plugin without RDMA is not expected, and no valid device name.
        let (Ok(rdma), port) = (RdmaName::parse(name), number(net, "port").unwrap_or(1)) else {
            return self.notes.add(
                path.function,
                format!("net {name:?} is no RDMA device, no rail"),
            );
        };
        if port == 0 {
            return self
                .notes
                .add(rdma, "has port 0: NCCL's socket transport, no rail");
        }
        let candidate = Candidate {
            pci: path.function,
            pci_id: id(pci),
            driver: None,
            netdev: None,
            rdma: Some(&rdma),
            unknown_fits: true,
        };
        if let Some(reason) = self.select.refuses(&candidate) {
            self.topology.excluded.push(Excluded {
                path: path.clone(),
                netdev: None,
                rdma: Some(rdma),
                reason,
            });
            return;
        }
        let nic = self.nic(net, path);
        self.topology.rails.push(Rail {
            index: RailIndex::default(),
            path: path.clone(),
            pci_id: id(pci),
            nic,
            netdev: None,
            ifindex: None,
            rdma: Some(rdma),
            port,
            uverbs: None,
            umad: None,
            issm: None,
            guid: None,
            mac: None,
            mtu: None,
            speed_mbps: number(net, "speed").filter(|speed| *speed > 0),
            link: LinkState::Unknown,
            faults: Vec::new(),
        });
    }

    /// `guid` is the system image GUID, which the ports of a NIC share (NCCL merges by it as well).
    fn nic(&mut self, net: Node<'_, '_>, path: &PciPath) -> NicId {
        let own = path.function.nic();
        let digits = net
            .attribute("guid")
            .and_then(|guid| guid.strip_prefix("0x"));
        match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            Some(guid) if guid != 0 => *self.nics.entry(guid).or_insert(own),
            _ => own,
        }
    }
}

/// Vendor and device; 0 where the dump has none.
fn id(pci: Node<'_, '_>) -> (u16, u16) {
    let read = |name: &str| {
        pci.attribute(name)
            .and_then(crate::tree::hex16)
            .unwrap_or(0)
    };
    (read("vendor"), read("device"))
}
