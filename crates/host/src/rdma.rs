//! Ports of RDMA devices: their link layer, their PCI function and their network interface.

use crate::kernel::KernelAnswers;
use crate::netdev;
use crate::pci;
use crate::tree::Tree;
use podrail_core::ids::{IfName, PciAddr, RdmaName};
use std::collections::BTreeMap;

const CLASS: &str = "sys/class/infiniband";

/// One port of an RDMA device.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    pub(crate) device: RdmaName,
    /// From 1.
    pub(crate) port: u32,
    /// `Ethernet` or `InfiniBand`, as the kernel says it.
    pub(crate) link_layer: Option<String>,
    /// Its interface in the host's namespace.
    pub(crate) netdev: Option<IfName>,
    /// Index that came with the kernel's answer.
    pub(crate) ifindex: Option<u32>,
    /// The PCI function of the device; of its interface for rxe and siw, which have none.
    pub(crate) function: Option<PciAddr>,
    /// A software device (rxe, siw): it has no PCI function of its own.
    pub(crate) software: bool,
    pub(crate) uverbs: Option<String>,
    pub(crate) umad: Option<String>,
    pub(crate) issm: Option<String>,
    /// Node GUID, `0002:c903:0010:abcd`.
    pub(crate) guid: Option<String>,
}

/// Ports of all RDMA devices.
pub(crate) fn ports(tree: &Tree, kernel: &KernelAnswers) -> Vec<Port> {
    let uverbs = uverbs(tree);
    let mads = Mads::read(tree);
    let mut ports = Vec::new();
    for name in tree.names(CLASS) {
        let Ok(device) = RdmaName::parse(&name) else {
            tree.note(
                format!("{CLASS}/{name}"),
                "not a name for an RDMA device, skipped",
            );
            continue;
        };
        let numbers = port_numbers(tree, &device);
        if numbers.is_empty() {
            tree.note(&device, "has no ports, no rail");
        }
        let read = Device::read(tree, device, uverbs.get(&name).cloned());
        ports.extend(
            numbers
                .into_iter()
                .map(|port| read.port(tree, port, kernel))
                .map(|port| mads.add_to(port)),
        );
    }
    ports
}

/// What all ports of a device share.
struct Device {
    name: RdmaName,
    function: Option<PciAddr>,
    uverbs: Option<String>,
    guid: Option<String>,
}

impl Device {
    fn read(tree: &Tree, name: RdmaName, uverbs: Option<String>) -> Self {
        let dir = format!("{CLASS}/{name}");
        let own = tree.real_path(&dir).and_then(|parts| pci::place(&parts));
        let place = own.or_else(|| {
            let link = tree.real_path(&format!("{dir}/device"));
            link.and_then(|parts| pci::place(&parts))
        });
        if uverbs.is_none() {
            tree.note(&name, "has no uverbs device (is ib_uverbs loaded?)");
        }
        Self {
            function: place.map(|place| place.function),
            guid: tree.value(&format!("{dir}/node_guid"), "a GUID", guid),
            name,
            uverbs,
        }
    }

    fn port(&self, tree: &Tree, port: u32, kernel: &KernelAnswers) -> Port {
        let (netdev, ifindex) = match answer(kernel, &self.name, port) {
            Some(Some((name, index))) => (Some(name), Some(index)),
            Some(None) => (None, None),
            None => (self.netdev(tree, port), None),
        };
        let netdev = netdev.filter(|name| netdev::exists(tree, name));
        let by_netdev = || netdev.as_ref().and_then(|name| function_of(tree, name));
        Port {
            device: self.name.clone(),
            port,
            link_layer: tree.word(&format!("{CLASS}/{}/ports/{port}/link_layer", self.name)),
            function: self.function.or_else(by_netdev),
            software: self.function.is_none(),
            netdev,
            ifindex,
            uverbs: self.uverbs.clone(),
            umad: None,
            issm: None,
            guid: self.guid.clone(),
        }
    }

    /// The port's interface by sysfs: `parent` (rxe and siw), the function's interfaces, then the
    /// one that the port's first GID belongs to.
    fn netdev(&self, tree: &Tree, port: u32) -> Option<IfName> {
        let dir = format!("{CLASS}/{}", self.name);
        let named = |path: String| IfName::parse(&tree.text(&path)?).ok();
        named(format!("{dir}/parent"))
            .or_else(|| self.netdev_of_function(tree, port))
            .or_else(|| named(format!("{dir}/ports/{port}/gid_attrs/ndevs/0")))
    }

    /// One interface on the function: it is that. Several: `dev_port` counts from 0 what the RDMA
    /// device counts from 1 (mlx4 has two ports on one function).
    fn netdev_of_function(&self, tree: &Tree, port: u32) -> Option<IfName> {
        let function = self.function?;
        let mut names = tree.names(&format!("{CLASS}/{}/device/net", self.name));
        if names.is_empty() {
            names = tree.names(&format!("sys/bus/pci/devices/{function}/net"));
        }
        let mut found: Vec<IfName> = names
            .iter()
            .filter_map(|name| IfName::parse(name).ok())
            .filter(|name| !netdev::is_representor(tree, name))
            .collect();
        if found.len() > 1 {
            found.retain(|name| netdev::dev_port(tree, name).map(|at| at + 1) == Some(port));
        }
        if found.len() > 1 {
            tree.note(
                &self.name,
                format!("port {port} has several interfaces, the first is taken"),
            );
        }
        found.into_iter().next()
    }
}

/// What netlink said about a port: nothing, no interface, or one.
fn answer(kernel: &KernelAnswers, device: &RdmaName, port: u32) -> Option<Option<(IfName, u32)>> {
    let links = kernel.rdma_links.as_ref()?;
    let link = links
        .iter()
        .find(|link| link.device == *device && link.port == port)?;
    Some(link.netdev.clone())
}

/// The PCI function of an interface; virtual ones have none.
pub(crate) fn function_of(tree: &Tree, name: &IfName) -> Option<PciAddr> {
    let parts = tree.real_path(&netdev::dir(name))?;
    pci::place(&parts).map(|place| place.function)
}

fn port_numbers(tree: &Tree, device: &RdmaName) -> Vec<u32> {
    let names = tree.names(&format!("{CLASS}/{device}/ports"));
    let mut numbers: Vec<u32> = names
        .iter()
        .filter_map(|name| name.parse::<u8>().ok())
        .filter(|port| *port > 0)
        .map(u32::from)
        .collect();
    numbers.sort_unstable();
    numbers
}

/// RDMA device -> `uverbsN`.
fn uverbs(tree: &Tree) -> BTreeMap<String, String> {
    let class = "sys/class/infiniband_verbs";
    numbered(tree, class, "uverbs")
        .filter_map(|name| Some((tree.text(&format!("{class}/{name}/ibdev"))?, name)))
        .collect()
}

/// Devices of a class whose names are a word and a number.
fn numbered(tree: &Tree, class: &str, word: &'static str) -> impl Iterator<Item = String> {
    tree.names(class).into_iter().filter(move |name| {
        let number = name.strip_prefix(word);
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// RDMA device and port, as the kernel writes both -> name of the character device.
type ByPort = BTreeMap<(String, String), String>;

/// Devices for management datagrams; `ib_umad` makes one per port.
struct Mads {
    umad: ByPort,
    issm: ByPort,
}

impl Mads {
    fn read(tree: &Tree) -> Self {
        Self {
            umad: by_port(tree, "umad"),
            issm: by_port(tree, "issm"),
        }
    }

    fn add_to(&self, port: Port) -> Port {
        let key = (port.device.to_string(), port.port.to_string());
        Port {
            umad: self.umad.get(&key).cloned(),
            issm: self.issm.get(&key).cloned(),
            ..port
        }
    }
}

fn by_port(tree: &Tree, word: &'static str) -> ByPort {
    let class = "sys/class/infiniband_mad";
    let entry = |name: String| {
        let device = tree.text(&format!("{class}/{name}/ibdev"))?;
        let port = tree.text(&format!("{class}/{name}/port"))?;
        Some(((device, port), name))
    };
    numbered(tree, class, word).filter_map(entry).collect()
}

/// Four groups of four hexadecimal digits.
pub(crate) fn guid(text: &str) -> Option<String> {
    let groups: Vec<&str> = text.split(':').collect();
    let is_group = |group: &&str| group.len() == 4 && group.bytes().all(|b| b.is_ascii_hexdigit());
    (groups.len() == 4 && groups.iter().all(is_group)).then(|| text.to_ascii_lowercase())
}

/// Speed in Mbit/s that the port's `rate` tells: `100 Gb/sec (4X EDR)`. `2.5 Gb/sec (1X SDR)` is
/// what the core says when the interface does not know its speed (`ib_get_eth_speed`), so it
/// counts as not known.
pub(crate) fn rate(tree: &Tree, port: &Port) -> Option<u32> {
    let path = format!("{CLASS}/{}/ports/{}/rate", port.device, port.port);
    let rate = tree.value(&path, "a rate", parse_rate)?;
    (!rate.is_placeholder).then_some(rate.mbps)
}

struct Rate {
    mbps: u32,
    is_placeholder: bool,
}

fn parse_rate(text: &str) -> Option<Rate> {
    let gigabits = text.split_whitespace().next()?;
    let (whole, tenth) = gigabits.split_once('.').unwrap_or((gigabits, "0"));
    let mbps = whole.parse::<u32>().ok()?.checked_mul(1000)?;
    Some(Rate {
        mbps: mbps.checked_add(tenth.parse::<u32>().ok().filter(|t| *t < 10)? * 100)?,
        is_placeholder: text.contains("(1X SDR)"),
    })
}

/// Whether the port says that it is not active, in its own words (`1: DOWN`).
pub(crate) fn inactive(tree: &Tree, port: &Port) -> Option<String> {
    let path = format!("{CLASS}/{}/ports/{}/state", port.device, port.port);
    tree.word(&path).filter(|state| !state.starts_with("4:"))
}
