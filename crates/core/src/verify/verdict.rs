//! The verdict on a pod's rails: PASS, or each thing that is wrong with its next step.

use super::{GidEntry, MapEntry, gid_of, natural_key};
use crate::ids::RdmaName;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

/// Locked memory below this cannot hold what perftest or NCCL register.
const SMALLEST_USEFUL_MEMLOCK: u64 = 64 << 20;

/// How much memory the process may lock: RDMA registration counts against it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memlock {
    /// Effective user.
    pub uid: u32,
    /// Soft limit in bytes; absent when unlimited.
    pub limit: Option<u64>,
    /// Whether CAP_IPC_LOCK is effective: the limit is not looked at then.
    pub ipc_lock: bool,
}

impl Memlock {
    /// The limit as text: `64 KiB`, `8 MiB` or `unlimited`.
    #[must_use]
    pub fn limit_in_words(&self) -> String {
        match self.limit {
            None => "unlimited".into(),
            Some(bytes) if bytes < 1 << 20 => format!("{} KiB", bytes >> 10),
            Some(bytes) => format!("{} MiB", bytes >> 20),
        }
    }
}

/// What was seen in the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// `netns_mode` of ib_core: shared is true; absent without ib_core.
    pub shared_mode: Option<bool>,
    /// The map of addresses to GIDs.
    pub map: Vec<MapEntry>,
    /// All GID entries that could be read and are not zero.
    pub gids: Vec<GidEntry>,
    /// RDMA devices that the process can open.
    pub openable: BTreeSet<RdmaName>,
    /// PCI address (text) of each RDMA device, where sysfs tells.
    pub pci_of: BTreeMap<RdmaName, String>,
    /// PCI addresses that the device plugin's `PCIDEVICE_*` environment names; absent without it.
    pub allocated: Option<BTreeSet<String>>,
    /// How many rails the caller says there must be.
    pub expected: Option<usize>,
    /// Memory lock rights.
    pub memlock: Memlock,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// RDMA may be slow or reach too far.
    Warn,
    /// RDMA will not work.
    Fail,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// What was found.
    pub text: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The verdict and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Whether no finding is a failure.
    pub pass: bool,
    /// Interfaces with their addresses and GIDs.
    pub map: Vec<MapEntry>,
    /// Findings, worst first.
    pub findings: Vec<Finding>,
    /// RDMA devices that the process can open.
    pub openable: Vec<RdmaName>,
    /// Distinct GID indexes of the map.
    pub gid_indexes: Vec<u32>,
    /// Memory lock rights.
    pub memlock: Memlock,
}

impl Report {
    /// The last line: `PASS: …` or `FAIL: …`.
    #[must_use]
    pub fn summary(&self) -> String {
        let rails = self
            .map
            .iter()
            .map(|entry| &entry.interface)
            .collect::<BTreeSet<_>>()
            .len();
        if !self.pass {
            return format!("FAIL: {rails} IPvlan interfaces found, errors above");
        }
        let indexes: Vec<String> = self.gid_indexes.iter().map(u32::to_string).collect();
        let indexes = indexes.join(" ");
        format!(
            "PASS: {rails} IPvlan interfaces have a RoCE v2 GID on an RDMA device that this \
             process can open (GID index: {indexes})"
        )
    }
}

/// Judges the evidence.
#[must_use]
pub fn judge(evidence: &Evidence) -> Report {
    let mut findings = mode_findings(evidence);
    findings.extend(count_findings(evidence));
    findings.extend(
        evidence
            .map
            .iter()
            .filter_map(|entry| gid_finding(entry, evidence)),
    );
    findings.extend(device_findings(evidence));
    findings.extend(memlock_finding(&evidence.memlock));
    findings.extend(visibility_finding(evidence));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let indexes: BTreeSet<u32> = evidence
        .map
        .iter()
        .filter_map(|entry| entry.gid_index)
        .collect();
    Report {
        pass: findings
            .iter()
            .all(|finding| finding.severity != Severity::Fail),
        map: evidence.map.clone(),
        findings,
        openable: in_natural_order(&evidence.openable),
        gid_indexes: indexes.into_iter().collect(),
        memlock: evidence.memlock.clone(),
    }
}

/// `mlx5_2` before `mlx5_10`.
fn in_natural_order(devices: &BTreeSet<RdmaName>) -> Vec<RdmaName> {
    let mut sorted: Vec<RdmaName> = devices.iter().cloned().collect();
    sorted.sort_by_key(|device| natural_key(device.as_str()));
    sorted
}

fn finding(severity: Severity, text: String, hint: &str) -> Finding {
    Finding {
        severity,
        text,
        hint: (!hint.is_empty()).then(|| hint.to_owned()),
    }
}

fn mode_findings(evidence: &Evidence) -> Vec<Finding> {
    let text = match evidence.shared_mode {
        Some(true) => return vec![],
        Some(false) => "RDMA namespace mode is exclusive: pods see no RDMA device of the host",
        None => "ib_core is not loaded: there is no RDMA on this node",
    };
    let hint = match evidence.shared_mode {
        None => "load the driver of the NICs (modprobe mlx5_ib) and run the check again",
        _ => {
            "set 'options ib_core netns_mode=1' in /etc/modprobe.d and reboot, or run \
             'rdma system set netns shared' while no other network namespace exists"
        }
    };
    vec![finding(Severity::Fail, text.into(), hint)]
}

fn count_findings(evidence: &Evidence) -> Option<Finding> {
    let interfaces: BTreeSet<_> = evidence.map.iter().map(|entry| &entry.interface).collect();
    let found = interfaces.len();
    let expected = evidence
        .expected
        .or(evidence.allocated.as_ref().map(BTreeSet::len));
    match expected {
        Some(expected) if expected != found => Some(finding(
            Severity::Fail,
            format!("{found} rail interfaces in this namespace, {expected} expected"),
            "look at 'podrail status' on the node, and at the events of the pod",
        )),
        None if found == 0 => Some(finding(
            Severity::Fail,
            "no rail interface in this namespace".into(),
            "run the check inside the pod (or with --netns), after its rails were attached",
        )),
        _ => None,
    }
}

/// What is wrong with one address, if anything.
fn gid_finding(entry: &MapEntry, evidence: &Evidence) -> Option<Finding> {
    let MapEntry { interface, .. } = entry;
    let Some(address) = entry.address else {
        let text = format!("{interface} has no address");
        return Some(finding(Severity::Fail, text, "detach and attach again"));
    };
    let Some(device) = &entry.device else {
        return Some(finding(
            Severity::Fail,
            format!("{interface} ({address}) has no RoCE v2 GID"),
            "the link of the rail may be down, or its RDMA device is missing: see 'podrail topo'",
        ));
    };
    let pci = evidence.pci_of.get(device);
    let foreign = match (&evidence.allocated, pci) {
        (Some(allocated), Some(pci)) => !allocated.contains(pci),
        _ => false,
    };
    if foreign {
        let pci = pci.map_or("unknown", String::as_str);
        let text = format!("{device} ({pci}) of {interface} is not an allocated device");
        return Some(finding(
            Severity::Fail,
            text,
            "the pod's devices and interfaces differ",
        ));
    }
    (!evidence.openable.contains(device)).then(|| {
        let text = format!("{device} of {interface} cannot be opened by this process");
        let hint = "give the container the rail's device node (/dev/infiniband/uverbsN); with \
                    Kubernetes, turn CDI on in the container runtime";
        finding(Severity::Fail, text, hint)
    })
}

/// Devices beyond the rails: NCCL would use them too.
fn device_findings(evidence: &Evidence) -> Option<Finding> {
    let mapped: BTreeSet<&RdmaName> = evidence
        .map
        .iter()
        .filter_map(|entry| entry.device.as_ref())
        .collect();
    let openable = in_natural_order(&evidence.openable);
    let extra = openable.iter().filter(|device| !mapped.contains(device));
    let extra: Vec<&str> = extra.map(RdmaName::as_str).collect();
    (!extra.is_empty()).then(|| {
        let text = format!(
            "{} RDMA devices can be opened that have no interface here: {}",
            extra.len(),
            extra.join(" ")
        );
        let hint = "limit the device nodes of the container to its rails, or NCCL may pick these";
        finding(Severity::Warn, text, hint)
    })
}

fn memlock_finding(memlock: &Memlock) -> Option<Finding> {
    let limit = memlock.limit.filter(|_| !memlock.ipc_lock)?;
    let severity = if limit < SMALLEST_USEFUL_MEMLOCK {
        Severity::Fail
    } else {
        Severity::Warn
    };
    let uid = memlock.uid;
    let text = format!(
        "uid {uid} may lock {} of memory and has no IPC_LOCK",
        memlock.limit_in_words()
    );
    let hint = "raise the runtime's memlock limit (LimitMEMLOCK=infinity of the container runtime \
                service), or add the capability IPC_LOCK";
    Some(finding(severity, text, hint))
}

/// Whether this kernel shows the GIDs of others: what isolation to expect.
fn visibility_finding(evidence: &Evidence) -> Option<Finding> {
    let own: BTreeSet<Ipv6Addr> = evidence
        .map
        .iter()
        .filter_map(|entry| entry.address)
        .map(gid_of)
        .collect();
    let foreign = evidence
        .gids
        .iter()
        .filter(|entry| !own.contains(&entry.gid) && !entry.gid.is_unicast_link_local())
        .count();
    (foreign > 0).then(|| {
        let text = format!(
            "{foreign} GIDs of the host or of other pods can be read here (mainline kernel): \
             pods that share a rail are not isolated from each other"
        );
        finding(Severity::Note, text, "DOCA-OFED hides and refuses them")
    })
}
