//! The environment that programs written for the SR-IOV network device plugin read.

use super::{Bound, rdma_cm};
use crate::ids::{PciAddr, ResourceName};
use serde::Serialize;
use std::collections::BTreeMap;

/// What the plugin's information providers say of one PCI function.
#[derive(Serialize)]
struct Information<'a> {
    generic: Generic,
    rdma: Rdma<'a>,
}

#[derive(Serialize)]
struct Generic {
    #[serde(rename = "deviceID")]
    device_id: String,
}

/// Paths as in the container. Keys stand in alphabetical order, as the plugin prints them; a node
/// that is not given has no key.
#[derive(Serialize)]
struct Rdma<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    issm: Option<&'a str>,
    rdma_cm: String,
    rdma_dev: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    umad: Option<&'a str>,
    uverbs: &'a str,
}

/// Both variables of a container that holds these slots. Two ports of one PCI function count as
/// one device, as they do for the plugin.
pub(super) fn lines(resource: &ResourceName, held: &[&Bound<'_>]) -> Vec<String> {
    let mut information = BTreeMap::new();
    for bound in held {
        let pci = bound.held.pci.to_string();
        let first = describe(&pci, bound);
        information.entry(pci).or_insert(first);
    }
    // Texts and maps with text keys always have a JSON form.
    let information = serde_json::to_string(&information).unwrap_or_default();
    vec![
        device_list(resource, held.iter().map(|bound| bound.held.pci)),
        format!("{}_INFO={information}", variable(resource)),
    ]
}

/// The variable that lists the devices of a resource, with its value: each PCI function once, in
/// the order given.
#[must_use]
pub fn device_list(resource: &ResourceName, functions: impl Iterator<Item = PciAddr>) -> String {
    let mut list: Vec<String> = vec![];
    for function in functions {
        let function = function.to_string();
        if !list.contains(&function) {
            list.push(function);
        }
    }
    format!("{}={}", variable(resource), list.join(","))
}

fn describe<'a>(pci: &str, bound: &'a Bound<'_>) -> Information<'a> {
    let nodes = &bound.nodes;
    Information {
        generic: Generic {
            device_id: pci.to_owned(),
        },
        rdma: Rdma {
            issm: nodes.issm.as_deref(),
            rdma_cm: rdma_cm(),
            rdma_dev: bound.rdma.as_str(),
            umad: nodes.umad.as_deref(),
            uverbs: &nodes.uverbs,
        },
    }
}

/// `nvidia.com/hostdev` -> `PCIDEVICE_NVIDIA_COM_HOSTDEV`. What a shell cannot have in a name
/// becomes `_`.
fn variable(resource: &ResourceName) -> String {
    let letter = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_uppercase(),
        _ => '_',
    };
    let name: String = resource.as_str().chars().map(letter).collect();
    format!("PCIDEVICE_{name}")
}
