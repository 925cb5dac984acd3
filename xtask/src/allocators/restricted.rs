//! The Topology Manager with policy `restricted` and scope `pod`, and the device manager below it.
//!
//! Rules as in `pkg/kubelet/cm`, `topologymanager/policy.go` and `devicemanager/topology_hints.go`:
//!
//! 1. For each resource the device manager names the sets of NUMA nodes whose **free** devices are
//!    enough. A set is *preferred* if it is as small as the node's devices, free or not, allow for
//!    such a request.
//! 2. One set of each resource is combined by "and". The result is preferred only if all of them are
//!    preferred **and the same set**. Fewest nodes win, then the lowest numbers.
//! 3. `restricted` admits a pod only with a preferred result.
//! 4. Devices are then taken from that set, out of an unordered set again: which devices inside of
//!    it is chance. (NVIDIA's GPU plugin then prefers GPUs that are joined by NVLink; where all are,
//!    that says nothing.)
//!
//! So a preferred result exists exactly if one set is preferred by every resource that has NUMA
//! nodes at all. CPUs and memory take no part: their managers are off unless configured.

use super::{Dice, Grant, Machine, Rejection, Request};
use podrail_core::ids::RailIndex;
use std::collections::BTreeMap;

/// The kubelet's default `max-allowable-numa-nodes`.
const MOST_NUMA_NODES: usize = 8;

/// A set of NUMA nodes, one bit each.
type Mask = u64;

/// What is asked of one resource.
struct Resource<T> {
    /// All devices and their NUMA nodes.
    all: Vec<(T, Option<u32>)>,
    /// Those that are free.
    free: Vec<(T, Option<u32>)>,
    /// How many.
    wanted: usize,
}

/// GPUs and rails inside the best set of NUMA nodes.
pub(super) fn place(
    machine: &Machine<'_>,
    own: &Request,
    dice: &mut Dice,
) -> Result<Grant, Rejection> {
    let nodes = numa_bits(machine)?;
    let (gpus, rails) = (gpus(machine, own), rails(machine, own));
    if gpus.free.len() < gpus.wanted || rails.free.len() < rails.wanted {
        // The scheduler counts devices and would not have sent it.
        return Err(Rejection::TooFew);
    }
    let hints = [gpus.preferred(&nodes), rails.preferred(&nodes)];
    let mask = best(&nodes, &hints).ok_or(Rejection::TopologyAffinity)?;
    Ok(Grant::new(
        gpus.take(&nodes, mask, dice),
        rails.take(&nodes, mask, dice),
    ))
}

/// The bit of each NUMA node; numbers of nodes may have gaps.
type Bits = BTreeMap<u32, Mask>;

fn numa_bits(machine: &Machine<'_>) -> Result<Bits, Rejection> {
    let ids: Vec<u32> = machine.topology.numa.iter().map(|node| node.id).collect();
    let (nodes, limit) = (ids.len(), MOST_NUMA_NODES);
    if nodes > limit {
        return Err(Rejection::NumaNodes { nodes, limit });
    }
    Ok(ids.into_iter().zip((0..).map(|bit| 1 << bit)).collect())
}

fn gpus(machine: &Machine<'_>, own: &Request) -> Resource<usize> {
    let numa = |gpu: usize| machine.topology.gpus.get(gpu).and_then(|gpu| gpu.path.numa);
    let all = (0..machine.topology.gpus.len()).collect();
    Resource::new(all, machine.free_gpus(), own.gpus.len(), numa)
}

fn rails(machine: &Machine<'_>, own: &Request) -> Resource<RailIndex> {
    let numa = |rail| machine.topology.rail(rail).and_then(|rail| rail.path.numa);
    let all = machine.topology.rails.iter().map(|rail| rail.index);
    let wanted = usize::from(own.rails);
    Resource::new(all.collect(), machine.free_rails(), wanted, numa)
}

/// The set that all resources prefer: fewest nodes, then lowest numbers. A resource without a
/// preference (`None`) is content with any.
fn best(nodes: &Bits, hints: &[Option<Vec<Mask>>]) -> Option<Mask> {
    let mut hints = hints.iter().flatten();
    let Some(first) = hints.next() else {
        return Some(nodes.values().fold(0, |all, bit| all | bit));
    };
    let others: Vec<&Vec<Mask>> = hints.collect();
    let shared = first
        .iter()
        .filter(|mask| others.iter().all(|hint| hint.contains(mask)));
    shared
        .copied()
        .min_by_key(|mask| (mask.count_ones(), *mask))
}

impl<T: Copy> Resource<T> {
    fn new(all: Vec<T>, free: Vec<T>, wanted: usize, numa: impl Fn(T) -> Option<u32>) -> Self {
        let placed = |devices: Vec<T>| devices.into_iter().map(|device| (device, numa(device)));
        Self {
            all: placed(all).collect(),
            free: placed(free).collect(),
            wanted,
        }
    }

    /// The preferred sets; `None` if nothing is asked for, or no device has a NUMA node.
    fn preferred(&self, nodes: &Bits) -> Option<Vec<Mask>> {
        if self.wanted == 0 || self.all.iter().all(|(_, numa)| numa.is_none()) {
            return None;
        }
        let enough = |devices: &[(T, Option<u32>)], mask| {
            let inside = devices.iter().filter(|(_, numa)| is_in(nodes, mask, *numa));
            inside.count() >= self.wanted
        };
        let masks = || 1..(1 << nodes.len());
        let smallest = masks()
            .filter(|mask| enough(&self.all, *mask))
            .map(Mask::count_ones)
            .min()?;
        let small = masks().filter(|mask| mask.count_ones() == smallest);
        Some(small.filter(|mask| enough(&self.free, *mask)).collect())
    }

    fn take(&self, nodes: &Bits, mask: Mask, dice: &mut Dice) -> Vec<T> {
        let (inside, outside): (Vec<_>, Vec<_>) = self
            .free
            .iter()
            .partition(|(_, numa)| is_in(nodes, mask, *numa));
        let mut taken = dice.draw(&inside, self.wanted);
        taken.extend(dice.draw(&outside, self.wanted - taken.len()));
        taken.into_iter().map(|(device, _)| device).collect()
    }
}

fn is_in(nodes: &Bits, mask: Mask, numa: Option<u32>) -> bool {
    numa.and_then(|numa| nodes.get(&numa))
        .is_some_and(|bit| mask & bit != 0)
}
