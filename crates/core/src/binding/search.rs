//! The search for the best plan: pod after pod, the cheapest patterns first, as long as the prices
//! leave hope for a better plan than the best so far.

use super::cost::Cost;
use super::menu::{Menu, Terms};
use super::patterns::{Counts, Pattern, Patterns};
use super::ports;
use super::prices::{Prices, harm_of};
use super::problem::Problem;
use super::shares::Shares;
use super::standing::{Standing, Tables};
use std::collections::BTreeMap;

/// Candidates after which the best plan so far is taken.
const BOUND: usize = 50_000;

/// What finding prices counts as, in candidates.
const PRICING: usize = 50;

/// How many sets of prices are kept at each step.
const MENUS: usize = 16;

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
    let shares = Shares::default();
    let mut search = Search::new(problem, &shares);
    search.go(Cost::default(), &mut vec![]);
    Solution {
        counts: search.best,
        exact: search.exact && problem.is_complete(),
        effort: search.effort,
    }
}

/// A class, and how many rails of it each pod takes: the own first.
type Key = (usize, Vec<usize>);

struct Search<'a> {
    problem: &'a Problem,
    shares: &'a Shares,
    best: Vec<Counts>,
    /// That of the best plan.
    cost: Option<Cost>,
    exact: bool,
    effort: usize,
    tables: Tables,
    deals: BTreeMap<Key, Option<Cost>>,
    harms: BTreeMap<Vec<usize>, Cost>,
    /// Plans so far, as needs served and their rails by class, with the lowest cost of the pods by
    /// themselves.
    seen: BTreeMap<(usize, Vec<Vec<usize>>), Cost>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, shares: &'a Shares) -> Self {
        Self {
            problem,
            shares,
            best: vec![],
            cost: None,
            exact: true,
            effort: 0,
            tables: BTreeMap::new(),
            deals: BTreeMap::new(),
            harms: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Tries all continuations of a plan that can be better than the best so far. `spent` is what
    /// the pods that are served cost by themselves. Returns a lower bound for all of them.
    fn go(&mut self, spent: Cost, chosen: &mut Vec<Pattern>) -> Option<Cost> {
        if chosen.len() == self.problem.needs.len() {
            return self.weigh(chosen);
        }
        if self.is_known(chosen) {
            return Some(spent);
        }
        let standing = Standing::after(self.problem, chosen, &mut self.tables);
        let menu = self.menu(&standing, None)?;
        let here = (&standing, chosen.len());
        let mut patterns = Patterns::of(self.problem, self.shares, here, menu);
        let bound = spent + patterns.least()?;
        while let Some(least) = patterns.least() {
            self.effort += std::mem::take(&mut patterns.effort);
            if self.is_hopeless(spent + least) || self.is_spent() {
                break;
            }
            let Some(pattern) = patterns.next() else {
                break;
            };
            let spent_then = spent + pattern.plain + pattern.split;
            chosen.push(pattern);
            let found = self.go(spent_then, chosen);
            let tried = chosen.pop();
            let worse = found.is_none_or(|found| found.priceable() > (spent + least).priceable());
            if let Some(tried) = tried.filter(|_| worse && patterns.menus() < MENUS)
                && let Some(menu) = self.menu(&standing, Some(&tried.counts))
            {
                patterns.add(menu);
            }
        }
        Some(bound)
    }

    /// The menu of the first open need. Near a pattern that proved worse than its bound, prices as
    /// if there was no other tell what is wrong with all of its kind.
    fn menu(&mut self, standing: &Standing, near: Option<&[usize]>) -> Option<Menu> {
        self.effort += PRICING;
        let prices = Prices::of(self.problem, standing, near);
        let menu = |place: usize, beside: Cost| {
            let terms = Terms::of(standing, &prices, place, beside);
            Menu::new(self.problem, place, terms)
        };
        let first = standing.served();
        let mut beside = prices.base;
        for place in first + 1..self.problem.needs.len() {
            let menu = menu(place, Cost::default());
            let mut patterns = Patterns::of(self.problem, self.shares, (standing, place), menu);
            beside = beside + patterns.least()?;
            self.effort += patterns.effort;
        }
        Some(menu(first, beside))
    }

    /// Whether the same rails of each class went to as many pods before, at no higher cost: who has
    /// which no longer matters, but for the own pod.
    fn is_known(&mut self, chosen: &[Pattern]) -> bool {
        let plain: Cost = chosen.iter().map(|pattern| pattern.plain).sum();
        let classes = 0..self.problem.classes.len();
        let state = classes.map(|class| sorted(key(chosen, class).1));
        let known = self.seen.entry((chosen.len(), state.collect()));
        let known = known.or_insert(Cost {
            unmet: i64::MAX,
            ..Cost::default()
        });
        let before = *known;
        *known = before.min(plain);
        before <= plain
    }

    fn is_hopeless(&self, bound: Cost) -> bool {
        self.cost.is_some_and(|cost| bound >= cost)
    }

    /// Whether the work is at its bound; not before there is a plan.
    fn is_spent(&mut self) -> bool {
        let spent = self.effort > BOUND && self.cost.is_some();
        self.exact &= !spent;
        spent
    }

    /// The exact cost of a plan; keeps it if it is the best.
    fn weigh(&mut self, chosen: &[Pattern]) -> Option<Cost> {
        let mut cost: Cost = chosen.iter().map(|pattern| pattern.plain).sum();
        let mut left = vec![];
        for (place, class) in self.problem.classes.iter().enumerate() {
            let key = key(chosen, place);
            left.push(class.shares().saturating_sub(key.1.iter().sum()));
            cost = cost + self.deal(key)?;
        }
        cost = cost + self.harm(left);
        if !self.is_hopeless(cost) {
            self.cost = Some(cost);
            self.best = chosen
                .iter()
                .map(|pattern| pattern.counts.clone())
                .collect();
        }
        Some(cost)
    }

    fn deal(&mut self, (place, wants): Key) -> Option<Cost> {
        let key = (place, sorted(wants));
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
        let known = self.harms.entry(left);
        *known.or_insert_with_key(|left| harm_of(problem, left))
    }
}

/// The own pod first, the others in any order.
fn sorted(mut wants: Vec<usize>) -> Vec<usize> {
    if let Some((_, others)) = wants.split_first_mut() {
        others.sort_unstable();
    }
    wants
}

fn key(chosen: &[Pattern], class: usize) -> Key {
    let counts = chosen.iter().map(|pattern| at(&pattern.counts, class));
    (class, counts.collect())
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
}
