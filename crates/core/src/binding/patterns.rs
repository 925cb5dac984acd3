//! Patterns of one pod: how many rails of each class it takes, cheapest first.

use super::cost::Cost;
use super::flow::{Network, UNLIMITED};
use super::prices::{Prices, transport};
use super::problem::{Class, Need, Problem, signed};
use super::standing::{Standing, Table};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::btree_map::{BTreeMap, Entry};

/// Rails per class; for other pods one entry more: rails that they do without.
pub(super) type Counts = Vec<usize>;

/// A pattern with its cost.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) counts: Counts,
    /// Distance, hops and what is missing: the part of the plan's cost that depends on this pod
    /// alone.
    pub(super) plain: Cost,
    /// The NICs that it splits at least, beside those before it.
    pub(super) split: Cost,
}

/// Distances and hops of patterns that were asked for before.
#[derive(Debug, Default)]
pub(super) struct Distances(RefCell<BTreeMap<(usize, Counts), Cost>>);

/// What a distance that has to be found counts as, in candidates.
const FLOWING: usize = 20;

/// What rails cost one need at certain prices.
#[derive(Debug)]
pub(super) struct Menu {
    /// What its takers pay in any case, and whatever else is to be added.
    fixed: Cost,
    /// What all else costs at least.
    beside: Cost,
    /// Price of a rail of each class.
    prices: Vec<Cost>,
    /// Cost of rails of each class, with the least that the distances can be.
    steps: Vec<Vec<Cost>>,
    /// Cheapest way to take so many rails from the classes from here on.
    tails: Vec<Vec<Option<Cost>>>,
}

impl Menu {
    /// That of the need at `place`.
    pub(super) fn of(
        problem: &Problem,
        (standing, prices): (&Standing, &Prices),
        place: usize,
        beside: Cost,
    ) -> Self {
        let none = Need::default();
        let need = problem.needs.get(place).unwrap_or(&none);
        let open = place.saturating_sub(standing.served());
        let paid = prices.takers.get(open).map_or(&[][..], Vec::as_slice);
        let mut steps: Vec<Vec<Cost>> = vec![];
        let splits = standing.splits(place);
        let classes = problem.classes.iter().zip(&prices.entry).zip(splits);
        for ((class, entry), split) in classes {
            let takers = need.takers().into_iter().zip(paid);
            let cost = |gpu| transport(class, gpu) * problem.parcel() + *entry;
            let parcels = takers.map(|(gpu, paid)| cost(gpu) - *paid).collect();
            let filled = filled(problem, need, parcels);
            steps.push(
                split
                    .iter()
                    .zip(filled)
                    .map(|(cost, rails)| *cost + rails)
                    .collect(),
            );
        }
        let share = problem.parcels() / signed(need.parts());
        let paid: Cost = paid.iter().map(|paid| *paid * share).sum();
        if place > 0 {
            let missing = missing(problem.unit()) - paid;
            let counts = 0..=signed(need.rails);
            steps.push(counts.map(|k| missing * k).collect());
        }
        let prices = prices.entry.iter().map(|entry| *entry * problem.parcels());
        Self {
            fixed: paid * signed(need.rails),
            beside,
            prices: prices.collect(),
            tails: tails(&steps, need.rails),
            steps,
        }
    }

    /// Lower bound for all patterns that begin like this and have so many rails to go.
    fn bound(&self, counts: &[usize], left: usize) -> Option<Cost> {
        let steps = self.steps.iter().zip(counts);
        let spent = steps.filter_map(|(steps, count)| steps.get(*count).copied());
        let tail = self
            .tails
            .get(counts.len())
            .and_then(|tail| *tail.get(left)?)?;
        Some(self.beside + self.fixed + spent.sum() + tail)
    }

    /// Lower bound for a pattern that costs so much apart from the prices.
    fn whole(&self, counts: &[usize], apart: Cost) -> Cost {
        let paid = self.prices.iter().zip(counts);
        let paid = paid.map(|(price, count)| *price * signed(*count));
        self.beside + apart + paid.sum()
    }
}

/// The patterns of one need, one after the other, in the order of their lower bounds.
#[derive(Debug)]
pub(super) struct Patterns<'a> {
    problem: &'a Problem,
    distances: &'a Distances,
    place: usize,
    splits: Vec<Table>,
    /// What the bounds come from; never empty.
    menus: Vec<Menu>,
    open: BinaryHeap<Reverse<Open>>,
    /// Beginnings and patterns that were looked at.
    pub(super) effort: usize,
}

/// The beginning of a pattern, or a whole one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    /// A lower bound.
    bound: Cost,
    /// What is nearer to its end comes first.
    todo: usize,
    /// Early classes have the low rails, so much of them comes first.
    counts: Reverse<Counts>,
    /// Rails to go.
    left: usize,
    /// Exact distance of a whole pattern.
    plain: Option<Cost>,
    /// How many menus the bound takes into account.
    menus: usize,
}

impl<'a> Patterns<'a> {
    /// Those of the need at `place`, in the order of a menu.
    pub(super) fn of(
        problem: &'a Problem,
        distances: &'a Distances,
        (standing, place): (&Standing, usize),
        menu: Menu,
    ) -> Self {
        let rails = problem.needs.get(place).map_or(0, |need| need.rails);
        let mut patterns = Self {
            problem,
            distances,
            place,
            splits: standing.splits(place),
            menus: vec![menu],
            open: BinaryHeap::new(),
            effort: 0,
        };
        patterns.push(vec![], rails, None);
        patterns
    }

    /// Takes one more menu into account.
    pub(super) fn add(&mut self, menu: Menu) {
        self.menus.push(menu);
    }

    /// How many menus there are.
    pub(super) fn menus(&self) -> usize {
        self.menus.len()
    }

    /// The next pattern's lower bound.
    pub(super) fn least(&mut self) -> Option<Cost> {
        loop {
            let Reverse(open) = self.open.peek()?;
            if open.plain.is_some() && open.menus == self.menus.len() {
                return Some(open.bound);
            }
            self.refine();
        }
    }

    fn push(&mut self, counts: Counts, left: usize, plain: Option<Cost>) {
        let split = self.split(&counts);
        let bound = |menu: &Menu| match plain {
            Some(plain) => Some(menu.whole(&counts, plain + split)),
            None => menu.bound(&counts, left),
        };
        // Where one menu knows no way to go on, there is none.
        let bounds: Option<Vec<Cost>> = self.menus.iter().map(bound).collect();
        let classes = self.menus.first().map_or(0, |menu| menu.steps.len());
        if let Some(bound) = bounds.and_then(|bounds| bounds.into_iter().max()) {
            self.open.push(Reverse(Open {
                bound,
                todo: usize::from(plain.is_none()) + classes - counts.len(),
                counts: Reverse(counts),
                left,
                plain,
                menus: self.menus.len(),
            }));
        }
    }

    /// Replaces the cheapest open entry by its continuations, or tells more about it.
    fn refine(&mut self) {
        let Some(Reverse(open)) = self.open.pop() else {
            return;
        };
        self.effort += 1;
        let Reverse(counts) = open.counts;
        if open.menus < self.menus.len() {
            self.push(counts, open.left, open.plain);
            return;
        }
        let steps = self
            .menus
            .first()
            .and_then(|menu| menu.steps.get(counts.len()));
        let Some(most) = steps.map(Vec::len) else {
            let (plain, effort) = self.distances.of(self.problem, self.place, &counts);
            self.effort += effort;
            self.push(counts, open.left, Some(plain));
            return;
        };
        for count in (0..most).take(open.left + 1) {
            let longer = counts.iter().copied().chain([count]).collect();
            self.push(longer, open.left - count, None);
        }
    }

    fn split(&self, counts: &[usize]) -> Cost {
        let classes = self.splits.iter().zip(counts);
        let costs = classes.filter_map(|(split, count)| split.get(*count).copied());
        costs.sum()
    }
}

impl Iterator for Patterns<'_> {
    type Item = Pattern;

    fn next(&mut self) -> Option<Pattern> {
        self.least()?;
        let Reverse(open) = self.open.pop()?;
        let Reverse(counts) = open.counts;
        Some(Pattern {
            split: self.split(&counts),
            plain: open.plain?,
            counts,
        })
    }
}

/// For each class, the cheapest way to take so many rails from it and the later ones.
fn tails(steps: &[Vec<Cost>], rails: usize) -> Vec<Vec<Option<Cost>>> {
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

/// The least that 0, 1, 2, … rails of a class cost, given what a parcel costs each taker: the
/// cheapest taker first, but none takes more than its share of all rails.
fn filled(problem: &Problem, need: &Need, mut costs: Vec<Cost>) -> impl Iterator<Item = Cost> {
    costs.sort_unstable();
    let parcels = problem.parcels();
    let part = signed(need.rails) * parcels / signed(need.parts());
    (0..).map(move |rails: i64| {
        let mut left = rails * parcels;
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

impl Distances {
    /// Distance, hops and what is missing in a pattern of the need at `place`, and the effort.
    fn of(&self, problem: &Problem, place: usize, counts: &[usize]) -> (Cost, usize) {
        let mut known = self.0.borrow_mut();
        match known.entry((place, counts.to_vec())) {
            Entry::Occupied(known) => (*known.get(), 0),
            Entry::Vacant(unknown) => {
                let need = problem.needs.get(place);
                let gpus = need.map_or(&[][..], |need| &need.gpus);
                let missed = counts.get(problem.classes.len()).copied().unwrap_or(0);
                let missed = missing(problem.unit()) * signed(missed);
                let found = *unknown.insert(distance(problem, gpus, counts) + missed);
                (found, if gpus.len() > 1 { FLOWING } else { 0 })
            }
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
