//! What the kubelet says of the pod: PodResources, completed by its checkpoint.

use crate::failure::from_kubelet;
use crate::protocol::{CniError, Settings};
use podrail_core::ids::{PodUid, ResourceName, SlotId};
use podrail_core::pods::{CheckpointGrant, ListedPod};
use podrail_kubelet::{checkpoint, podresources};
use podrail_node::Deadline;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the kubelet may take at most, of all the time there is.
const PATIENCE: Duration = Duration::from_secs(45);

/// Both answers.
#[derive(Debug)]
pub(crate) struct Told {
    /// PodResources.
    pub(crate) listed: Vec<ListedPod>,
    /// The checkpoint; none if it could not be read.
    pub(crate) checkpoint: Option<Vec<CheckpointGrant>>,
}

/// Who waits at this moment, as the state file has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits {
    /// Slots that are allocated and not bound.
    pub(crate) slots: BTreeSet<SlotId>,
    /// Pods that were bound on this node at some time.
    pub(crate) bound: BTreeSet<PodUid>,
}

/// Asks about a pod; none if it certainly has no slots.
///
/// The checkpoint is looked at first, since that costs a file. It is the kubelet's own business and
/// may have moved or grown stale, so its "no" counts only if it names a pod that has never been
/// bound for each slot that waits at this moment: an older one may be the slot's last owner. If it
/// cannot be asked, a "no" of the checkpoint is better than to break a pod.
///
/// # Errors
/// The kubelet does not answer; always worth another try.
pub(crate) fn ask(
    settings: &Settings,
    uid: &PodUid,
    resource: &ResourceName,
    waits: &Waits,
    until: Deadline,
) -> Result<Option<Told>, CniError> {
    let checkpoint = checkpoint::read(&settings.checkpoint).ok();
    let without = checkpoint
        .as_ref()
        .is_some_and(|grants| !has_slots(grants, uid, resource));
    if without && knows_all(checkpoint.as_deref().unwrap_or_default(), resource, waits) {
        return Ok(None);
    }
    let patience = until.left().min(PATIENCE);
    match podresources::blocking::list(&settings.pod_resources, Instant::now() + patience) {
        Ok(listed) => Ok(Some(Told { listed, checkpoint })),
        Err(_) if without => Ok(None),
        Err(error) => Err(from_kubelet(&error)),
    }
}

/// Whether the checkpoint gives a pod devices with names of slots, of whatever resource.
pub(crate) fn seems_to_have_slots(settings: &Settings, uid: &PodUid) -> bool {
    let grants = checkpoint::read(&settings.checkpoint).unwrap_or_default();
    has_slot_names(&grants, uid)
}

/// Whether there is a checkpoint, and it gives a pod no such devices.
pub(crate) fn has_none(settings: &Settings, uid: &PodUid) -> bool {
    checkpoint::read(&settings.checkpoint).is_ok_and(|grants| !has_slot_names(&grants, uid))
}

/// Whether the kubelet lists a pod of this name with devices that have names of slots, of whatever
/// resource.
///
/// # Errors
/// The kubelet does not answer; worth another try.
pub(crate) fn has_slots_by_name(
    settings: &Settings,
    (namespace, name): (&str, &str),
    until: Deadline,
) -> Result<bool, CniError> {
    let deadline = Instant::now() + until.left().min(PATIENCE);
    let listed = podresources::blocking::list(&settings.pod_resources, deadline);
    let listed = listed.map_err(|error| from_kubelet(&error))?;
    let is_it = |pod: &&ListedPod| pod.namespace == namespace && pod.name == name;
    let mut grants = listed.iter().filter(is_it).flat_map(|pod| &pod.devices);
    Ok(grants.any(|grant| grant.ids.iter().any(|id| SlotId::parse(id).is_ok())))
}

fn has_slot_names(grants: &[CheckpointGrant], uid: &PodUid) -> bool {
    let is_slot = |id: &String| SlotId::parse(id).is_ok();
    grants
        .iter()
        .any(|entry| entry.pod_uid == uid.as_str() && entry.grant.ids.iter().any(is_slot))
}

fn has_slots(grants: &[CheckpointGrant], uid: &PodUid, resource: &ResourceName) -> bool {
    grants
        .iter()
        .any(|entry| entry.pod_uid == uid.as_str() && entry.grant.resource == resource.as_str())
}

/// Whether slots wait, and the checkpoint gives each of them to a pod that has never been bound.
fn knows_all(grants: &[CheckpointGrant], resource: &ResourceName, waits: &Waits) -> bool {
    let fresh = |entry: &&CheckpointGrant| {
        let bound = waits.bound.iter().any(|uid| uid.as_str() == entry.pod_uid);
        entry.grant.resource == resource.as_str() && !bound
    };
    let known: BTreeSet<&str> = grants
        .iter()
        .filter(fresh)
        .flat_map(|entry| entry.grant.ids.iter().map(String::as_str))
        .collect();
    let is_known = |slot: &SlotId| known.contains(slot.to_string().as_str());
    !waits.slots.is_empty() && waits.slots.iter().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use podrail_core::pods::DeviceGrant;

    fn grant(uid: &str, resource: &str, ids: &[&str]) -> CheckpointGrant {
        CheckpointGrant {
            pod_uid: uid.into(),
            grant: DeviceGrant {
                container: "c".into(),
                resource: resource.into(),
                ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            },
        }
    }

    #[test]
    fn a_no_counts_only_if_every_waiting_slot_has_an_owner() {
        let resource = ResourceName::parse("podrail.io/rail").unwrap();
        let grants = [
            grant("a", "podrail.io/rail", &["slot-00", "slot-01"]),
            grant("b", "nvidia.com/gpu", &["slot-02"]),
        ];
        let uid = |text: &str| PodUid::parse(text).unwrap();
        let knows = |slots: &[u16], bound: &[&str]| {
            let waits = Waits {
                slots: slots.iter().copied().map(SlotId).collect(),
                bound: bound.iter().map(|text| uid(text)).collect(),
            };
            knows_all(&grants, &resource, &waits)
        };
        assert!(knows(&[0, 1], &["b"]));
        assert!(!knows(&[0, 2], &[]), "slot-02 is of another resource");
        assert!(
            !knows(&[], &[]),
            "nothing shows that the checkpoint is fresh"
        );
        assert!(!knows(&[0, 1], &["a"]), "a may be the last owner");
        assert!(has_slots(&grants, &uid("a"), &resource));
        assert!(!has_slots(&grants, &uid("b"), &resource));
    }
}
