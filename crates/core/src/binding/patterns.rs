//! Patterns of one pod: how many rails of each class it takes, in the order of their bounds.

use super::cost::Cost;
use super::menu::Menu;
use super::problem::{Problem, signed};
use super::shares::Shares;
use super::standing::{Standing, Table};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How often a menu is improved because the distances of a pattern proved longer than it says.
const IMPROVEMENTS: usize = 16;

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

/// The patterns of one need, one after the other, in the order of their lower bounds.
#[derive(Debug)]
pub(super) struct Patterns<'a> {
    problem: &'a Problem,
    shares: &'a Shares,
    place: usize,
    splits: Vec<Table>,
    /// What the bounds come from; never empty.
    menus: Vec<Menu>,
    /// How many of them come from distances.
    improved: usize,
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
        shares: &'a Shares,
        (standing, place): (&Standing, usize),
        menu: Menu,
    ) -> Self {
        let rails = problem.needs.get(place).map_or(0, |need| need.rails);
        let mut patterns = Self {
            problem,
            shares,
            place,
            splits: standing.splits(place),
            menus: vec![menu],
            improved: 0,
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

    /// How many menus were given.
    pub(super) fn menus(&self) -> usize {
        self.menus.len() - self.improved
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
        let end = self.menus.first().map_or(0, Menu::len);
        if let Some(bound) = bounds.and_then(|bounds| bounds.into_iter().max()) {
            self.open.push(Reverse(Open {
                bound,
                todo: usize::from(plain.is_none()) + end - counts.len(),
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
        let Reverse(counts) = &open.counts;
        let choices = self
            .menus
            .first()
            .and_then(|menu| menu.choices(counts.len()));
        match choices {
            _ if open.menus < self.menus.len() => {
                self.push(counts.clone(), open.left, open.plain);
            }
            Some(choices) => {
                for count in (0..choices).take(open.left + 1) {
                    let longer = counts.iter().copied().chain([count]).collect();
                    self.push(longer, open.left - count, None);
                }
            }
            None => self.measure(open),
        }
    }

    /// Finds the distance of a whole pattern. If it is longer than thought, so it is for all of its
    /// kind: its prices become part of the bounds.
    fn measure(&mut self, open: Open) {
        let Reverse(counts) = open.counts;
        let share = self.shares.of(self.problem, self.place, &counts);
        self.effort += share.effort;
        let missed = counts.get(self.problem.classes.len()).copied().unwrap_or(0);
        let missed = Cost::missing(self.problem.unit()) * signed(missed);
        let plain = share.cost + missed;
        let apart = plain + self.split(&counts);
        let menus = self.menus.iter();
        let best = menus.max_by_key(|menu| menu.whole(&counts, apart));
        let longer = |menu: &&Menu| menu.whole(&counts, apart).priceable() > open.bound.priceable();
        if let Some(best) = best.filter(longer).filter(|_| self.improved < IMPROVEMENTS)
            && !share.takers.is_empty()
        {
            let menu = best.paid(self.problem, self.place, share.takers.to_vec());
            self.menus.push(menu);
            self.improved += 1;
        }
        self.push(counts, open.left, Some(plain));
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
