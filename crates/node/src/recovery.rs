//! The way back when the state file is damaged or gone, and the check whether it tells the truth.
//!
//! Reading order: [`take_census`] (what is in the kernel, the CDI directory and the markers),
//! [`reconstruct`] (what the sandboxes hold, from that alone; pure), [`compare`] (what the file says
//! against it; pure), [`restore`] (a new file in place of the old one).
//!
//! Deliberately absent: attaching, detaching and removing anything; asking the kubelet.

mod census;
mod compare;
mod rebuild;
mod restore;
#[cfg(test)]
mod tests;

pub use census::{Census, doubts_of, take_census};
pub(crate) use census::{entries, others_than};
pub use compare::{Books, compare};
pub use rebuild::{Rebuilt, Recovered, reconstruct};
pub use restore::{Restored, restore};

use podrail_attach::Child;
use podrail_core::attachment::Part;
use podrail_core::cdi::Owner;
use podrail_core::ids::{PodUid, SlotId};
use podrail_core::topology::Topology;
use podrail_store::NetnsId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Something that is not as it should be, or cannot be known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Sandbox, slot or file.
    pub about: String,
    /// What was found.
    pub finding: String,
    /// What to do.
    pub hint: String,
}

impl Finding {
    pub(crate) fn new(about: impl ToString, finding: impl Into<String>, hint: &str) -> Self {
        Self {
            about: about.to_string(),
            finding: finding.into(),
            hint: hint.to_owned(),
        }
    }
}

/// A network namespace with rails of ours in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenNetns {
    /// Which one.
    pub id: NetnsId,
    /// A path that leads to it, one that stays if there is one.
    pub path: PathBuf,
    /// Our children in it.
    pub children: Vec<Child>,
}

/// What the kubelet says, if it could be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// What pods have, by container.
    pub parts: BTreeMap<PodUid, Vec<Part>>,
    /// Slots that it has given out.
    pub allocated: BTreeSet<SlotId>,
}

/// All that is known of the node without the state file.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// Namespaces with rails.
    pub namespaces: &'a [SeenNetns],
    /// CDI files of ours that can be read.
    pub files: &'a [Owner],
    /// Slots that are marked as waiting.
    pub marked: &'a BTreeSet<SlotId>,
    /// GPUs and rails.
    pub topology: &'a Topology,
    /// The kubelet's word.
    pub kubelet: &'a Kubelet,
}
