//! Real machines with one to four pods, in many states: the search ends by itself, far below its
//! bound.

use super::nodes::*;
use super::*;

/// A tenth of what the search may look at.
const MOST: usize = 5_000;

/// A small generator of its own: the scenes must not change from run to run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        for place in (1..count).rev() {
            all.swap(place, self.below(place + 1));
        }
        all
    }
}

/// GPUs of each pod.
const PODS: [&[usize]; 18] = [
    &[8],
    &[4],
    &[1],
    &[0],
    &[4, 4],
    &[4, 2],
    &[1, 1],
    &[2, 0],
    &[0, 0],
    &[4, 2, 2],
    &[2, 1, 1],
    &[4, 2, 0],
    &[2, 2, 2, 2],
    &[4, 2, 1, 1],
    &[1, 1, 1, 1],
    &[2, 2, 0, 0],
    &[4, 0, 0, 0],
    &[0, 0, 0, 0],
];

/// Rails of a pod, from those that are its GPUs' fair share.
const COUNTS: [fn(usize) -> usize; 4] = [
    |fair| fair,
    |fair| fair.div_ceil(2),
    |fair| fair + 1,
    |fair| fair * 2,
];

/// All pods above in all sizes; GPUs in order or at random, the node empty or in use.
fn scenes(topology: &Topology) -> Vec<(Node<'_>, Vec<Demand>)> {
    let mut scenes = vec![];
    for (seed, pods) in (0..).zip(PODS) {
        for count in COUNTS {
            for round in [0, 1, 3] {
                let mut dice = Dice(seed * 4 + round);
                // Four pods without GPUs among broken NICs can outgrow the bound (see `bind`).
                let in_use = round == 3 && pods.iter().any(|gpus| *gpus > 0);
                scenes.push(scene(topology, &mut dice, (pods, count, round > 0, in_use)));
            }
        }
    }
    scenes
}

type Wishes = (&'static [usize], fn(usize) -> usize, bool, bool);

fn scene<'a>(
    topology: &'a Topology,
    dice: &mut Dice,
    (pods, count, mixed, in_use): Wishes,
) -> (Node<'a>, Vec<Demand>) {
    let mut node = node(topology);
    let (gpus, rails) = (topology.gpus.len(), topology.rails.len());
    let mut free: Vec<usize> = if mixed {
        dice.shuffled(gpus)
    } else {
        (0..gpus).collect()
    };
    let mut left = rails;
    if in_use {
        let held = dice.below(rails / 4);
        let held = dice.shuffled(rails).into_iter().take(held);
        left -= held.len();
        node.bound
            .push(bound("held", &[], held.map(|rail| rail as u16)));
        if rails <= 16 {
            node.shares_per_rail += dice.below(2) as u16;
        }
    }
    // The kubelet never admits pods for more slots than there are.
    let mut slots = left * usize::from(node.shares_per_rail);
    let mut demand_of = |own: &usize| {
        let gpus: Vec<usize> = free.drain(..*own).collect();
        let wish = count((*own).max(1) * rails / 8).min(left).min(slots);
        slots -= wish;
        demand(&gpus, wish as u16)
    };
    (node, pods.iter().map(&mut demand_of).collect())
}

fn check(name: &str, topology: &Topology) {
    for (node, demands) in scenes(topology) {
        let (own, others) = demands.split_first().unwrap();
        let plan = bind(&node, own, others).unwrap();
        let work = (plan.exact, plan.effort <= MOST);
        assert_eq!(
            work,
            (true, true),
            "{name}: {} candidates for {demands:?}, {} shares, {:?} in use",
            plan.effort,
            node.shares_per_rail,
            node.bound
        );
    }
}

#[test]
fn b4_8_is_quick() {
    check("B4.8", &b4_8());
    check("B4.8 without NUMA nodes", &without_numa(b4_8()));
}

#[test]
fn h100_8_is_quick() {
    check("H100.8", &h100_8());
}

#[test]
fn eight_switched_rails_are_quick() {
    check("S8", &s8());
    let one_each = Switched {
        roots: 8,
        switches: 1,
        gpus: 1,
        nics: 1,
    };
    check("eight switches", &switched(&one_each));
}

#[test]
fn thirty_two_rails_are_quick() {
    check("32 rails", &dgx_32());
    let pairs = Switched {
        roots: 2,
        switches: 4,
        gpus: 1,
        nics: 4,
    };
    check("32 rails below two roots", &switched(&pairs));
}
