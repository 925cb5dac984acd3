//! Pods that come and go: the same for every allocator.

use super::{Dice, PodId, Request};
use podrail_core::topology::Topology;
use std::collections::BTreeMap;

/// GPUs of a pod, each as likely.
const SIZES: [usize; 4] = [1, 2, 4, 8];

/// One step of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Pods that are admitted before the first of them gets its rails.
    Arrive(Vec<Request>),
    /// A pod ends.
    Leave(PodId),
}

/// So many pods on this node. Each takes any GPUs that are free; when too few are, pods leave, any of
/// them, until there are enough. Now and then one leaves without need. Rails come with the GPUs, as
/// many for each as the node has.
///
/// The same seed gives the same trace.
pub(crate) fn trace(topology: &Topology, pods: usize, seed: u64) -> Vec<Event> {
    let mut maker = Maker::new(topology, seed);
    while maker.arrived < pods && !maker.sizes.is_empty() {
        maker.step(pods);
    }
    maker.events
}

struct Maker {
    dice: Dice,
    /// Those of [`SIZES`] that fit on the node.
    sizes: Vec<usize>,
    free: Vec<usize>,
    running: BTreeMap<PodId, Vec<usize>>,
    rails_per_gpu: usize,
    arrived: usize,
    events: Vec<Event>,
}

impl Maker {
    fn new(topology: &Topology, seed: u64) -> Self {
        let gpus = topology.gpus.len();
        Self {
            dice: Dice::new(seed),
            sizes: SIZES.into_iter().filter(|size| *size <= gpus).collect(),
            free: (0..gpus).collect(),
            running: BTreeMap::new(),
            rails_per_gpu: topology.rails.len() / gpus.max(1),
            arrived: 0,
            events: vec![],
        }
    }

    fn step(&mut self, pods: usize) {
        let mut size = self.size();
        if self.dice.below(4) == 0 {
            self.leave();
        }
        while self.free.len() < size && !self.running.is_empty() {
            self.leave();
        }
        let mut batch = vec![];
        while size <= self.free.len() && self.arrived < pods {
            batch.push(self.arrive(size));
            size = self.size();
        }
        self.events.push(Event::Arrive(batch));
    }

    fn size(&mut self) -> usize {
        let sizes = self.dice.draw(&self.sizes, 1);
        sizes.first().copied().unwrap_or(1)
    }

    fn arrive(&mut self, size: usize) -> Request {
        let gpus = self.dice.draw(&self.free, size);
        self.free.retain(|gpu| !gpus.contains(gpu));
        let pod = PodId::try_from(self.arrived).unwrap_or(PodId::MAX);
        self.arrived += 1;
        self.running.insert(pod, gpus.clone());
        let rails = u16::try_from(size * self.rails_per_gpu).unwrap_or(u16::MAX);
        Request { pod, gpus, rails }
    }

    fn leave(&mut self) {
        let pods: Vec<PodId> = self.running.keys().copied().collect();
        for pod in self.dice.draw(&pods, 1) {
            self.free
                .extend(self.running.remove(&pod).unwrap_or_default());
            self.events.push(Event::Leave(pod));
        }
    }
}
