//! The search for the best plan: a bound from prices, then the few patterns that could beat it.

use super::cost::Cost;
use super::patterns::{Counts, Menu, Pattern};
use super::ports;
use super::prices::{Prices, harm_of};
use super::problem::{Problem, signed};
use std::collections::BTreeMap;

/// Candidates after which the best plan so far is taken.
const BOUND: usize = 200_000;

/// The best plan, by class.
#[derive(Debug)]
pub(super) struct Solution {
    /// Rails per class of each need.
    pub(super) counts: Vec<Counts>,
    /// Whether nothing better exists.
    pub(super) exact: bool,
    /// Candidates that were looked at.
    pub(super) effort: usize,
}

/// Finds it. The own need must not ask for more rails than there are with a free share.
pub(super) fn solve(problem: &Problem) -> Solution {
    let prices = Prices::of(problem);
    let places = 0..problem.needs.len();
    let menus: Vec<Menu> = places
        .map(|place| Menu::of(problem, place, &prices))
        .collect();
    let least: Vec<Cost> = menus
        .iter()
        .map(|menu| menu.least().unwrap_or_default())
        .collect();
    let bound = prices.base + least.iter().copied().sum();
    let mut search = Search::new(problem);
    search.try_greedy(&menus);
    let lists = search.lists(&menus, &least, bound);
    search.descend(&lists, prices.base);
    let exact = search.exact || search.cost <= bound;
    Solution {
        counts: search.best,
        exact: exact && problem.is_complete(),
        effort: search.effort,
    }
}

/// Patterns of a need, cheapest first, and the least that all later needs cost.
struct List {
    patterns: Vec<Pattern>,
    later: Cost,
}

struct Search<'a> {
    problem: &'a Problem,
    best: Vec<Counts>,
    cost: Cost,
    exact: bool,
    effort: usize,
    deals: BTreeMap<(usize, Vec<usize>), Option<Cost>>,
    harms: BTreeMap<Vec<usize>, Cost>,
}

const WORST: Cost = Cost {
    unmet: i64::MAX / 4,
    distance: 0,
    load: 0,
    split: 0,
    broken: 0,
    hops: 0,
    harm: 0,
    order: 0,
};

impl<'a> Search<'a> {
    fn new(problem: &'a Problem) -> Self {
        Self {
            problem,
            best: vec![],
            cost: WORST,
            exact: true,
            effort: 0,
            deals: BTreeMap::new(),
            harms: BTreeMap::new(),
        }
    }

    /// A first plan: each need in turn takes what its menu likes best of what is left.
    fn try_greedy(&mut self, menus: &[Menu]) {
        let mut chosen: Vec<Pattern> = vec![];
        for (place, menu) in menus.iter().enumerate() {
            let Some(counts) = menu.first(&self.room(&chosen)) else {
                return;
            };
            chosen.push(Pattern::of(self.problem, place, menu, counts));
        }
        let chosen: Vec<&Pattern> = chosen.iter().collect();
        self.weigh(&chosen);
    }

    /// Rails of each class that one more pod can take.
    fn room(&self, chosen: &[Pattern]) -> Vec<usize> {
        let classes = self.problem.classes.iter().enumerate();
        let most = classes.map(|(place, class)| {
            let mut wants: Vec<usize> = chosen.iter().map(|p| at(&p.counts, place)).collect();
            wants.push(0);
            let fits = |rails: &usize| {
                if let Some(last) = wants.last_mut() {
                    *last = *rails;
                }
                class.fits(&wants)
            };
            (0..=class.rails()).rev().find(fits).unwrap_or(0)
        });
        most.collect()
    }

    /// For each need the patterns that can be part of a better plan than the first one.
    fn lists(&mut self, menus: &[Menu], least: &[Cost], bound: Cost) -> Vec<List> {
        let gap = self.cost - bound;
        let mut lists = vec![];
        for (place, (menu, least)) in menus.iter().zip(least).enumerate() {
            let (found, complete) = menu.below(*least + gap);
            self.exact &= complete;
            self.effort += found.len();
            let mut patterns: Vec<Pattern> = found
                .into_iter()
                .map(|counts| Pattern::of(self.problem, place, menu, counts))
                .filter(|pattern| pattern.priced < *least + gap)
                .collect();
            patterns.sort_by_key(|pattern| pattern.priced);
            lists.push(List {
                patterns,
                later: Cost::default(),
            });
        }
        let mut later = Cost::default();
        for list in lists.iter_mut().rev() {
            list.later = later;
            later = later + list.patterns.first().map_or(WORST, |first| first.priced);
        }
        lists
    }

    fn descend(&mut self, lists: &[List], base: Cost) {
        self.go(lists, base, &mut vec![]);
    }

    fn go<'b>(&mut self, lists: &'b [List], spent: Cost, chosen: &mut Vec<&'b Pattern>) {
        let Some((list, lists)) = lists.split_first() else {
            self.weigh(chosen);
            return;
        };
        for pattern in &list.patterns {
            let spent = spent + pattern.priced;
            if spent + list.later >= self.cost {
                return;
            }
            if self.effort >= BOUND {
                self.exact = false;
                return;
            }
            self.effort += 1;
            chosen.push(pattern);
            if self.fits(chosen) {
                self.go(lists, spent, chosen);
            }
            chosen.pop();
        }
    }

    fn fits(&self, chosen: &[&Pattern]) -> bool {
        let mut classes = self.problem.classes.iter().enumerate();
        classes.all(|(place, class)| class.fits(&wants(chosen, place)))
    }

    /// The exact cost of a plan; keeps it if it is the best.
    fn weigh(&mut self, chosen: &[&Pattern]) {
        let mut cost: Cost = chosen.iter().map(|pattern| pattern.plain).sum();
        let mut left = vec![];
        for (place, class) in self.problem.classes.iter().enumerate() {
            let wants = wants(chosen, place);
            left.push(class.shares().saturating_sub(wants.iter().sum()));
            match self.deal(place, wants) {
                Some(dealt) => cost = cost + dealt,
                None => return,
            }
        }
        cost = cost + self.harm(left);
        if cost < self.cost {
            self.cost = cost;
            self.best = chosen
                .iter()
                .map(|pattern| pattern.counts.clone())
                .collect();
        }
    }

    fn deal(&mut self, place: usize, mut wants: Vec<usize>) -> Option<Cost> {
        if let Some((_, others)) = wants.split_first_mut() {
            others.sort_unstable();
        }
        let key = (place, wants);
        if let Some(known) = self.deals.get(&key) {
            return *known;
        }
        let class = self.problem.classes.get(place)?;
        let dealt = ports::cheapest(class, &key.1).map(|dealt| {
            self.effort += dealt.steps;
            self.exact &= dealt.exact;
            let load = dealt.cost.load * self.problem.unit();
            Cost { load, ..dealt.cost }
        });
        self.deals.insert(key, dealt);
        dealt
    }

    fn harm(&mut self, left: Vec<usize>) -> Cost {
        let problem = self.problem;
        *self
            .harms
            .entry(left)
            .or_insert_with_key(|left| harm_of(problem, left))
    }
}

fn wants(chosen: &[&Pattern], class: usize) -> Vec<usize> {
    chosen
        .iter()
        .map(|pattern| at(&pattern.counts, class))
        .collect()
}

fn at(counts: &[usize], class: usize) -> usize {
    counts.get(class).copied().unwrap_or(0)
}

impl Solution {
    /// Rails (positions, ascending) of each need.
    pub(super) fn rails(&self, problem: &Problem) -> Vec<Vec<usize>> {
        let mut rails = vec![vec![]; self.counts.len()];
        for (place, class) in problem.classes.iter().enumerate() {
            let wants: Vec<usize> = self.counts.iter().map(|counts| at(counts, place)).collect();
            for (all, new) in rails.iter_mut().zip(ports::rails(class, &wants)) {
                all.extend(new);
            }
        }
        rails.iter_mut().for_each(|rails| rails.sort_unstable());
        rails
    }

    /// Rails that the need at `place` does without.
    pub(super) fn missing(&self, problem: &Problem, place: usize) -> i64 {
        let counts = self.counts.get(place).map_or(&[][..], Vec::as_slice);
        signed(at(counts, problem.classes.len()))
    }
}
