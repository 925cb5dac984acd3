//! Prices of rails: with them, pods that compete for the same rails can be looked at one by one.
//!
//! The choice is relaxed to a minimum-cost flow from GPUs through classes to shares, in which a
//! rail may be cut; GPUs that are still free send their wishes through it too, at a cost that
//! matters last. The prices of its nodes are Lagrange multipliers: what the pods pay for rails is
//! given back as a constant ([`Prices::base`]), and the sum of every pod's cheapest choice at these
//! prices is never above the cost of the best plan.

use super::cost::Cost;
use super::flow::{Network, UNLIMITED};
use super::problem::{Class, Need, Port, Problem, signed};
use super::standing::Standing;

/// What a free GPU pays for a share that it cannot get: one more than the farthest level.
pub(super) const NOTHING_LEFT: i64 = 5;

/// Prices of parcels ([`Problem::parcel`]).
///
/// Many prices would do. At the ends of their ranges, either those who need a rail or those who
/// could do without it would not care; so this is an average, with one set of prices as seen from
/// each class and one as seen from the shares that are left.
#[derive(Debug)]
pub(super) struct Prices {
    /// Of a share of each class for a pod.
    pub(super) entry: Vec<Cost>,
    /// For each need that is still open: what each of its takers pays at the margin.
    pub(super) takers: Vec<Vec<Cost>>,
    /// To be added to the pods' cheapest choices for a lower bound of the whole.
    pub(super) base: Cost,
}

impl Prices {
    /// With some needs already served; with a limit, the first open need takes at most so many
    /// rails of each class.
    pub(super) fn of(problem: &Problem, standing: &Standing, limit: Option<&[usize]>) -> Self {
        let room: Vec<usize> = standing.room().collect();
        let mut relaxed = Relaxed::new(problem);
        for (class, taken) in problem.classes.iter().zip(standing.taken()) {
            relaxed.add_class(class, taken);
        }
        for (place, need) in problem.needs.iter().enumerate().skip(standing.served()) {
            let limit = limit.filter(|_| place == standing.served());
            relaxed.add_need(need, place == 0, limit.unwrap_or(&room));
        }
        for gpu in &problem.spare {
            relaxed.add_spare(*gpu);
        }
        relaxed.network.route(relaxed.source, relaxed.sink);
        let references: Vec<usize> = match limit {
            // What a rail less would save: how far the pattern is from one that costs less.
            Some(_) => vec![relaxed.sink; problem.classes.len() + 1],
            None => relaxed.references().collect(),
        };
        let prices = relaxed.network.prices(relaxed.sink, &references);
        let price = |node: &usize| prices.get(*node).copied().unwrap_or_default();
        let legal = |node: &usize| price(node).max(Cost::default());
        let (entry, share): (Vec<Cost>, Vec<Cost>) = relaxed
            .classes
            .iter()
            .map(|class| (legal(&class.entry), legal(&class.share)))
            .unzip();
        let takers = relaxed.takers.iter();
        Self {
            base: base(problem, standing, (&entry, &share)),
            takers: takers
                .map(|nodes| nodes.iter().map(price).collect())
                .collect(),
            entry,
        }
    }
}

/// More rails than can be missing elsewhere because the own pod gets one.
const LAST_RESORT: i64 = 1 << 10;

/// Cost of a unit between a taker and a class.
pub(super) fn transport(class: &Class, taker: Option<usize>) -> Cost {
    let distance = class.distance(taker);
    Cost {
        distance: i64::from(distance.level.rank()),
        hops: i64::from(distance.hops),
        ..Cost::default()
    }
}

/// Cost of a unit that a free GPU takes from a class.
fn harm(class: &Class, gpu: usize) -> Cost {
    Cost {
        harm: i64::from(class.distance(Some(gpu)).level.rank()),
        ..Cost::default()
    }
}

const UNMET: Cost = Cost {
    unmet: 1,
    distance: 0,
    load: 0,
    split: 0,
    broken: 0,
    hops: 0,
    harm: 0,
    order: 0,
};

const NO_SHARE: Cost = Cost {
    unmet: 0,
    harm: NOTHING_LEFT,
    ..UNMET
};

/// What further pods on the rails of a class add to the load at least, once `taken` shares are
/// taken: the next one, the one after it, …
///
/// A port with h holders and t new ones has a load of t (h + t - 1).
fn load_steps(class: &Class, taken: usize) -> impl Iterator<Item = i64> {
    all_load_steps(class).into_iter().skip(taken)
}

fn all_load_steps(class: &Class) -> Vec<i64> {
    let of = |port: &Port| {
        let held = port.held;
        (0..port.free).map(move |before| signed(held + 2 * before))
    };
    let mut steps: Vec<i64> = class.ports().flat_map(of).collect();
    steps.sort_unstable();
    steps
}

fn load(step: i64) -> Cost {
    Cost {
        load: step,
        ..Cost::default()
    }
}

struct ClassNodes {
    entry: usize,
    share: usize,
}

struct Relaxed<'a> {
    problem: &'a Problem,
    network: Network<Cost>,
    source: usize,
    sink: usize,
    classes: Vec<ClassNodes>,
    takers: Vec<Vec<usize>>,
}

impl<'a> Relaxed<'a> {
    fn new(problem: &'a Problem) -> Self {
        let mut network = Network::default();
        let (source, sink) = (network.node(), network.node());
        Self {
            problem,
            network,
            source,
            sink,
            classes: vec![],
            takers: vec![],
        }
    }

    fn references(&self) -> impl Iterator<Item = usize> {
        let entries = self.classes.iter().map(|class| class.entry);
        entries.chain([self.sink])
    }

    fn units(&self, count: usize) -> i64 {
        signed(count) * self.problem.unit()
    }

    fn add_class(&mut self, class: &Class, taken: usize) {
        let (entry, share) = (self.network.node(), self.network.node());
        let steps: Vec<i64> = load_steps(class, taken).collect();
        for equal in steps.chunk_by(|a, b| a == b) {
            let room = self.units(equal.len());
            let step = equal.first().copied().unwrap_or_default();
            self.network.arc((entry, share), room, load(step));
        }
        let room = self.units(steps.len());
        self.network.arc((share, self.sink), room, Cost::default());
        self.classes.push(ClassNodes { entry, share });
    }

    fn add_need(&mut self, need: &Need, own: bool, room: &[usize]) {
        let part = self.units(need.rails) / signed(need.parts());
        let free = Cost::default();
        let takers: Vec<usize> = need.takers().iter().map(|_| self.network.node()).collect();
        for taker in &takers {
            self.network.arc((self.source, *taker), part, free);
            // The own pod always gets its rails; without a way out its prices would know no limit.
            let unmet = if own { UNMET * LAST_RESORT } else { UNMET };
            self.network.arc((*taker, self.sink), UNLIMITED, unmet);
        }
        let classes = self.problem.classes.iter().zip(&self.classes);
        for ((class, nodes), rails) in classes.zip(room) {
            let gate = self.network.node();
            let room = signed(*rails) * self.problem.unit();
            self.network.arc((gate, nodes.entry), room, free);
            for (taker, gpu) in takers.iter().zip(need.takers()) {
                let cost = transport(class, gpu);
                self.network.arc((*taker, gate), UNLIMITED, cost);
            }
        }
        self.takers.push(takers);
    }

    fn add_spare(&mut self, gpu: usize) {
        let node = self.network.node();
        let room = self.units(self.problem.fair);
        self.network.arc((self.source, node), room, Cost::default());
        self.network.arc((node, self.sink), UNLIMITED, NO_SHARE);
        for (class, nodes) in self.problem.classes.iter().zip(&self.classes) {
            self.network
                .arc((node, nodes.share), UNLIMITED, harm(class, gpu));
        }
    }
}

/// The least that loads, capacities and free GPUs can add to what the pods pay. Valid for any
/// entry prices, and any share prices that are not negative.
fn base(problem: &Problem, standing: &Standing, prices: (&[Cost], &[Cost])) -> Cost {
    let parcel = problem.parcel();
    let classes = || problem.classes.iter().zip(prices.0.iter().zip(prices.1));
    let kept = classes().zip(standing.taken());
    let kept = kept.map(|((class, (entry, share)), taken)| {
        let margin = *entry - *share;
        let gain = |step| (load(step) * parcel - margin).min(Cost::default());
        let before = all_load_steps(class).into_iter().take(taken).sum();
        let after = load_steps(class, taken).map(|step| gain(step) - *share);
        load(before) * parcel + after.sum()
    });
    let spare = problem.spare.iter().map(|gpu| {
        let best = classes().map(|(class, (_, share))| harm(class, *gpu) * parcel + *share);
        best.fold(NO_SHARE * parcel, Ord::min) * signed(problem.fair)
    });
    (kept.sum::<Cost>() + spare.sum()) * problem.parcels()
}

/// Harm of what is left: free shares by class.
pub(super) fn harm_of(problem: &Problem, left: &[usize]) -> Cost {
    let mut network: Network<i64> = Network::default();
    let (source, sink) = (network.node(), network.node());
    let mut shares = vec![];
    for left in left {
        let node = network.node();
        network.arc((node, sink), signed(*left), 0);
        shares.push(node);
    }
    let mut arcs = vec![];
    for gpu in &problem.spare {
        let node = network.node();
        let wish = signed(problem.fair);
        network.arc((source, node), wish, 0);
        arcs.push((network.arc((node, sink), wish, NOTHING_LEFT), NOTHING_LEFT));
        for (class, share) in problem.classes.iter().zip(&shares) {
            let cost = harm(class, *gpu).harm;
            arcs.push((network.arc((node, *share), wish, cost), cost));
        }
    }
    network.route(source, sink);
    let total: i64 = arcs
        .iter()
        .map(|(arc, cost)| network.flow(*arc) * cost)
        .sum();
    Cost {
        harm: total * problem.unit(),
        ..Cost::default()
    }
}
