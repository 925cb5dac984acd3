//! The facts of a node, reduced to what the choice depends on: classes of NICs, and needs.

use super::{Demand, Node};
use crate::ids::NicId;
use crate::topology::{Distance, Gpu, Level, Rail};
use std::collections::{BTreeMap, BTreeSet};

/// Other demands beyond these are left out of the plan: a port's holders fit 32 bits with the own.
const MAX_OTHERS: usize = 31;

/// A common denominator beyond this is not used: sums of costs must stay far below 63 bits.
const MAX_SCALE: usize = 1 << 20;

/// More bridges than any real tree has; keeps sums small for a forged topology.
const MAX_HOPS: u32 = 255;

/// Rails whose order can be told by weights in an `i128`.
const WEIGHED_RAILS: u32 = 126;

/// A usable rail with a free share.
#[derive(Debug, Clone)]
pub(super) struct Port {
    /// Position in `Topology::rails`.
    pub(super) rail: usize,
    /// Free shares, at least 1.
    pub(super) free: usize,
    /// Shares held by bound sandboxes.
    pub(super) held: usize,
    /// More than the weights of all later rails together.
    pub(super) weight: i128,
}

/// A NIC with at least one such rail.
#[derive(Debug, Clone, Default)]
pub(super) struct Nic {
    /// Its rails that can be taken, lowest first.
    pub(super) ports: Vec<Port>,
    /// All its rails, unusable ones too: a NIC with a dead port is never whole.
    pub(super) size: usize,
    /// All rails usable, and none held.
    pub(super) fresh: bool,
}

/// NICs at the same distance from every GPU that matters.
#[derive(Debug, Clone)]
pub(super) struct Class {
    /// Lowest rail first.
    pub(super) nics: Vec<Nic>,
    /// By position of the GPU; those of bound sandboxes only are all alike.
    distances: Vec<Distance>,
}

impl Class {
    /// Rails that one pod can take.
    pub(super) fn rails(&self) -> usize {
        self.ports().count()
    }

    /// Shares that all pods together can take.
    pub(super) fn shares(&self) -> usize {
        self.ports().map(|port| port.free).sum()
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = &Port> {
        self.nics.iter().flat_map(|nic| &nic.ports)
    }

    /// From a GPU; from no GPU, everything is near.
    pub(super) fn distance(&self, gpu: Option<usize>) -> Distance {
        gpu.and_then(|gpu| self.distances.get(gpu).copied())
            .unwrap_or(INDIFFERENT)
    }

    /// Whether pods that take so many rails each can be served, each rail once per pod.
    ///
    /// Gale and Ryser: the j most greedy pods must not want more than j shares of each rail allow.
    pub(super) fn fits(&self, wants: &[usize]) -> bool {
        let mut wants = wants.to_vec();
        wants.sort_unstable_by(|a, b| b.cmp(a));
        let mut wanted = 0;
        wants.iter().zip(1..).all(|(want, pods)| {
            wanted += want;
            wanted <= self.ports().map(|port| port.free.min(pods)).sum()
        })
    }
}

const INDIFFERENT: Distance = Distance {
    level: Level::Switch,
    hops: 0,
};

/// A demand, made canonical.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Need {
    /// Ascending.
    pub(super) gpus: Vec<usize>,
    pub(super) rails: usize,
}

impl Need {
    /// More rails than the node has are missing in any case.
    fn of(demand: &Demand, on_node: usize) -> Self {
        let mut gpus = demand.gpus.clone();
        gpus.sort_unstable();
        Self {
            gpus,
            rails: usize::from(demand.rails).min(on_node),
        }
    }

    /// Those who get equal shares: the GPUs, or the pod itself where it has none.
    pub(super) fn takers(&self) -> Vec<Option<usize>> {
        if self.gpus.is_empty() {
            vec![None]
        } else {
            self.gpus.iter().copied().map(Some).collect()
        }
    }

    /// How many they are.
    pub(super) fn parts(&self) -> usize {
        self.gpus.len().max(1)
    }
}

/// The choice to make.
#[derive(Debug)]
pub(super) struct Problem {
    /// In the order of their lowest rails.
    pub(super) classes: Vec<Class>,
    /// The own need first, the others sorted, those without GPUs last: they go where they may.
    pub(super) needs: Vec<Need>,
    /// For each other demand as given: its place in `needs`, unless it was left out.
    pub(super) places: Vec<Option<usize>>,
    /// GPUs that no pod has.
    pub(super) spare: Vec<usize>,
    /// Shares that each of them wants.
    pub(super) fair: usize,
    /// A number that every pod's GPUs divide evenly.
    scale: usize,
}

impl Problem {
    pub(super) fn new(node: &Node<'_>, own: &Demand, others: &[Demand]) -> Self {
        let need = |demand: &Demand| Need::of(demand, node.topology.rails.len());
        let given = others.iter().map(need).zip(0..).collect();
        let (needs, places, scale) = canonical(need(own), given);
        let asking = || std::iter::once(own).chain(others).flat_map(|d| &d.gpus);
        let wanted: BTreeSet<usize> = asking().copied().collect();
        let bound = node.bound.iter().flat_map(|bound| &bound.gpus).copied();
        let taken: BTreeSet<usize> = bound.chain(wanted.iter().copied()).collect();
        let gpus = node.topology.gpus.len();
        let usable = |rail: &&Rail| !node.unusable.contains_key(&rail.index);
        let shares =
            node.topology.rails.iter().filter(usable).count() * usize::from(node.shares_per_rail);
        Self {
            classes: classes(node, &wanted, &taken),
            needs,
            places,
            spare: (0..gpus).filter(|gpu| !taken.contains(gpu)).collect(),
            fair: shares.checked_div(gpus).unwrap_or(0).max(1),
            scale,
        }
    }

    /// Whether every demand takes part.
    pub(super) fn is_complete(&self) -> bool {
        self.places.iter().all(Option::is_some)
    }

    /// Units that a rail is counted as.
    pub(super) fn unit(&self) -> i64 {
        self.parcels() * self.parcel()
    }

    /// Units in a parcel: prices are given for parcels, so that averages have no fractions.
    pub(super) fn parcel(&self) -> i64 {
        signed(self.classes.len()) + 1
    }

    /// Parcels in a rail: every pod's GPUs divide them evenly.
    pub(super) fn parcels(&self) -> i64 {
        signed(self.scale)
    }
}

/// Counts of things on a node always fit.
pub(super) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Needs in canonical order, where each other demand went, and the common denominator.
fn canonical(own: Need, mut others: Vec<(Need, usize)>) -> (Vec<Need>, Vec<Option<usize>>, usize) {
    others.sort_unstable_by(|a, b| b.cmp(a));
    let mut scale = own.parts();
    let mut places = vec![None; others.len()];
    let mut needs = vec![own];
    for (need, given) in others {
        let wider = least_common_multiple(scale, need.parts());
        if needs.len() > MAX_OTHERS || wider > MAX_SCALE {
            continue;
        }
        scale = wider;
        if let Some(place) = places.get_mut(given) {
            *place = Some(needs.len());
        }
        needs.push(need);
    }
    (needs, places, scale)
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

/// NICs with something to take, by their distances; `BTreeMap`s keep all orders fixed.
fn classes(node: &Node<'_>, wanted: &BTreeSet<usize>, taken: &BTreeSet<usize>) -> Vec<Class> {
    let mut classes: Vec<Class> = vec![];
    let mut of_key: BTreeMap<Vec<Distance>, usize> = BTreeMap::new();
    for (nic, rails) in rails_by_nic(node) {
        let entry = nic_of(node, &rails);
        let Some((_, first)) = rails.first().filter(|_| !entry.ports.is_empty()) else {
            continue;
        };
        let gpus = node.topology.gpus.iter().enumerate();
        let distances: Vec<Distance> = gpus
            .map(|(position, gpu)| match distance(node, gpu, first, nic) {
                found if wanted.contains(&position) => found,
                found if !taken.contains(&position) => Distance { hops: 0, ..found },
                _ => INDIFFERENT,
            })
            .collect();
        let place = *of_key.entry(distances.clone()).or_insert(classes.len());
        match classes.get_mut(place) {
            Some(class) => class.nics.push(entry),
            None => classes.push(Class {
                nics: vec![entry],
                distances,
            }),
        }
    }
    classes
}

/// Rails of each NIC with their positions; NICs in the order of their lowest rails.
fn rails_by_nic<'a>(node: &Node<'a>) -> Vec<(NicId, Vec<(usize, &'a Rail)>)> {
    let mut nics: Vec<(NicId, Vec<(usize, &Rail)>)> = vec![];
    for (position, rail) in node.topology.rails.iter().enumerate() {
        match nics.iter_mut().find(|(nic, _)| *nic == rail.nic) {
            Some((_, rails)) => rails.push((position, rail)),
            None => nics.push((rail.nic, vec![(position, rail)])),
        }
    }
    nics
}

fn nic_of(node: &Node<'_>, rails: &[(usize, &Rail)]) -> Nic {
    let mut nic = Nic {
        ports: vec![],
        size: rails.len(),
        fresh: true,
    };
    for &(position, rail) in rails {
        let usable = !node.unusable.contains_key(&rail.index);
        let holders = node.bound.iter().flat_map(|bound| &bound.rails);
        let held = holders.filter(|held| **held == rail.index).count();
        let free = usize::from(node.shares_per_rail).saturating_sub(held);
        nic.fresh &= usable && held == 0;
        if usable && free > 0 {
            nic.ports.push(Port {
                rail: position,
                free,
                held,
                weight: weight(position),
            });
        }
    }
    nic
}

fn weight(position: usize) -> i128 {
    let rank = u32::try_from(position).unwrap_or(u32::MAX);
    WEIGHED_RAILS
        .checked_sub(rank)
        .map_or(0, |shift| 1 << shift)
}

/// The ports of a NIC share a PCI slot, so the place of one is the place of all.
fn distance(node: &Node<'_>, gpu: &Gpu, rail: &Rail, nic: NicId) -> Distance {
    let found = node.topology.distance(&gpu.path, &rail.path);
    let mut overrides = node.overrides.iter();
    let known = overrides.find(|known| known.gpu == gpu.path.function && known.nic == nic);
    Distance {
        level: known.map_or(found.level, |known| known.level),
        hops: found.hops.min(MAX_HOPS),
    }
}
