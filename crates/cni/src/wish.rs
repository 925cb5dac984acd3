//! What a pod wants, from its slots, its GPUs and its annotation.

use crate::failure::{from_networks, from_pods};
use crate::kubelet::Told;
use crate::protocol::{CniError, Code};
use podrail_core::attachment::Part;
use podrail_core::gpus::devices::{self, GrantedGpus, MigParents};
use podrail_core::ids::{ResourceName, SlotId};
use podrail_core::networks::{self, Wanted};
use podrail_core::pods::{Admitted, DeviceGrant, Other, PodRef};
use podrail_core::topology::Topology;
use podrail_node::Settings;
use std::collections::BTreeSet;
use std::path::Path;

/// A pod's wish, and the others'.
#[derive(Debug)]
pub(crate) struct PodWants {
    /// Its containers' shares; none if it has no slots.
    pub(crate) parts: Vec<Part>,
    /// What other admitted pods wait for.
    pub(crate) others: Vec<Other>,
    /// What its user is to know.
    pub(crate) notes: Vec<String>,
}

/// Reads the wish out of the kubelet's answers.
///
/// # Errors
/// They make no sense for this pod.
pub(crate) fn of(
    told: &Told,
    pod: &PodRef,
    (resource, slots): (&ResourceName, u16),
    waiting: &BTreeSet<SlotId>,
    node: (&Path, &Topology),
) -> Result<PodWants, CniError> {
    let (_, topology) = node;
    let admitted = Admitted {
        listed: &told.listed,
        checkpoint: told.checkpoint.as_deref(),
        resource,
        slots,
    };
    let mut notes = Vec::new();
    let parents = mig_parents(told, node, &mut notes);
    let gpus = |grants: &[DeviceGrant]| devices::granted(topology, grants, &parents);
    let own = admitted
        .own(pod, &gpus)
        .map_err(|error| from_pods(&error))?;
    if own.parts.is_empty() {
        refuse_unclear(told, pod, resource, waiting)?;
    }
    notes.extend(own.notes.iter().map(ToString::to_string));
    Ok(PodWants {
        others: admitted.others(&own, waiting, &gpus),
        parts: own.parts,
        notes,
    })
}

/// A listed pod of this name has slots that wait, and the checkpoint gives them to another pod: the
/// kubelet writes an older checkpoint over a newer one at times (it takes the content under a lock
/// and writes it without).
fn refuse_unclear(
    told: &Told,
    pod: &PodRef,
    resource: &ResourceName,
    waiting: &BTreeSet<SlotId>,
) -> Result<(), CniError> {
    let named = told.listed.iter().filter(|listed| {
        listed.namespace == pod.namespace.as_str() && listed.name == pod.name.as_str()
    });
    let mut slots = named
        .flat_map(|listed| &listed.devices)
        .filter(|grant| grant.resource == resource.as_str())
        .flat_map(|grant| &grant.ids)
        .filter_map(|id| SlotId::parse(id).ok());
    match slots.find(|slot| waiting.contains(slot)) {
        None => Ok(()),
        Some(slot) => {
            let message = format!("it is not clear yet whether {slot} is of this pod {pod}");
            Err(CniError::new(Code::TryAgain, message).details(
                "because: the kubelet's list and its checkpoint do not agree\n\
                 hint: the kubelet tries again by itself",
            ))
        }
    }
}

/// Whose the MIG devices are, if there are any: only then is the driver asked.
fn mig_parents(
    told: &Told,
    (root, topology): (&Path, &Topology),
    notes: &mut Vec<String>,
) -> MigParents {
    let listed = told.listed.iter().flat_map(|pod| pod.devices.iter());
    let checkpoint = told.checkpoint.iter().flatten().map(|entry| &entry.grant);
    let grants: Vec<DeviceGrant> = listed.chain(checkpoint).cloned().collect();
    let GrantedGpus { mig, .. } = devices::granted(topology, &grants, &MigParents::new());
    if mig.is_empty() {
        return MigParents::new();
    }
    match podrail_host::mig_parents(root, &mig) {
        Ok((parents, found)) => {
            notes.extend(found.iter().map(ToString::to_string));
            parents
        }
        Err(error) => {
            notes.push(error.to_string());
            MigParents::new()
        }
    }
}

/// What the annotation asks of the rails.
///
/// # Errors
/// It cannot be read, or asks of a rail what there is not.
pub(crate) fn networks(
    annotation: Option<&str>,
    pod: &PodRef,
    settings: &Settings,
    topology: &Topology,
) -> Result<Wanted, CniError> {
    let configured = &settings.config.networks;
    let Some(text) = annotation else {
        return Ok(Wanted::default());
    };
    let wanted = networks::parse(text)
        .and_then(|elements| Wanted::of(&elements, pod.namespace.as_str(), configured, topology));
    match wanted {
        // Nothing in it is ours but the interfaces that others take.
        Err(_) if configured.is_empty() => Ok(Wanted::default()),
        other => other.map_err(|error| from_networks(&error)),
    }
}
