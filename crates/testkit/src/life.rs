//! From start on: takes over what an earlier kubelet left, serves, and watches the runtime.

use crate::admission;
use crate::devices::plugins;
use crate::error::{Error, Result, in_words};
use crate::manifest::{ConfigMap, Metadata};
use crate::podresources;
use crate::runtime::{Doing, Runtime, Sandbox, Seen};
use crate::settings::Settings;
use crate::sockets;
use crate::state::{Entry, Record, Shared, State};
use crate::worker;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn load(settings: &Settings, state: &mut State) -> Result<()> {
    let pods: Vec<Record> = read_all(&settings.pods_directory())?;
    for record in pods {
        state
            .pods
            .insert(record.pod.metadata.uid.clone(), Entry::new(record));
    }
    let maps: Vec<ConfigMap> = read_all(&settings.config_maps_directory())?;
    let key = |metadata: &Metadata| metadata.key();
    state.config_maps = maps
        .into_iter()
        .map(|map| (key(&map.metadata), map))
        .collect();
    Ok(())
}

/// All documents of a directory, which is made. Half-written ones begin with a dot.
fn read_all<T: serde::de::DeserializeOwned>(directory: &Path) -> Result<Vec<T>> {
    std::fs::create_dir_all(directory).map_err(Error::io("create", directory))?;
    let mut documents = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(Error::io("list", directory))? {
        let entry = entry.map_err(Error::io("list", directory))?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let path = entry.path();
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let document = serde_json::from_str(&text);
        documents.push(document.map_err(|source| Error::Document { path, source })?);
    }
    Ok(documents)
}

pub(crate) fn serve(shared: &Arc<Shared>) -> Result<()> {
    let settings = &shared.settings;
    let directory = settings.plugins_directory();
    let registrations = sockets::listen(&directory.join("kubelet.sock"))?;
    shared.note("takes registrations");
    shared.spawn(plugins::serve(registrations, directory, Arc::clone(shared)));
    let listener = sockets::listen(&settings.pod_resources_socket())?;
    shared.spawn(podresources::serve(listener, Arc::clone(shared)));
    Ok(())
}

/// Admission, then the pod's worker.
pub(crate) async fn serve_pod(shared: Arc<Shared>, uid: String) {
    let ended = shared.look(|state| {
        let entry = state.pods.get(&uid);
        entry.is_none_or(|e| e.record.verdict.is_some() || e.record.deletion.is_some())
    });
    if !ended {
        admission::admit(&shared, &uid).await;
    }
    worker::run(shared, uid).await;
}

/// Takes over what an earlier kubelet left: running pods stay, others are admitted again.
pub(crate) async fn take_over(shared: Arc<Shared>, found: Vec<String>) {
    if let Err(error) = look_at_runtime(&shared).await {
        shared.note(&in_words(&error));
    }
    remove_orphans(&shared).await;
    let delay = shared.look(|state| state.knobs.admission_delay_ms);
    let (running, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|uid| runs(&shared, uid));
    for uid in running {
        shared.spawn(serve_pod(Arc::clone(&shared), uid));
    }
    if !others.is_empty() {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    for uid in others {
        shared.spawn(serve_pod(Arc::clone(&shared), uid));
    }
}

fn runs(shared: &Shared, uid: &str) -> bool {
    shared.look(|state| {
        let containers = state.pods.get(uid).map(|entry| &entry.containers);
        containers.is_some_and(|all| all.iter().any(|seen| seen.doing == Doing::Running))
    })
}

/// Sandboxes of pods that nobody knows: their file went while no kubelet ran.
async fn remove_orphans(shared: &Shared) {
    let sandboxes = shared.runtime.sandboxes(None).await.unwrap_or_default();
    for sandbox in sandboxes {
        let known = shared.look(|state| state.pods.contains_key(&sandbox.pod));
        if known || sandbox.pod.is_empty() {
            continue;
        }
        let stopped = shared.runtime.stop_sandbox(&sandbox.id).await;
        let removed = shared.runtime.remove_sandbox(&sandbox.id).await;
        if let Err(error) = stopped.and(removed) {
            shared.note(&in_words(&error));
        }
    }
}

/// What the runtime said of one pod.
type Lists = BTreeMap<String, (Vec<Sandbox>, Vec<Seen>)>;

async fn lists(runtime: &dyn Runtime) -> Result<Lists> {
    let mut lists = Lists::new();
    for sandbox in runtime.sandboxes(None).await? {
        lists
            .entry(sandbox.pod.clone())
            .or_default()
            .0
            .push(sandbox);
    }
    for seen in runtime.containers(None).await? {
        lists.entry(seen.pod.clone()).or_default().1.push(seen);
    }
    Ok(lists)
}

async fn look_at_runtime(shared: &Shared) -> Result<()> {
    let lists = lists(shared.runtime.as_ref()).await?;
    shared.with(|state| {
        for (uid, (sandboxes, containers)) in lists {
            if let Some(entry) = state.pods.get_mut(&uid) {
                (entry.sandboxes, entry.containers) = (sandboxes, containers);
            }
        }
    });
    Ok(())
}

/// Looks at the runtime now and then, as the kubelet does, and wakes the pods that changed.
pub(crate) async fn relist(shared: Arc<Shared>) {
    let mut before = Lists::new();
    loop {
        let wait = shared.look(|state| state.knobs.relist_ms);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let now = match lists(shared.runtime.as_ref()).await {
            Ok(now) => now,
            Err(error) => {
                shared.note(&in_words(&error));
                continue;
            }
        };
        shared.look(|state| {
            for (uid, entry) in &state.pods {
                if now.get(uid) != before.get(uid) {
                    entry.wake.notify_one();
                }
            }
        });
        before = now;
    }
}
