//! The arguments of a request as one text: the same text means the same request.

use podrail_core::ids::{PciAddr, PodUid};
use serde_json::json;

/// Of the sandbox of a pod, in the namespace at a path.
#[must_use]
pub fn of_pod(uid: &PodUid, netns: &str) -> String {
    json!({ "pod": uid, "netns": netns }).to_string()
}

/// Of a job without Kubernetes: its namespace, its GPUs and how many rails it wants.
#[must_use]
pub fn of_job(netns: &str, gpus: &[PciAddr], rails: usize) -> String {
    json!({ "netns": netns, "gpus": gpus, "rails": rails }).to_string()
}
