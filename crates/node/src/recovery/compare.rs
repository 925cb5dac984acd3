//! What the state file says against what is on the node. Pure.

use super::{Census, Finding, Kubelet, SeenNetns};
use podrail_core::ids::{RailIndex, SandboxId, SlotId};
use podrail_store::{Binding, BootId, ReadOnly, State};
use std::collections::{BTreeMap, BTreeSet};

const DETACH: &str = "a pod: delete it; a job: 'podrail detach --id' with its id";
const REBUILD: &str = "run 'podrail state rebuild --force': it takes over what is in the kernel";
const AGENT: &str = "restart the agent: it puts this right";

/// The state file, and what comparing its plans with the kernel gave.
#[derive(Debug, Clone, Copy)]
pub struct Books<'a> {
    /// What the file says.
    pub state: &'a ReadOnly,
    /// The running boot.
    pub boot: &'a BootId,
    /// In what the namespace of a sandbox differs from its plan, in words.
    pub differences: &'a BTreeMap<SandboxId, Vec<String>>,
}

/// Everything in which the file and the node differ, in a fixed order. Empty: the file tells the
/// truth.
#[must_use]
pub fn compare(books: &Books<'_>, census: &Census, kubelet: &Kubelet) -> Vec<Finding> {
    let mut found = census.findings.clone();
    for binding in books.state.list() {
        found.extend(of_binding(books, binding, &census.namespaces));
        found.extend(of_slots(books, binding, census));
        found.extend(of_pod(binding, census));
    }
    let places = census.namespaces.iter();
    found.extend(places.flat_map(|netns| unknown_children(books, netns)));
    found.extend(unknown_files(books, census));
    found.extend(unmarked(books, census));
    found.extend(unknown_slots(books, kubelet));
    found.sort();
    found.dedup();
    found
}

fn of_binding(books: &Books<'_>, binding: &Binding, namespaces: &[SeenNetns]) -> Vec<Finding> {
    let sandbox = &binding.request.sandbox;
    let tell = |what: &str, hint| vec![Finding::new(sandbox, what, hint)];
    if binding.boot != *books.boot {
        let hint = "nothing has to be done: the next attach, or the agent, forgets it";
        return tell("it is of an earlier boot: its rails went with that", hint);
    }
    if binding.state == State::Pending {
        return tell("it was never attached to its end", DETACH);
    }
    let here = |netns: &&SeenNetns| Some(netns.id) == binding.request.netns_id;
    if !namespaces.iter().any(|netns| here(&netns)) {
        let hint = "a pod: the agent takes it away; a job: 'podrail detach --id' with its id";
        return tell("none of its rails is in any network namespace", hint);
    }
    let differences = books.differences.get(sandbox).into_iter().flatten();
    differences
        .map(|what| Finding::new(sandbox, what.clone(), DETACH))
        .collect()
}

/// Slots that are the binding's own have a file of it.
fn of_slots(books: &Books<'_>, binding: &Binding, census: &Census) -> Vec<Finding> {
    let sandbox = &binding.request.sandbox;
    let own = |slot: &SlotId| {
        books.state.slot_owner(*slot) == Some(sandbox) && !books.state.waiting().contains_key(slot)
    };
    let slots = binding
        .rails
        .iter()
        .filter_map(|rail| rail.slot)
        .filter(own);
    let owner = |slot| census.files.iter().find(|file| file.slot == slot);
    let told = slots.filter_map(|slot| match owner(slot) {
        Some(file) if file.sandbox == *sandbox => None,
        Some(file) => Some(format!("the CDI file of {slot} is of {}", file.sandbox)),
        None => Some(format!("the CDI file of {slot} is missing")),
    });
    let hint = "its containers run on; one that is started anew fails until the pod is deleted";
    told.map(|what| Finding::new(sandbox, what, hint)).collect()
}

fn of_pod(binding: &Binding, census: &Census) -> Option<Finding> {
    let pod = binding.request.pod.as_ref()?;
    let marked = census.pods.contains(&pod.uid);
    let what = format!("pod {pod} has no marker: nobody would detach it");
    (!marked).then(|| Finding::new(&binding.request.sandbox, what, AGENT))
}

/// Children of sandboxes, or of rails, that the file does not have.
fn unknown_children(books: &Books<'_>, netns: &SeenNetns) -> Vec<Finding> {
    let known = |sandbox: &SandboxId, rail: RailIndex| {
        let binding = books.state.get(sandbox);
        binding.is_some_and(|binding| binding.rails.iter().any(|held| held.index == rail))
    };
    let path = netns.path.display();
    let told = netns.children.iter().filter_map(|child| {
        let Some(alias) = &child.alias else {
            let what = format!("{} has no alias: an attach was killed", child.name);
            return Some(Finding::new(&path, what, DETACH));
        };
        let what = format!(
            "{} in {path} is rail {} of it, which the state file does not have",
            child.name, alias.rail
        );
        let known = known(&alias.sandbox, alias.rail);
        (!known).then(|| Finding::new(&alias.sandbox, what, REBUILD))
    });
    told.collect()
}

fn unknown_files(books: &Books<'_>, census: &Census) -> Vec<Finding> {
    let unknown = |sandbox: &SandboxId| books.state.get(sandbox).is_none();
    let files = census.files.iter().filter(|file| unknown(&file.sandbox));
    files
        .map(|file| {
            let what = format!(
                "its CDI file is of sandbox {}, which the state file does not have",
                file.sandbox
            );
            Finding::new(file.slot, what, AGENT)
        })
        .collect()
}

fn unmarked(books: &Books<'_>, census: &Census) -> Vec<Finding> {
    let waiting = books.state.waiting().keys();
    let unmarked = waiting.filter(|slot| !census.waiting.contains(slot));
    let what = "it waits and has no marker: its pod would start without rails";
    unmarked
        .map(|slot| Finding::new(slot, what, AGENT))
        .collect()
}

/// Slots that the kubelet gave out while nobody wrote it down.
fn unknown_slots(books: &Books<'_>, kubelet: &Kubelet) -> Vec<Finding> {
    let bindings = books.state.list().iter();
    let rails = bindings.flat_map(|binding| &binding.rails);
    let bound: BTreeSet<SlotId> = rails.filter_map(|rail| rail.slot).collect();
    let known = |slot: &&SlotId| bound.contains(slot) || books.state.waiting().contains_key(slot);
    let unknown = kubelet.allocated.iter().filter(|slot| !known(slot));
    let what = "the kubelet has given it out, and the state file does not have it";
    unknown
        .map(|slot| Finding::new(slot, what, REBUILD))
        .collect()
}
