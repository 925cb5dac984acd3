//! What a session asks of the kernel: which boot it is, namespaces, and the rails in them.

use crate::error::NodeError;
use crate::facts::boot_id;
use crate::recovery::{entries, others_than};
use crate::sandbox::netns_id;
use podrail_attach::{AttachError, Target, TeardownError};
use podrail_core::ids::SandboxId;
use podrail_core::plan::AttachPlan;
use podrail_netlink::{NetNs, NetNsError};
use podrail_store::{BootId, NetnsId};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A kernel with network namespaces. [`Linux`] is the running one.
pub trait Kernel {
    /// A handle on a network namespace, which lives at least as long as the handle.
    type Netns;

    /// Which boot this is.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn boot(&self) -> Result<BootId, NodeError>;

    /// The namespace at a path; none if there is none any more: its children went with it.
    ///
    /// # Errors
    /// It is there and cannot be entered.
    fn open(&self, path: &Path) -> Result<Option<Self::Netns>, NodeError>;

    /// Identity of a namespace. The kernel uses numbers again: another id is another namespace, an
    /// equal one most likely the same.
    fn id(&self, netns: &Self::Netns) -> NetnsId;

    /// The namespace that the caller is in.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn own(&self) -> Result<NetnsId, NodeError>;

    /// The namespace with this identity by whatever path leads to it, if one does.
    fn find(&self, id: NetnsId) -> Option<Self::Netns>;

    /// As [`podrail_attach::has_any()`]; a namespace that cannot be read has nothing.
    fn has_any(&self, target: &Target, netns: &Self::Netns) -> bool;

    /// Sandboxes other than this one that have rails on the node, as far as one can see.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn others_than(&self, sandbox: &SandboxId) -> Result<BTreeSet<SandboxId>, NodeError>;

    /// As [`podrail_attach::attach()`].
    ///
    /// # Errors
    /// Nothing of the plan is left, unless the error lists it.
    fn attach(&self, plan: &AttachPlan, netns: &Self::Netns) -> Result<(), AttachError>;

    /// As [`podrail_attach::detach()`].
    ///
    /// # Errors
    /// Everything that is left.
    fn detach(&self, target: &Target, netns: &Self::Netns) -> Result<usize, TeardownError>;

    /// As [`podrail_attach::differences()`].
    ///
    /// # Errors
    /// The namespace cannot be read.
    fn differences(
        &self,
        plan: &AttachPlan,
        netns: &Self::Netns,
    ) -> Result<Vec<String>, AttachError>;
}

/// The kernel that this runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

impl Kernel for Linux {
    type Netns = NetNs;

    fn boot(&self) -> Result<BootId, NodeError> {
        boot_id()
    }

    fn open(&self, path: &Path) -> Result<Option<NetNs>, NodeError> {
        match NetNs::open(path) {
            Ok(netns) => Ok(Some(netns)),
            // A plain file is what unmounting leaves.
            Err(NetNsError::Missing { .. } | NetNsError::NotANetNs { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn id(&self, netns: &NetNs) -> NetnsId {
        netns_id(netns)
    }

    fn own(&self) -> Result<NetnsId, NodeError> {
        Ok(netns_id(&NetNs::current()?))
    }

    /// By a process that is still in it, or by a name of `ip netns`.
    fn find(&self, id: NetnsId) -> Option<NetNs> {
        let same = |path: &PathBuf| {
            std::fs::metadata(path).is_ok_and(|file| file.dev() == id.dev && file.ino() == id.ino)
        };
        let processes = entries(Path::new("/proc")).into_iter();
        let processes = processes.map(|process| process.join("ns/net"));
        let mut paths = processes
            .chain(entries(Path::new("/run/netns")))
            .filter(same);
        paths.find_map(|path| NetNs::open(path).ok())
    }

    fn has_any(&self, target: &Target, netns: &NetNs) -> bool {
        podrail_attach::has_any(target, netns).unwrap_or(false)
    }

    fn others_than(&self, sandbox: &SandboxId) -> Result<BTreeSet<SandboxId>, NodeError> {
        others_than(sandbox)
    }

    fn attach(&self, plan: &AttachPlan, netns: &NetNs) -> Result<(), AttachError> {
        podrail_attach::attach(plan, netns)
    }

    fn detach(&self, target: &Target, netns: &NetNs) -> Result<usize, TeardownError> {
        podrail_attach::detach(target, netns)
    }

    fn differences(&self, plan: &AttachPlan, netns: &NetNs) -> Result<Vec<String>, AttachError> {
        podrail_attach::differences(plan, netns)
    }
}
