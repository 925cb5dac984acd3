//! The document itself: the fields of CDI 0.6.0 that are used, and no others.

use super::{KIND, VERSION};
use crate::ids::{SandboxId, SlotId};
use crate::pods::PodRef;
use serde::Serialize;
use std::collections::BTreeMap;

/// Annotation with the owner.
pub(super) const SANDBOX: &str = "podrail.io/sandbox";
/// Annotations with the pod, where there is one.
pub(super) const POD: &str = "podrail.io/pod";
pub(super) const POD_UID: &str = "podrail.io/pod-uid";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    cdi_version: &'static str,
    kind: &'static str,
    annotations: BTreeMap<&'static str, String>,
    devices: [Device<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device<'a> {
    name: String,
    container_edits: Edits<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits<'a> {
    env: Vec<String>,
    device_nodes: Vec<DeviceNode<'a>>,
}

/// Type, numbers and the host's path are left out: the runtime reads them from the node at `path`.
#[derive(Serialize)]
struct DeviceNode<'a> {
    path: &'a str,
    permissions: &'static str,
}

/// Text of a slot's document with its environment and device nodes.
pub(super) fn text(
    slot: SlotId,
    sandbox: &SandboxId,
    pod: Option<&PodRef>,
    (env, nodes): (Vec<String>, &[String]),
) -> String {
    let mut annotations = BTreeMap::from([(SANDBOX, sandbox.to_string())]);
    if let Some(pod) = pod {
        annotations.insert(POD, pod.to_string());
        annotations.insert(POD_UID, pod.uid.to_string());
    }
    let node = |path| DeviceNode {
        path,
        permissions: "rw",
    };
    let spec = Spec {
        cdi_version: VERSION,
        kind: KIND,
        annotations,
        devices: [Device {
            name: slot.to_string(),
            container_edits: Edits {
                env,
                device_nodes: nodes.iter().map(|path| node(path.as_str())).collect(),
            },
        }],
    };
    // Texts, lists and maps with text keys always have a JSON form.
    serde_json::to_string_pretty(&spec).unwrap_or_default() + "\n"
}
