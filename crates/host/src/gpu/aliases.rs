//! Names that device plugins of AMD and Intel use for a GPU: DRM cards and compute partitions.

use crate::tree::Tree;
use podrail_core::ids::PciAddr;
use podrail_core::topology::{Gpu, GpuKind};
use std::collections::BTreeMap;

/// Compute partitions beyond the first of an AMD GPU are platform devices.
const PARTITION: &str = "amdgpu_xcp_";
const PLATFORM: &str = "sys/devices/platform";
/// What `amdkfd` says of each compute partition.
const KFD_NODES: &str = "sys/class/kfd/kfd/topology/nodes";

/// Adds what can be found; a GPU without a driver has no other names.
pub(super) fn add(tree: &Tree, gpus: &mut [Gpu]) {
    for gpu in gpus.iter_mut() {
        let drm = format!("sys/bus/pci/devices/{}/drm", gpu.path.function);
        gpu.aliases = tree.names(&drm);
        gpu.aliases.retain(|name| is_numbered(name, "card"));
    }
    if gpus.iter().any(|gpu| gpu.kind == GpuKind::Amd) {
        add_partitions(tree, gpus);
    }
}

fn add_partitions(tree: &Tree, gpus: &mut [Gpu]) {
    let mut partitions = tree.names(PLATFORM);
    partitions.retain(|name| is_numbered(name, PARTITION));
    if partitions.is_empty() {
        return;
    }
    let places = places(tree);
    for name in partitions {
        let place = render_minor(tree, &name).and_then(|minor| places.get(&minor));
        let gpu = place.and_then(|place| find(gpus, *place));
        match gpu {
            Some(gpu) => gpu.aliases.push(name),
            None => tree.note(name, "compute partition of a GPU that was not found"),
        }
    }
}

/// Some kernels (6.4, 6.5) put the partition's number into the bits of the function.
fn find(gpus: &mut [Gpu], place: PciAddr) -> Option<&mut Gpu> {
    let exact = gpus.iter().position(|gpu| gpu.path.function == place);
    let same_device = || {
        gpus.iter()
            .position(|gpu| gpu.path.function.nic() == place.nic())
    };
    let at = exact.or_else(same_device)?;
    gpus.get_mut(at)
}

fn render_minor(tree: &Tree, partition: &str) -> Option<u32> {
    let names = tree.names(&format!("{PLATFORM}/{partition}/drm"));
    names
        .iter()
        .find_map(|name| name.strip_prefix("renderD")?.parse().ok())
}

/// Minor of the render node -> PCI function of its GPU.
fn places(tree: &Tree) -> BTreeMap<u32, PciAddr> {
    let names = tree.names(KFD_NODES);
    names
        .iter()
        .filter_map(|name| tree.text(&format!("{KFD_NODES}/{name}/properties")))
        .filter_map(|text| place(&text))
        .collect()
}

/// Lines `drm_render_minor 129`, `domain 0` and `location_id 6400`; the location is bus and devfn
/// in its low 16 bits (`kfd_topology_add_device`). A node that is a CPU has the minor 0.
fn place(properties: &str) -> Option<(u32, PciAddr)> {
    let value = |key: &str| -> Option<u32> {
        let mut lines = properties.lines();
        lines.find_map(|line| {
            line.strip_prefix(key)?
                .strip_prefix(' ')?
                .trim()
                .parse()
                .ok()
        })
    };
    let minor = value("drm_render_minor").filter(|minor| *minor > 0)?;
    let (domain, location) = (value("domain")?, value("location_id")?);
    let (bus, device, function) = ((location >> 8) & 0xff, (location >> 3) & 0x1f, location & 7);
    let text = format!("{domain:04x}:{bus:02x}:{device:02x}.{function}");
    Some((minor, PciAddr::parse(&text).ok()?))
}

fn is_numbered(name: &str, word: &str) -> bool {
    name.strip_prefix(word)
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
