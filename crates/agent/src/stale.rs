//! Which marks stand for nothing any more. Pure; nothing on a guess.

use podrail_core::ids::{PodUid, ResourceName, SlotId};
use podrail_core::pods::{CheckpointGrant, DeviceGrant, ListedPod};
use podrail_store::Waiting;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a pod may take from `Allocate` until the kubelet tells of it. It writes its checkpoint
/// right after the answer.
pub(crate) const SETTLED: Duration = Duration::from_secs(60);

/// Whether what began at `since` has had its time at `now`; in seconds since 1970, by a clock that
/// may jump.
fn settled(since: i64, now: i64) -> bool {
    u64::try_from(now.saturating_sub(since)).is_ok_and(|seconds| seconds >= SETTLED.as_secs())
}

/// What the state file and the markers say. To be read **before** the kubelet is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Slots that wait to be bound.
    pub(crate) waiting: BTreeMap<SlotId, Waiting>,
    /// Pods that had slots, by row or marker, and since when; 0 if only a marker says so.
    pub(crate) pods: BTreeMap<PodUid, i64>,
    /// Pods that hold rails.
    pub(crate) holding: BTreeSet<PodUid>,
}

/// What the kubelet says: both of its sources, each read without a fault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kubelet {
    /// Slots that a pod has, and one such pod's name where it is known.
    pub(crate) slots: BTreeMap<SlotId, Option<String>>,
    /// Pods with devices.
    pub(crate) uids: BTreeSet<String>,
}

impl Kubelet {
    /// From the PodResources answer and the checkpoint. Either may know of pods that are gone, and
    /// each leaves out what the other has.
    pub(crate) fn new(
        listed: &[ListedPod],
        checkpoint: &[CheckpointGrant],
        resource: &ResourceName,
    ) -> Self {
        let of_ours = |grant: &DeviceGrant| -> Vec<SlotId> {
            let ours = grant.resource == resource.as_str();
            let ids = grant.ids.iter().filter(|_| ours);
            ids.filter_map(|id| SlotId::parse(id).ok()).collect()
        };
        let mut kubelet = Self::default();
        for entry in checkpoint {
            kubelet.uids.insert(entry.pod_uid.clone());
            let slots = of_ours(&entry.grant).into_iter();
            kubelet.slots.extend(slots.map(|slot| (slot, None)));
        }
        for pod in listed {
            let name = format!("{}/{}", pod.namespace, pod.name);
            for slot in pod.devices.iter().flat_map(of_ours) {
                kubelet.slots.insert(slot, Some(name.clone()));
            }
        }
        kubelet
    }
}

/// What can go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stale {
    /// Slots that no pod has, and the row that said they wait.
    pub(crate) slots: Vec<(SlotId, Waiting)>,
    /// Pods that the kubelet does not know, and that held nothing; since when they are known.
    pub(crate) pods: Vec<(PodUid, i64)>,
}

/// Decides, at `now` in seconds since 1970.
pub(crate) fn stale(marks: &Marks, kubelet: &Kubelet, now: i64) -> Stale {
    let slots = marks.waiting.iter();
    let slots =
        slots.filter(|(slot, row)| settled(row.since, now) && !kubelet.slots.contains_key(slot));
    let known = |uid: &PodUid| kubelet.uids.contains(uid.as_str()) || marks.holding.contains(uid);
    let pods = marks.pods.iter();
    let pods = pods.filter(|(uid, since)| settled(**since, now) && !known(uid));
    Stale {
        slots: slots.map(|(slot, row)| (*slot, *row)).collect(),
        pods: pods.map(|(uid, since)| (uid.clone(), *since)).collect(),
    }
}

/// Slots that a pod has and that have waited for a minute: (slot, its row, pod).
pub(crate) fn stuck(marks: &Marks, kubelet: &Kubelet, now: i64) -> Vec<(SlotId, Waiting, String)> {
    let waiting = marks.waiting.iter();
    let long = waiting.filter(|(_, row)| settled(row.since, now));
    long.filter_map(|(slot, row)| {
        let pod = kubelet.slots.get(slot)?;
        let pod = pod.as_deref().unwrap_or("(an init container)");
        Some((*slot, *row, pod.to_owned()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "8b1e2b3c-0000-4000-8000-000000000001";

    fn uid(text: &str) -> PodUid {
        PodUid::parse(text).unwrap()
    }

    fn grant(resource: &str, ids: &[&str]) -> DeviceGrant {
        DeviceGrant {
            container: "main".into(),
            resource: resource.into(),
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    fn kubelet(listed: &[&str], checkpoint: &[&str]) -> Kubelet {
        let listed = ListedPod {
            namespace: "ml".into(),
            name: "job".into(),
            devices: vec![
                grant("podrail.io/rail", listed),
                grant("example.com/other", &["slot-09"]),
            ],
        };
        let checkpoint = CheckpointGrant {
            pod_uid: UID.into(),
            grant: grant("podrail.io/rail", checkpoint),
        };
        let resource = ResourceName::parse("podrail.io/rail").unwrap();
        Kubelet::new(&[listed], &[checkpoint], &resource)
    }

    fn waiting(slots: &[(u16, i64)]) -> Marks {
        Marks {
            waiting: slots.iter().map(|(n, at)| (SlotId(*n), row(*at))).collect(),
            ..Marks::default()
        }
    }

    fn row(since: i64) -> Waiting {
        Waiting { since, number: 7 }
    }

    #[test]
    fn a_slot_goes_only_if_neither_source_has_it_and_it_is_old() {
        let marks = waiting(&[(1, 0), (2, 0), (3, 0), (9, 0), (4, 950)]);
        let found = stale(&marks, &kubelet(&["slot-01", "odd"], &["slot-02"]), 1000);
        assert_eq!(found.slots, [(SlotId(3), row(0)), (SlotId(9), row(0))]);
        assert_eq!(found.pods, []);
    }

    #[test]
    fn a_clock_that_jumped_back_takes_nothing() {
        let marks = waiting(&[(1, 2000)]);
        assert_eq!(stale(&marks, &Kubelet::default(), 1000), Stale::default());
    }

    #[test]
    fn a_pod_goes_only_if_it_is_unknown_and_holds_nothing() {
        let other = |n: u8| uid(&format!("8b1e2b3c-0000-4000-8000-0000000000a{n}"));
        let marks = Marks {
            pods: [(uid(UID), 0), (other(1), 0), (other(2), 0), (other(3), 990)].into(),
            holding: [other(1)].into(),
            ..Marks::default()
        };
        let found = stale(&marks, &kubelet(&[], &[]), 1000);
        assert_eq!(found.pods, [(other(2), 0)]);
    }

    #[test]
    fn a_slot_that_waits_for_long_is_told_with_its_pod() {
        let marks = waiting(&[(1, 0), (2, 0), (3, 0), (4, 950)]);
        let kubelet = kubelet(&["slot-01", "slot-04"], &["slot-01", "slot-02"]);
        let found = stuck(&marks, &kubelet, 1000);
        let expected = [
            (SlotId(1), row(0), "ml/job".to_owned()),
            (SlotId(2), row(0), "(an init container)".to_owned()),
        ];
        assert_eq!(found, expected);
    }
}
