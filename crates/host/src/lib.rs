//! Facts of a node, read from sysfs, /proc and topology dumps; nothing here changes the node.
//!
//! Everything is read below a given root: `/` on a live node, a captured tree in tests. Reads are
//! bounded, and what is missing, garbled or skipped becomes a [`Note`]: silence is a bug here. What
//! sysfs cannot tell (addresses, routes of other tables) comes in as [`KernelAnswers`], plain data
//! that the caller got by netlink. There is no netlink and no async in this crate, and no clock except
//! where [`mig_parents`] waits for the NVIDIA driver's library.
//!
//! Reading order: [`discover`] -> `pci` -> `gpu` -> `rdma` -> `netdev` -> `front_end` -> `select`
//! -> `rails`; then `node` for facts besides the topology, [`mig_parents`], and [`dump`] for files of
//! NCCL and hwloc.

mod error;
mod front_end;
mod glob;
mod gpu;
mod kernel;
mod known;
mod mig;
mod netdev;
mod node;
mod pci;
mod rails;
mod rdma;
mod select;
mod tree;

pub mod dump;
pub mod gids;
pub mod render;

pub use error::{BadXml, HostError};
pub use glob::{BadPattern, Pattern};
pub use kernel::{InterfaceAddress, KernelAnswers, RdmaLink};
pub use mig::mig_parents;
pub use node::{KernelModule, Memlock, NetnsMode, NodeFacts, memlock};
pub use select::{LinkType, Selectors};
pub use tree::Note;

#[cfg(test)]
mod tests;

use podrail_core::topology::Topology;
use std::path::Path;

/// What a node has, and what was left out on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    /// GPUs, rails, excluded ports and NUMA nodes.
    pub topology: Topology,
    /// Facts besides the topology.
    pub node: NodeFacts,
    /// Everything that was skipped, missing or garbled.
    pub notes: Vec<Note>,
}

/// Reads the facts of the node whose file systems are below `root`.
///
/// `before` is what was found earlier in the same boot: a rail of it that is not there now keeps its
/// index, with a fault, unless the configuration or the default route takes it away.
///
/// # Errors
/// [`HostError::NoSysfs`] if there is no `sys` below `root`. A broken device is no error: it is
/// skipped and noted.
pub fn discover(
    root: &Path,
    kernel: &KernelAnswers,
    select: &Selectors,
    before: Option<&Topology>,
) -> Result<Discovery, HostError> {
    let tree = tree::Tree::open(root)?;
    let functions = pci::Functions::read(&tree);
    let gpus = gpu::find(&tree, &functions, select.generic_gpus);
    let before = before.map_or(&[][..], |topology| &topology.rails);
    let (rails, excluded) = rails::find(&tree, &functions, kernel, select, before);
    let numa = node::numa_nodes(&tree);
    let node = node::facts(&tree);
    let topology = Topology {
        gpus,
        rails,
        excluded,
        numa,
    };
    Ok(Discovery {
        topology,
        node,
        notes: tree.into_notes(),
    })
}
