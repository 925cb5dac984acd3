//! CDI documents: what a container gets for each of its slots.
//!
//! The kubelet hands the names `podrail.io/rail=slot-07` to the container runtime, which looks each
//! up in a file of its own, written when the slot is bound. Kept to:
//!
//! - `cdiVersion` 0.6.0: the first with annotations, which name the owner. Runtimes refuse a file
//!   with a field that they do not know.
//! - Device nodes have `permissions` `rw` and no `uid`, `gid` or `fileMode`: the runtime gives the
//!   node to the container's user, and with uid 0 and mode 0600 another user would be locked out.
//!   Without `permissions` the container could also make device nodes (`rwm`).
//! - Every file of a container carries the whole environment of that container: the runtime applies
//!   the files one after another in no fixed order, and the later value of a name wins.
//!
//! Reading order: [`files`], `env`, `document`; then [`parse`], which reads the owner back.

use crate::attachment::{Attachment, HeldRail};
use crate::ids::{RailIndex, RdmaName, ResourceName, SandboxId, SlotId};
use crate::pods::PodRef;
use crate::topology::Topology;

mod document;
mod env;
mod parse;

pub use env::device_list;
pub use parse::{BadFile, LARGEST, Owner, parse};

/// Kind of all devices, whatever the resource is called.
pub const KIND: &str = "podrail.io/rail";
/// Version of the documents.
pub const VERSION: &str = "0.6.0";
/// Directory of the device nodes, on the host and in the container.
const NODES: &str = "/dev/infiniband";
/// Start of the file names: the kind, as runtimes' own tools write it into file names.
const PREFIX: &str = "podrail.io-rail_";

/// What the configuration says about devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Resource that pods ask for; the environment is named after it.
    pub resource: ResourceName,
    /// Pods get `umadN` too.
    pub umad: bool,
    /// Pods get `issmN` too.
    pub issm: bool,
}

/// The file of one slot, and what it promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotFile {
    /// The slot.
    pub slot: SlotId,
    /// Who owns it.
    pub sandbox: SandboxId,
    /// The rail that the slot is bound to.
    pub rail: RailIndex,
    /// RDMA device that the nodes must belong to.
    pub rdma: RdmaName,
    /// Device nodes, as paths on the host, the one of `uverbs` first.
    pub nodes: Vec<String>,
    /// The document.
    pub text: String,
}

impl SlotFile {
    /// Name of the file in the CDI directory.
    #[must_use]
    pub fn name(&self) -> String {
        file_name(self.slot)
    }
}

/// Name of a slot's file; fixed, so that a device never stands in two files.
#[must_use]
pub fn file_name(slot: SlotId) -> String {
    format!("{PREFIX}{slot}.json")
}

/// The slot of a file by its name; none for files of others.
#[must_use]
pub fn slot_of_file(name: &str) -> Option<SlotId> {
    let slot = name.strip_prefix(PREFIX)?.strip_suffix(".json")?;
    SlotId::parse(slot).ok()
}

/// Name of a slot's device, as `Allocate` answers it.
#[must_use]
pub fn device_name(slot: SlotId) -> String {
    format!("{KIND}={slot}")
}

/// Why there are no files for an attachment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CdiError {
    /// No device node can be given.
    #[error("rail {rail} has no {node} device")]
    NoNode {
        /// The rail.
        rail: RailIndex,
        /// `RDMA`, `uverbs`, `umad` or `issm`.
        node: &'static str,
    },
}

impl CdiError {
    /// The next step for whoever meets this.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoNode { node: "umad", .. } => {
                "load the kernel module ib_umad, or take umad out of the configuration"
            }
            Self::NoNode { node: "issm", .. } => {
                "kernels give issm to no RoCE port: take issm out of the configuration"
            }
            Self::NoNode { .. } => "is the RDMA driver of the NIC loaded, and ib_uverbs?",
        }
    }
}

/// A bound slot with its device nodes.
struct Bound<'a> {
    slot: SlotId,
    held: &'a HeldRail,
    rdma: &'a RdmaName,
    nodes: Nodes,
}

/// Paths of a rail's device nodes.
struct Nodes {
    uverbs: String,
    umad: Option<String>,
    issm: Option<String>,
}

impl Nodes {
    /// One file per device of the kernel; `rdma_cm` is the same for all.
    fn paths(&self) -> Vec<String> {
        let own = [Some(&self.uverbs), self.umad.as_ref(), self.issm.as_ref()];
        let own = own.into_iter().flatten().cloned();
        own.chain([rdma_cm()]).collect()
    }
}

fn rdma_cm() -> String {
    format!("{NODES}/rdma_cm")
}

/// The files of all slots of an attachment, in the order of its rails. Rails without a slot (no
/// Kubernetes) have none. `topology` tells `umad` and `issm`.
///
/// A slot may be held by a plain init container and by the main container, to which the kubelet
/// passes it on. There is one file, so there is one list: that of the first container in
/// [`HeldRail::containers`], the main one. It does the work and must see exactly its rails; an init
/// container may read a list that lacks rails, or names some that it does not hold.
///
/// # Errors
/// A rail lacks a device node that is to be given.
pub fn files(
    options: &Options,
    topology: &Topology,
    attachment: &Attachment,
    pod: Option<&PodRef>,
) -> Result<Vec<SlotFile>, CdiError> {
    let bound = attachment
        .rails
        .iter()
        .filter_map(|held| Some(bound(options, topology, held.slot?, held)))
        .collect::<Result<Vec<_>, _>>()?;
    let sandbox = &attachment.plan.sandbox;
    let file = |own: &Bound<'_>| {
        let list: Vec<&Bound<'_>> = bound.iter().filter(|other| is_listed(own, other)).collect();
        let env = env::lines(&options.resource, &list);
        let nodes = own.nodes.paths();
        SlotFile {
            slot: own.slot,
            sandbox: sandbox.clone(),
            rail: own.held.index,
            rdma: own.rdma.clone(),
            text: document::text(own.slot, sandbox, pod, (env, &nodes)),
            nodes,
        }
    };
    Ok(bound.iter().map(file).collect())
}

/// Whether the container whose list stands in the own slot's file holds the other slot as well.
fn is_listed(own: &Bound<'_>, other: &Bound<'_>) -> bool {
    match own.held.containers.first() {
        Some(container) => other.held.containers.contains(container),
        None => other.held.containers.is_empty(),
    }
}

fn bound<'a>(
    options: &Options,
    topology: &Topology,
    slot: SlotId,
    held: &'a HeldRail,
) -> Result<Bound<'a>, CdiError> {
    let rail = held.index;
    let none = |node| CdiError::NoNode { rail, node };
    let path = |name: &String| format!("{NODES}/{name}");
    let rdma = held.rdma.as_ref().ok_or_else(|| none("RDMA"))?;
    let uverbs = held.uverbs.as_ref().map(path);
    let known = topology.rail(rail);
    let known = known.filter(|known| known.rdma.as_ref() == Some(rdma));
    let umad = known.and_then(|known| known.umad.as_ref()).map(path);
    let issm = known.and_then(|known| known.issm.as_ref()).map(path);
    Ok(Bound {
        slot,
        held,
        rdma,
        nodes: Nodes {
            uverbs: uverbs.ok_or_else(|| none("uverbs"))?,
            umad: wanted(options.umad, umad, || none("umad"))?,
            issm: wanted(options.issm, issm, || none("issm"))?,
        },
    })
}

fn wanted(
    option: bool,
    path: Option<String>,
    none: impl FnOnce() -> CdiError,
) -> Result<Option<String>, CdiError> {
    match (option, path) {
        (false, _) => Ok(None),
        (true, Some(path)) => Ok(Some(path)),
        (true, None) => Err(none()),
    }
}

#[cfg(test)]
mod tests;
