//! Pods as the kubelet tells of them: who was admitted, with which devices.
//!
//! Two sources are joined. PodResources has every running or admitted pod, without UIDs and without
//! plain init containers. The kubelet's checkpoint has both, and no names of pods.

use crate::ids::{KubeName, PodUid};
use serde::{Deserialize, Serialize};
use std::fmt;

mod admitted;
mod containers;
mod error;
mod note;

pub use admitted::{Admitted, Other, Own};
pub use containers::Lookup;
pub use error::PodsError;
pub use note::Note;

/// One pod, for ever: a name may come again, a UID does not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodRef {
    /// UID.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: KubeName,
    /// Name.
    pub name: KubeName,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod of the kubelet's PodResources answer, which has no UID and leaves plain init containers
/// out. Texts are as the kubelet gave them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Devices, one entry per container and resource (several, if the kubelet split one by NUMA
    /// node).
    pub devices: Vec<DeviceGrant>,
}

/// Devices of one resource that one container got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceGrant {
    /// Container.
    pub container: String,
    /// Resource, `nvidia.com/gpu`.
    pub resource: String,
    /// Device ids as their plugin named them.
    pub ids: Vec<String>,
}

/// An entry of the kubelet's checkpoint, which has the UID of the pod and plain init containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointGrant {
    /// UID of the pod, as the kubelet wrote it.
    pub pod_uid: String,
    /// What it got.
    pub grant: DeviceGrant,
}

#[cfg(test)]
mod tests;
