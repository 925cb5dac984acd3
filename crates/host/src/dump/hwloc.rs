//! hwloc's XML (`lstopo --of xml`), versions 1 to 3.
//!
//! `<object type="Bridge" bridge_type="0-1">` is a root complex, `"1-1"` a PCI bridge, `PCIDev` a
//! function, `OSDev` what the kernel made of it. Kinds of OSDev are numbers in versions 1 and 2
//! (2 network, 3 OpenFabrics) and bits in version 3 (16 and 32; `include/hwloc.h`). hwloc leaves
//! out bridges with nothing of interest below, and knows no link layer: a function of class 0207 is
//! taken as InfiniBand, all others as Ethernet.

use super::xml::{elements, number};
use crate::gpu::{self, Class};
use crate::rails;
use crate::select::{Candidate, Selectors};
use crate::tree::{Notes, hex, hex16};
use podrail_core::ids::{GpuUuid, IfName, MacAddr, PciAddr, RailIndex, RdmaName, RootId};
use podrail_core::topology::{Excluded, Gpu, LinkState, NumaNode, PciPath, Rail, Topology};
use roxmltree::{Node, NodeId};
use std::collections::HashMap;

/// PCI class of an InfiniBand controller.
const INFINIBAND: u32 = 0x0207;

/// Most network interfaces, and RDMA devices, of one function: each is looked for in the other.
const MOST_OS_DEVICES: usize = 256;

/// Reads `<topology>`.
pub(super) fn read(root: Node<'_, '_>, select: &Selectors, notes: &Notes) -> Topology {
    let version = root.attribute("version").unwrap_or("1");
    let bits = version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok())
        >= Some(3);
    let mut reader = Reader {
        select,
        notes,
        network: if bits { 16 } else { 2 },
        openfabrics: if bits { 32 } else { 3 },
        topology: Topology::default(),
    };
    notes.add("hwloc dump", "link state, MTU and default route are not in it: front-end NICs are excluded by selectors only");
    reader.objects(root, &Place::default());
    let mut topology = reader.topology;
    topology.gpus.sort_by_key(|gpu| gpu.path.function);
    topology.numa = numa_nodes(root);
    rails::number(&mut topology.rails);
    topology
}

/// Where the walk is.
#[derive(Debug, Clone, Default)]
struct Place {
    numa: Option<u32>,
    root: Option<RootId>,
    bridges: Vec<PciAddr>,
}

struct Reader<'a> {
    select: &'a Selectors,
    notes: &'a Notes,
    network: u32,
    openfabrics: u32,
    topology: Topology,
}

impl Reader<'_> {
    /// Depth is bounded by the parser.
    fn objects(&mut self, parent: Node<'_, '_>, place: &Place) {
        for object in elements(parent, "object") {
            match kind(object) {
                "Bridge" => self.bridge(object, place),
                "PCIDev" => self.device(object, place),
                _ => {
                    let numa = numa_of(object).or(place.numa);
                    self.objects(
                        object,
                        &Place {
                            numa,
                            ..place.clone()
                        },
                    );
                }
            }
        }
    }

    fn bridge(&mut self, bridge: Node<'_, '_>, place: &Place) {
        let mut place = place.clone();
        match bridge.attribute("pci_busid").map(PciAddr::parse) {
            Some(Ok(address)) => place.bridges.push(address),
            Some(Err(error)) => self.notes.add("Bridge", error.to_string()),
            // 0000:[2b-3b]: domain and first bus of the root complex.
            None => {
                let range = bridge.attribute("bridge_pci").unwrap_or_default();
                let bus = range.replace('[', "").split('-').next().map(RootId::parse);
                place.root = bus.and_then(Result::ok).or(place.root);
            }
        }
        self.objects(bridge, &place);
    }

    fn device(&mut self, device: Node<'_, '_>, place: &Place) {
        let text = device.attribute("pci_busid").unwrap_or_default();
        let Ok(function) = PciAddr::parse(text) else {
            let text = format!("pci_busid {text:?} is no PCI address, skipped");
            return self.notes.add("PCIDev", text);
        };
        let top = place.bridges.first().copied().unwrap_or(function);
        let path = PciPath {
            root: place.root.unwrap_or_else(|| super::root_of_bus(top)),
            bridges: place.bridges.clone(),
            function,
            numa: place.numa,
        };
        let (class, id) = pci_type(device.attribute("pci_type").unwrap_or_default());
        match gpu::classify(id, class, function, self.select.generic_gpus) {
            Some(Class::Gpu(kind)) => self.topology.gpus.push(Gpu {
                path: path.clone(),
                kind,
                uuid: os_info(device, &["NVIDIAUUID", "AMDUUID"])
                    .and_then(|t| GpuUuid::parse(t).ok()),
                model: os_info(device, &["GPUModel"]).map(|text| text.chars().take(80).collect()),
                aliases: vec![],
            }),
            Some(Class::Not(why)) => self.notes.add(function, why),
            None => {}
        }
        self.ports(device, &path, (class, id));
    }

    fn ports(&mut self, device: Node<'_, '_>, path: &PciPath, kind: (u32, (u16, u16))) {
        let nets: Vec<Net<'_>> = os_devices(device, self.network).map(Net::of).collect();
        for rdma in os_devices(device, self.openfabrics) {
            let name = rdma.attribute("name").unwrap_or_default();
            let Ok(name) = RdmaName::parse(name) else {
                self.notes.add(
                    path.function,
                    format!("{name:?} is no RDMA device name, skipped"),
                );
                continue;
            };
            let guid = info(rdma, "NodeGUID").and_then(crate::rdma::guid);
            for port in 1..=port_count(rdma) {
                let rail = rail(&nets, path, port);
                self.judge(
                    Rail {
                        pci_id: kind.1,
                        rdma: Some(name.clone()),
                        guid: guid.clone(),
                        ..rail
                    },
                    kind.0,
                );
            }
        }
    }

    fn judge(&mut self, rail: Rail, class: u32) {
        let candidate = Candidate {
            pci: rail.path.function,
            pci_id: rail.pci_id,
            driver: None,
            netdev: rail.netdev.as_ref(),
            rdma: rail.rdma.as_ref(),
            unknown_fits: true,
        };
        let infiniband = (class == INFINIBAND)
            .then(|| "its link layer is InfiniBand (class 0207), not Ethernet".to_owned());
        match infiniband.or_else(|| self.select.refuses(&candidate)) {
            None => self.topology.rails.push(rail),
            Some(reason) => self.topology.excluded.push(Excluded {
                path: rail.path,
                netdev: rail.netdev,
                rdma: rail.rdma,
                reason,
            }),
        }
    }
}

/// A network interface of a function.
struct Net<'a> {
    name: Option<&'a str>,
    /// From 1; on functions with RDMA only.
    port: Option<&'a str>,
    mac: Option<&'a str>,
}

impl<'a> Net<'a> {
    fn of(object: Node<'a, '_>) -> Self {
        Self {
            name: object.attribute("name"),
            port: info(object, "Port"),
            mac: info(object, "Address"),
        }
    }
}

/// What is known of a port of a function.
fn rail(nets: &[Net<'_>], path: &PciPath, port: u32) -> Rail {
    let own = |net: &&Net<'_>| net.port.is_none_or(|p| p.parse() == Ok(port));
    let net = if nets.len() == 1 {
        nets.first()
    } else {
        nets.iter().find(own)
    };
    Rail {
        index: RailIndex::default(),
        path: path.clone(),
        pci_id: (0, 0),
        nic: path.function.nic(),
        netdev: net.and_then(|net| IfName::parse(net.name?).ok()),
        ifindex: None,
        rdma: None,
        port,
        uverbs: None,
        umad: None,
        issm: None,
        guid: None,
        mac: net.and_then(|net| MacAddr::parse(net.mac?).ok()),
        mtu: None,
        speed_mbps: None,
        link: LinkState::Unknown,
        faults: Vec::new(),
    }
}

fn kind<'a>(object: Node<'a, '_>) -> &'a str {
    object.attribute("type").unwrap_or_default()
}

fn os_devices<'a, 'i: 'a>(
    device: Node<'a, 'i>,
    kind_number: u32,
) -> impl Iterator<Item = Node<'a, 'i>> {
    let of_kind = move |object: &Node<'_, '_>| number(*object, "osdev_type") == Some(kind_number);
    elements(device, "object")
        .filter(|object| kind(*object) == "OSDev")
        .filter(of_kind)
        .take(MOST_OS_DEVICES)
}

/// Value of an `<info name= value=/>`.
fn info<'a>(object: Node<'a, '_>, name: &str) -> Option<&'a str> {
    let mut found = elements(object, "info").filter(|info| info.attribute("name") == Some(name));
    found.next()?.attribute("value")
}

/// The first of these infos on any OSDev of a function.
fn os_info<'a>(device: Node<'a, '_>, names: &[&str]) -> Option<&'a str> {
    let mut devices = elements(device, "object");
    devices.find_map(|object| names.iter().find_map(|name| info(object, name)))
}

/// Ports by their `PortNState`; at least one.
fn port_count(rdma: Node<'_, '_>) -> u32 {
    let has = |port: &u32| info(rdma, &format!("Port{port}State")).is_some();
    (1..=255).take_while(has).last().unwrap_or(1)
}

/// Class, vendor and device of `0302 [10de:20b0] [10de:134f] a1`.
fn pci_type(text: &str) -> (u32, (u16, u16)) {
    let mut words = text.split_whitespace();
    let class = words.next().and_then(hex).unwrap_or(0);
    let ids = words.next().unwrap_or_default().trim_matches(['[', ']']);
    let (vendor, device) = ids.split_once(':').unwrap_or_default();
    (
        class,
        (hex16(vendor).unwrap_or(0), hex16(device).unwrap_or(0)),
    )
}

/// NUMA node of what hangs on an object: the only one in its node set, or else the first that
/// is its own memory (nodes of GPU memory come after that of the CPUs).
fn numa_of(object: Node<'_, '_>) -> Option<u32> {
    let set = object.attribute("nodeset").and_then(single_bit);
    set.or_else(|| {
        let mut own = elements(object, "object").filter(|child| kind(*child) == "NUMANode");
        number(own.next()?, "os_index")
    })
}

/// Number of the only bit of `0x00000004` or `0x00000001,0x00000000` (most significant first).
fn single_bit(set: &str) -> Option<u32> {
    let mut found = None;
    for (position, word) in (0_u32..1024).zip(set.rsplit(',')) {
        let word = hex(word.trim())?;
        match word.count_ones() {
            0 => {}
            1 if found.is_none() => found = Some(position * 32 + word.trailing_zeros()),
            _ => return None,
        }
    }
    found
}

/// NUMA nodes with the package they are in, or (version 1) the only one that is in them.
fn numa_nodes(root: Node<'_, '_>) -> Vec<NumaNode> {
    let objects = root
        .descendants()
        .filter(|node| node.has_tag_name("object"));
    let mut packages = Packages::default();
    let mut nodes: Vec<NumaNode> = objects
        .filter(|object| kind(*object) == "NUMANode")
        .filter_map(|object| {
            let id = number(object, "os_index")?;
            Some(NumaNode {
                id,
                socket: packages.of(object),
            })
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    nodes.dedup_by_key(|node| node.id);
    nodes
}

/// The only package inside an object, if there is just one: found once for each object, since any
/// number of NUMA nodes may stand in the same.
#[derive(Default)]
struct Packages(HashMap<NodeId, Option<u32>>);

impl Packages {
    fn of(&mut self, numa: Node<'_, '_>) -> Option<u32> {
        if let Some(package) = numa.ancestors().find(is_package) {
            return number(package, "os_index");
        }
        // Version 1 has the package inside the node; later ones may have the node beside it.
        let holder = if elements(numa, "object").next().is_some() {
            numa
        } else {
            numa.parent()?
        };
        let found = self.0.entry(holder.id());
        *found.or_insert_with(|| {
            let mut inside = holder.descendants().filter(is_package);
            let package = inside.next()?;
            inside
                .next()
                .is_none()
                .then(|| number(package, "os_index"))?
        })
    }
}

fn is_package(node: &Node<'_, '_>) -> bool {
    matches!(kind(*node), "Package" | "Socket")
}
