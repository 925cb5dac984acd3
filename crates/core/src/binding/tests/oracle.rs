//! A second opinion: all plans of small nodes are written out and scored by code that shares nothing
//! with the solver.

use super::nodes::*;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A multiple of every number of GPUs that occurs.
const UNIT: i64 = 12;

/// unmet, distance, load, split, broken, hops, harm.
pub(super) type Score = [i64; 7];

/// Larger scenes are passed over, for the time they take in a debug build.
const MOST_PLANS: usize = 4_000;

/// Rails of each pod, as bits.
type Sets = Vec<u32>;

pub(super) struct Oracle<'a> {
    node: &'a Node<'a>,
    demands: Vec<&'a Demand>,
    free: Vec<usize>,
    held: Vec<usize>,
    harms: BTreeMap<Vec<usize>, i64>,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(node: &'a Node<'a>, own: &'a Demand, others: &'a [Demand]) -> Self {
        let rails = &node.topology.rails;
        let holders = |rail: RailIndex| {
            node.bound
                .iter()
                .flat_map(|b| &b.rails)
                .filter(|r| **r == rail)
                .count()
        };
        let held: Vec<usize> = rails.iter().map(|rail| holders(rail.index)).collect();
        let free = rails.iter().zip(&held).map(|(rail, held)| {
            if node.unusable.contains_key(&rail.index) {
                0
            } else {
                usize::from(node.shares_per_rail).saturating_sub(*held)
            }
        });
        Self {
            node,
            demands: std::iter::once(own).chain(others).collect(),
            free: free.collect(),
            held,
            harms: BTreeMap::new(),
        }
    }

    /// Lowest score, and the lexicographically lowest own rails that reach it.
    pub(super) fn best(&mut self) -> Option<(Score, Vec<usize>)> {
        let options: Vec<Vec<(u32, Score)>> = (0..self.demands.len())
            .map(|place| self.options(place))
            .collect();
        let mut best = None;
        let free = self.free.clone();
        self.all(&options, &mut vec![], (free, [0; 7]), &mut best);
        best
    }

    /// Number of plans that `best` would write out, at most.
    pub(super) fn size(&self) -> usize {
        (0..self.demands.len())
            .map(|place| self.sets(place).len())
            .product()
    }

    fn sets(&self, place: usize) -> Vec<u32> {
        let want = u32::from(self.demands[place].rails);
        let usable = |set: &u32| bits(*set).iter().all(|rail| self.free[*rail] > 0);
        let size = |set: &u32| match place {
            0 => set.count_ones() == want,
            _ => set.count_ones() <= want,
        };
        (0..1u32 << self.free.len())
            .filter(size)
            .filter(usable)
            .collect()
    }

    fn options(&self, place: usize) -> Vec<(u32, Score)> {
        let sets = self.sets(place).into_iter();
        sets.map(|set| (set, self.alone(place, set))).collect()
    }

    fn all(
        &mut self,
        options: &[Vec<(u32, Score)>],
        sets: &mut Sets,
        (free, spent): (Vec<usize>, Score),
        best: &mut Option<(Score, Vec<usize>)>,
    ) {
        if sets.len() == options.len() {
            let mut score = spent;
            score[2] += UNIT * self.load(sets);
            score[6] += UNIT * self.harm(&free);
            let own = (score, bits(sets[0]));
            if best.as_ref().is_none_or(|best| own < *best) {
                *best = Some(own);
            }
            return;
        }
        for (set, score) in &options[sets.len()] {
            if bits(*set).iter().all(|rail| free[*rail] > 0) {
                let mut left = free.clone();
                bits(*set).iter().for_each(|rail| left[*rail] -= 1);
                sets.push(*set);
                self.all(options, sets, (left, add(spent, *score)), best);
                sets.pop();
            }
        }
    }

    /// Score of a whole plan.
    pub(super) fn score(&mut self, sets: &[Vec<usize>]) -> Score {
        let sets: Sets = sets
            .iter()
            .map(|set| set.iter().map(|rail| 1 << rail).sum())
            .collect();
        let mut free = self.free.clone();
        let mut score = [0; 7];
        for (place, set) in sets.iter().enumerate() {
            score = add(score, self.alone(place, *set));
            bits(*set).iter().for_each(|rail| free[*rail] -= 1);
        }
        score[2] += UNIT * self.load(&sets);
        score[6] += UNIT * self.harm(&free);
        score
    }

    fn load(&self, sets: &[u32]) -> i64 {
        let on = |rail: &usize| sets.iter().filter(|set| **set >> rail & 1 > 0).count();
        let others = |rail: &usize| (self.held[*rail] + on(rail)) as i64 - 1;
        sets.iter()
            .flat_map(|set| bits(*set))
            .map(|rail| others(&rail))
            .sum()
    }

    /// What depends on one pod only.
    fn alone(&self, place: usize, set: u32) -> Score {
        let demand = self.demands[place];
        let rails = bits(set);
        let (distance, hops) = self.equal_shares(&demand.gpus, &rails);
        let (mut split, mut broken) = (0, 0);
        let all = &self.node.topology.rails;
        let mut nics: Vec<_> = rails.iter().map(|rail| all[*rail].nic).collect();
        nics.dedup();
        for nic in nics {
            let ports: Vec<usize> = (0..all.len())
                .filter(|rail| all[*rail].nic == nic)
                .collect();
            if ports.iter().any(|rail| !rails.contains(rail)) {
                split += 1;
                let unused = |rail: &usize| {
                    self.held[*rail] == 0 && !self.node.unusable.contains_key(&all[*rail].index)
                };
                broken += i64::from(ports.iter().all(unused));
            }
        }
        let unmet = i64::from(demand.rails) - rails.len() as i64;
        [unmet * UNIT, distance, 0, split, broken, hops, 0]
    }

    fn level(&self, gpu: usize, rail: usize) -> Distance {
        let gpu = &self.node.topology.gpus[gpu];
        let rail = &self.node.topology.rails[rail];
        let mut distance = self.node.topology.distance(&gpu.path, &rail.path);
        for known in self.node.overrides.iter().rev() {
            if known.gpu == gpu.path.function && known.nic == rail.nic {
                distance.level = known.level;
            }
        }
        distance
    }

    /// Rail after rail, all ways to cut it into parts for the GPUs.
    fn equal_shares(&self, gpus: &[usize], rails: &[usize]) -> (i64, i64) {
        if gpus.is_empty() {
            return (0, 0);
        }
        let mut states = BTreeMap::from([(vec![rails.len(); gpus.len()], (0, 0))]);
        for rail in rails {
            for _ in 0..gpus.len() {
                let mut next: BTreeMap<Vec<usize>, (i64, i64)> = BTreeMap::new();
                for (state, cost) in &states {
                    for (place, gpu) in gpus
                        .iter()
                        .enumerate()
                        .filter(|(place, _)| state[*place] > 0)
                    {
                        let distance = self.level(*gpu, *rail);
                        let mut state = state.clone();
                        state[place] -= 1;
                        let total = (
                            cost.0 + i64::from(distance.level.rank()),
                            cost.1 + i64::from(distance.hops),
                        );
                        let known = next.entry(state).or_insert(total);
                        *known = total.min(*known);
                    }
                }
                states = next;
            }
        }
        let (distance, hops) = states.into_values().next().unwrap_or_default();
        let part = UNIT / gpus.len() as i64;
        (distance * part, hops * part)
    }

    /// Wish after wish of the free GPUs, all ways to grant it or not.
    fn harm(&mut self, free: &[usize]) -> i64 {
        if let Some(known) = self.harms.get(free) {
            return *known;
        }
        let count = self.node.topology.gpus.len();
        let bound = self.node.bound.iter().flat_map(|bound| &bound.gpus);
        let taken: Vec<usize> = bound
            .chain(self.demands.iter().flat_map(|d| &d.gpus))
            .copied()
            .collect();
        let usable = self.node.topology.rails.len() - self.node.unusable.len();
        let fair = (usable * usize::from(self.node.shares_per_rail))
            .checked_div(count)
            .unwrap_or(0)
            .max(1);
        let mut states = BTreeMap::from([(free.to_vec(), 0)]);
        for gpu in (0..count).filter(|gpu| !taken.contains(gpu)) {
            for _ in 0..fair {
                let mut next: BTreeMap<Vec<usize>, i64> = BTreeMap::new();
                for (state, cost) in states {
                    let mut seen = vec![];
                    for rail in (0..state.len()).filter(|rail| state[*rail] > 0) {
                        let level = self.level(gpu, rail).level;
                        let alike: Vec<Level> =
                            (0..count).map(|gpu| self.level(gpu, rail).level).collect();
                        if !seen.contains(&alike) {
                            seen.push(alike);
                            let mut state = state.clone();
                            state[rail] -= 1;
                            keep(&mut next, state, cost + i64::from(level.rank()));
                        }
                    }
                    keep(&mut next, state, cost + 5);
                }
                states = next;
            }
        }
        let harm = states.into_values().min().unwrap_or(0);
        self.harms.insert(free.to_vec(), harm);
        harm
    }
}

fn keep(states: &mut BTreeMap<Vec<usize>, i64>, state: Vec<usize>, cost: i64) {
    let known = states.entry(state).or_insert(cost);
    *known = cost.min(*known);
}

fn add(a: Score, b: Score) -> Score {
    std::array::from_fn(|place| a[place] + b[place])
}

fn bits(set: u32) -> Vec<usize> {
    (0..32).filter(|rail| set >> rail & 1 > 0).collect()
}

/// A random node with demands.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) topology: Topology,
    pub(super) overrides: Vec<Override>,
    pub(super) shares: u16,
    pub(super) bound: Vec<Bound>,
    pub(super) demands: Vec<Demand>,
}

impl Scene {
    pub(super) fn node(&self) -> Node<'_> {
        Node {
            topology: &self.topology,
            overrides: &self.overrides,
            shares_per_rail: self.shares,
            unusable: unusable(&self.topology, None),
            bound: self.bound.clone(),
        }
    }
}

/// Root, bridges below it.
type Place = (u8, u8);

fn place() -> impl Strategy<Value = Place> {
    (0..3u8, 0..5u8)
}

/// Bridge 0 hangs nothing, 1 and 2 are switches, 3 is behind 2, 4 behind 3.
fn located(
    function: &str,
    (root, switch): Place,
    numa: &[Option<u32>],
) -> crate::topology::PciPath {
    let chain: &[u8] = match switch {
        0 => &[],
        1 => &[1],
        2 => &[2],
        3 => &[2, 3],
        _ => &[2, 3, 4],
    };
    let bridges: Vec<String> = chain
        .iter()
        .map(|b| format!("0000:{:02x}:{b:02x}.0", root * 16))
        .collect();
    path(
        &format!("{:02x}", root * 16),
        numa[usize::from(root)],
        function,
        &bridges,
    )
}

fn topology() -> impl Strategy<Value = Topology> {
    let numa = prop::collection::vec(prop::option::weighted(0.8, 0..3u32), 3);
    let gpus = prop::collection::vec(place(), 0..=4);
    let nics = prop::collection::vec((place(), 1..=3u8), 1..=5);
    let down = prop::collection::vec(prop::bool::weighted(0.1), 8);
    (numa, gpus, nics, down).prop_map(|(numa, gpus, nics, down)| {
        let mut topology = machine(&[], 1, &[(0, 0), (1, 0), (2, 1)]);
        for (slot, place) in gpus.into_iter().enumerate() {
            let function = format!("0000:80:{slot:02x}.0");
            topology.gpus.push(gpu(located(&function, place, &numa)));
        }
        for (slot, (place, ports)) in nics.into_iter().enumerate() {
            for port in 0..ports {
                let index = topology.rails.len();
                if index < 8 {
                    let function = format!("0000:90:{slot:02x}.{port}");
                    let mut rail = rail(index as u16, located(&function, place, &numa));
                    if down[index] {
                        rail.link = LinkState::Down;
                    }
                    topology.rails.push(rail);
                }
            }
        }
        topology
    })
}

fn some_of(count: usize, most: usize) -> impl Strategy<Value = Vec<usize>> {
    let all: Vec<usize> = (0..count).collect();
    prop::sample::subsequence(all, 0..=count.min(most)).prop_shuffle()
}

fn demands(gpus: usize, rails: usize) -> impl Strategy<Value = Vec<Demand>> {
    let rails = rails.min(5) as u16;
    // Mostly each GPU goes to one pod; some GPUs are shared (time slicing).
    let owners = prop::collection::vec(0..5usize, gpus);
    let shared = prop::option::weighted(0.1, some_of(gpus, 2));
    let counts = prop::collection::vec(0..=rails, 1..=3);
    (owners, shared, counts).prop_map(|(owners, shared, counts)| {
        let mut demands: Vec<Demand> = counts
            .into_iter()
            .enumerate()
            .map(|(pod, rails)| Demand {
                gpus: (0..owners.len())
                    .filter(|gpu| owners[*gpu] == pod)
                    .collect(),
                rails,
            })
            .collect();
        if let Some(shared) = shared {
            demands[0].gpus = shared;
        }
        demands
    })
}

pub(super) fn scene() -> impl Strategy<Value = Scene> {
    topology()
        .prop_flat_map(|topology| {
            let (gpus, rails) = (topology.gpus.len(), topology.rails.len());
            let bound = prop::collection::vec((some_of(gpus, 1), some_of(rails, 3)), 0..=2);
            let known = prop::collection::vec((0..4usize, 0..8usize, 0..5usize), 0..=2);
            (Just(topology), 1..=2u16, bound, known, demands(gpus, rails))
        })
        .prop_map(|(topology, shares, held, known, demands)| {
            let overrides = known.into_iter().filter_map(|(gpu, rail, level)| {
                Some(Override {
                    gpu: topology.gpus.get(gpu)?.path.function,
                    nic: topology.rails.get(rail)?.nic,
                    level: Level::ALL[level],
                })
            });
            Scene {
                overrides: overrides.collect(),
                bound: held
                    .into_iter()
                    .map(|(gpus, rails)| {
                        bound("bound", &gpus, rails.into_iter().map(|rail| rail as u16))
                    })
                    .collect(),
                topology,
                shares,
                demands,
            }
        })
}

fn positions(choice: &Choice) -> Vec<usize> {
    choice.indexes().map(|rail| usize::from(rail.0)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_plan_is_the_best_of_all_plans(scene in scene()) {
        let node = scene.node();
        let (own, others) = scene.demands.split_first().unwrap();
        let mut oracle = Oracle::new(&node, own, others);
        prop_assume!(oracle.size() < MOST_PLANS);
        let plan = bind(&node, own, others);
        let Some((best, rails)) = oracle.best() else {
            prop_assert!(plan.is_err(), "a plan where there is none: {plan:?}");
            return Ok(());
        };
        let plan = plan.unwrap();
        let sets: Vec<Vec<usize>> = std::iter::once(&plan.own).chain(&plan.others).map(positions).collect();
        prop_assert_eq!(oracle.score(&sets), best, "{:?}", sets);
        prop_assert_eq!(&sets[0], &rails);
        prop_assert!(plan.exact);
    }
}
