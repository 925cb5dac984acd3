//! Slots of the kubelet and the pods that had them. Each function is one transaction.

use crate::error::StoreError;
use crate::rows;
use crate::store::Store;
use crate::types::{KnownPod, Waiting};
use podrail_core::ids::{PodUid, SandboxId, SlotId};
use std::collections::{BTreeMap, BTreeSet};

impl Store {
    /// Notes that the kubelet has allocated slots, at `at` seconds since 1970: they wait to be
    /// bound. A sandbox that has one of them still keeps it.
    ///
    /// # Guarantees
    /// Twice: the later time counts, and the allocation has a new number. Half-way: all slots or
    /// none.
    ///
    /// # Errors
    /// The store failed.
    pub fn allocate(&mut self, slots: &[SlotId], at: i64) -> Result<(), StoreError> {
        self.write("allocating slots", |tx, _| rows::allocate(tx, slots, at))
    }

    /// Slots that are allocated and were not bound since.
    ///
    /// # Errors
    /// The store failed.
    pub fn waiting(&self) -> Result<BTreeMap<SlotId, Waiting>, StoreError> {
        self.read(rows::waiting)
    }

    /// Makes slots wait no longer, because their pod is gone.
    ///
    /// # Guarantees
    /// Twice is as once. Half-way: all slots or none.
    ///
    /// # Errors
    /// The store failed.
    pub fn forget_waiting(&mut self, slots: &[SlotId]) -> Result<(), StoreError> {
        let doing = "forgetting waiting slots";
        self.write(doing, |tx, _| rows::forget_waiting(tx, slots))
    }

    /// The sandbox that a slot was bound to last, among those that still have it.
    ///
    /// # Errors
    /// The store failed.
    pub fn slot_owner(&self, slot: SlotId) -> Result<Option<SandboxId>, StoreError> {
        self.read(|tx| rows::slot_owner(tx, slot))
    }

    /// Slots of a sandbox that are its own still: no newer sandbox has them, and they do not wait
    /// for another pod.
    ///
    /// # Errors
    /// The store failed.
    pub fn own_slots(&self, sandbox: &SandboxId) -> Result<BTreeSet<SlotId>, StoreError> {
        self.read(|tx| rows::own_slots(tx, sandbox))
    }

    /// Pods that had slots bound on this node, in this boot or an earlier one, by UID.
    ///
    /// # Errors
    /// The store failed.
    pub fn pods(&self) -> Result<Vec<KnownPod>, StoreError> {
        self.read(rows::pods)
    }

    /// Whether a pod had slots bound on this node.
    ///
    /// # Errors
    /// The store failed.
    pub fn knows_pod(&self, uid: &PodUid) -> Result<bool, StoreError> {
        self.read(|tx| rows::knows_pod(tx, uid))
    }

    /// Forgets a pod that will not come back and that is known since `since` (seconds since 1970),
    /// unless it holds rails; whether it is not known afterwards.
    ///
    /// # Guarantees
    /// Twice is as once. What was noted after the caller looked stays.
    ///
    /// # Errors
    /// The store failed.
    pub fn forget_pod(&mut self, uid: &PodUid, since: i64) -> Result<bool, StoreError> {
        let doing = "forgetting a pod";
        self.write(doing, |tx, _| rows::forget_pod(tx, uid, since))
    }
}
