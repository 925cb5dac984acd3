//! Answers of the kubelet's PodResources service, over a socket, and what is made of them.

mod kubelet;

use crate::told::{told, words};
use kubelet::Kubelet;
use podrail_core::gpus::devices;
use podrail_core::ids::ResourceName;
use podrail_core::pods::{Admitted, ListedPod, PodRef};
use podrail_core::topology::Topology;
use podrail_kubelet::podresources::{LARGEST_ANSWER, PodResourcesError, blocking};
use podrail_kubelet::proto::podresources::{GetPodResourcesResponse, ListPodResourcesResponse};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static KUBELET: LazyLock<Kubelet> = LazyLock::new(Kubelet::start);

/// How long an answer may take; it is sent at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// The message of an answer; the same for both calls, which have two types.
pub(crate) fn answer(input: &[u8]) {
    KUBELET.answers(input);
    let socket = KUBELET.socket();
    let deadline = Instant::now() + PATIENCE;
    match blocking::list(socket, deadline) {
        Ok(pods) => {
            let message = ListPodResourcesResponse::decode(input).expect("it was taken");
            assert_eq!(pods.len(), message.pod_resources.len());
            joined(&pods);
        }
        Err(error) => {
            let too_large = input.len() > LARGEST_ANSWER;
            let bad = too_large || ListPodResourcesResponse::decode(input).is_err();
            assert!(bad, "{error}");
            refused(&error);
        }
    }
    match blocking::get(socket, "default", "job-0", deadline) {
        Ok(pod) => {
            let message = GetPodResourcesResponse::decode(input).expect("it was taken");
            assert_eq!(pod.is_some(), message.pod_resources.is_some());
        }
        Err(error) => refused(&error),
    }
}

fn refused(error: &PodResourcesError) {
    let names = ["kubelet"];
    told(error, Some(error.hint().to_owned()), &names);
    let late = matches!(error, PodResourcesError::Deadline { .. });
    assert!(
        !late,
        "an answer that makes no sense is no reason to wait: {error:?}"
    );
}

/// The pods as the choice of rails sees them.
fn joined(pods: &[ListedPod]) {
    let resource = ResourceName::parse("podrail.io/rail").expect("a resource");
    let admitted = Admitted {
        listed: pods,
        checkpoint: None,
        resource: &resource,
        slots: 16,
    };
    let topology = Topology::default();
    let gpus = |grants: &[_]| devices::granted(&topology, grants, &BTreeMap::new());
    let pod = PodRef {
        uid: "8c1f-9".parse().expect("a UID"),
        namespace: "default".parse().expect("a name"),
        name: "job-0".parse().expect("a name"),
    };
    let own = match admitted.own(&pod, &gpus) {
        Ok(own) => own,
        Err(error) => return told(&error, Some(error.hint()), &["default/job-0"]),
    };
    let slots: Vec<_> = own.parts.iter().flat_map(|part| &part.slots).collect();
    let once: BTreeSet<_> = slots.iter().collect();
    assert_eq!(once.len(), slots.len(), "a slot twice");
    for note in &own.notes {
        words(&note.to_string(), &[""]);
    }
    let waiting = (0..16).map(podrail_core::ids::SlotId).collect();
    _ = admitted.others(&own, &waiting, &gpus);
}
