//! Reads the kubelet's device checkpoint: which pod, by UID, got which devices.
//!
//! It is the kubelet's own file (`pkg/kubelet/cm/devicemanager/checkpoint`), not an interface: read
//! only for what PodResources leaves out, and with nothing expected that is not needed.

mod error;

pub use error::CheckpointError;

use crate::grants::Grants;
use podrail_core::pods::CheckpointGrant;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Where a kubelet with its usual root directory keeps it.
pub const DEFAULT_PATH: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

/// Largest file read, in bytes: over a hundred times that of a node with 250 pods and 16 devices
/// each.
pub const LARGEST_FILE: u64 = 64 << 20;

/// How often a file is read that cannot be parsed. The kubelet replaces it by rename, so the next
/// reading sees another file.
const READINGS: usize = 3;

/// What every container was given, as the checkpoint has it: pods that are gone may still be in it,
/// since the kubelet cleans up when it next allocates.
///
/// # Errors
/// [`CheckpointError::Missing`] on a node whose kubelet never gave a device out; others if the file
/// is not what a kubelet writes.
pub fn read(path: &Path) -> Result<Vec<CheckpointGrant>, CheckpointError> {
    let mut outcome = read_once(path);
    for _ in 1..READINGS {
        match outcome {
            Err(CheckpointError::Parse { .. }) => outcome = read_once(path),
            settled => return settled,
        }
    }
    outcome
}

fn read_once(path: &Path) -> Result<Vec<CheckpointGrant>, CheckpointError> {
    let bytes = load(path)?;
    let file = serde_json::from_slice::<Document>(&bytes);
    let file = file.map_err(|error| CheckpointError::Parse {
        path: path.to_owned(),
        source: error.into(),
    })?;
    Ok(grants(file.data.entries.unwrap_or_default()))
}

fn load(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let failed = |source| CheckpointError::of_io(path, source);
    // Before opening: opening a pipe would wait for its other end.
    if !path.metadata().map_err(failed)?.is_file() {
        let source = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(failed(source));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LARGEST_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|size| size <= LARGEST_FILE) {
        Ok(bytes)
    } else {
        let path = path.to_owned();
        Err(CheckpointError::TooLarge { path })
    }
}

fn grants(entries: Vec<Entry>) -> Vec<CheckpointGrant> {
    let mut grants = Grants::new();
    for entry in entries {
        grants.add(
            entry.pod_uid,
            entry.container_name,
            entry.resource_name,
            entry.device_ids.into_ids(),
        );
    }
    grants
        .finish()
        .map(|(pod_uid, grant)| CheckpointGrant { pod_uid, grant })
        .collect()
}

/// The file. Unknown fields are left alone, since it is the kubelet's and grows with it.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "Data")]
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    /// Go writes an empty list as `null`.
    #[serde(rename = "PodDeviceEntries")]
    entries: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ContainerName")]
    container_name: String,
    #[serde(rename = "ResourceName")]
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    device_ids: DeviceIds,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "DeviceIDs: expected a list of texts, or such lists by NUMA node"
)]
enum DeviceIds {
    /// Since Kubernetes 1.20: by NUMA node, `-1` for none.
    ByNumaNode(BTreeMap<String, Option<Vec<String>>>),
    /// Before.
    Plain(Vec<String>),
    /// An empty one of either.
    Nothing(()),
}

impl DeviceIds {
    fn into_ids(self) -> Vec<String> {
        match self {
            Self::ByNumaNode(lists) => lists.into_values().flatten().flatten().collect(),
            Self::Plain(ids) => ids,
            Self::Nothing(()) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
