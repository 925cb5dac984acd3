//! A sandbox as the state file has it and as it is printed.

use crate::error::NodeError;
use podrail_core::attachment::{Attachment, HeldRail};
use podrail_core::cdi::device_list;
use podrail_core::ids::{ResourceName, SandboxId};
use podrail_core::pods::PodRef;
use podrail_netlink::NetNs;
use podrail_store::{Binding, NetnsId, State};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A sandbox as it is printed.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// Its id.
    pub sandbox: SandboxId,
    /// Its pod; left out for a job without Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// `pending` or `ready`.
    pub state: String,
    /// Path of its network namespace.
    pub netns: PathBuf,
    /// How many rails share a root complex with the GPU that they serve.
    pub near: usize,
    /// Device files that the sandbox needs.
    pub devices: Vec<String>,
    /// Environment that tells programs which devices are theirs.
    pub environment: Vec<String>,
    /// GPUs, rails and plan.
    #[serde(flatten)]
    pub attachment: Attachment,
}

impl Shown {
    /// From a binding of the state file, on a node whose slots are counted as `resource`.
    ///
    /// # Errors
    /// Its plan is not one of ours.
    pub fn of(binding: &Binding, resource: &ResourceName) -> Result<Self, NodeError> {
        let attachment = attachment(binding)?;
        Ok(Self {
            sandbox: binding.request.sandbox.clone(),
            pod: binding.request.pod.clone(),
            state: binding.state.to_string(),
            netns: PathBuf::from(&binding.request.netns),
            near: attachment.near(),
            devices: devices(&attachment),
            environment: environment(&attachment.rails, resource),
            attachment,
        })
    }

    /// `8 of 8 rails next to its GPUs`, or how many rails there are for a sandbox without GPUs.
    #[must_use]
    pub fn summary(&self) -> String {
        let rails = self.attachment.rails.len();
        if self.attachment.gpus.is_empty() {
            return format!("{rails} rails, no GPUs given");
        }
        format!("{} of {rails} rails next to its GPUs", self.near)
    }
}

/// The attachment that a binding's plan holds.
///
/// # Errors
/// It is not one of ours.
pub fn attachment(binding: &Binding) -> Result<Attachment, NodeError> {
    serde_json::from_str(&binding.plan).map_err(|error| NodeError::BadPlan {
        sandbox: binding.request.sandbox.to_string(),
        source: error.into(),
    })
}

/// The uverbs device of each rail, and the connection manager's.
fn devices(attachment: &Attachment) -> Vec<String> {
    let uverbs: BTreeSet<&String> = attachment
        .rails
        .iter()
        .filter_map(|rail| rail.uverbs.as_ref())
        .collect();
    let mut files: Vec<String> = uverbs
        .into_iter()
        .map(|name| format!("/dev/infiniband/{name}"))
        .collect();
    files.sort_by_key(|name| (name.len(), name.clone()));
    files.push("/dev/infiniband/rdma_cm".into());
    files
}

/// What the SR-IOV device plugin sets for a resource, so that scripts written for it keep working.
fn environment(rails: &[HeldRail], resource: &ResourceName) -> Vec<String> {
    let functions = rails.iter().map(|rail| rail.pci);
    vec![device_list(resource, functions)]
}

/// Opens the namespace of a pod or a job.
///
/// # Errors
/// There is none at the path, or it is the one that this process is in.
pub fn foreign_netns(path: &Path) -> Result<NetNs, NodeError> {
    let netns = NetNs::open(path)?;
    if netns.id() == NetNs::current()?.id() {
        return Err(NodeError::HostNamespace {
            path: path.to_owned(),
        });
    }
    Ok(netns)
}

/// Identity of a namespace, as the state file has it. The kernel uses numbers again: another id is
/// another namespace, an equal one most likely the same.
#[must_use]
pub fn netns_id(netns: &NetNs) -> NetnsId {
    let id = netns.id();
    NetnsId {
        dev: id.device,
        ino: id.inode,
    }
}

/// Whether a binding was attached to its end.
#[must_use]
pub fn is_ready(binding: &Binding) -> bool {
    binding.state == State::Ready
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_named_after_the_resource() {
        let resource = ResourceName::parse("nvidia.com/hostdev").unwrap();
        assert_eq!(
            environment(&[], &resource),
            ["PCIDEVICE_NVIDIA_COM_HOSTDEV="]
        );
    }
}
