//! What a session asks of the kernel: which boot it is, namespaces, and the rails in them.

use crate::error::NodeError;
use crate::facts::boot_id;
use crate::sandbox::netns_id;
use podrail_attach::{AttachError, Target, TeardownError};
use podrail_core::plan::{Alias, AttachPlan};
use podrail_netlink::{Link, NetNs, NetNsError, Rtnl};
use podrail_store::{Binding, BootId, NetnsId};
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

    /// The attached namespace of a binding by another path than the one that is gone, if it still
    /// has a rail of the sandbox.
    fn elsewhere(&self, binding: &Binding) -> Option<Self::Netns>;

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

    /// A process that is still in it, or a name of `ip netns`. Its addresses are up, so they must
    /// not be freed before it is cleaned. Inodes are used again, hence only a namespace that has a
    /// rail of this sandbox counts.
    fn elsewhere(&self, binding: &Binding) -> Option<NetNs> {
        let id = binding.request.netns_id?;
        let same = |path: &PathBuf| {
            std::fs::metadata(path).is_ok_and(|file| file.dev() == id.dev && file.ino() == id.ino)
        };
        let processes = entries("/proc").map(|process| process.join("ns/net"));
        let mut paths = processes.chain(entries("/run/netns")).filter(same);
        let netns = paths.find_map(|path| NetNs::open(path).ok())?;
        let links = Rtnl::open_in(&netns).and_then(|mut inside| inside.links());
        let ours = |link: &Link| {
            let alias = link.alias.as_deref();
            let alias = alias.and_then(|alias| Alias::parse(alias).ok());
            alias.is_some_and(|alias| alias.sandbox == binding.request.sandbox)
        };
        links
            .is_ok_and(|links| links.iter().any(ours))
            .then_some(netns)
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

fn entries(dir: &str) -> impl Iterator<Item = PathBuf> {
    let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
    found.map(|entry| entry.path())
}
