//! What the tasks of one stand-in share.

use crate::devices::Books;
use crate::devices::plugins::Plugins;
use crate::error::{Error, Result, in_words};
use crate::knobs::Knobs;
use crate::kubelet::Settings;
use crate::manifest::{ConfigMap, Pod};
use crate::runtime::{Runtime, Sandbox, Seen};
use crate::status::{Event, Verdict, Waiting};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

/// Events that are kept for each pod.
const MOST_EVENTS: usize = 200;

/// How a pod is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deletion {
    /// Seconds between TERM and KILL.
    pub(crate) grace: i64,
    /// Its devices are free and its name can be used while it still runs.
    pub(crate) force: bool,
}

/// A pod as its file keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) pod: Pod,
    /// Set when the pod has ended for good.
    pub(crate) verdict: Option<Verdict>,
    pub(crate) deletion: Option<Deletion>,
}

/// A pod and what is known of it now.
pub(crate) struct Entry {
    pub(crate) record: Record,
    pub(crate) admitted: bool,
    pub(crate) sandboxes: Vec<Sandbox>,
    pub(crate) containers: Vec<Seen>,
    pub(crate) addresses: Vec<String>,
    /// Why a container, or under "" the sandbox, does not start.
    pub(crate) waiting: BTreeMap<String, Waiting>,
    pub(crate) events: Vec<Event>,
    /// Something about the pod has changed in the runtime.
    pub(crate) wake: Arc<Notify>,
    /// Counts deletions: what runs for the pod is cut off.
    pub(crate) deletions: watch::Sender<u32>,
}

impl Entry {
    pub(crate) fn new(record: Record) -> Self {
        Self {
            record,
            admitted: false,
            sandboxes: vec![],
            containers: vec![],
            addresses: vec![],
            waiting: BTreeMap::new(),
            events: vec![],
            wake: Arc::new(Notify::new()),
            deletions: watch::channel(0).0,
        }
    }

    /// Whether its name is taken and its devices are its own.
    pub(crate) fn counts(&self) -> bool {
        !self.record.deletion.is_some_and(|deletion| deletion.force)
    }
}

/// Everything that changes.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) books: Books,
    pub(crate) plugins: Plugins,
    pub(crate) knobs: Knobs,
    pub(crate) pods: BTreeMap<String, Entry>,
    pub(crate) config_maps: BTreeMap<String, ConfigMap>,
}

/// One stand-in.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// The kubelet admits one pod at a time; its dice.
    pub(crate) admission: tokio::sync::Mutex<fastrand::Rng>,
    /// Calls of PodResources since the start, refused ones too.
    pub(crate) pod_resources_calls: AtomicU64,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    /// Its own threads of execution, which end with it as a killed process does.
    handle: Handle,
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        runtime: Arc<dyn Runtime>,
        state: State,
        handle: Handle,
    ) -> Self {
        Self {
            admission: tokio::sync::Mutex::new(fastrand::Rng::with_seed(settings.seed)),
            pod_resources_calls: AtomicU64::new(0),
            settings,
            runtime,
            state: Mutex::new(state),
            changes: watch::channel(0).0,
            handle,
        }
    }

    /// Changes the state and tells those who wait.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changes.send_modify(|count| *count += 1);
        result
    }

    /// Looks at the state.
    pub(crate) fn look<T>(&self, view: impl FnOnce(&State) -> T) -> T {
        view(&self.lock())
    }

    /// A state that a panicking task left is still the best there is.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    pub(crate) fn note(&self, text: &str) {
        if self.settings.verbose {
            eprintln!("{:.3} standin-kubelet: {text}", seconds_now());
        }
    }

    /// Something worth knowing of one pod.
    pub(crate) fn event(&self, uid: &str, reason: &str, message: &str) {
        let key = self.with(|state| {
            let entry = state.pods.get_mut(uid)?;
            if entry.events.len() == MOST_EVENTS {
                entry.events.remove(0);
            }
            entry.events.push(Event::now(reason, message));
            Some(entry.record.pod.metadata.key())
        });
        self.note(&format!(
            "{} {reason}: {message}",
            key.as_deref().unwrap_or(uid)
        ));
    }

    fn pod_file(&self, uid: &str) -> PathBuf {
        self.settings.pods_directory().join(format!("{uid}.json"))
    }

    /// Keeps a pod over restarts.
    pub(crate) fn keep(&self, uid: &str) -> Result<()> {
        let record = self.look(|state| state.pods.get(uid).map(|entry| entry.record.clone()));
        let Some(record) = record else { return Ok(()) };
        let path = self.pod_file(uid);
        let text = serde_json::to_string_pretty(&record).map_err(|source| Error::Document {
            path: path.clone(),
            source,
        })?;
        crate::devices::checkpoint::replace(&path, &text)
    }

    /// [`keep`](Self::keep) where nobody can be told but the reader of the notes.
    pub(crate) fn keep_or_note(&self, uid: &str) {
        if let Err(error) = self.keep(uid) {
            self.note(&in_words(&error));
        }
    }

    /// The pod is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.with(|state| {
            state.books.free(uid);
            state.pods.remove(uid);
        });
        // Files of a pod that is gone do no harm: the next start removes its record again.
        let _ = std::fs::remove_file(self.pod_file(uid));
        let _ = std::fs::remove_dir_all(self.settings.volumes_directory(uid));
    }
}

/// Seconds since 1970, to the millisecond.
pub(crate) fn seconds_now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as f64 / 1000.0
}
