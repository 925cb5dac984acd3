//! Inside a class: which ports go to which pod, once it is known how many each pod takes.
//!
//! NIC by NIC, over the counts that are still wanted. Pods that want the same are interchangeable,
//! and so are ports of one NIC in the same state; each arrangement is looked at once.

use super::cost::Cost;
use super::problem::{Class, Nic, Port, signed};
use std::collections::BTreeMap;

/// Arrangements of single NICs that are looked at before the deal is made by rule of thumb instead.
const BOUND: usize = 20_000;

/// Who gets each port of a NIC: one bit per pod, the own pod's the highest.
type Hand = Vec<u32>;

/// Counts wanted: the own pod's first.
type Wants = Vec<usize>;

/// The best deal of a class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dealt {
    /// Load, split NICs and order; the load is not scaled.
    pub(super) cost: Cost,
    /// Whether nothing better exists.
    pub(super) exact: bool,
    /// Arrangements that were looked at.
    pub(super) steps: usize,
}

/// The cheapest deal; none where the pods cannot all be served. The order of the others does not
/// matter.
pub(super) fn cheapest(class: &Class, wants: &[usize]) -> Option<Dealt> {
    let mut deal = Deal::of(class, full_score);
    deal.best(0, &canonical(wants));
    let steps = deal.steps;
    let hands = deal.hands(wants)?;
    Some(Dealt {
        cost: class
            .nics
            .iter()
            .zip(&hands)
            .map(|(nic, hand)| full_score(nic, hand))
            .sum(),
        exact: !deal.is_cut(),
        steps,
    })
}

/// Rails (positions) of each pod in that deal.
pub(super) fn rails(class: &Class, wants: &[usize]) -> Vec<Vec<usize>> {
    let mut deal = Deal::of(class, full_score);
    let hands = deal.hands(wants).unwrap_or_default();
    let mut rails = vec![vec![]; wants.len()];
    for (nic, hand) in class.nics.iter().zip(hands) {
        for (port, holders) in nic.ports.iter().zip(hand) {
            let pods = (0..).zip(&mut rails);
            pods.filter(|(pod, _)| holders & bit(*pod) > 0)
                .for_each(|(_, rails)| rails.push(port.rail));
        }
    }
    rails
}

/// For each count of rails that the own pod can take, the least it costs: split NICs and order; the
/// load is left out.
pub(super) fn alone(class: &Class) -> Vec<Cost> {
    let mut best = vec![Cost::default()];
    for nic in &class.nics {
        let mut next: Vec<Option<Cost>> = vec![None; best.len() + nic.ports.len()];
        for (before, cost) in best.iter().enumerate() {
            for taken in 0..=nic.ports.len() {
                let total = *cost + part_of(nic, taken, true);
                if let Some(known) = next.get_mut(before + taken) {
                    *known = Some(known.map_or(total, |known| known.min(total)));
                }
            }
        }
        best = next.into_iter().flatten().collect();
    }
    best
}

/// For each count of rails that one more pod can take beside pods with such wants, the least it
/// costs: split NICs of its own; the load is left out.
pub(super) fn beside(class: &Class, wants: &[usize]) -> Vec<Cost> {
    let mut all: Wants = std::iter::once(0).chain(wants.iter().copied()).collect();
    let mut deal = Deal::of(class, newcomer_score);
    let whole = class.nics.iter().all(|nic| nic.size == 1);
    let mut costs = vec![];
    for rails in 0..=class.rails() {
        if let Some(newcomer) = all.first_mut() {
            *newcomer = rails;
        }
        if !class.fits(&all) {
            break;
        }
        // Nothing is a lower bound too, where the deal is cut or there is nothing to split.
        let best = (!whole).then(|| deal.best(0, &canonical(&all))).flatten();
        costs.push(best.filter(|_| !deal.is_cut()).unwrap_or_default());
    }
    costs
}

fn newcomer_score(nic: &Nic, hand: &Hand) -> Cost {
    part_of(nic, count(hand, 0), false)
}

/// Cost of the lowest `taken` ports of a NIC for one pod.
fn part_of(nic: &Nic, taken: usize, own: bool) -> Cost {
    let split = i64::from(taken > 0 && taken < nic.size);
    let weights = nic.ports.iter().take(taken).map(|port| port.weight);
    Cost {
        split,
        broken: if nic.fresh { split } else { 0 },
        order: if own { -weights.sum::<i128>() } else { 0 },
        ..Cost::default()
    }
}

fn full_score(nic: &Nic, hand: &Hand) -> Cost {
    let load = nic.ports.iter().zip(hand).map(|(port, holders)| {
        let pods = signed(holders.count_ones() as usize);
        pods * (signed(port.held) + pods - 1)
    });
    let owned = nic.ports.iter().zip(hand);
    let weights = owned
        .filter(|(_, holders)| **holders & bit(0) > 0)
        .map(|(port, _)| port.weight);
    let all = hand.iter().fold(0, |all, holders| all | holders);
    let split = (0..u32::BITS)
        .filter(|pod| all & bit(*pod) > 0)
        .map(|pod| part_of(nic, count(hand, pod), false));
    Cost {
        load: load.sum(),
        order: -weights.sum::<i128>(),
        ..split.sum()
    }
}

fn bit(pod: u32) -> u32 {
    1 << (u32::BITS - 1).saturating_sub(pod)
}

/// Ports of a hand that a pod holds.
fn count(hand: &[u32], pod: u32) -> usize {
    hand.iter()
        .filter(|holders| **holders & bit(pod) > 0)
        .count()
}

/// The others from the most greedy to the least, without those that want nothing.
fn canonical(wants: &[usize]) -> Wants {
    let mut sorted = wants.to_vec();
    if let Some((_, others)) = sorted.split_first_mut() {
        others.sort_unstable_by(|a, b| b.cmp(a));
    }
    while sorted.len() > 1 && sorted.last() == Some(&0) {
        sorted.pop();
    }
    sorted
}

/// What a hand leaves to be wanted.
fn rest(wants: &[usize], hand: &[u32]) -> Wants {
    let pods = (0..).zip(wants);
    pods.map(|(pod, want)| want - count(hand, pod).min(*want))
        .collect()
}

struct Deal<'a> {
    class: &'a Class,
    score: fn(&Nic, &Hand) -> Cost,
    known: BTreeMap<(usize, Wants), Option<Cost>>,
    steps: usize,
}

impl<'a> Deal<'a> {
    fn of(class: &'a Class, score: fn(&Nic, &Hand) -> Cost) -> Self {
        Self {
            class,
            score,
            known: BTreeMap::new(),
            steps: 0,
        }
    }

    fn is_cut(&self) -> bool {
        self.steps > BOUND
    }

    /// Cheapest cost from the NIC at `from` on, for canonical wants.
    fn best(&mut self, from: usize, wants: &[usize]) -> Option<Cost> {
        let Some(nic) = self.class.nics.get(from) else {
            return wants.iter().all(|want| *want == 0).then(Cost::default);
        };
        let key = (from, wants.to_vec());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let hands = self.affordable(from, nic, wants);
        let costs = hands.into_iter().filter_map(|hand| {
            let later = self.best(from + 1, &canonical(&rest(wants, &hand)))?;
            Some((self.score)(nic, &hand) + later)
        });
        let best = costs.min();
        self.known.insert(key, best);
        best
    }

    /// Hands that leave no more than the later NICs have; none any more once the search is cut.
    fn affordable(&mut self, from: usize, nic: &Nic, wants: &[usize]) -> Vec<Hand> {
        if self.is_cut() {
            return vec![];
        }
        let later = self.class.nics.iter().skip(from + 1);
        let (mut rails, mut shares) = (0, 0);
        for port in later.flat_map(|nic| &nic.ports) {
            rails += 1;
            shares += port.free;
        }
        let mut hands = all_hands(nic, wants);
        self.steps += hands.len();
        hands.retain(|hand| {
            let rest = rest(wants, hand);
            rest.iter().sum::<usize>() <= shares && rest.iter().all(|want| *want <= rails)
        });
        hands
    }

    /// The hands of all NICs in the best deal, for wants in any order.
    fn hands(&mut self, wants: &[usize]) -> Option<Vec<Hand>> {
        if !self.class.fits(wants) {
            return None;
        }
        self.traced(wants)
            .or_else(|| Some(by_rule(self.class, wants)))
    }

    /// Follows the known costs; none where the search was cut.
    fn traced(&mut self, wants: &[usize]) -> Option<Vec<Hand>> {
        let mut wants = wants.to_vec();
        let mut hands = vec![];
        for (from, nic) in self.class.nics.iter().enumerate() {
            let ranks = ranks(&wants);
            let sorted = canonical(&wants);
            let total = self.best(from, &sorted).filter(|_| !self.is_cut())?;
            // The last ones give most to this NIC: low rails, as for the own pod.
            let found = all_hands(nic, &sorted).into_iter().rev().find(|hand| {
                let later = self.best(from + 1, &canonical(&rest(&sorted, hand)));
                later.is_some_and(|later| (self.score)(nic, hand) + later == total)
            })?;
            let hand: Hand = found
                .iter()
                .map(|holders| renamed(*holders, &ranks))
                .collect();
            wants = rest(&wants, &hand);
            hands.push(hand);
        }
        Some(hands)
    }
}

/// Pods by their place in canonical order.
fn ranks(wants: &[usize]) -> Vec<u32> {
    let mut others: Vec<(usize, u32)> = wants.iter().copied().zip(0..).skip(1).collect();
    others.sort_by_key(|(want, _)| std::cmp::Reverse(*want));
    std::iter::once(0)
        .chain(others.into_iter().map(|(_, pod)| pod))
        .collect()
}

fn renamed(holders: u32, ranks: &[u32]) -> u32 {
    let held = (0..)
        .zip(ranks)
        .filter(|(rank, _)| holders & bit(*rank) > 0);
    held.map(|(_, pod)| bit(*pod)).sum()
}

/// All ways to hand out the ports of a NIC, one of each set that differs only in names.
fn all_hands(nic: &Nic, wants: &[usize]) -> Vec<Hand> {
    let mut hands: Vec<Hand> = vec![vec![]];
    for (place, port) in nic.ports.iter().enumerate() {
        let same = |other: &Port| other.free == port.free && other.held == port.held;
        let twin = nic.ports.iter().take(place).rposition(same);
        let mut longer = vec![];
        for hand in hands {
            let most = twin.and_then(|twin| hand.get(twin)).copied();
            for holders in holder_sets(port, wants, &hand) {
                if most.is_none_or(|most| holders <= most) {
                    longer.push(hand.iter().copied().chain([holders]).collect());
                }
            }
        }
        hands = longer;
    }
    hands
}

/// Sets of pods that may hold a port, after the hand so far. Of two other pods alike, the second
/// holds it only with the first.
fn holder_sets(port: &Port, wants: &[usize], hand: &[u32]) -> Vec<u32> {
    let alike = |a: u32, b: u32| hand.iter().all(|h| (h & bit(a) > 0) == (h & bit(b) > 0));
    let mut sets: Vec<u32> = vec![0];
    let mut before = None;
    for (pod, want) in (0..).zip(wants) {
        let twin = before.filter(|known| pod > 1 && known == want && alike(pod - 1, pod));
        before = Some(*want);
        if count(hand, pod) >= *want {
            continue;
        }
        let joined = sets.iter().copied().filter(|set| {
            let follows = twin.is_none() || set & bit(pod - 1) > 0;
            follows && (set.count_ones() as usize) < port.free
        });
        let joined: Vec<u32> = joined.map(|set| set | bit(pod)).collect();
        sets.extend(joined);
    }
    sets
}

/// A deal that always exists where the counts fit: the most greedy pod first takes the rails with
/// the most shares left (Gale and Ryser).
fn by_rule(class: &Class, wants: &[usize]) -> Vec<Hand> {
    let mut dealt: Vec<(&Port, u32)> = class.ports().map(|port| (port, 0)).collect();
    let mut pods: Vec<(usize, u32)> = wants.iter().copied().zip(0..).collect();
    pods.sort_by_key(|(want, _)| std::cmp::Reverse(*want));
    for (want, pod) in pods {
        let left = |(port, holders): &(&Port, u32)| port.free - holders.count_ones() as usize;
        dealt.sort_by_key(|entry| (std::cmp::Reverse(left(entry)), entry.0.rail));
        for (_, holders) in dealt.iter_mut().take(want) {
            *holders |= bit(pod);
        }
    }
    let holders: BTreeMap<usize, u32> = dealt
        .into_iter()
        .map(|(port, set)| (port.rail, set))
        .collect();
    let hand = |nic: &Nic| {
        let ports = nic.ports.iter();
        ports
            .filter_map(|port| holders.get(&port.rail).copied())
            .collect()
    };
    class.nics.iter().map(hand).collect()
}
