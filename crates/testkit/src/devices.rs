//! The device manager's books: which devices there are, which are healthy, who has which.
//!
//! No I/O here: [`checkpoint`] is the file, [`plugins`] speaks with the plugins.

pub mod checkpoint;
pub mod plugins;

use podrail_kubelet::proto::deviceplugin::{ContainerAllocateResponse, Device};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The kubelet's own number for devices without a NUMA node.
pub const NO_NUMA: i64 = -1;

/// Devices of one resource.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pool {
    /// Can be given.
    pub healthy: BTreeSet<String>,
    /// Cannot.
    pub unhealthy: BTreeSet<String>,
    /// NUMA nodes of those that have some.
    pub numa: BTreeMap<String, Vec<i64>>,
}

/// Devices of one resource that one container has.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// UID of the pod.
    pub pod: String,
    /// Container.
    pub container: String,
    /// Resource.
    pub resource: String,
    /// Device ids by NUMA node.
    pub devices: BTreeMap<i64, Vec<String>>,
    /// What the plugin answered.
    pub answer: ContainerAllocateResponse,
}

impl Grant {
    /// Device ids, each once.
    pub fn ids(&self) -> BTreeSet<&String> {
        self.devices.values().flatten().collect()
    }
}

/// What a node says of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// All devices.
    pub capacity: usize,
    /// Healthy ones.
    pub allocatable: usize,
    /// Given to pods.
    pub allocated: usize,
}

/// What is asked for one container.
#[derive(Debug, Clone, Copy)]
pub struct Want<'a> {
    /// UID of the pod.
    pub pod: &'a str,
    /// Container.
    pub container: &'a str,
    /// Resource.
    pub resource: &'a str,
    /// How many.
    pub count: usize,
}

/// The books.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Books {
    /// By resource.
    pub pools: BTreeMap<String, Pool>,
    /// Never in two containers of different pods, unless one was deleted by force.
    pub grants: Vec<Grant>,
}

impl Books {
    /// A plugin's new list.
    pub fn update(&mut self, resource: &str, devices: &[Device]) {
        let mut pool = Pool::default();
        for device in devices {
            let set = match device.health == "Healthy" {
                true => &mut pool.healthy,
                false => &mut pool.unhealthy,
            };
            set.insert(device.id.clone());
            let nodes = device.topology.iter().flat_map(|t| &t.nodes);
            let nodes: Vec<i64> = nodes.map(|node| node.id).collect();
            if !nodes.is_empty() {
                pool.numa.insert(device.id.clone(), nodes);
            }
        }
        self.pools.insert(resource.to_owned(), pool);
    }

    /// The plugin's stream has ended: nothing of it can be given, what was given stays.
    pub fn lose(&mut self, resource: &str) {
        if let Some(pool) = self.pools.get_mut(resource) {
            let mut lost = std::mem::take(&mut pool.healthy);
            pool.unhealthy.append(&mut lost);
        }
    }

    /// Resources known from the checkpoint have no devices until their plugin comes.
    pub fn expect(&mut self, resource: &str) {
        self.pools.entry(resource.to_owned()).or_default();
    }

    /// Capacity, allocatable and allocated of each resource.
    pub fn amounts(&self) -> BTreeMap<String, Amount> {
        let pools = self.pools.iter();
        pools
            .map(|(resource, pool)| {
                let amount = Amount {
                    capacity: pool.healthy.len() + pool.unhealthy.len(),
                    allocatable: pool.healthy.len(),
                    allocated: self.in_use(resource).len(),
                };
                (resource.clone(), amount)
            })
            .collect()
    }

    /// What one container has of one resource.
    pub fn grant(&self, pod: &str, container: &str, resource: &str) -> Option<&Grant> {
        self.grants
            .iter()
            .find(|g| g.pod == pod && g.container == container && g.resource == resource)
    }

    /// Everything that one container has.
    pub fn of_container(&self, pod: &str, container: &str) -> Vec<&Grant> {
        let grants = self.grants.iter();
        grants
            .filter(|grant| grant.pod == pod && grant.container == container)
            .collect()
    }

    /// Device ids by container and resource.
    pub fn of_pod(&self, pod: &str) -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
        let mut all: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        for grant in self.grants.iter().filter(|grant| grant.pod == pod) {
            let ids = grant.ids().into_iter().cloned().collect();
            let container = all.entry(grant.container.clone()).or_default();
            container.insert(grant.resource.clone(), ids);
        }
        all
    }

    /// The pod is gone or has ended. No plugin hears of it.
    pub fn free(&mut self, pod: &str) {
        self.grants.retain(|grant| grant.pod != pod);
    }

    /// Devices of a resource that someone has.
    pub fn in_use(&self, resource: &str) -> BTreeSet<&String> {
        let grants = self.grants.iter().filter(|g| g.resource == resource);
        grants.flat_map(Grant::ids).collect()
    }

    /// Devices by NUMA node, as the kubelet groups them.
    pub fn by_numa(&self, resource: &str, ids: &[String]) -> BTreeMap<i64, Vec<String>> {
        let numa = self.pools.get(resource).map(|pool| &pool.numa);
        let mut groups: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for id in ids {
            match numa.and_then(|numa| numa.get(id)) {
                None => groups.entry(NO_NUMA).or_default().push(id.clone()),
                Some(nodes) => nodes
                    .iter()
                    .for_each(|node| groups.entry(*node).or_default().push(id.clone())),
            }
        }
        groups
    }

    /// Which devices can serve a want: `must` are those of the pod's plain init containers, which
    /// go first, then the free ones. `None`: the container has its devices already.
    ///
    /// # Errors
    /// The kubelet's own words, with which it rejects the pod.
    pub fn candidates(
        &self,
        want: Want<'_>,
        reusable: &BTreeSet<String>,
    ) -> Result<Option<Candidates>, String> {
        let resource = want.resource;
        let held = self.grant(want.pod, want.container, resource);
        let held: BTreeSet<&String> = held.map(Grant::ids).unwrap_or_default();
        if !held.is_empty() && held.len() != want.count {
            let Want {
                pod,
                container,
                count,
                ..
            } = want;
            let held = held.len();
            return Err(format!(
                "pod {pod:?} container {container:?} changed request for resource {resource:?} \
                 from {held} to {count}"
            ));
        }
        let pool = self.pools.get(resource);
        let pool = pool.ok_or(format!("cannot allocate unregistered device {resource}"))?;
        if pool.healthy.is_empty() {
            return Err(format!(
                "no healthy devices present; cannot allocate unhealthy devices {resource}"
            ));
        }
        if !held.iter().all(|id| pool.healthy.contains(*id)) {
            return Err(format!(
                "previously allocated devices are no longer healthy; cannot allocate unhealthy \
                 devices {resource}"
            ));
        }
        match held.is_empty() {
            true => self.free_for(want, pool, reusable).map(Some),
            false => Ok(None),
        }
    }

    fn free_for(
        &self,
        want: Want<'_>,
        pool: &Pool,
        reusable: &BTreeSet<String>,
    ) -> Result<Candidates, String> {
        let in_use = self.in_use(want.resource);
        let free: Vec<String> = pool
            .healthy
            .iter()
            .filter(|id| !in_use.contains(id))
            .cloned()
            .collect();
        let must: Vec<String> = reusable.intersection(&pool.healthy).cloned().collect();
        let available = free.len() + must.len();
        if available < want.count {
            return Err(format!(
                "requested number of devices unavailable for {}. Requested: {}, Available: \
                 {available}",
                want.resource, want.count
            ));
        }
        Ok(Candidates { must, free })
    }
}

/// Devices that can be given to one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// Taken first.
    pub must: Vec<String>,
    /// For what is missing then.
    pub free: Vec<String>,
}

impl Candidates {
    /// A random choice, as the kubelet makes without hints.
    pub fn pick(mut self, count: usize, random: &mut fastrand::Rng) -> Vec<String> {
        random.shuffle(&mut self.must);
        random.shuffle(&mut self.free);
        self.must.into_iter().chain(self.free).take(count).collect()
    }
}

#[cfg(test)]
mod tests;
