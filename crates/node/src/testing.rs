//! A state file of sandboxes that hold slots, for the tests of this crate.

use podrail_core::ids::{RailIndex, SandboxId, SlotId};
use podrail_core::pods::PodRef;
use podrail_store::{BoundRail, Decision, Request, Reserved, Store, StoreError};
use std::path::Path;

pub(crate) fn sandbox(name: &str) -> SandboxId {
    SandboxId::parse(name).unwrap()
}

/// Opened for the running boot, as [`crate::open_state`] does.
pub(crate) fn store(dir: &Path) -> Store {
    let boot = crate::boot_id().unwrap();
    Store::open(&dir.join("state.db"), &boot).unwrap().store
}

/// The pod of a sandbox.
pub(crate) fn pod(name: &str) -> PodRef {
    PodRef {
        uid: format!("uid-of-{name}").parse().unwrap(),
        namespace: "jobs".parse().unwrap(),
        name: name.parse().unwrap(),
    }
}

/// By whom nothing else was seen than what waits now.
pub(crate) fn request(store: &Store, name: &str) -> Request {
    let waiting = store.waiting().unwrap().into_iter();
    Request {
        sandbox: sandbox(name),
        fingerprint: String::new(),
        netns: String::new(),
        netns_id: None,
        gpus: vec![],
        pod: Some(pod(name)),
        at: 100,
        seen: waiting.map(|(slot, row)| (slot, row.number)).collect(),
    }
}

/// A rail of its own for each slot of each sandbox.
pub(crate) fn decision(name: &str, slots: &[u16]) -> Decision {
    let bus: usize = name.bytes().map(usize::from).sum();
    let rail = |slot: &u16| BoundRail {
        index: RailIndex(*slot),
        pci: format!("{bus:04x}:{slot:02x}:00.0").parse().unwrap(),
        port: 1,
        netdev: format!("rdma{slot}").parse().unwrap(),
        share: 0,
        slot: Some(SlotId(*slot)),
    };
    Decision {
        rails: slots.iter().map(rail).collect(),
        ..Decision::default()
    }
}

/// Binds a sandbox to slots.
pub(crate) fn reserve(
    store: &mut Store,
    name: &str,
    slots: &[u16],
) -> Result<Reserved, podrail_store::ReserveError<StoreError>> {
    let request = request(store, name);
    store.reserve(&request, |_| Ok(decision(name, slots)))
}
