//! Patterns of one pod: how many rails of each class it takes, cheapest first.

use super::cost::Cost;
use super::flow::{Network, UNLIMITED};
use super::ports;
use super::prices::{Prices, transport};
use super::problem::{Class, Need, Problem, signed};

/// Rails per class; for other pods one entry more: rails that they do without.
pub(super) type Counts = Vec<usize>;

/// Patterns of one pod beyond these are not looked at.
const BOUND: usize = 20_000;

/// A pattern with its cost.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) counts: Counts,
    /// At the prices, split NICs included: comparable with [`Menu::least`].
    pub(super) priced: Cost,
    /// Distance, hops and what is missing: the part of the plan's cost that depends on this pod
    /// alone.
    pub(super) plain: Cost,
}

/// What each class costs a pod at the prices, a lower bound for the distances of its GPUs included.
#[derive(Debug)]
pub(super) struct Menu {
    /// By class and number of rails: prices and split NICs, without distances.
    besides: Table,
    /// The same with the least that the distances can be.
    steps: Table,
    /// Cheapest way to take so many rails from the classes from here on.
    tails: Vec<Vec<Option<Cost>>>,
    /// What the takers pay in any case.
    fixed: Cost,
    rails: usize,
}

/// Costs by class and number of rails.
type Table = Vec<Vec<Cost>>;

impl Menu {
    /// The menu of the need at `place`.
    pub(super) fn of(problem: &Problem, place: usize, prices: &Prices) -> Self {
        let none = Need::default();
        let need = problem.needs.get(place).unwrap_or(&none);
        let paid = prices.takers.get(place).map_or(&[][..], Vec::as_slice);
        let (mut besides, mut steps): (Table, Table) = (vec![], vec![]);
        for (class, entry) in problem.classes.iter().zip(&prices.entry) {
            let alone = ports::alone(class, place == 0);
            let rail = *entry * problem.half();
            besides.push(
                (0..)
                    .zip(&alone)
                    .map(|(k, cost)| *cost + rail * k)
                    .collect(),
            );
            let takers = need.takers().into_iter().zip(paid);
            let units = takers.map(|(gpu, paid)| transport(class, gpu) * 2 + *entry - *paid);
            let filled = filled(problem, need, units.collect());
            steps.push(
                alone
                    .iter()
                    .zip(filled)
                    .map(|(cost, rails)| *cost + rails)
                    .collect(),
            );
        }
        let share = problem.half() / signed(need.parts());
        let paid: Cost = paid.iter().map(|paid| *paid * share).sum();
        if place > 0 {
            let missing = missing(problem.unit()) - paid;
            let counts = 0..=signed(need.rails);
            steps.push(counts.map(|k| missing * k).collect());
        }
        Self {
            besides,
            tails: tails(&steps, need.rails),
            steps,
            fixed: paid * signed(need.rails),
            rails: need.rails,
        }
    }

    /// No pattern costs less; none where there are too few rails.
    pub(super) fn least(&self) -> Option<Cost> {
        Some(self.fixed + self.tail(0, self.rails)?)
    }

    /// A pattern that costs the least by this menu, with at most so many rails of each class.
    pub(super) fn first(&self, room: &[usize]) -> Option<Counts> {
        let limits = room.iter().copied().chain([usize::MAX]);
        let steps = self.steps.iter().zip(limits).map(|(class, limit)| {
            let allowed = limit.saturating_add(1);
            class.iter().take(allowed).copied().collect()
        });
        let steps: Table = steps.collect();
        let menu = Self {
            besides: vec![],
            tails: tails(&steps, self.rails),
            steps,
            ..*self
        };
        let limit = menu.least()?;
        let mut walk = Walk::new(&menu, 1);
        walk.go(self.rails, menu.fixed, &|cost| cost <= limit);
        walk.found.pop()
    }

    /// All patterns that cost less than `limit`, and whether these are all.
    pub(super) fn below(&self, limit: Cost) -> (Vec<Counts>, bool) {
        let mut walk = Walk::new(self, BOUND);
        walk.go(self.rails, self.fixed, &|cost| cost < limit);
        (walk.found, !walk.cut)
    }

    fn tail(&self, class: usize, rails: usize) -> Option<Cost> {
        self.tails.get(class)?.get(rails).copied().flatten()
    }
}

/// For each class, the cheapest way to take so many rails from it and the later ones.
fn tails(steps: &Table, rails: usize) -> Vec<Vec<Option<Cost>>> {
    let mut last: Vec<Option<Cost>> = vec![None; rails + 1];
    if let Some(end) = last.first_mut() {
        *end = Some(Cost::default());
    }
    let mut tails = vec![last];
    for class in steps.iter().rev() {
        let next = tails.last().map_or(&[][..], Vec::as_slice);
        let tail = (0..=rails).map(|want| {
            let ways = class.iter().zip(0..=want);
            ways.filter_map(|(cost, k)| Some(*cost + (*next.get(want - k)?)?))
                .min()
        });
        let tail = tail.collect();
        tails.push(tail);
    }
    tails.reverse();
    tails
}

/// The least that 0, 1, 2, … rails of a class cost, given what two units cost each taker: the
/// cheapest taker first, but none takes more than its share of all rails.
fn filled(problem: &Problem, need: &Need, mut costs: Vec<Cost>) -> impl Iterator<Item = Cost> {
    costs.sort_unstable();
    let pairs = problem.half();
    let part = signed(need.rails) * pairs / signed(need.parts());
    (0..).map(move |rails: i64| {
        let mut left = rails * pairs;
        let parts = costs.iter().map(|cost| {
            let taken = part.min(left);
            left -= taken;
            *cost * taken
        });
        parts.sum()
    })
}

fn missing(unit: i64) -> Cost {
    Cost {
        unmet: unit,
        ..Cost::default()
    }
}

struct Walk<'a> {
    menu: &'a Menu,
    counts: Counts,
    found: Vec<Counts>,
    most: usize,
    cut: bool,
}

impl<'a> Walk<'a> {
    fn new(menu: &'a Menu, most: usize) -> Self {
        Self {
            menu,
            counts: vec![],
            found: vec![],
            most,
            cut: false,
        }
    }

    /// Continues with the next class; early classes have the low rails, so much of them comes first.
    fn go(&mut self, left: usize, spent: Cost, allowed: &impl Fn(Cost) -> bool) {
        let class = self.counts.len();
        let Some(steps) = self.menu.steps.get(class) else {
            self.found.push(self.counts.clone());
            return;
        };
        for (count, cost) in steps.iter().enumerate().take(left + 1).rev() {
            let spent = spent + *cost;
            let Some(tail) = self.menu.tail(class + 1, left - count) else {
                continue;
            };
            if !allowed(spent + tail) {
                continue;
            }
            if self.found.len() >= self.most {
                self.cut = true;
                return;
            }
            self.counts.push(count);
            self.go(left - count, spent, allowed);
            self.counts.pop();
        }
    }
}

impl Pattern {
    /// Exact costs of a pattern of the need at `place`.
    pub(super) fn of(problem: &Problem, place: usize, menu: &Menu, counts: Counts) -> Self {
        let gpus = problem.needs.get(place).map_or(&[][..], |need| &need.gpus);
        let missed = counts.get(problem.classes.len()).copied().unwrap_or(0);
        let mut plain = distance(problem, gpus, &counts);
        plain.unmet = signed(missed) * problem.unit();
        let classes = menu.besides.iter().zip(&counts);
        let besides = classes.map(|(costs, count)| costs.get(*count).copied().unwrap_or_default());
        Self {
            priced: plain + besides.sum(),
            plain,
            counts,
        }
    }
}

/// Distance and hops of equal shares.
fn distance(problem: &Problem, gpus: &[usize], counts: &[usize]) -> Cost {
    let flows = flows(&problem.classes, gpus, counts);
    let part = problem.unit() / signed(gpus.len().max(1));
    let costs = flows.iter().filter_map(|flow| {
        let class = problem.classes.get(flow.class)?;
        Some(transport(class, Some(flow.gpu)) * flow.amount)
    });
    costs.sum::<Cost>() * part
}

/// What a GPU takes from the rails of a class, in units of 1/GPUs of a rail.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) class: usize,
    pub(super) gpu: usize,
    pub(super) amount: i64,
}

/// The cheapest equal shares: each GPU gets as much as any other, each rail gives as much.
pub(super) fn flows(classes: &[Class], gpus: &[usize], counts: &[usize]) -> Vec<Flow> {
    let used = || classes.iter().zip(counts).enumerate();
    let used = || used().filter(|(_, (_, count))| **count > 0);
    if let [gpu] = *gpus {
        let all = used().map(|(class, (_, count))| Flow {
            class,
            gpu,
            amount: signed(*count),
        });
        return all.collect();
    }
    let mut network: Network<i128> = Network::default();
    let (source, sink) = (network.node(), network.node());
    let rails: usize = used().map(|(_, (_, count))| count).sum();
    let takers: Vec<(usize, usize)> = gpus.iter().map(|gpu| (*gpu, network.node())).collect();
    for (_, taker) in &takers {
        network.arc((source, *taker), signed(rails), 0);
    }
    let mut arcs = vec![];
    for (position, (class, count)) in used() {
        let node = network.node();
        network.arc((node, sink), signed(count * gpus.len()), 0);
        for (gpu, taker) in &takers {
            let arc = network.arc((*taker, node), UNLIMITED, packed(class, *gpu));
            arcs.push((position, *gpu, arc));
        }
    }
    network.route(source, sink);
    let all = arcs.into_iter().map(|(class, gpu, arc)| Flow {
        class,
        gpu,
        amount: network.flow(arc),
    });
    all.filter(|flow| flow.amount > 0).collect()
}

/// Level first, hops second, as one number.
fn packed(class: &Class, gpu: usize) -> i128 {
    let distance = class.distance(Some(gpu));
    (i128::from(distance.level.rank()) << 64) + i128::from(distance.hops)
}
