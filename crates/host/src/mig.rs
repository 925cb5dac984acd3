//! Which GPU a MIG device is a part of, as far as the driver's files tell.
//!
//! The UUID of a MIG device stands in no file: only NVML knows it. What `/proc` does tell is which
//! GPUs are split at all (`/proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<n>`). On a node with
//! one split GPU that is the answer; on others there is none, which is said.
//!
//! Deliberately absent: NVML. Its crate needs a second version of `thiserror` and loads the driver's
//! library into the process; it belongs behind this function if it comes.

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
/// # Errors
/// [`HostError::NoSysfs`] if `root` is no root of a node.
pub fn mig_parents(
    root: &Path,
    ids: &BTreeSet<String>,
) -> Result<(MigParents, Vec<Note>), HostError> {
    let tree = Tree::open(root)?;
    let split = split_gpus(&tree);
    let parents = match split.as_slice() {
        [only] => ids.iter().map(|id| (id.clone(), *only)).collect(),
        _ => MigParents::new(),
    };
    for id in ids.iter().filter(|id| !parents.contains_key(*id)) {
        let count = split.len();
        let text = format!("{count} GPUs are split, and no file says which one this is a part of");
        tree.note(id, text);
    }
    Ok((parents, tree.into_notes()))
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
