//! PCI functions and their place in the tree, from the real paths of sysfs.

use crate::tree::{Tree, hex, hex16};
use podrail_core::ids::{PciAddr, RootId};
use podrail_core::topology::PciPath;
use std::collections::BTreeMap;

/// Where the kernel lists all PCI functions.
const DEVICES: &str = "sys/bus/pci/devices";

/// A PCI function.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) path: PciPath,
    /// Vendor and device id; 0 where sysfs does not say.
    pub(crate) id: (u16, u16),
    /// Class, subclass and interface: `0x030200`.
    pub(crate) class: u32,
    pub(crate) driver: Option<String>,
    /// The physical function, if this is a virtual one (SR-IOV).
    pub(crate) physical: Option<PciAddr>,
}

/// All functions of the node, in PCI order.
#[derive(Debug, Default)]
pub(crate) struct Functions(BTreeMap<PciAddr, Function>);

impl Functions {
    /// Reads every function; one that cannot be placed is noted and left out.
    pub(crate) fn read(tree: &Tree) -> Self {
        let names = tree.names(DEVICES);
        if names.is_empty() {
            tree.note(
                DEVICES,
                "no PCI functions: there can be no rails and no GPUs",
            );
        }
        let read = names.iter().filter_map(|name| read_function(tree, name));
        Self(read.map(|f| (f.path.function, f)).collect())
    }

    /// All of them in PCI order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Function> {
        self.0.values()
    }

    /// One of them.
    pub(crate) fn get(&self, address: PciAddr) -> Option<&Function> {
        self.0.get(&address)
    }
}

fn read_function(tree: &Tree, name: &str) -> Option<Function> {
    let dir = format!("{DEVICES}/{name}");
    let Ok(address) = PciAddr::parse(name) else {
        tree.note(&dir, "not a PCI address, skipped");
        return None;
    };
    let place = place(&tree.real_path(&dir)?).filter(|place| place.function == address);
    let Some(place) = place else {
        tree.note(
            &dir,
            "its real path shows no place below a PCIe root, skipped",
        );
        return None;
    };
    let id = |file: &str| tree.needed(&format!("{dir}/{file}"), "a PCI id", hex16);
    Some(Function {
        path: PciPath {
            numa: numa_node(tree, &dir),
            ..place
        },
        id: (id("vendor").unwrap_or(0), id("device").unwrap_or(0)),
        class: tree
            .needed(&format!("{dir}/class"), "a PCI class", hex)
            .unwrap_or(0),
        driver: tree.target_name(&format!("{dir}/driver")),
        physical: physical(tree, &dir),
    })
}

fn physical(tree: &Tree, dir: &str) -> Option<PciAddr> {
    PciAddr::parse(&tree.target_name(&format!("{dir}/physfn"))?).ok()
}

/// -1 is the kernel's "no node" (`NUMA_NO_NODE`).
fn numa_node(tree: &Tree, dir: &str) -> Option<u32> {
    let parse = |text: &str| text.parse::<i32>().ok();
    let node = tree.value(&format!("{dir}/numa_node"), "a NUMA node", parse)?;
    u32::try_from(node).ok()
}

/// Place that a real path tells: the first `pciDDDD:BB` is the root, the last PCI address is the
/// function, those between are bridges. Parts below the function (`virtio3/net/rdma0`) and nested
/// roots (VMD: `pci10000:00`) are passed over.
pub(crate) fn place(parts: &[String]) -> Option<PciPath> {
    let is_root = |part: &String| RootId::parse(part.strip_prefix("pci")?).ok();
    let at = parts.iter().position(|part| is_root(part).is_some())?;
    let root = parts.get(at).and_then(is_root)?;
    let mut bridges: Vec<PciAddr> = parts
        .iter()
        .skip(at + 1)
        .filter_map(|part| PciAddr::parse(part).ok())
        .collect();
    let function = bridges.pop()?;
    Some(PciPath {
        root,
        bridges,
        function,
        numa: None,
    })
}
