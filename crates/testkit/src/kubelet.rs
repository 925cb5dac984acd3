//! The stand-in kubelet: starts its services, takes pods, says what they do.

use crate::devices::{Amount, checkpoint, plugins};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::life::{load, relist, serve, serve_pod, take_over};
use crate::manifest::{self, ConfigMap, Object, Pod};
use crate::proto::cri::ExecSyncResponse;
use crate::runtime::{Runtime, Seen};
pub use crate::settings::Settings;
use crate::state::{Deletion, Entry, Record, Shared, State};
use crate::status::{self, PodStatus, newest};
use crate::worker;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a wait is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// Phase Running.
    Running,
    /// All main containers and sidecars run.
    Ready,
    /// Phase Succeeded.
    Succeeded,
    /// Phase Failed.
    Failed,
    /// No such pod.
    Gone,
}

/// What one node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// By resource.
    pub resources: BTreeMap<String, Amount>,
    /// What is not ready in the runtime; empty when all is.
    pub unready: Vec<String>,
    /// Calls of PodResources since the start, refused ones too.
    pub pod_resources_calls: u64,
}

/// A running stand-in. Dropped or stopped, it ends as a killed kubelet does: pods stay.
pub struct Kubelet {
    shared: Arc<Shared>,
    _engine: Engine,
}

impl Kubelet {
    /// Starts on a directory, where an earlier one may have been: plugins must register again, the
    /// checkpoint and the pods are taken over.
    ///
    /// # Errors
    /// A file of an earlier one is broken, or a socket cannot be made.
    pub fn start(settings: Settings, runtime: Arc<dyn Runtime>) -> Result<Self> {
        let plugins_directory = settings.plugins_directory();
        let mut state = State::default();
        plugins::clear(&plugins_directory)?;
        checkpoint::read(&plugins_directory, &mut state.books)?;
        load(&settings, &mut state)?;
        let found: Vec<String> = state.pods.keys().cloned().collect();
        let engine = Engine::start()?;
        let handle = engine.handle().clone();
        let shared = Arc::new(Shared::new(settings, runtime, state, handle.clone()));
        let _entered = handle.enter();
        serve(&shared)?;
        shared.spawn(take_over(Arc::clone(&shared), found));
        shared.spawn(relist(Arc::clone(&shared)));
        Ok(Self {
            shared,
            _engine: engine,
        })
    }

    /// Ends it at once, as a kill does.
    pub fn stop(self) {
        drop(self);
    }

    /// Takes the pods and config maps of a manifest; gives notes on what was skipped.
    ///
    /// # Errors
    /// The manifest is not usable, or a pod of that name is there.
    pub fn apply(&self, text: &str) -> Result<Vec<String>> {
        let manifest = manifest::parse(text)?;
        for object in manifest.objects {
            match object {
                Object::Pod(pod) => self.apply_pod(*pod)?,
                Object::ConfigMap(map) => self.apply_config_map(map)?,
            }
        }
        Ok(manifest.notes)
    }

    /// Takes one pod.
    ///
    /// # Errors
    /// A pod of that name or UID is there.
    pub fn apply_pod(&self, mut pod: Pod) -> Result<()> {
        if pod.metadata.uid.is_empty() {
            pod.metadata.uid = new_uid()?;
        }
        let (uid, key) = (pod.metadata.uid.clone(), pod.metadata.key());
        let taken = self.shared.with(|state| {
            let mut pods = state.pods.values();
            let taken = pods.any(|entry| entry.counts() && entry.record.pod.metadata.key() == key);
            if !taken && !state.pods.contains_key(&uid) {
                let record = Record {
                    pod,
                    verdict: None,
                    deletion: None,
                };
                state.pods.insert(uid.clone(), Entry::new(record));
                return false;
            }
            true
        });
        if taken {
            return Err(Error::Refused(format!("pod {key} is there already")));
        }
        self.shared.keep(&uid)?;
        self.shared.spawn(serve_pod(Arc::clone(&self.shared), uid));
        Ok(())
    }

    fn apply_config_map(&self, map: ConfigMap) -> Result<()> {
        let metadata = &map.metadata;
        let file = format!("{}_{}.json", metadata.namespace, metadata.name);
        let path = self.shared.settings.config_maps_directory().join(file);
        let text = serde_json::to_string(&map).map_err(|source| Error::Document {
            path: path.clone(),
            source,
        })?;
        checkpoint::replace(&path, &text)?;
        self.shared
            .with(|state| state.config_maps.insert(map.metadata.key(), map));
        Ok(())
    }

    /// Deletes a pod. By force, its devices and its name are free at once, while it may still run.
    /// Without `grace` the pod's own counts; a forced one has 2 s, as the kubelet's least.
    ///
    /// # Errors
    /// No such pod.
    pub fn delete(&self, key: &str, force: bool, grace: Option<i64>) -> Result<()> {
        let uid = self.uid(key)?;
        self.shared.with(|state| {
            let State { pods, books, .. } = state;
            let Some(entry) = pods.get_mut(&uid) else {
                return;
            };
            let own = entry.record.pod.spec.termination_grace_period_seconds;
            let grace = grace.unwrap_or(if force { 2 } else { own.unwrap_or(30) });
            entry.record.deletion = Some(Deletion { grace, force });
            entry.deletions.send_modify(|count| *count += 1);
            if force {
                books.free(&uid);
            }
        });
        self.shared
            .event(&uid, "Deleted", if force { "by force" } else { "" });
        self.shared.keep(&uid)
    }

    /// UID of a pod by `namespace/name`.
    fn uid(&self, key: &str) -> Result<String> {
        let found = self
            .shared
            .look(|state| find(state, key).map(|e| e.record.pod.metadata.uid.clone()));
        found.ok_or_else(|| Error::Unknown {
            what: "pod",
            name: key.to_owned(),
        })
    }

    /// One pod by `namespace/name`.
    ///
    /// # Errors
    /// No such pod.
    pub fn get(&self, key: &str) -> Result<PodStatus> {
        let found = self
            .shared
            .look(|state| find(state, key).map(|entry| status::of(state, entry)));
        found.ok_or_else(|| Error::Unknown {
            what: "pod",
            name: key.to_owned(),
        })
    }

    /// All pods, those that were deleted by force and still run included.
    pub fn pods(&self) -> Vec<PodStatus> {
        self.shared.look(|state| {
            let entries = state.pods.values();
            entries.map(|entry| status::of(state, entry)).collect()
        })
    }

    /// Capacity of the node, and what its runtime lacks.
    ///
    /// # Errors
    /// The runtime cannot be reached.
    pub async fn node(&self) -> Result<NodeStatus> {
        let resources = self.shared.look(|state| state.books.amounts());
        let unready = self.shared.runtime.unready().await?;
        let calls = &self.shared.pod_resources_calls;
        Ok(NodeStatus {
            resources,
            unready,
            pod_resources_calls: calls.load(Ordering::Relaxed),
        })
    }

    /// Turns a knob.
    ///
    /// # Errors
    /// Unknown, or a value of the wrong shape.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        self.shared.with(|state| state.knobs.set(key, value))
    }

    /// Waits until a pod, or the lack of it, is as wanted.
    ///
    /// # Errors
    /// Time is up; says what was last seen. Or the pod has ended, so that it never will be.
    pub async fn wait(&self, key: &str, condition: Condition, limit: Duration) -> Result<()> {
        let met = |state: &State| {
            let status = find(state, key).map(|entry| status::of(state, entry));
            is(condition, status.as_ref())
        };
        match self.wait_until(limit, met).await? {
            Some(true) => Ok(()),
            end => {
                let last = self.get(key).map(|status| last_words(&status));
                let last = last.unwrap_or_else(|error| error.to_string());
                let why = if end.is_none() {
                    "time is up"
                } else {
                    "it has ended"
                };
                Err(Error::Refused(format!(
                    "pod {key} did not become {condition:?}: {why}; last seen: {last}"
                )))
            }
        }
    }

    /// Waits until a resource has so many healthy devices.
    ///
    /// # Errors
    /// Time is up; says what was last seen.
    pub async fn wait_allocatable(
        &self,
        resource: &str,
        count: usize,
        limit: Duration,
    ) -> Result<()> {
        let met = |state: &State| {
            let amount = state.books.amounts().get(resource).copied();
            (amount.map_or(0, |amount| amount.allocatable) == count).then_some(true)
        };
        match self.wait_until(limit, met).await? {
            Some(true) => Ok(()),
            _ => Err(Error::Refused(format!(
                "{resource} did not become {count} allocatable; last seen: {:?}",
                self.shared.look(|state| state.books.amounts())
            ))),
        }
    }

    /// The first answer within the limit.
    async fn wait_until(
        &self,
        limit: Duration,
        answer: impl Fn(&State) -> Option<bool>,
    ) -> Result<Option<bool>> {
        let mut changes = self.shared.changes();
        let end = tokio::time::Instant::now() + limit;
        loop {
            changes.borrow_and_update();
            if let Some(answer) = self.shared.look(&answer) {
                return Ok(Some(answer));
            }
            match tokio::time::timeout_at(end, changes.changed()).await {
                Err(_) => return Ok(None),
                Ok(Err(_)) => return Err(Error::Refused("the stand-in has ended".to_owned())),
                Ok(Ok(())) => {}
            }
        }
    }

    /// Runs a command in a container, the first main one if none is named.
    ///
    /// # Errors
    /// No such pod or container, or the runtime refuses.
    pub async fn exec(
        &self,
        key: &str,
        container: Option<&str>,
        command: &[String],
        limit: Duration,
    ) -> Result<ExecSyncResponse> {
        let (_, seen) = self.container(key, container)?;
        let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
        self.shared.runtime.exec(&seen.id, command, seconds).await
    }

    /// What the newest start of a container wrote.
    ///
    /// # Errors
    /// No such pod or container, or its file cannot be read.
    pub fn logs(&self, key: &str, container: Option<&str>) -> Result<String> {
        let (pod, seen) = self.container(key, container)?;
        let directory = worker::configs::log_directory(&self.shared.settings, &pod);
        let path = directory.join(worker::configs::log_file(&seen.name, seen.attempt));
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        // Each line is `time stream tag text`.
        let lines = text
            .lines()
            .map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default());
        Ok(lines.map(|line| format!("{line}\n")).collect())
    }

    fn container(&self, key: &str, container: Option<&str>) -> Result<(Pod, Seen)> {
        let found = self.shared.look(|state| {
            let entry = find(state, key)?;
            let pod = &entry.record.pod;
            let first = pod.spec.containers.first().map(|c| c.name.as_str());
            let seen = newest(&entry.containers, container.or(first)?)?;
            Some((pod.clone(), seen.clone()))
        });
        let name = format!("{} in pod {key}", container.unwrap_or("first"));
        found.ok_or(Error::Unknown {
            what: "started container",
            name,
        })
    }
}

/// The pod that has a name now; one deleted by force only if no other took it.
fn find<'a>(state: &'a State, key: &str) -> Option<&'a Entry> {
    let named = |entry: &&Entry| entry.record.pod.metadata.key() == key;
    let current = state
        .pods
        .values()
        .filter(named)
        .find(|entry| entry.counts());
    current.or_else(|| state.pods.values().find(named))
}

/// Whether a condition is met; `Some(false)` when it cannot be any more.
fn is(condition: Condition, status: Option<&PodStatus>) -> Option<bool> {
    use status::Phase::{Failed, Pending, Running, Succeeded};
    let phase = status.map(|status| status.phase);
    let met = match (condition, status) {
        (Condition::Gone, status) => status.is_none(),
        (Condition::Ready, Some(status)) => status.ready,
        (Condition::Running, _) => phase == Some(Running),
        (Condition::Succeeded, _) => phase == Some(Succeeded),
        (Condition::Failed, _) => phase == Some(Failed),
        (Condition::Ready, None) => false,
    };
    let ended = !matches!(phase, None | Some(Pending | Running));
    match met {
        true => Some(true),
        false if ended && condition != Condition::Gone => Some(false),
        false => None,
    }
}

fn last_words(status: &PodStatus) -> String {
    let head = format!("{:?} {} {}", status.phase, status.reason, status.message);
    let containers = status
        .containers
        .iter()
        .map(|c| format!("; {} {} {} {}", c.name, c.state, c.reason, c.message));
    containers.fold(head, |text, container| text + container.trim_end())
}

/// The kernel makes them.
fn new_uid() -> Result<String> {
    let path = "/proc/sys/kernel/random/uuid";
    let uid = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
    Ok(uid.trim().to_owned())
}
