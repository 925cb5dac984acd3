//! Topology from a file: what NCCL (`NCCL_TOPO_DUMP_FILE`) or hwloc (`lstopo --of xml`) saw.
//!
//! The file may come from anyone: it is bounded in size and depth, and entities are refused.
//! A dump knows no link state, no MTU and no default route; what it lacks is `None` or
//! [`LinkState::Unknown`](podrail_core::topology::LinkState::Unknown), and the notes say so.

mod hwloc;
mod nccl;
mod xml;

use crate::tree::{Notes, read_text};
use crate::{HostError, Note, Selectors};
use podrail_core::ids::{PciAddr, RootId};
use podrail_core::topology::Topology;
use std::path::Path;

/// Largest dump, in bytes.
const LIMIT: u64 = 16 * 1024 * 1024;

/// Program that wrote a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpFormat {
    /// `<system>`: NCCL or RCCL.
    Nccl,
    /// `<topology>`: hwloc 1, 2 or 3.
    Hwloc,
}

/// What a dump tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// Program that wrote it.
    pub format: DumpFormat,
    /// GPUs, rails and NUMA nodes.
    pub topology: Topology,
    /// What the format does not tell, and what was skipped.
    pub notes: Vec<Note>,
}

/// Reads a dump file.
///
/// # Errors
/// Those of [`parse`], and [`HostError::Read`], [`HostError::TooLarge`], [`HostError::NotText`].
pub fn read(path: &Path, select: &Selectors) -> Result<Dump, HostError> {
    parse(path, &read_text(path, LIMIT)?, select)
}

/// Reads the text of a dump; `origin` is named in errors.
///
/// # Errors
/// [`HostError::Xml`], [`HostError::Entities`], [`HostError::TooDeep`] or, for XML of another
/// kind, [`HostError::UnknownFormat`].
pub fn parse(origin: &Path, text: &str, select: &Selectors) -> Result<Dump, HostError> {
    let document = xml::parse(origin, text)?;
    let root = document.root_element();
    let notes = Notes::default();
    let (format, topology) = match root.tag_name().name() {
        "system" => (DumpFormat::Nccl, nccl::read(root, select, &notes)),
        "topology" => (DumpFormat::Hwloc, hwloc::read(root, select, &notes)),
        other => {
            return Err(HostError::UnknownFormat {
                path: origin.to_owned(),
                element: other.chars().take(40).collect(),
            });
        }
    };
    if topology.gpus.is_empty() && topology.rails.is_empty() {
        notes.add("dump", "shows no GPU and no rail");
    }
    Ok(Dump {
        format,
        topology,
        notes: notes.into_vec(),
    })
}

/// The bus of a function at the top of a dump stands for the root that the dump does not name.
fn root_of_bus(function: PciAddr) -> RootId {
    let text = function.to_string();
    let bus = text.rsplit_once(':').map_or("", |(bus, _)| bus);
    RootId::parse(bus).unwrap_or_else(|_| unreachable!("a PCI address starts with domain and bus"))
}
