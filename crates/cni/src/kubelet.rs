//! What the kubelet says of the pod: PodResources, completed by its checkpoint.

use crate::failure::from_kubelet;
use crate::protocol::{CniError, Settings};
use podrail_core::ids::{PodUid, ResourceName, SlotId};
use podrail_core::pods::{CheckpointGrant, ListedPod};
use podrail_kubelet::{checkpoint, podresources};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the kubelet may take: it gives the whole of ADD two minutes or more.
const PATIENCE: Duration = Duration::from_secs(45);

/// Both answers.
#[derive(Debug)]
pub(crate) struct Told {
    /// PodResources.
    pub(crate) listed: Vec<ListedPod>,
    /// The checkpoint; none if it could not be read.
    pub(crate) checkpoint: Option<Vec<CheckpointGrant>>,
}

/// Asks about a pod; none if it certainly has no slots.
///
/// The checkpoint is looked at first, since that costs a file. It is the kubelet's own business and
/// may have moved or grown stale, so its "no" counts only if it knows who has each slot that waits
/// at this moment. If it cannot be asked, a "no" of the checkpoint is better than to break a pod.
///
/// # Errors
/// The kubelet does not answer; always worth another try.
pub(crate) fn ask(
    settings: &Settings,
    uid: &PodUid,
    resource: &ResourceName,
    waiting: &BTreeSet<SlotId>,
) -> Result<Option<Told>, CniError> {
    let checkpoint = checkpoint::read(&settings.checkpoint).ok();
    let without = checkpoint
        .as_ref()
        .is_some_and(|grants| !has_slots(grants, uid, resource));
    if without && knows_all(checkpoint.as_deref().unwrap_or_default(), resource, waiting) {
        return Ok(None);
    }
    match podresources::blocking::list(&settings.pod_resources, Instant::now() + PATIENCE) {
        Ok(listed) => Ok(Some(Told { listed, checkpoint })),
        Err(_) if without => Ok(None),
        Err(error) => Err(from_kubelet(&error)),
    }
}

fn has_slots(grants: &[CheckpointGrant], uid: &PodUid, resource: &ResourceName) -> bool {
    grants
        .iter()
        .any(|entry| entry.pod_uid == uid.as_str() && entry.grant.resource == resource.as_str())
}

/// Whether slots wait, and each of them has an owner in the checkpoint.
fn knows_all(
    grants: &[CheckpointGrant],
    resource: &ResourceName,
    waiting: &BTreeSet<SlotId>,
) -> bool {
    let ours = grants
        .iter()
        .filter(|entry| entry.grant.resource == resource.as_str());
    let known: BTreeSet<&str> = ours
        .flat_map(|entry| entry.grant.ids.iter().map(String::as_str))
        .collect();
    !waiting.is_empty()
        && waiting
            .iter()
            .all(|slot| known.contains(slot.to_string().as_str()))
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
        let knows = |slots: &[u16]| {
            let waiting = slots.iter().copied().map(SlotId).collect();
            knows_all(&grants, &resource, &waiting)
        };
        assert!(knows(&[0, 1]));
        assert!(!knows(&[0, 2]), "slot-02 is of another resource");
        assert!(!knows(&[]), "nothing shows that the checkpoint is fresh");
        let uid = |text| PodUid::parse(text).unwrap();
        assert!(has_slots(&grants, &uid("a"), &resource));
        assert!(!has_slots(&grants, &uid("b"), &resource));
    }
}
