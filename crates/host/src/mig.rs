//! Which GPU a MIG device is a part of.
//!
//! `/proc` tells which GPUs are split (`/proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<n>`). If
//! one is, that is the answer. The UUID of a MIG device stands in no file: among several GPUs only
//! NVML can say, and only then it is asked (`nvml`).

mod nvml;

pub(crate) use nvml::Nvml;

use crate::tree::Tree;
use crate::{HostError, Note};
use podrail_core::gpus::devices::MigParents;
use podrail_core::ids::PciAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const GPUS: &str = "proc/driver/nvidia/gpus";
const CAPABILITIES: &str = "proc/driver/nvidia/capabilities";

/// The GPUs of these MIG devices, below `root`. A device that is not in the answer is noted.
///
/// On a live node (`root` is `/`) with several split GPUs the NVIDIA driver's library is loaded into
/// this process and asked, for 15 s at most; the library of a captured tree is never loaded.
///
/// # Errors
/// [`HostError::NoSysfs`] if `root` is no root of a node. A library that is absent, refuses or does
/// not answer is no error: it is noted.
pub fn mig_parents(
    root: &Path,
    ids: &BTreeSet<String>,
) -> Result<(MigParents, Vec<Note>), HostError> {
    parents(root, ids, &Nvml::of_node(root))
}

/// Like [`mig_parents`], with the driver's libraries given.
pub(crate) fn parents(
    root: &Path,
    ids: &BTreeSet<String>,
    nvml: &Nvml,
) -> Result<(MigParents, Vec<Note>), HostError> {
    let tree = Tree::open(root)?;
    let split = split_gpus(&tree);
    let parents = match split.as_slice() {
        _ if ids.is_empty() => MigParents::new(),
        [only] => ids.iter().map(|id| (id.clone(), *only)).collect(),
        several => ask(&tree, several.len(), ids, nvml),
    };
    Ok((parents, tree.into_notes()))
}

/// What NVML says; what it does not say is noted.
fn ask(tree: &Tree, split: usize, ids: &BTreeSet<String>, nvml: &Nvml) -> MigParents {
    let answer = nvml.ask(ids);
    for (library, why) in &answer.failures {
        tree.note(library, why);
    }
    for id in ids.iter().filter(|id| !answer.parents.contains_key(*id)) {
        let why = answer
            .refusals
            .get(id)
            .map_or("no file says, nor does NVML", |why| why);
        let text =
            format!("{split} GPUs are split, and which one this is a part of is not known: {why}");
        tree.note(id, text);
    }
    answer.parents
}

/// GPUs with at least one MIG instance.
fn split_gpus(tree: &Tree) -> Vec<PciAddr> {
    let minors = minors(tree);
    let is_split = |minor: &u32| {
        let instances = tree.names(&format!("{CAPABILITIES}/gpu{minor}/mig"));
        instances.iter().any(|name| is_instance(name))
    };
    let split = minors.into_iter().filter(|(minor, _)| is_split(minor));
    split.map(|(_, address)| address).collect()
}

fn is_instance(name: &str) -> bool {
    name.strip_prefix("gi")
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Minor of `/dev/nvidiaN` -> PCI function.
fn minors(tree: &Tree) -> BTreeMap<u32, PciAddr> {
    let minor = |name: &String| {
        let text = tree.text(&format!("{GPUS}/{name}/information"))?;
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix("Device Minor:"))?;
        Some((value.trim().parse().ok()?, PciAddr::parse(name).ok()?))
    };
    tree.names(GPUS).iter().filter_map(minor).collect()
}
