//! What must hold after every step, whatever happened in it.

use super::calls::{Add, Call, Done, Failure};
use super::kernel::{Netns, RP_FILTER};
use super::node::{ADDRESSES, RAILS, SHARES};
use super::world::{Outcome, Sandbox, World};
use crate::kernel::Kernel;
use crate::{NodeError, attachment};
use podrail_attach::AttachError;
use podrail_attach::cdi::CdiDir;
use podrail_core::cdi::slot_of_file;
use podrail_core::ids::{SandboxId, SlotId};
use podrail_store::{Binding, ReadOnly, State};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Checks all that must hold at any time.
pub(super) fn hold(world: &World) {
    let read = world.node.read();
    // What an earlier boot has left in the file is dropped by whoever opens it next.
    let boot = world.node.kernel.boot().unwrap();
    let list: Vec<&Binding> = read.list().iter().filter(|b| b.boot == boot).collect();
    nothing_twice(&list);
    children_are_leased(world, &list);
    files_have_owners(world, &read);
    marks_are_there(world, &read);
    for sandbox in &world.sandboxes {
        stands(world, &read, sandbox);
    }
}

fn nothing_twice(list: &[&Binding]) {
    let mut shares = BTreeSet::new();
    for rail in list.iter().flat_map(|binding| &binding.rails) {
        assert!(rail.share < SHARES, "{rail:?}");
        assert!(shares.insert((rail.pci, rail.port, rail.share)), "{rail:?}");
    }
    let mut addresses = BTreeSet::new();
    for lease in list.iter().flat_map(|binding| &binding.leases) {
        assert!(addresses.insert(lease.address), "{lease:?}");
    }
    for binding in list {
        assert_eq!(binding.rails.len(), binding.leases.len(), "{binding:?}");
    }
}

/// No interface in the kernel without a lease; no address at two places.
fn children_are_leased(world: &World, list: &[&Binding]) {
    let mut addresses = BTreeSet::new();
    for netns in world.node.kernel.all() {
        let inside = netns.inside.borrow();
        for child in &inside.children {
            let mut owners = list.iter().filter(|b| child.is_of(&b.request.sandbox));
            let owner = owners.next();
            let owner = owner.unwrap_or_else(|| panic!("{child:?} in {:?} is nobody's", netns.id));
            assert_eq!(owner.request.netns_id, Some(netns.id), "{child:?}");
            for address in &child.addresses {
                let mut leases = owner.leases.iter();
                assert!(leases.any(|lease| lease.address == *address), "{child:?}");
                assert!(addresses.insert(*address), "{address} is up twice");
            }
        }
    }
}

/// The owners of the files that are there.
fn files(world: &World) -> BTreeMap<SlotId, SandboxId> {
    let Some(dir) = CdiDir::open(&world.node.cdi()).unwrap() else {
        return BTreeMap::new();
    };
    let found = dir.list().unwrap().into_iter();
    found
        .map(|file| (file.slot, file.owner.unwrap().sandbox))
        .collect()
}

/// Slots with a temporary file.
fn temporary(world: &World) -> BTreeSet<SlotId> {
    let entries = std::fs::read_dir(world.node.cdi());
    let entries = entries.into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| slot_of_file(name.strip_prefix('.')?.strip_suffix(".tmp")?))
        .collect()
}

fn files_have_owners(world: &World, read: &ReadOnly) {
    let files = files(world);
    for (slot, owner) in &files {
        let binding = read.get(owner);
        let binding = binding.unwrap_or_else(|| panic!("{slot} is of {owner}, which is gone"));
        let holds = binding.rails.iter().any(|rail| rail.slot == Some(*slot));
        assert!(holds, "{slot} is of {owner}, which has another");
        let newest = read.slot_owner(*slot).unwrap();
        // Killed before it could write: no container of it starts.
        let pending = read.get(newest).unwrap().state == State::Pending;
        assert!(newest == owner || pending, "{slot}: {owner}, not {newest}");
    }
    // Fail closed: the names that a container was given lead to its own pod's rails or nowhere.
    for pod in world.pods.iter().filter(|pod| pod.known) {
        for owner in pod.slots.iter().filter_map(|slot| files.get(slot)) {
            let owner = &world.sandboxes[world.sandbox(owner)];
            assert_eq!(world.pods[owner.pod].pod, pod.pod, "{owner:?}");
        }
    }
}

/// Too many marks cost a question; one too few starts a pod without rails, or leaves it attached.
fn marks_are_there(world: &World, read: &ReadOnly) {
    let markers = world.node.markers();
    let (waiting, pods) = (markers.waiting().unwrap(), markers.pods().unwrap());
    for (slot, row) in read.waiting() {
        // What a new boot made wait is of a pod that is marked itself, until the agent has looked.
        let of_boot = row.number == 0 && !world.repaired;
        assert!(waiting.contains(slot) || of_boot, "{slot} waits unmarked");
    }
    let bound = read.list().iter().filter_map(|b| b.request.pod.as_ref());
    let known = read.pods().iter().map(|known| &known.pod);
    for pod in bound.chain(known) {
        assert!(pods.contains(&pod.uid), "{pod:?} is unmarked");
    }
    for pod in world.pods.iter().filter(|pod| pod.known) {
        let asks = markers.wants_rails(Some(&pod.pod.uid)).unwrap();
        assert!(asks, "{pod:?} would start without rails");
    }
}

/// What an ADD promised stands until somebody takes it away.
fn stands(world: &World, read: &ReadOnly, sandbox: &Sandbox) {
    let (Some(plan), Some(id)) = (&sandbox.plan, sandbox.netns) else {
        return;
    };
    let binding = read.get(&sandbox.id);
    let binding = binding.unwrap_or_else(|| panic!("{sandbox:?} lost its rails"));
    assert_eq!(&binding.plan, plan);
    assert_eq!(binding.state, State::Ready, "{sandbox:?}");
    let slots = &world.pods[sandbox.pod].slots;
    let bound: BTreeSet<SlotId> = binding.rails.iter().filter_map(|rail| rail.slot).collect();
    assert_eq!(&bound, slots, "{sandbox:?}: all rails or none");
    if !sandbox.broken {
        let plan = attachment(binding).unwrap().plan;
        let differences = world.node.kernel.differences(&plan, &netns(world, id));
        assert_eq!(differences.unwrap(), Vec::<String>::new(), "{sandbox:?}");
    }
    if !sandbox.outdated {
        let files = files(world);
        for slot in slots {
            assert_eq!(files.get(slot), Some(&sandbox.id), "{slot}");
        }
    }
}

fn netns(world: &World, id: podrail_store::NetnsId) -> Rc<Netns> {
    let all = world.node.kernel.all();
    all.into_iter().find(|netns| netns.id == id).unwrap()
}

/// After the last DEL and two rounds of the agent.
pub(super) fn nothing_is_left(world: &World) {
    let (read, markers) = (world.node.read(), world.node.markers());
    assert_eq!(read.list(), []);
    assert!(read.waiting().is_empty(), "{:?}", read.waiting());
    assert_eq!(read.pods(), []);
    assert!(markers.waiting().unwrap().is_empty());
    assert!(markers.pods().unwrap().is_empty());
    assert!(files(world).is_empty() && temporary(world).is_empty());
}

/// What was there before a call.
pub(super) struct Before {
    binding: Option<Binding>,
}

impl Before {
    pub(super) fn look(world: &World, call: &Call) -> Self {
        let sandbox = match call {
            Call::Add(add) => Some(&add.sandbox),
            Call::Del { sandbox, .. } => Some(sandbox),
            _ => None,
        };
        let boot = world.node.kernel.boot().unwrap();
        let binding = sandbox.and_then(|sandbox| world.node.read().get(sandbox).cloned());
        Self {
            binding: binding.filter(|binding| binding.boot == boot),
        }
    }

    /// Whether a call did what it promises. `disturbed`: something came between its effects.
    pub(super) fn compare(
        self,
        world: &World,
        call: &Call,
        (outcome, disturbed): (&Outcome, bool),
    ) {
        let Ok(outcome) = outcome else { return };
        match (call, outcome) {
            (Call::Add(add), Ok(done)) => self.added(world, add, done),
            (Call::Add(add), Err(failure)) => self.not_added(world, add, (failure, disturbed)),
            (Call::Del { sandbox, .. }, Ok(_)) => self.deleted(world, sandbox),
            (Call::Check { sandbox, .. }, done) => checked(world, sandbox, done),
            (Call::Gc { valid }, Ok(_)) => {
                let read = world.node.read();
                let mut kept = read.list().iter().map(|b| &b.request.sandbox);
                assert!(disturbed || kept.all(|sandbox| valid.contains(sandbox)));
            }
            (Call::Agent(_), Ok(_)) if !disturbed => collected(world),
            (_, Err(failure)) => assert!(disturbed, "{call:?}: {failure:?}"),
            _ => {}
        }
    }

    fn added(&self, world: &World, add: &Add, done: &Done) {
        let Done::Attached(plan) = done else {
            panic!("{add:?} starts without rails");
        };
        if let Some(before) = &self.binding {
            assert_eq!(&before.plan, plan, "the second ADD gives other rails");
        }
        if matches!(&self.binding, Some(before) if before.state == State::Ready) {
            // Perhaps nothing had to be written.
            return;
        }
        let left = temporary(world);
        let owned = files(world).into_iter();
        let mut owned = owned.filter(|(_, owner)| *owner == add.sandbox);
        assert!(owned.all(|(slot, _)| !left.contains(&slot)), "{left:?}");
    }

    fn not_added(&self, world: &World, add: &Add, (failure, disturbed): (&Failure, bool)) {
        let Failure { error, notes } = failure;
        let sandbox = &world.sandboxes[world.sandbox(&add.sandbox)];
        let reason = match error {
            NodeError::NetnsGone { .. } => !sandbox.path_is_there,
            NodeError::Attach(AttachError::NotPossible { .. }) => any_link_is_down(world),
            error => error.is_short() && is_short(world, add),
        };
        assert!(reason || disturbed, "{add:?}: {failure:?}");
        let Some(binding) = world.node.read().get(&add.sandbox).cloned() else {
            let files = files(world);
            assert!(!files.values().any(|owner| *owner == add.sandbox));
            return;
        };
        let said = notes.iter().any(|note| note.contains("stay reserved"));
        // Behind the last effect there is nothing to take back.
        let at_the_end = matches!(error, NodeError::Injected(at) if at == "ready:0");
        let before = self
            .binding
            .as_ref()
            .is_some_and(|b| b.sequence == binding.sequence);
        assert!(
            said || at_the_end || before,
            "{failure:?} leaves {binding:?}"
        );
    }

    fn deleted(&self, world: &World, sandbox: &SandboxId) {
        let read = world.node.read();
        let boot = world.node.kernel.boot().unwrap();
        let left = read.get(sandbox).filter(|binding| binding.boot == boot);
        assert_eq!(left, None, "DEL leaves a binding");
        for netns in world.node.kernel.all() {
            let inside = netns.inside.borrow();
            let mut children = inside.children.iter();
            assert!(!children.any(|child| child.is_of(sandbox)), "{inside:?}");
            let of = &world.sandboxes[world.sandbox(sandbox)];
            if of.netns == Some(netns.id) {
                assert_eq!(inside.rules, [], "DEL leaves rules");
                // Without a path and without rails a namespace may be another one with its number,
                // whose settings are none of ours.
                assert!(
                    !of.path_is_there || inside.rp_filter == RP_FILTER,
                    "{inside:?}"
                );
            }
        }
        assert!(!files(world).values().any(|owner| owner == sandbox));
        let left = temporary(world);
        let slots = self.binding.iter().flat_map(|binding| &binding.rails);
        let mut slots = slots.filter_map(|rail| rail.slot);
        assert!(!slots.any(|slot| left.contains(&slot)), "{left:?}");
    }
}

fn any_link_is_down(world: &World) -> bool {
    let mut rails = (0..RAILS).map(|rail| format!("rdma{rail}"));
    rails.any(|rail| world.node.kernel.link(&rail) != Some(true))
}

/// Whether rails with a link and a free share, or addresses, are fewer than the pod wants.
fn is_short(world: &World, add: &Add) -> bool {
    let read = world.node.read();
    let bound = || read.list().iter().flat_map(|binding| &binding.rails);
    let free = |rail: &u16| {
        let taken = bound().filter(|bound| bound.index.0 == *rail).count();
        let link = world.node.kernel.link(&format!("rdma{rail}"));
        link == Some(true) && taken < usize::from(SHARES)
    };
    let rails = (0..RAILS).filter(free).count();
    let addresses = ADDRESSES - bound().count();
    rails < add.slots.len() || addresses < add.slots.len()
}

fn checked(world: &World, sandbox: &SandboxId, done: &Result<Done, Failure>) {
    let sandbox = &world.sandboxes[world.sandbox(sandbox)];
    // Rails of a namespace that is gone may have been collected.
    let is_there = sandbox.netns.is_some();
    let whole = is_there && sandbox.plan.is_some() && !sandbox.broken && !sandbox.outdated;
    match done {
        Ok(Done::Found(found)) => assert!(found.is_empty() || !whole, "{found:?}: {sandbox:?}"),
        other => assert!(!sandbox.path_is_there, "{other:?}: {sandbox:?}"),
    }
}

/// After a whole round of the agent.
fn collected(world: &World) {
    let read = world.node.read();
    for binding in read.list() {
        let id = binding.request.netns_id.unwrap();
        assert!(
            world.node.kernel.has(id),
            "{binding:?} is kept without need"
        );
    }
    assert!(temporary(world).is_empty());
    let marked = world.node.markers().waiting().unwrap();
    assert!(read.waiting().keys().eq(&marked), "{marked:?}");
}
