//! Menus: what rails of each class cost one pod at certain prices, as a bound for its patterns.

use super::cost::Cost;
use super::prices::{Prices, transport};
use super::problem::{Need, Problem, signed};
use super::standing::{Standing, Table};

/// What rails cost one need at certain prices.
#[derive(Debug)]
pub(super) struct Menu {
    terms: Terms,
    /// Price of a rail of each class.
    prices: Vec<Cost>,
    /// What the takers pay in any case.
    fixed: Cost,
    /// Cost of rails of each class, with the least that the distances can be.
    steps: Vec<Vec<Cost>>,
    /// Cheapest way to take so many rails from the classes from here on.
    tails: Vec<Vec<Option<Cost>>>,
}

/// What a menu is made from.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// What all else costs at least.
    beside: Cost,
    /// Price of a parcel of each class.
    entry: Vec<Cost>,
    /// What each taker pays for a parcel: any prices make a bound, some a good one.
    takers: Vec<Cost>,
    /// NICs that are split, by class and number of rails.
    splits: Vec<Table>,
}

impl Terms {
    /// Those of the need at `place`.
    pub(super) fn of(standing: &Standing, prices: &Prices, place: usize, beside: Cost) -> Self {
        let open = place.saturating_sub(standing.served());
        Self {
            beside,
            entry: prices.entry.clone(),
            takers: prices.takers.get(open).cloned().unwrap_or_default(),
            splits: standing.splits(place),
        }
    }
}

impl Menu {
    /// That of the need at `place`.
    pub(super) fn new(problem: &Problem, place: usize, terms: Terms) -> Self {
        let none = Need::default();
        let need = problem.needs.get(place).unwrap_or(&none);
        let mut steps = steps(problem, need, &terms);
        let share = problem.parcels() / signed(need.parts());
        let paid: Cost = terms.takers.iter().map(|paid| *paid * share).sum();
        if place > 0 {
            let missing = Cost::missing(problem.unit()) - paid;
            let counts = 0..=signed(need.rails);
            steps.push(counts.map(|k| missing * k).collect());
        }
        let rail = |entry: &Cost| *entry * problem.parcels();
        Self {
            fixed: paid * signed(need.rails),
            prices: terms.entry.iter().map(rail).collect(),
            tails: tails(&steps, need.rails),
            steps,
            terms,
        }
    }

    /// The same menu with other prices paid by the takers.
    pub(super) fn paid(&self, problem: &Problem, place: usize, takers: Vec<Cost>) -> Self {
        let terms = Terms {
            takers,
            ..self.terms.clone()
        };
        Self::new(problem, place, terms)
    }

    /// How many numbers of rails there are to choose from, for so many classes done; none at the
    /// end.
    pub(super) fn choices(&self, done: usize) -> Option<usize> {
        self.steps.get(done).map(Vec::len)
    }

    /// Classes, and one more where rails may be missing.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Lower bound for all patterns that begin like this and have so many rails to go.
    pub(super) fn bound(&self, counts: &[usize], left: usize) -> Option<Cost> {
        let steps = self.steps.iter().zip(counts);
        let spent = steps.filter_map(|(steps, count)| steps.get(*count).copied());
        let tail = self.tails.get(counts.len());
        let tail = tail.and_then(|tail| *tail.get(left)?)?;
        Some(self.terms.beside + self.fixed + spent.sum() + tail)
    }

    /// Lower bound for a pattern that costs so much apart from the prices.
    pub(super) fn whole(&self, counts: &[usize], apart: Cost) -> Cost {
        let paid = self.prices.iter().zip(counts);
        let paid = paid.map(|(price, count)| *price * signed(*count));
        self.terms.beside + apart + paid.sum()
    }
}

/// By class and number of rails: split NICs, and the least that prices and distances can be.
fn steps(problem: &Problem, need: &Need, terms: &Terms) -> Vec<Vec<Cost>> {
    let classes = problem.classes.iter().zip(&terms.entry).zip(&terms.splits);
    let steps = classes.map(|((class, entry), split)| {
        let takers = need.takers().into_iter().zip(&terms.takers);
        let cost = |gpu| transport(class, gpu) * problem.parcel() + *entry;
        let parcels = takers.map(|(gpu, paid)| cost(gpu) - *paid).collect();
        let filled = filled(problem, need, parcels);
        let both = split.iter().zip(filled);
        both.map(|(split, rails)| *split + rails).collect()
    });
    steps.collect()
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
