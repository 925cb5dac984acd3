//! Devices of one pod by container, from both sources together.

use super::DeviceGrant;
use crate::gpus::devices::GrantedGpus;
use crate::ids::{BadId, ResourceName, SlotId};
use crate::words::brief;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// Finds the GPUs among grants: [`granted`](crate::gpus::devices::granted) with a node's topology.
pub type Lookup<'a> = &'a dyn Fn(&[DeviceGrant]) -> GrantedGpus;

/// A container's devices.
#[derive(Debug, Clone, Default)]
pub(super) struct Container {
    pub(super) slots: BTreeSet<SlotId>,
    /// Grants of other resources; the same one may stand twice.
    pub(super) others: Vec<DeviceGrant>,
    /// PodResources has it: it runs for the pod's whole life, and shares no slot with another
    /// such one. Else it is a plain init container.
    pub(super) lasting: bool,
}

/// Containers by name.
pub(super) type Containers = BTreeMap<String, Container>;

/// A slot id that is none: of which container, and the text.
#[derive(Debug)]
pub(super) struct BadSlot {
    pub(super) container: String,
    pub(super) source: BadId,
}

/// Adds grants, with slots by their ids; no more slots exist than `count`. All is added that is
/// good; the error names the first id that is not.
pub(super) fn add<'a>(
    containers: &mut Containers,
    grants: impl IntoIterator<Item = &'a DeviceGrant>,
    (resource, count): (&ResourceName, u16),
    lasting: bool,
) -> Result<(), BadSlot> {
    let mut first_bad = None;
    for grant in grants {
        let container = containers.entry(grant.container.clone()).or_default();
        container.lasting |= lasting;
        if grant.resource != resource.as_str() {
            container.others.push(grant.clone());
            continue;
        }
        for id in &grant.ids {
            match slot(id, count) {
                Ok(slot) => _ = container.slots.insert(slot),
                Err(source) => {
                    let container = brief(&grant.container);
                    first_bad.get_or_insert(BadSlot { container, source });
                }
            }
        }
    }
    first_bad.map_or(Ok(()), Err)
}

/// A slot of this node.
pub(super) fn slot(id: &str, count: u16) -> Result<SlotId, BadId> {
    let slot = SlotId::parse(id)?;
    if slot.0 < count {
        return Ok(slot);
    }
    Err(BadId {
        kind: "slot",
        given: brief(id),
        allowed: "the node has fewer slots",
    })
}

/// Slots among some grants; ids that are none are left out.
pub(super) fn slots<'a>(
    grants: impl IntoIterator<Item = &'a DeviceGrant>,
    (resource, count): (&ResourceName, u16),
) -> BTreeSet<SlotId> {
    let ours = |grant: &&DeviceGrant| grant.resource == resource.as_str();
    let grants = grants.into_iter().filter(ours);
    let ids = grants.flat_map(|grant| &grant.ids);
    ids.filter_map(|id| slot(id, count).ok()).collect()
}

/// GPUs of a pod's containers.
pub(super) struct PodGpus<'a> {
    containers: &'a Containers,
    lookup: Lookup<'a>,
    whole: OnceCell<Vec<usize>>,
}

impl<'a> PodGpus<'a> {
    pub(super) fn new(containers: &'a Containers, lookup: Lookup<'a>) -> Self {
        let whole = OnceCell::new();
        Self {
            containers,
            lookup,
            whole,
        }
    }

    /// A container's GPUs; if none is known, the pod's.
    pub(super) fn of(&self, container: &Container) -> Vec<usize> {
        let own = (self.lookup)(&container.others).gpus;
        if own.is_empty() {
            return self.whole.get_or_init(|| self.of_pod()).clone();
        }
        own
    }

    fn of_pod(&self) -> Vec<usize> {
        let each = self.containers.values();
        let gpus = each.flat_map(|container| (self.lookup)(&container.others).gpus);
        let gpus: BTreeSet<usize> = gpus.collect();
        gpus.into_iter().collect()
    }
}
