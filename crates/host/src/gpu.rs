//! GPUs: which PCI functions count, and what their driver says about them.

use crate::pci::{Function, Functions};
use crate::tree::Tree;
use podrail_core::ids::{GpuUuid, PciAddr};
use podrail_core::topology::{Gpu, GpuKind};
use std::collections::BTreeMap;

mod aliases;

/// One folder per GPU that the NVIDIA driver holds, named by its PCI address.
const NVIDIA: &str = "proc/driver/nvidia/gpus";

const VENDOR_NVIDIA: u16 = 0x10de;
const VENDOR_AMD: u16 = 0x1002;
const VENDOR_INTEL: u16 = 0x8086;

/// Vendors of management controllers with a display function: ASPEED, Matrox.
const BMC_VENDORS: [u16; 2] = [0x1a03, 0x102b];
/// ATI displays of older management controllers: Rage XL, ES1000.
const BMC_AMD_DEVICES: [u16; 2] = [0x4752, 0x515e];
/// Intel's display and NPU inside the CPU have fixed places on bus 0.
const INTEL_INTEGRATED: [&str; 2] = ["0000:00:02.0", "0000:00:0b.0"];

/// What a PCI function is, when it looks like a GPU at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Gpu(GpuKind),
    /// A display or accelerator that does not count, and why.
    Not(&'static str),
}

/// Judges a function by its ids; `None` if it is no display and no accelerator. `class` has class
/// and subclass only: 0300 VGA, 0302 3D controller, 0380 other display, 1200 accelerator (MI300).
pub(crate) fn classify(id: (u16, u16), class: u32, at: PciAddr, generic: bool) -> Option<Class> {
    let (vendor, device) = id;
    if class >> 8 != 0x03 && class != 0x1200 {
        return None;
    }
    let bmc = BMC_VENDORS.contains(&vendor)
        || (vendor == VENDOR_AMD && BMC_AMD_DEVICES.contains(&device));
    let integrated = vendor == VENDOR_INTEL && INTEL_INTEGRATED.contains(&at.to_string().as_str());
    Some(match (vendor, class) {
        _ if bmc => Class::Not("display of a management controller, no GPU"),
        _ if integrated => Class::Not("part of the CPU, no GPU"),
        (VENDOR_NVIDIA, 0x0300 | 0x0302) => Class::Gpu(GpuKind::Nvidia),
        (VENDOR_AMD, 0x0300 | 0x0302 | 0x0380 | 0x1200) => Class::Gpu(GpuKind::Amd),
        (VENDOR_INTEL, 0x0300 | 0x0302 | 0x0380 | 0x1200) => Class::Gpu(GpuKind::Intel),
        _ if generic => Class::Gpu(GpuKind::Generic),
        _ => Class::Not("display or accelerator of another maker: a GPU only with generic GPUs on"),
    })
}

/// GPUs in PCI order.
pub(crate) fn find(tree: &Tree, functions: &Functions, generic: bool) -> Vec<Gpu> {
    let information = nvidia_information(tree);
    let mut gpus: Vec<Gpu> = functions
        .iter()
        .filter_map(|function| {
            gpu(
                tree,
                function,
                information.get(&function.path.function),
                generic,
            )
        })
        .collect();
    aliases::add(tree, &mut gpus);
    for address in information.keys() {
        if functions.get(*address).is_none() {
            tree.note(
                address,
                "the NVIDIA driver lists a GPU that is no PCI function here",
            );
        }
    }
    gpus
}

fn gpu(
    tree: &Tree,
    function: &Function,
    nvidia: Option<&Information>,
    generic: bool,
) -> Option<Gpu> {
    let at = function.path.function;
    let kind = match classify(function.id, function.class >> 8, at, generic)? {
        Class::Gpu(kind) => kind,
        Class::Not(why) => {
            let (vendor, device) = function.id;
            tree.note(at, format!("{vendor:04x}:{device:04x} {why}"));
            return None;
        }
    };
    if nvidia.is_some_and(|information| information.excluded) {
        tree.note(
            at,
            "excluded by the NVIDIA driver (NVreg_ExcludedGpus), no GPU",
        );
        return None;
    }
    if let Some(physical) = function
        .physical
        .filter(|_| !is_held(function, kind, nvidia.is_some()))
    {
        tree.note(
            at,
            format!("virtual function of {physical} without a GPU driver, no GPU"),
        );
        return None;
    }
    let model = match kind {
        GpuKind::Amd => tree.word(&format!("sys/bus/pci/devices/{at}/product_name")),
        _ => nvidia.and_then(|information| information.model.clone()),
    };
    Some(Gpu {
        path: function.path.clone(),
        kind,
        uuid: nvidia.and_then(|information| information.uuid.clone()),
        model: model.filter(|model| !model.is_empty()),
        aliases: vec![],
    })
}

/// Whether a virtual function is used by this kernel as a GPU (and not kept for virtual machines):
/// the NVIDIA driver lists it, or a driver other than vfio's is bound to it.
fn is_held(function: &Function, kind: GpuKind, in_nvidia_list: bool) -> bool {
    let driver = function.driver.as_deref();
    match kind {
        GpuKind::Nvidia => in_nvidia_list,
        _ => driver.is_some_and(|driver| driver != "vfio-pci"),
    }
}

/// What `information` of the NVIDIA driver says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Information {
    model: Option<String>,
    uuid: Option<GpuUuid>,
    excluded: bool,
}

fn nvidia_information(tree: &Tree) -> BTreeMap<PciAddr, Information> {
    let mut found = BTreeMap::new();
    for name in tree.names(NVIDIA) {
        let path = format!("{NVIDIA}/{name}/information");
        let Ok(address) = PciAddr::parse(&name) else {
            tree.note(&path, "its folder is no PCI address, skipped");
            continue;
        };
        let information = tree
            .text(&path)
            .map(|text| parse_information(tree, &path, &text));
        found.insert(address, information.unwrap_or_default());
    }
    found
}

/// Lines `Model:`, `GPU UUID:` and `GPU Excluded:` (`Blacklisted:` in drivers before 460). The
/// UUID has `?` for its digits until the GPU was used once.
fn parse_information(tree: &Tree, path: &str, text: &str) -> Information {
    let mut information = Information::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match key.trim() {
            "Model" => information.model = Some(value.chars().take(80).collect()),
            "GPU UUID" => {
                information.uuid = GpuUuid::parse(value).ok();
                if information.uuid.is_none() {
                    tree.note(path, "no UUID yet (GPU not initialised)");
                }
            }
            "GPU Excluded" | "Blacklisted" => information.excluded = value == "Yes",
            _ => {}
        }
    }
    information
}
