//! What the kubelet says of slots and GPUs, as far as it can be asked.

use super::say;
use crate::cli::EvidenceArgs;
use podrail_core::gpus::devices::{self, MigParents};
use podrail_core::ids::{ResourceName, SlotId};
use podrail_core::pods::{Admitted, CheckpointGrant, DeviceGrant, ListedPod, PodRef};
use podrail_core::topology::Topology;
use podrail_kubelet::{checkpoint, podresources};
use podrail_node::recovery::{Finding, Kubelet};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

const HINT: &str = "see whether the kubelet runs, and run this again";

/// Both sources; each empty where it is not there.
struct Told {
    listed: Vec<ListedPod>,
    checkpoint: Option<Vec<CheckpointGrant>>,
    findings: Vec<Finding>,
}

/// Slots that are given out.
pub(super) fn slots(args: &EvidenceArgs, resource: &ResourceName) -> (Kubelet, Vec<Finding>) {
    let told = tell(args);
    let kubelet = Kubelet {
        allocated: told.allocated(resource),
        ..Kubelet::default()
    };
    (kubelet, told.findings)
}

/// Slots that are given out, and what these pods have, by container.
pub(super) fn ask(
    args: &EvidenceArgs,
    resource: &ResourceName,
    topology: &Topology,
    pods: &BTreeSet<PodRef>,
) -> (Kubelet, Vec<Finding>) {
    let mut told = tell(args);
    let mut kubelet = Kubelet {
        allocated: told.allocated(resource),
        ..Kubelet::default()
    };
    let admitted = Admitted {
        listed: &told.listed,
        checkpoint: told.checkpoint.as_deref(),
        resource,
        slots: u16::MAX,
    };
    let gpus = |grants: &[DeviceGrant]| devices::granted(topology, grants, &MigParents::new());
    for pod in pods {
        match admitted.own(pod, &gpus) {
            Ok(own) => _ = kubelet.parts.insert(pod.uid.clone(), own.parts),
            Err(error) => {
                let finding = say::finding(pod, error.to_string(), HINT);
                told.findings.push(finding);
            }
        }
    }
    (kubelet, told.findings)
}

/// A node without Kubernetes has neither.
fn tell(args: &EvidenceArgs) -> Told {
    let mut findings = vec![];
    let mut listed = vec![];
    if args.pod_resources.exists() {
        match podresources::blocking::list(&args.pod_resources, Instant::now() + PATIENCE) {
            Ok(pods) => listed = pods,
            Err(error) => findings.push(say::finding("kubelet", error.to_string(), HINT)),
        }
    }
    let checkpoint = match args.checkpoint.exists() {
        true => checkpoint::read(&args.checkpoint),
        false => Ok(vec![]),
    };
    let checkpoint = checkpoint.map_err(|error| {
        findings.push(say::finding("kubelet", error.to_string(), HINT));
    });
    Told {
        listed,
        checkpoint: checkpoint.ok(),
        findings,
    }
}

impl Told {
    /// Slots that somebody has; ids that are none are the kubelet's own affair.
    fn allocated(&self, resource: &ResourceName) -> BTreeSet<SlotId> {
        let listed = self.listed.iter().flat_map(|pod| &pod.devices);
        let checkpoint = self.checkpoint.iter().flatten().map(|entry| &entry.grant);
        let ours = listed
            .chain(checkpoint)
            .filter(|grant| grant.resource == resource.as_str());
        let ids = ours.flat_map(|grant| &grant.ids);
        ids.filter_map(|id| SlotId::parse(id).ok()).collect()
    }
}
