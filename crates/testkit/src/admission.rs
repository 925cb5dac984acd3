//! Admission: devices for every container of a pod, or a rejection.

use crate::devices::{Candidates, Grant, Want, checkpoint};
use crate::error::{Error, Result, in_words};
use crate::manifest::{Container, Pod};
use crate::runtime::Doing;
use crate::state::Shared;
use crate::status::{Phase, Verdict};
use podrail_kubelet::proto::deviceplugin::ContainerPreferredAllocationRequest;
use std::collections::{BTreeMap, BTreeSet};

/// Admits a pod, or gives it the verdict of its rejection. Pods are admitted one at a time.
pub(crate) async fn admit(shared: &Shared, uid: &str) {
    let mut random = shared.admission.lock().await;
    let Some(pod) = shared.look(|s| s.pods.get(uid).map(|entry| entry.record.pod.clone())) else {
        return;
    };
    let outcome = Admission::of(shared, &pod).run(&mut random).await;
    match outcome {
        Ok(()) => shared.with(|state| {
            if let Some(entry) = state.pods.get_mut(uid) {
                entry.admitted = true;
            }
        }),
        Err(error) => reject(shared, uid, &in_words(&error)),
    }
}

fn reject(shared: &Shared, uid: &str, cause: &str) {
    let message = format!("Allocate failed due to {cause}, which is unexpected");
    let verdict = Verdict {
        phase: Phase::Failed,
        reason: "UnexpectedAdmissionError".to_owned(),
        message: format!("Pod was rejected: {message}"),
    };
    shared.event(uid, &verdict.reason, &message);
    shared.with(|state| {
        state.books.free(uid);
        if let Some(entry) = state.pods.get_mut(uid) {
            entry.record.verdict = Some(verdict);
        }
    });
    shared.keep_or_note(uid);
}

struct Admission<'a> {
    shared: &'a Shared,
    pod: &'a Pod,
    /// Devices of plain init containers, which have ended when others start, by resource.
    reusable: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Admission<'a> {
    fn of(shared: &'a Shared, pod: &'a Pod) -> Self {
        Self {
            shared,
            pod,
            reusable: BTreeMap::new(),
        }
    }

    async fn run(mut self, random: &mut fastrand::Rng) -> Result<()> {
        let pod = self.pod;
        for container in pod.all_containers() {
            let mut wants: Vec<(String, usize)> = container.extended().into_iter().collect();
            // The kubelet walks a Go map here, so the order differs each time.
            random.shuffle(&mut wants);
            for (resource, count) in wants {
                self.container(container, &resource, count, random).await?;
            }
            self.remember(container);
        }
        Ok(())
    }

    async fn container(
        &self,
        container: &Container,
        resource: &str,
        count: usize,
        random: &mut fastrand::Rng,
    ) -> Result<()> {
        // After its own restart the kubelet believes a running container that it has its devices.
        if self.is_running(&container.name) {
            return Ok(());
        }
        let want = Want {
            pod: &self.pod.metadata.uid,
            container: &container.name,
            resource,
            count,
        };
        let none = BTreeSet::new();
        let reusable = self.reusable.get(resource).unwrap_or(&none);
        let candidates = self
            .shared
            .look(|state| state.books.candidates(want, reusable));
        let Some(candidates) = candidates.map_err(Error::Refused)? else {
            return Ok(());
        };
        let ids = self.choose(want, candidates, random).await?;
        self.allocate(want, &ids).await
    }

    fn is_running(&self, container: &str) -> bool {
        self.shared.look(|state| {
            let entry = state.pods.get(&self.pod.metadata.uid);
            let seen = entry.and_then(|e| crate::status::newest(&e.containers, container));
            seen.is_some_and(|seen| seen.doing == Doing::Running)
        })
    }

    async fn choose(
        &self,
        want: Want<'_>,
        candidates: Candidates,
        random: &mut fastrand::Rng,
    ) -> Result<Vec<String>> {
        let forced = self.pod.devices.get(want.container);
        if let Some(ids) = forced.and_then(|by_resource| by_resource.get(want.resource)) {
            return forced_choice(want, &candidates, ids);
        }
        let plugin = self.shared.look(|state| state.plugins.get(want.resource));
        let preferred = match plugin {
            None => None,
            Some(mut plugin) => {
                plugin
                    .preferred(want.resource, asked(want, &candidates))
                    .await?
            }
        };
        let usable = preferred.filter(|ids| forced_choice(want, &candidates, ids).is_ok());
        Ok(usable.unwrap_or_else(|| candidates.pick(want.count, random)))
    }

    async fn allocate(&self, want: Want<'_>, ids: &[String]) -> Result<()> {
        let Want {
            pod,
            container,
            resource,
            ..
        } = want;
        let plugin = self.shared.look(|state| state.plugins.get(resource));
        let mut plugin = plugin.ok_or_else(|| Error::Plugin {
            resource: resource.to_owned(),
            message: "is not connected".to_owned(),
        })?;
        let answer = plugin.allocate(resource, ids).await?;
        self.shared.event(
            pod,
            "Allocated",
            &format!("{container} {resource}: {}", ids.join(",")),
        );
        let books = self.shared.with(|state| {
            let devices = state.books.by_numa(resource, ids);
            state.books.grants.push(Grant {
                pod: pod.to_owned(),
                container: container.to_owned(),
                resource: resource.to_owned(),
                devices,
                answer,
            });
            state.books.clone()
        });
        checkpoint::write(&self.shared.settings.plugins_directory(), &books)
    }

    /// What a plain init container has can be given again; what another one took of it cannot.
    fn remember(&mut self, container: &Container) {
        let plain = self.pod.is_plain_init(&container.name);
        let uid = &self.pod.metadata.uid;
        let held: Vec<(String, Vec<String>)> = self.shared.look(|state| {
            let grants = state.books.of_container(uid, &container.name);
            let own = |g: &&Grant| (g.resource.clone(), g.ids().into_iter().cloned().collect());
            grants.iter().map(own).collect()
        });
        for (resource, ids) in held {
            let reusable = self.reusable.entry(resource).or_default();
            match plain {
                true => reusable.extend(ids),
                false => reusable.retain(|id| !ids.contains(id)),
            }
        }
    }
}

fn asked(want: Want<'_>, candidates: &Candidates) -> ContainerPreferredAllocationRequest {
    let Candidates { must, free } = candidates;
    ContainerPreferredAllocationRequest {
        available_device_i_ds: must.iter().chain(free).cloned().collect(),
        must_include_device_i_ds: must.iter().take(want.count).cloned().collect(),
        allocation_size: i32::try_from(want.count).unwrap_or(i32::MAX),
    }
}

fn forced_choice(want: Want<'_>, candidates: &Candidates, ids: &[String]) -> Result<Vec<String>> {
    let available = |id: &String| candidates.must.contains(id) || candidates.free.contains(id);
    let taken: Vec<&String> = ids.iter().filter(|id| !available(id)).collect();
    match taken.is_empty() && ids.len() == want.count {
        true => Ok(ids.to_vec()),
        false => Err(Error::Refused(format!(
            "devices {ids:?} of {} cannot be given: {} wanted, not free: {taken:?}",
            want.resource, want.count
        ))),
    }
}
