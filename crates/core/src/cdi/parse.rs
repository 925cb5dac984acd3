//! Reads a file of ours back: which slot, and who owns it.

use super::document::{POD, POD_UID, SANDBOX};
use super::{KIND, SlotId};
use crate::ids::{BadId, KubeName, PodUid, SandboxId};
use crate::pods::PodRef;
use crate::words::BadJson;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Largest document that is read, in bytes; one of 64 rails has 16 KiB.
pub const LARGEST: usize = 256 * 1024;

/// Who owns the file of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The slot.
    pub slot: SlotId,
    /// The sandbox that it is bound to.
    pub sandbox: SandboxId,
    /// Its pod, where there is one.
    pub pod: Option<PodRef>,
    /// Name of the character device that it gives, `uverbs5`: tells the rail of the slot.
    pub uverbs: Option<String>,
}

/// Why a file is none of ours.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// Longer than anything that is written here.
    #[error("the CDI document has {length} bytes, more than {LARGEST}")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// Not the JSON of a CDI document.
    #[error("this is no CDI document")]
    Json(#[source] BadJson),
    /// Of another kind.
    #[error("the CDI document has kind {kind:?}, not {KIND:?}")]
    Kind {
        /// What stands there, cut to 80 characters.
        kind: String,
    },
    /// Not the one device of a slot.
    #[error("the CDI document has {count} devices, not one")]
    Devices {
        /// How many.
        count: usize,
    },
    /// An annotation is absent.
    #[error("the CDI document lacks the annotation {name}")]
    Missing {
        /// Its name.
        name: &'static str,
    },
    /// A name in it is not valid.
    #[error("the CDI document has a name that is not valid")]
    Name(#[from] BadId),
}

/// Only what the owner needs: a later version may write more.
#[derive(Deserialize)]
struct Spec {
    kind: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    devices: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    #[serde(default)]
    device_nodes: Vec<DeviceNode>,
}

#[derive(Deserialize)]
struct DeviceNode {
    path: String,
}

impl Edits {
    fn uverbs(&self) -> Option<String> {
        let names = self.device_nodes.iter();
        let mut names = names.filter_map(|node| node.path.rsplit('/').next());
        names
            .find(|name| name.starts_with("uverbs"))
            .map(str::to_owned)
    }
}

/// Reads the owner of a document.
///
/// # Errors
/// [`BadFile`]: it was written by somebody else, or is damaged.
pub fn parse(text: &str) -> Result<Owner, BadFile> {
    let length = text.len();
    if length > LARGEST {
        return Err(BadFile::TooLong { length });
    }
    let spec: Spec = serde_json::from_str(text).map_err(|error| BadFile::Json(error.into()))?;
    if spec.kind != KIND {
        let kind = spec.kind.chars().take(80).collect();
        return Err(BadFile::Kind { kind });
    }
    let [device] = spec.devices.as_slice() else {
        let count = spec.devices.len();
        return Err(BadFile::Devices { count });
    };
    let annotation = |name: &'static str| {
        let value = spec.annotations.get(name).map(String::as_str);
        value.ok_or(BadFile::Missing { name })
    };
    Ok(Owner {
        slot: SlotId::parse(&device.name)?,
        sandbox: SandboxId::parse(annotation(SANDBOX)?)?,
        uverbs: device.container_edits.uverbs(),
        pod: match (annotation(POD), annotation(POD_UID)) {
            (Err(_), Err(_)) => None,
            (pod, uid) => Some(pod_ref(pod?, uid?)?),
        },
    })
}

fn pod_ref(name: &str, uid: &str) -> Result<PodRef, BadFile> {
    let (namespace, name) = name.split_once('/').unwrap_or((name, ""));
    Ok(PodRef {
        uid: PodUid::parse(uid)?,
        namespace: KubeName::parse(namespace)?,
        name: KubeName::parse(name)?,
    })
}
