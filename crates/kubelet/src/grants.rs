//! Devices of one container and resource, put together again.
//!
//! The kubelet splits them: PodResources has an entry per device or per NUMA node, the checkpoint a
//! list per NUMA node, with a device of several nodes in each of them.

use podrail_core::pods::DeviceGrant;
use std::collections::HashMap;
use std::hash::Hash;

/// Grants by container and resource (and whatever else tells them apart), in the order in which
/// each was met first.
pub(crate) struct Grants<K> {
    places: HashMap<(K, String, String), usize>,
    grants: Vec<(K, DeviceGrant)>,
}

impl<K: Eq + Hash + Clone> Grants<K> {
    pub(crate) fn new() -> Self {
        Self {
            places: HashMap::new(),
            grants: Vec::new(),
        }
    }

    /// Adds devices to the grant of this container and resource.
    pub(crate) fn add(
        &mut self,
        key: K,
        container: String,
        resource: String,
        ids: impl IntoIterator<Item = String>,
    ) {
        let next = self.grants.len();
        let place = *self
            .places
            .entry((key.clone(), container.clone(), resource.clone()))
            .or_insert(next);
        if place == next {
            self.grants.push((
                key,
                DeviceGrant {
                    container,
                    resource,
                    ids: Vec::new(),
                },
            ));
        }
        if let Some((_, grant)) = self.grants.get_mut(place) {
            grant.ids.extend(ids);
        }
    }

    /// The grants, each with its ids sorted and every id once.
    pub(crate) fn finish(self) -> impl Iterator<Item = (K, DeviceGrant)> {
        self.grants.into_iter().map(|(key, mut grant)| {
            grant.ids.sort_unstable();
            grant.ids.dedup();
            (key, grant)
        })
    }
}
