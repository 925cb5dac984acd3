//! One task per pod: looks at the runtime, takes the next step, waits for a change.

pub(crate) mod configs;
pub(crate) mod decide;
mod delay;

use crate::error::{Error, Result, in_words};
use crate::manifest::{Container, Pod};
use crate::runtime::{Sandbox, Seen};
use crate::state::{Deletion, Shared};
use crate::status::{Verdict, Waiting};
use decide::{Look, SANDBOX, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The kubelet's grace when a pod does not say.
const GRACE: i64 = 30;

/// Works for one pod until it is gone.
pub(crate) async fn run(shared: Arc<Shared>, uid: String) {
    let found = shared.look(|state| {
        let entry = state.pods.get(&uid)?;
        Some((
            entry.record.pod.clone(),
            Arc::clone(&entry.wake),
            entry.deletions.subscribe(),
        ))
    });
    let Some((pod, wake, deletions)) = found else {
        return;
    };
    let mut worker = Worker {
        shared,
        uid,
        pod,
        wake,
        deletions,
        memory: Memory::default(),
    };
    while worker.turn().await {}
}

/// What is forgotten when the kubelet restarts.
#[derive(Default)]
struct Memory {
    stopped: BTreeSet<String>,
    /// When a container, or the sandbox, may be tried again.
    tries: BTreeMap<String, Instant>,
    /// When a replaced sandbox is removed.
    removals: BTreeMap<String, Instant>,
}

struct Worker {
    shared: Arc<Shared>,
    uid: String,
    pod: Pod,
    wake: Arc<Notify>,
    deletions: watch::Receiver<u32>,
    memory: Memory,
}

/// The pod as it is now.
struct Now {
    finished: bool,
    deletion: Option<Deletion>,
    sandboxes: Vec<Sandbox>,
    containers: Vec<Seen>,
}

impl Worker {
    /// Looks, acts or waits. False when the pod is gone.
    async fn turn(&mut self) -> bool {
        self.deletions.borrow_and_update();
        let now = match self.observe().await {
            Ok(now) => now,
            Err(error) => {
                self.shared.note(&in_words(&error));
                self.pause(Some(Instant::now() + self.backoff())).await;
                return true;
            }
        };
        match self.next(&now) {
            Step::Gone => {
                self.shared
                    .event(&self.uid, "Gone", "nothing is left of it");
                self.shared.forget(&self.uid);
                return false;
            }
            Step::Wait => self.pause(self.next_time()).await,
            Step::Settled => {
                self.shared.with(|state| state.books.free(&self.uid));
                self.pause(None).await;
            }
            step => self.act(step, &now).await,
        }
        true
    }

    /// A deletion cuts off what runs for the pod, as the kubelet cancels its worker's context.
    async fn act(&mut self, step: Step, now: &Now) {
        let mut deletions = self.deletions.clone();
        let name = format!("{step:?}");
        tokio::select! {
            () = self.carry_out(step, now) => {}
            Ok(()) = deletions.changed() => {
                self.shared.event(&self.uid, "Cancelled", &name);
            }
        }
    }

    async fn observe(&mut self) -> Result<Now> {
        let runtime = &self.shared.runtime;
        let mut sandboxes = runtime.sandboxes(Some(&self.uid)).await?;
        sandboxes.sort_by_key(|sandbox| sandbox.attempt);
        let containers = runtime.containers(Some(&self.uid)).await?;
        let now = self.shared.with(|state| {
            let entry = state.pods.get_mut(&self.uid)?;
            entry.sandboxes.clone_from(&sandboxes);
            entry.containers.clone_from(&containers);
            Some(Now {
                finished: entry.record.verdict.is_some(),
                deletion: entry.record.deletion,
                sandboxes,
                containers,
            })
        });
        let now = now.ok_or_else(|| Error::Unknown {
            what: "pod",
            name: self.uid.clone(),
        })?;
        self.plan_removals(&now.sandboxes);
        Ok(now)
    }

    fn plan_removals(&mut self, sandboxes: &[Sandbox]) {
        let wait = self.shared.look(|state| state.knobs.sandbox_gc_ms);
        let due = Instant::now() + Duration::from_millis(wait);
        let replaced = sandboxes.iter().rev().skip(1);
        for sandbox in replaced {
            self.memory
                .removals
                .entry(sandbox.id.clone())
                .or_insert(due);
        }
        let known = |id: &String| sandboxes.iter().any(|sandbox| sandbox.id == *id);
        self.memory.removals.retain(|id, _| known(id));
        self.memory.stopped.retain(known);
    }

    fn next(&self, now: &Now) -> Step {
        let time = Instant::now();
        let of = |times: &BTreeMap<String, Instant>, past: bool| {
            let chosen = times.iter().filter(|(_, at)| (**at <= time) == past);
            chosen
                .map(|(name, _)| name.clone())
                .collect::<BTreeSet<_>>()
        };
        decide::next(&Look {
            pod: &self.pod,
            finished: now.finished,
            deleting: now.deletion.is_some(),
            sandboxes: &now.sandboxes,
            containers: &now.containers,
            stopped: &self.memory.stopped,
            resting: &of(&self.memory.tries, false),
            expired: &of(&self.memory.removals, true),
        })
    }

    fn next_time(&self) -> Option<Instant> {
        let times = self
            .memory
            .tries
            .values()
            .chain(self.memory.removals.values());
        times.filter(|at| **at > Instant::now()).min().copied()
    }

    async fn pause(&self, until: Option<Instant>) {
        let mut deletions = self.deletions.clone();
        let end = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.wake.notified() => {}
            _ = deletions.changed() => {}
            () = end => {}
        }
    }

    fn backoff(&self) -> Duration {
        Duration::from_millis(self.shared.look(|state| state.knobs.backoff_ms))
    }

    async fn carry_out(&mut self, step: Step, now: &Now) {
        match step {
            Step::Kill(ids) => self.kill(&ids, now.deletion).await,
            Step::StopSandbox(id) => self.stop_sandbox(id).await,
            Step::RemoveSandbox(id) => self.remove_sandbox(&id).await,
            Step::RunSandbox { attempt } => self.run_sandbox(attempt).await,
            Step::Start { container, attempt } => self.start(&container, attempt, now).await,
            Step::Finish(verdict) => self.finish(verdict),
            Step::Wait | Step::Settled | Step::Gone => {}
        }
    }

    async fn kill(&mut self, ids: &[String], deletion: Option<Deletion>) {
        let own = self
            .pod
            .spec
            .termination_grace_period_seconds
            .unwrap_or(GRACE);
        let grace = deletion.map_or(own, |deletion| deletion.grace);
        self.shared
            .event(&self.uid, "Killing", &format!("{} containers", ids.len()));
        // All at once, as the kubelet does: one that ignores TERM holds no other up.
        let calls = ids.iter().map(|id| {
            let (runtime, id) = (Arc::clone(&self.shared.runtime), id.clone());
            async move { runtime.stop_container(&id, grace).await }
        });
        let mut calls: tokio::task::JoinSet<Result<()>> = calls.collect();
        while let Some(done) = calls.join_next().await {
            if let Ok(Err(error)) = done {
                self.failed("FailedKillPod", SANDBOX, &error).await;
            }
        }
    }

    async fn stop_sandbox(&mut self, id: String) {
        match self.shared.runtime.stop_sandbox(&id).await {
            Ok(()) => {
                self.shared.event(&self.uid, "SandboxStopped", &id);
                self.memory.stopped.insert(id);
            }
            Err(error) => self.failed("FailedKillPod", SANDBOX, &error).await,
        }
    }

    /// The kubelet's collector stops a sandbox once more before it removes it.
    async fn remove_sandbox(&mut self, id: &str) {
        let runtime = Arc::clone(&self.shared.runtime);
        let removed = match runtime.stop_sandbox(id).await {
            Ok(()) => runtime.remove_sandbox(id).await,
            fault => fault,
        };
        match removed {
            Ok(()) => self.shared.event(&self.uid, "SandboxRemoved", id),
            Err(error) => self.failed("FailedRemoveSandbox", SANDBOX, &error).await,
        }
    }

    async fn run_sandbox(&mut self, attempt: u32) {
        if let Err(error) = self.volumes() {
            return self.failed("FailedMount", SANDBOX, &error).await;
        }
        self.delayed().await;
        let config = configs::sandbox(&self.shared.settings, &self.pod, attempt);
        let runtime = Arc::clone(&self.shared.runtime);
        match runtime.run_sandbox(&config).await {
            Ok(id) => {
                let addresses = runtime.addresses(&id).await.unwrap_or_default();
                self.shared.with(|state| {
                    if let Some(entry) = state.pods.get_mut(&self.uid) {
                        entry.addresses = addresses;
                    }
                });
                self.clear(SANDBOX);
                self.shared.event(&self.uid, "SandboxStarted", &id);
            }
            Err(error) => self.failed("FailedCreatePodSandBox", SANDBOX, &error).await,
        }
    }

    fn volumes(&self) -> Result<()> {
        let maps = self.shared.look(|state| state.config_maps.clone());
        let settings = &self.shared.settings;
        let logs = configs::log_directory(settings, &self.pod);
        std::fs::create_dir_all(&logs).map_err(Error::io("create", &logs))?;
        configs::make_volumes(settings, &self.pod, &maps)
    }

    async fn start(&mut self, name: &str, attempt: u32, now: &Now) {
        let container = self
            .pod
            .all_containers()
            .find(|container| container.name == name);
        let (Some(container), Some(sandbox)) = (container.cloned(), now.sandboxes.last()) else {
            return;
        };
        // The first restart is at once, the next after a rest.
        if attempt > 0 {
            self.rest(name);
        }
        match self.create(&container, attempt, sandbox).await {
            Err(error) => self.failed("CreateContainerError", name, &error).await,
            Ok(id) => match self.shared.runtime.start_container(&id).await {
                Err(error) => self.failed("RunContainerError", name, &error).await,
                Ok(()) => {
                    self.clear(name);
                    self.shared
                        .event(&self.uid, "Started", &format!("{name} {id}"));
                }
            },
        }
        self.remove_old_starts(name, attempt, now).await;
    }

    async fn create(
        &self,
        container: &Container,
        attempt: u32,
        sandbox: &Sandbox,
    ) -> Result<String> {
        let settings = &self.shared.settings;
        let grants: Vec<_> = self.shared.look(|state| {
            let grants = state.books.of_container(&self.uid, &container.name);
            grants.into_iter().cloned().collect()
        });
        let logs = configs::log_directory(settings, &self.pod).join(&container.name);
        std::fs::create_dir_all(&logs).map_err(Error::io("create", &logs))?;
        let config = configs::container(settings, &self.pod, container, attempt, &grants);
        let sandbox_config = configs::sandbox(settings, &self.pod, sandbox.attempt);
        let runtime = &self.shared.runtime;
        runtime
            .create_container(&sandbox.id, &config, &sandbox_config)
            .await
    }

    /// The kubelet keeps one dead start of each container.
    async fn remove_old_starts(&self, name: &str, attempt: u32, now: &Now) {
        let old = now.containers.iter().filter(|seen| seen.name == name);
        for seen in old.filter(|seen| seen.attempt + 1 < attempt) {
            if let Err(error) = self.shared.runtime.remove_container(&seen.id).await {
                self.shared.note(&in_words(&error));
            }
        }
    }

    fn finish(&self, verdict: Verdict) {
        self.shared
            .event(&self.uid, "Finished", &format!("{:?}", verdict.phase));
        self.shared.with(|state| {
            if let Some(entry) = state.pods.get_mut(&self.uid) {
                entry.record.verdict = Some(verdict);
            }
        });
        self.shared.keep_or_note(&self.uid);
    }

    /// Notes a failed try; the next one comes after a rest.
    async fn failed(&mut self, reason: &str, what: &str, error: &Error) {
        let message = in_words(error);
        self.shared
            .event(&self.uid, reason, &format!("{what} {message}"));
        let waiting = Waiting {
            reason: reason.to_owned(),
            message,
        };
        self.shared.with(|state| {
            if let Some(entry) = state.pods.get_mut(&self.uid) {
                entry.waiting.insert(what.to_owned(), waiting);
            }
        });
        self.rest(what);
        // Ending a pod knows no rest, so that its steps are not repeated in a hurry.
        if reason.starts_with("FailedKill") || reason.starts_with("FailedRemove") {
            tokio::time::sleep(self.backoff()).await;
        }
    }

    fn rest(&mut self, what: &str) {
        let until = Instant::now() + self.backoff();
        self.memory.tries.insert(what.to_owned(), until);
    }

    fn clear(&self, what: &str) {
        self.shared.with(|state| {
            if let Some(entry) = state.pods.get_mut(&self.uid) {
                entry.waiting.remove(what);
            }
        });
    }
}
