//! What is on the node, without the state file. Reads only.

use super::{Finding, SeenNetns};
use crate::error::NodeError;
use crate::markers::Markers;
use crate::sandbox::netns_id;
use podrail_attach::cdi::CdiDir;
use podrail_attach::{children, differences};
use podrail_core::cdi::Owner;
use podrail_core::ids::{PodUid, SandboxId, SlotId};
use podrail_core::plan::AttachPlan;
use podrail_netlink::{NetNs, NetNsError};
use podrail_store::NetnsId;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where runtimes and `ip netns` have names of namespaces. Paths of processes are the last resort:
/// they go with the process.
const NAMES: [&str; 3] = ["/run/netns", "/var/run/netns", "/run/docker/netns"];

const ENTER: &str = "run this on the host as root, with the host's /proc";
const FILE: &str =
    "the agent looks after CDI files; one that stays can be removed when no pod has the slot";

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Census {
    /// Namespaces with rails of ours, by path.
    pub namespaces: Vec<SeenNetns>,
    /// CDI files of ours.
    pub files: Vec<Owner>,
    /// Slots that are marked as waiting.
    pub waiting: BTreeSet<SlotId>,
    /// Pods that are marked as known.
    pub pods: BTreeSet<PodUid>,
    /// What could not be read.
    pub findings: Vec<Finding>,
}

/// Looks at every network namespace that has a name or a process in it, at the CDI directory, and
/// at the markers beside the state file.
///
/// # Errors
/// Not even the own namespace can be read, or the state file's directory cannot be looked at.
pub fn take_census(state: &Path, cdi: &Path) -> Result<Census, NodeError> {
    let mut census = Census::default();
    census.see_namespaces(&NetNs::current()?);
    census.see_files(cdi);
    // Without a directory there are no markers; nothing is made here.
    let markers = state.parent().filter(|dir| dir.is_dir()).map(Markers::at);
    if let Some(markers) = markers {
        census.waiting = markers.waiting()?;
        census.pods = markers.pods()?;
    }
    Ok(census)
}

impl Census {
    fn see_namespaces(&mut self, own: &NetNs) {
        for (id, path) in paths() {
            if id == netns_id(own) {
                continue;
            }
            match look(&path) {
                Ok(Some(found)) if !found.children.is_empty() => self.namespaces.push(found),
                Ok(_) => {}
                Err(error) => self.findings.push(Finding::new(
                    path.display(),
                    format!("this network namespace cannot be looked into: {error}"),
                    ENTER,
                )),
            }
        }
        self.namespaces.sort_by(|a, b| a.path.cmp(&b.path));
    }

    fn see_files(&mut self, dir: &Path) {
        let listed = CdiDir::open(dir).and_then(|dir| dir.map_or(Ok(vec![]), |dir| dir.list()));
        let found = listed.unwrap_or_else(|error| {
            let about = dir.display();
            let finding = Finding::new(about, error.to_string(), FILE);
            self.findings.push(finding);
            vec![]
        });
        for file in found {
            match file.owner {
                Ok(owner) => self.files.push(owner),
                Err(error) => self
                    .findings
                    .push(Finding::new(file.slot, error.to_string(), FILE)),
            }
        }
    }
}

/// Sandboxes other than this one that have rails on the node, as far as one can see.
pub(crate) fn others_than(sandbox: &SandboxId) -> Result<BTreeSet<SandboxId>, NodeError> {
    let mut census = Census::default();
    census.see_namespaces(&NetNs::current()?);
    let children = census.namespaces.iter().flat_map(|netns| &netns.children);
    let owners = children.filter_map(|child| Some(child.alias.as_ref()?.sandbox.clone()));
    Ok(owners.filter(|owner| owner != sandbox).collect())
}

/// A path of each network namespace: the first that leads to it, names before processes.
fn paths() -> Vec<(NetnsId, PathBuf)> {
    let names = NAMES.iter().flat_map(|dir| entries(Path::new(dir)));
    let processes = entries(Path::new("/proc")).into_iter();
    let processes = processes.map(|process| process.join("ns/net"));
    let mut found = BTreeMap::new();
    for path in names.chain(processes) {
        if let Ok(facts) = std::fs::metadata(&path) {
            found.entry((facts.dev(), facts.ino())).or_insert(path);
        }
    }
    let found = found.into_iter();
    found
        .map(|((dev, ino), path)| (NetnsId { dev, ino }, path))
        .collect()
}

/// Paths in a directory, sorted; none if it cannot be read.
pub(crate) fn entries(dir: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Our children in the namespace at a path; none if it is none, or is gone by now.
fn look(path: &Path) -> Result<Option<SeenNetns>, NodeError> {
    let netns = match NetNs::open(path) {
        Ok(netns) => netns,
        Err(NetNsError::Missing { .. } | NetNsError::NotANetNs { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(SeenNetns {
        id: netns_id(&netns),
        path: path.to_owned(),
        children: children(&netns)?,
    }))
}

/// In what a namespace differs from a plan, in words; that it cannot be looked at is one of them.
#[must_use]
pub fn doubts_of(plan: &AttachPlan, netns: &Path) -> Vec<String> {
    let found = NetNs::open(netns)
        .map_err(NodeError::from)
        .and_then(|netns| Ok(differences(plan, &netns)?));
    found.unwrap_or_else(|error| vec![error.to_string()])
}
