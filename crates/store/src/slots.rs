//! Slots of the kubelet and the pods that had them. Each function is one transaction.

use crate::error::StoreError;
use crate::rows;
use crate::store::Store;
use crate::types::KnownPod;
use podrail_core::ids::{PodUid, SandboxId, SlotId};
use std::collections::BTreeMap;

impl Store {
    /// Notes that the kubelet has allocated slots, at `at` seconds since 1970: they wait to be
    /// bound. A sandbox that has one of them still keeps it.
    ///
    /// # Guarantees
    /// Twice: the later time counts. Half-way: all slots or none.
    ///
    /// # Errors
    /// The store failed.
    pub fn allocate(&mut self, slots: &[SlotId], at: i64) -> Result<(), StoreError> {
        self.write("allocating slots", |tx, _| rows::allocate(tx, slots, at))
    }

    /// Slots that are allocated and were not bound since, and when they were allocated.
    ///
    /// # Errors
    /// The store failed.
    pub fn waiting(&self) -> Result<BTreeMap<SlotId, i64>, StoreError> {
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

    /// Pods that had slots bound on this node, in this boot or an earlier one, by UID.
    ///
    /// # Errors
    /// The store failed.
    pub fn pods(&self) -> Result<Vec<KnownPod>, StoreError> {
        self.read(rows::pods)
    }

    /// Forgets a pod that will not come back; whether it was known.
    ///
    /// # Guarantees
    /// Twice is as once. Bindings of its sandboxes stay.
    ///
    /// # Errors
    /// The store failed.
    pub fn forget_pod(&mut self, uid: &PodUid) -> Result<bool, StoreError> {
        self.write("forgetting a pod", |tx, _| rows::forget_pod(tx, uid))
    }
}
