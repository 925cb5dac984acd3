//! Equal shares: how far the rails of a pattern are from the GPUs of its pod.
//!
//! Each GPU gets as much as any other and each rail gives as much as any other, at the least cost.

use super::cost::Cost;
use super::flow::{Network, UNLIMITED};
use super::prices::transport;
use super::problem::{Class, Problem, signed};
use std::cell::RefCell;
use std::collections::btree_map::{BTreeMap, Entry};
use std::rc::Rc;

/// What a distance that has to be found counts as, in candidates.
const FLOWING: usize = 20;

/// What a GPU takes from the rails of a class, in units of 1/GPUs of a rail.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) class: usize,
    pub(super) gpu: usize,
    pub(super) amount: i64,
}

/// The distance of a pattern.
#[derive(Debug, Clone)]
pub(super) struct Share {
    /// Distance and hops.
    pub(super) cost: Cost,
    /// What each GPU pays for a parcel: prices that prove the cost minimal.
    pub(super) takers: Rc<Vec<Cost>>,
    /// Candidates that finding it counts as.
    pub(super) effort: usize,
}

/// Distances of patterns that were asked for before.
#[derive(Debug, Default)]
pub(super) struct Shares(RefCell<BTreeMap<(usize, Vec<usize>), Share>>);

impl Shares {
    /// The distance of a pattern of the need at `place`.
    pub(super) fn of(&self, problem: &Problem, place: usize, counts: &[usize]) -> Share {
        let mut known = self.0.borrow_mut();
        match known.entry((place, counts.to_vec())) {
            Entry::Occupied(known) => Share {
                effort: 0,
                ..known.get().clone()
            },
            Entry::Vacant(unknown) => {
                let need = problem.needs.get(place);
                let gpus = need.map_or(&[][..], |need| &need.gpus);
                unknown.insert(share(problem, gpus, counts)).clone()
            }
        }
    }
}

fn share(problem: &Problem, gpus: &[usize], counts: &[usize]) -> Share {
    let classes = &problem.classes;
    let network = (gpus.len() > 1).then(|| Transport::of(classes, gpus, counts));
    let flows = match &network {
        Some(network) => network.flows(),
        None => flows(classes, gpus, counts),
    };
    let part = problem.unit() / signed(gpus.len().max(1));
    let costs = flows.iter().filter_map(|flow| {
        let class = classes.get(flow.class)?;
        Some(transport(class, Some(flow.gpu)) * flow.amount)
    });
    Share {
        cost: costs.sum::<Cost>() * part,
        effort: if network.is_some() { FLOWING } else { 0 },
        takers: Rc::new(network.map_or_else(Vec::new, |network| network.prices(classes.len() + 1))),
    }
}

/// The cheapest equal shares of so many rails per class.
pub(super) fn flows(classes: &[Class], gpus: &[usize], counts: &[usize]) -> Vec<Flow> {
    match *gpus {
        [] => vec![],
        [gpu] => alone(gpu, counts).collect(),
        _ => Transport::of(classes, gpus, counts).flows(),
    }
}

/// A single GPU gets everything.
fn alone(gpu: usize, counts: &[usize]) -> impl Iterator<Item = Flow> {
    let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    used.map(move |(class, count)| Flow {
        class,
        gpu,
        amount: signed(*count),
    })
}

struct Transport {
    network: Network<i128>,
    sink: usize,
    takers: Vec<usize>,
    givers: Vec<usize>,
    /// Class, GPU, arc.
    arcs: Vec<(usize, usize, usize)>,
}

impl Transport {
    fn of(classes: &[Class], gpus: &[usize], counts: &[usize]) -> Self {
        let mut network: Network<i128> = Network::default();
        let (source, sink) = (network.node(), network.node());
        let counts = || counts.iter().take(classes.len());
        let takers: Vec<usize> = gpus.iter().map(|_| network.node()).collect();
        for taker in &takers {
            network.arc((source, *taker), signed(counts().sum()), 0);
        }
        let (mut givers, mut arcs) = (vec![], vec![]);
        for ((place, class), count) in classes.iter().enumerate().zip(counts()) {
            if *count == 0 {
                continue;
            }
            let giver = network.node();
            givers.push(giver);
            network.arc((giver, sink), signed(count * gpus.len()), 0);
            for (gpu, taker) in gpus.iter().zip(&takers) {
                let arc = network.arc((*taker, giver), UNLIMITED, packed(class, *gpu));
                arcs.push((place, *gpu, arc));
            }
        }
        network.route(source, sink);
        Self {
            network,
            sink,
            takers,
            givers,
            arcs,
        }
    }

    fn flows(&self) -> Vec<Flow> {
        let all = self.arcs.iter().map(|&(class, gpu, arc)| Flow {
            class,
            gpu,
            amount: self.network.flow(arc),
        });
        all.filter(|flow| flow.amount > 0).collect()
    }

    /// The sum of so many sets of prices, seen from all sides.
    fn prices(&self, sets: usize) -> Vec<Cost> {
        let sides = self.givers.iter().copied();
        let sides: Vec<usize> = sides
            .chain(std::iter::repeat(self.sink))
            .take(sets)
            .collect();
        let prices = self.network.prices(self.sink, &sides);
        let takers = self.takers.iter();
        takers
            .map(|taker| unpacked(prices.get(*taker).copied().unwrap_or_default()))
            .collect()
    }
}

/// Level first, hops second, as one number.
fn packed(class: &Class, gpu: usize) -> i128 {
    let distance = class.distance(Some(gpu));
    (i128::from(distance.level.rank()) << HOP_BITS) + i128::from(distance.hops)
}

const HOP_BITS: u32 = 48;

/// The way back, for sums and differences too.
fn unpacked(packed: i128) -> Cost {
    let half = 1 << (HOP_BITS - 1);
    let distance = (packed + half) >> HOP_BITS;
    let hops = packed - (distance << HOP_BITS);
    let number = |n: i128| i64::try_from(n).unwrap_or(i64::MAX);
    Cost {
        distance: number(distance),
        hops: number(hops),
        ..Cost::default()
    }
}
