//! The kubelet's checkpoint file, in its own format.

use super::{Books, Grant};
use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use podrail_kubelet::proto::deviceplugin::ContainerAllocateResponse;
use prost::Message;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;

/// Its name in the device plugins' directory.
pub const FILE: &str = "kubelet_internal_checkpoint";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    data: Data,
    checksum: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    // Go writes an empty list as null.
    pod_device_entries: Option<Vec<Entry>>,
    registered_devices: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<i64, Vec<String>>,
    alloc_resp: String,
}

/// Replaces the file, atomically as the kubelet does.
///
/// # Errors
/// The directory cannot be written.
pub fn write(directory: &Path, books: &Books) -> Result<()> {
    let entries: Vec<Entry> = books.grants.iter().map(entry).collect();
    let pools = books.pools.iter();
    let data = Data {
        pod_device_entries: (!entries.is_empty()).then_some(entries),
        registered_devices: pools
            .map(|(resource, pool)| (resource.clone(), pool.healthy.iter().cloned().collect()))
            .collect(),
    };
    let path = directory.join(FILE);
    let document = |source| Error::Document {
        path: path.clone(),
        source,
    };
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(&data)
        .map_err(document)?
        .hash(&mut hasher);
    let checksum = hasher.finish();
    let text = serde_json::to_string(&Document { data, checksum }).map_err(document)?;
    replace(&path, &text)
}

fn entry(grant: &Grant) -> Entry {
    Entry {
        pod_uid: grant.pod.clone(),
        container_name: grant.container.clone(),
        resource_name: grant.resource.clone(),
        device_ids: grant.devices.clone(),
        alloc_resp: STANDARD.encode(grant.answer.encode_to_vec()),
    }
}

/// Writes a file whole or not at all.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.new"));
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(Error::io("write", &temporary))?;
    std::fs::rename(&temporary, path).map_err(Error::io("replace", path))
}

/// Takes grants and resource names back, if there is a file.
///
/// # Errors
/// The file cannot be read or is not a checkpoint.
pub fn read(directory: &Path, books: &mut Books) -> Result<()> {
    let path = directory.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(Error::io("read", &path))?,
    };
    let document: Document = serde_json::from_str(&text).map_err(|source| Error::Document {
        path: path.clone(),
        source,
    })?;
    for resource in document.data.registered_devices.keys() {
        books.expect(resource);
    }
    let entries = document.data.pod_device_entries.unwrap_or_default();
    books.grants = entries.into_iter().filter_map(grant).collect();
    Ok(())
}

/// The kubelet skips entries whose answer it cannot read.
fn grant(entry: Entry) -> Option<Grant> {
    let bytes = STANDARD.decode(entry.alloc_resp).ok()?;
    Some(Grant {
        pod: entry.pod_uid,
        container: entry.container_name,
        resource: entry.resource_name,
        devices: entry.device_ids,
        answer: ContainerAllocateResponse::decode(bytes.as_slice()).ok()?,
    })
}
