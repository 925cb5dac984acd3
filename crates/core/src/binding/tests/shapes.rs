//! Real machines with one to four pods, in many states: the search ends by itself, far below its
//! bound.

use super::nodes::*;
use super::*;

/// A small deterministic generator: the shapes must not change from run to run.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % most
    }

    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        for place in (1..count).rev() {
            all.swap(place, self.below(place + 1));
        }
        all
    }
}

/// Pods with or without GPUs whose slots fit the free shares, on a node that is in use already.
fn scene<'a>(topology: &'a Topology, dice: &mut Dice) -> (Node<'a>, Vec<Demand>) {
    let mut node = node(topology);
    node.shares_per_rail = 1 + dice.below(5) as u16 / 4;
    let rails = topology.rails.len();
    if dice.below(3) == 0 {
        let held = dice.below(rails / 2 + 1);
        let rails = dice
            .shuffled(rails)
            .into_iter()
            .take(held)
            .map(|rail| rail as u16);
        let gpus = dice.below(3);
        node.bound.push(bound(
            "held",
            &dice.shuffled(topology.gpus.len())[..gpus],
            rails,
        ));
    }
    let mut free = rails * usize::from(node.shares_per_rail)
        - node.bound.iter().map(|b| b.rails.len()).sum::<usize>();
    let pods = 1 + dice.below(4);
    let mut gpus = dice.shuffled(topology.gpus.len());
    let mut demands = vec![];
    for _ in 0..pods {
        let count = [0, 1, 1, 2, 2, 3, 4, 8][dice.below(8)].min(gpus.len());
        let own: Vec<usize> = gpus.drain(..count).collect();
        let want = match dice.below(3) {
            0 => dice.below(rails + 1),
            1 => count * rails / topology.gpus.len(),
            _ => 1 + dice.below(4),
        };
        let want = want
            .min(free)
            .min(rails - node.bound.iter().map(|b| b.rails.len()).sum::<usize>());
        free -= want;
        demands.push(demand(&own, want as u16));
    }
    (node, demands)
}

fn effort_on(name: &str, topology: &Topology, rounds: u64) {
    let mut worst = (0, String::new());
    let mut slow = (0.0f64, String::new());
    let (mut total, mut inexact) = (0.0, 0);
    for seed in 0..rounds {
        let (node, demands) = scene(topology, &mut Dice::new(seed * 7919 + 1));
        let (own, others) = demands.split_first().unwrap();
        let start = std::time::Instant::now();
        let Ok(plan) = bind(&node, own, others) else {
            continue;
        };
        let took = start.elapsed().as_secs_f64() * 1e3;
        total += took;
        inexact += usize::from(!plan.exact);
        let text = format!(
            "seed {seed} shares {} exact {} {:?} {demands:?}",
            node.shares_per_rail, plan.exact, node.bound
        );
        if took > slow.0 {
            slow = (took, text.clone());
        }
        if plan.effort > worst.0 {
            worst = (plan.effort, text);
        }
    }
    println!(
        "{name}: mean {:.3} ms, inexact {inexact}\n  slowest {slow:?}\n  worst {worst:?}",
        total / rounds as f64
    );
}

#[test]
fn effort() {
    effort_on("b4", &b4_8(), 2000);
    effort_on("h100", &h100_8(), 2000);
    effort_on("s8", &s8(), 2000);
    effort_on("dgx", &dgx_32(), 500);
    effort_on("b4 no numa", &without_numa(b4_8()), 2000);
}
