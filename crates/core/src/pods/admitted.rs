//! From the kubelet's answers to what a pod asks for, and what all others wait for.

use super::containers::{self, BadSlot, Containers, Lookup, PodGpus};
use super::{CheckpointGrant, DeviceGrant, ListedPod, Note, PodRef, PodsError};
use crate::attachment::Part;
use crate::binding::Demand;
use crate::ids::{ResourceName, SlotId};
use crate::words::brief;
use std::collections::{BTreeMap, BTreeSet};

/// What the kubelet says about all pods, at one time.
#[derive(Debug, Clone, Copy)]
pub struct Admitted<'a> {
    /// The PodResources answer.
    pub listed: &'a [ListedPod],
    /// The checkpoint; none if it could not be read.
    pub checkpoint: Option<&'a [CheckpointGrant]>,
    /// What slots are counted as.
    pub resource: &'a ResourceName,
    /// Slots of this node: `slot-00` to one less.
    pub slots: u16,
}

/// What a pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Own {
    /// By container; each slot once. None for a pod without slots.
    pub parts: Vec<Part>,
    /// What the user is to know.
    pub notes: Vec<Note>,
}

/// What a container of another pod waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Its wish.
    pub demand: Demand,
    /// The slots that wait for it.
    pub slots: BTreeSet<SlotId>,
}

impl Other {
    /// The wishes that are left when these slots have been bound since: their rails are held by
    /// now, and must not be kept free for them once more.
    #[must_use]
    pub fn without(others: &[Self], bound: &BTreeSet<SlotId>) -> Vec<Demand> {
        let left = others.iter().filter(|other| other.slots.is_disjoint(bound));
        left.map(|other| other.demand.clone()).collect()
    }

    fn order(&self) -> (&[usize], u16) {
        (&self.demand.gpus, self.demand.rails)
    }
}

impl<'a> Admitted<'a> {
    /// The slots and GPUs of a pod, by container.
    ///
    /// Containers of PodResources (main ones and sidecars) have disjoint slots: each is a part.
    /// Slots that only a plain init container has are a part of their own; other slots of it are
    /// lent. A container with slots and no known GPU gets the GPUs of the whole pod.
    ///
    /// # Errors
    /// [`PodsError`]; only what concerns this pod.
    pub fn own(&self, pod: &PodRef, gpus: Lookup<'_>) -> Result<Own, PodsError> {
        let containers = self.containers(pod)?;
        refuse_shared(pod, &containers)?;
        let mut own = Own::default();
        if self.checkpoint.is_none() {
            own.notes.push(Note::NoCheckpoint);
        }
        own.parts = parts(&containers, gpus);
        let asking = containers.iter().filter(|_| !own.parts.is_empty());
        own.notes
            .extend(asking.filter_map(|(name, container)| {
                Note::unknown_gpus(name, &gpus(&container.others))
            }));
        Ok(own)
    }

    /// What all other pods wait for: their slots in `waiting`, which are allocated and not bound.
    ///
    /// Slots that nobody has are left out: the mark of a waiting slot goes after what it stands
    /// for, so it may be of a pod that is gone. The order is that of the demands, not the kubelet's.
    #[must_use]
    pub fn others(&self, own: &Own, waiting: &BTreeSet<SlotId>, gpus: Lookup<'_>) -> Vec<Other> {
        let own_slots: BTreeSet<SlotId> = own.parts.iter().flat_map(|p| p.slots.clone()).collect();
        let mut left: BTreeSet<SlotId> = waiting.difference(&own_slots).copied().collect();
        let mut demands = vec![];
        for grants in self.all_pods() {
            let of_pod = containers::slots(grants.iter().copied(), self.counted());
            if of_pod.is_disjoint(&left) {
                continue;
            }
            let mut containers = Containers::new();
            // Bad ids of others are theirs; the good ones are added all the same.
            _ = containers::add(&mut containers, grants, self.counted(), true);
            demands.extend(waiting_parts(&containers, &mut left, gpus));
        }
        demands.sort_by(|a: &Other, b| a.order().cmp(&b.order()));
        demands
    }

    fn counted(&self) -> (&'a ResourceName, u16) {
        (self.resource, self.slots)
    }

    /// The grants of each pod, listed ones first (they know more), in a fixed order.
    fn all_pods(&self) -> Vec<Vec<&'a DeviceGrant>> {
        let mut listed: Vec<&ListedPod> = self.listed.iter().collect();
        listed.sort_by_key(|pod| (&pod.namespace, &pod.name, slot_texts(pod, self.resource)));
        let mut pods: Vec<Vec<&DeviceGrant>> = listed
            .into_iter()
            .map(|pod| pod.devices.iter().collect())
            .collect();
        let mut by_uid: BTreeMap<&str, Vec<&DeviceGrant>> = BTreeMap::new();
        for entry in self.checkpoint.unwrap_or_default() {
            by_uid.entry(&entry.pod_uid).or_default().push(&entry.grant);
        }
        pods.extend(by_uid.into_values());
        pods
    }

    /// Both sources' grants of a pod together.
    fn containers(&self, pod: &PodRef) -> Result<Containers, PodsError> {
        let bad = |BadSlot { container, source }| PodsError::BadSlot {
            pod: pod.clone(),
            container,
            source,
        };
        let mut containers = Containers::new();
        if let Some(listed) = self.listed_as(pod)? {
            containers::add(&mut containers, &listed.devices, self.counted(), true).map_err(bad)?;
        }
        let grants = self.checkpointed(pod).map(|entry| &entry.grant);
        containers::add(&mut containers, grants, self.counted(), false).map_err(bad)?;
        Ok(containers)
    }

    fn checkpointed(&self, pod: &PodRef) -> impl Iterator<Item = &'a CheckpointGrant> {
        let uid = pod.uid.to_string();
        let entries = self.checkpoint.unwrap_or_default().iter();
        entries.filter(move |entry| entry.pod_uid == uid)
    }

    /// The listed pod that this is. A name may stand for an earlier pod too: then the checkpoint
    /// tells whose the slots are.
    fn listed_as(&self, pod: &PodRef) -> Result<Option<&'a ListedPod>, PodsError> {
        let named = |listed: &&ListedPod| {
            listed.namespace == pod.namespace.as_str() && listed.name == pod.name.as_str()
        };
        let ours = containers::slots(self.checkpointed(pod).map(|e| &e.grant), self.counted());
        let entries = self.checkpoint.unwrap_or_default().iter();
        let others = entries.filter(|entry| entry.pod_uid != pod.uid.as_str());
        let theirs = containers::slots(others.map(|entry| &entry.grant), self.counted());
        let candidates: Vec<&ListedPod> = self
            .listed
            .iter()
            .filter(named)
            .filter(|listed| {
                let slots = containers::slots(&listed.devices, self.counted());
                // Without a slot in common it may still be ours: all slots are an init container's.
                match slots.is_empty() || ours.is_empty() {
                    true => slots.is_disjoint(&theirs),
                    false => !slots.is_disjoint(&ours),
                }
            })
            .collect();
        let with_slots: Vec<&ListedPod> = candidates
            .iter()
            .filter(|listed| !containers::slots(&listed.devices, self.counted()).is_empty())
            .copied()
            .collect();
        match (with_slots.as_slice(), candidates.as_slice()) {
            ([one], [_]) | ([], [one]) => Ok(Some(one)),
            ([one], _) if !ours.is_empty() => Ok(Some(one)),
            // Each of them may be ours; GPUs of another pod would mislead.
            ([], _) => Ok(None),
            _ => Err(PodsError::Ambiguous {
                pod: pod.clone(),
                count: candidates.len(),
            }),
        }
    }
}

fn slot_texts<'a>(pod: &'a ListedPod, resource: &ResourceName) -> Vec<&'a String> {
    let ours = pod.devices.iter();
    let ours = ours.filter(|grant| grant.resource == resource.as_str());
    let mut ids: Vec<&String> = ours.flat_map(|grant| &grant.ids).collect();
    ids.sort_unstable();
    ids
}

/// Containers that run at the same time must not have the same slot.
fn refuse_shared(pod: &PodRef, containers: &Containers) -> Result<(), PodsError> {
    let mut seen: BTreeMap<SlotId, &String> = BTreeMap::new();
    for (name, container) in containers.iter().filter(|(_, c)| c.lasting) {
        for slot in &container.slots {
            if let Some(first) = seen.insert(*slot, name) {
                return Err(PodsError::SlotTwice {
                    pod: pod.clone(),
                    slot: *slot,
                    first: brief(first),
                    second: brief(name),
                });
            }
        }
    }
    Ok(())
}

/// Lasting containers first, then what only plain init containers have.
fn parts(containers: &Containers, gpus: Lookup<'_>) -> Vec<Part> {
    let gpus = PodGpus::new(containers, gpus);
    let (lasting, init): (Vec<_>, Vec<_>) = containers.iter().partition(|(_, c)| c.lasting);
    let mut parts: Vec<Part> = vec![];
    for (name, container) in lasting.into_iter().chain(init) {
        let mut own = vec![];
        for slot in &container.slots {
            match parts.iter_mut().find(|part| part.slots.contains(slot)) {
                None => own.push(*slot),
                Some(part) => part.lent.entry(*slot).or_default().push(name.clone()),
            }
        }
        if !own.is_empty() {
            parts.push(part(name, own, gpus.of(container)));
        }
    }
    parts
}

fn part(container: &str, slots: Vec<SlotId>, gpus: Vec<usize>) -> Part {
    Part {
        containers: vec![container.to_owned()],
        gpus,
        // Slots are told apart by 16 bits, and the node has at most 65,535.
        rails: u16::try_from(slots.len()).unwrap_or(u16::MAX),
        slots,
        ..Part::default()
    }
}

/// The demands of another pod; what is counted here is left to nobody else.
fn waiting_parts(
    containers: &Containers,
    left: &mut BTreeSet<SlotId>,
    gpus: Lookup<'_>,
) -> Vec<Other> {
    let gpus = PodGpus::new(containers, gpus);
    let mut demands = vec![];
    for container in containers.values() {
        let slots: Vec<SlotId> = container.slots.intersection(left).copied().collect();
        if slots.is_empty() {
            continue;
        }
        left.retain(|slot| !slots.contains(slot));
        demands.push(Other {
            slots: slots.iter().copied().collect(),
            demand: part("", slots, gpus.of(container)).demand(),
        });
    }
    demands
}
