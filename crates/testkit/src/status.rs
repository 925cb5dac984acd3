//! What the stand-in says of pods.

use crate::manifest::{Container, Pod};
use crate::runtime::{Doing, Seen};
use crate::state::{Entry, State, seconds_now};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The end of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Succeeded or Failed.
    pub phase: Phase,
    /// One word, "UnexpectedAdmissionError".
    pub reason: String,
    /// In words.
    pub message: String,
}

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not all started.
    Pending,
    /// All main containers were started.
    Running,
    /// All ended well.
    Succeeded,
    /// Rejected, or a container ended badly.
    Failed,
}

/// Why something does not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// One word, "CreateContainerError".
    pub reason: String,
    /// In words.
    pub message: String,
}

/// Something that happened to a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since 1970.
    pub at: f64,
    /// One word, "Allocated".
    pub reason: String,
    /// In words.
    pub message: String,
}

impl Event {
    pub(crate) fn now(reason: &str, message: &str) -> Self {
        Self {
            at: seconds_now(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// A pod as `get` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PodStatus {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Where it stands.
    pub phase: Phase,
    /// All main containers and sidecars run.
    pub ready: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Why it stands there, one word.
    pub reason: String,
    /// Why it stands there.
    pub message: String,
    /// The newest sandbox.
    pub sandbox: Option<SandboxStatus>,
    /// Addresses of the pod.
    pub addresses: Vec<String>,
    /// Init containers first.
    pub containers: Vec<ContainerStatus>,
    /// Device ids by container and resource.
    pub devices: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// Oldest first.
    pub events: Vec<Event>,
}

/// A sandbox as `get` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// Id.
    pub id: String,
    /// Counts the sandboxes of the pod.
    pub attempt: u32,
    /// Runs.
    pub ready: bool,
}

/// A container as `get` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// Name.
    pub name: String,
    /// `waiting`, `running` or `terminated`.
    pub state: String,
    /// Why, one word.
    pub reason: String,
    /// Why.
    pub message: String,
    /// Of the last end.
    pub exit_code: Option<i32>,
    /// Starts after the first.
    pub restarts: u32,
    /// Id in the runtime.
    pub id: Option<String>,
}

impl PodStatus {
    /// How many containers say that they run.
    pub fn running(&self) -> usize {
        let states = self.containers.iter();
        states
            .filter(|container| container.state == "running")
            .count()
    }
}

/// The newest start of a container.
pub(crate) fn newest<'a>(containers: &'a [Seen], name: &str) -> Option<&'a Seen> {
    let starts = containers.iter().filter(|seen| seen.name == name);
    starts.max_by_key(|seen| seen.attempt)
}

/// Status of one pod.
pub(crate) fn of(state: &State, entry: &Entry) -> PodStatus {
    let pod = &entry.record.pod;
    let metadata = &pod.metadata;
    let verdict = entry.record.verdict.as_ref();
    let waiting = entry.waiting.get("");
    let sandbox = entry.sandboxes.iter().max_by_key(|sandbox| sandbox.attempt);
    PodStatus {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        phase: phase(entry),
        ready: verdict.is_none() && ready(pod, &entry.containers),
        deleting: entry.record.deletion.is_some(),
        reason: verdict
            .map(|v| &v.reason)
            .or(waiting.map(|w| &w.reason))
            .cloned()
            .unwrap_or_default(),
        message: verdict
            .map(|v| &v.message)
            .or(waiting.map(|w| &w.message))
            .cloned()
            .unwrap_or_default(),
        sandbox: sandbox.map(|sandbox| SandboxStatus {
            id: sandbox.id.clone(),
            attempt: sandbox.attempt,
            ready: sandbox.ready,
        }),
        addresses: entry.addresses.clone(),
        containers: pod.all_containers().map(|c| container(entry, c)).collect(),
        devices: state.books.of_pod(&metadata.uid),
        events: entry.events.clone(),
    }
}

fn phase(entry: &Entry) -> Phase {
    if let Some(verdict) = &entry.record.verdict {
        return verdict.phase;
    }
    let mut main = entry.record.pod.spec.containers.iter();
    match main.all(|c| newest(&entry.containers, &c.name).is_some_and(started)) {
        true => Phase::Running,
        false => Phase::Pending,
    }
}

fn started(seen: &Seen) -> bool {
    seen.doing != Doing::Created
}

fn ready(pod: &Pod, containers: &[Seen]) -> bool {
    let mut wanted = pod.all_containers().filter(|c| !pod.is_plain_init(&c.name));
    wanted.all(|c| newest(containers, &c.name).is_some_and(|seen| seen.doing == Doing::Running))
}

fn container(entry: &Entry, container: &Container) -> ContainerStatus {
    let seen = newest(&entry.containers, &container.name);
    let waiting = entry.waiting.get(&container.name);
    let mut status = ContainerStatus {
        name: container.name.clone(),
        state: "waiting".to_owned(),
        reason: "ContainerCreating".to_owned(),
        message: String::new(),
        exit_code: None,
        restarts: seen.map_or(0, |seen| seen.attempt),
        id: seen.map(|seen| seen.id.clone()),
    };
    match seen.map(|seen| &seen.doing) {
        Some(Doing::Running) => {
            status.state = "running".to_owned();
            status.reason.clear();
        }
        Some(Doing::Exited {
            code,
            reason,
            message,
        }) => {
            status.state = "terminated".to_owned();
            status.exit_code = Some(*code);
            status.reason.clone_from(reason);
            status.message.clone_from(message);
        }
        Some(Doing::Created) | None => {}
    }
    if let Some(waiting) = waiting.filter(|_| status.state != "running") {
        status.state = "waiting".to_owned();
        status.reason.clone_from(&waiting.reason);
        status.message.clone_from(&waiting.message);
    }
    status
}
