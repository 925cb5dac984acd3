//! A pod whose annotation names fewer rails than it has slots: all of them, and more.

use super::{Picked, Served, each_with_later, given, only};
use crate::attachment::parts::{Part, PodWish};
use crate::binding::{BindError, Demand, Node, bind};
use crate::ids::RailIndex;
use crate::topology::{Distance, Rail};
use std::collections::BTreeSet;

/// Someone who gets rails: a GPU of a part, or a part without GPUs.
#[derive(Debug)]
struct Taker {
    /// Place among the pod's parts.
    part: usize,
    gpu: Option<usize>,
    /// Rails that it gets in any case.
    most: usize,
    /// Named rails that it has.
    named: Vec<RailIndex>,
    /// More rails that it is to get.
    more: u16,
}

/// Named rails go to the nearest GPUs, up to each GPU's equal share; then each GPU gets what it
/// lacks. Each rail is placed well, and not all of them together: the result is not called exact.
pub(super) fn all_and_more<'a>(
    node: &Node<'_>,
    wish: &'a PodWish,
    named: &BTreeSet<RailIndex>,
    others: &[Demand],
) -> Result<Picked<'a>, BindError> {
    let parts = wish.in_order();
    let mut takers = takers(&parts);
    deal(node, &parts, &mut takers, named);
    fill_up(&parts, &mut takers);
    let mut served = Served::new(node, &wish.sandbox);
    for taker in &takers {
        let gpus: Vec<usize> = taker.gpu.into_iter().collect();
        served.give(&gpus, taker.named.clone());
    }
    let mut sets: Vec<BTreeSet<RailIndex>> = vec![BTreeSet::new(); parts.len()];
    let demands: Vec<Demand> = takers.iter().map(Taker::demand).collect();
    for (taker, (own, later)) in takers.iter().zip(each_with_later(&demands)) {
        let more = served.serve(own, later, others)?;
        if let Some(set) = sets.get_mut(taker.part) {
            set.extend(&taker.named);
            set.extend(more.iter().map(|chosen| chosen.rail));
        }
    }
    let mut rails = vec![];
    for (part, set) in parts.into_iter().zip(&sets) {
        let plan = bind(
            &only(node, set, "of another container"),
            &part.demand(),
            &[],
        )?;
        rails.extend(given(part, plan.own.rails));
    }
    Ok(Picked::new(rails, false))
}

impl Taker {
    fn demand(&self) -> Demand {
        Demand {
            gpus: self.gpu.into_iter().collect(),
            rails: self.more,
        }
    }
}

fn takers(parts: &[&Part]) -> Vec<Taker> {
    let of_part = |(place, part): (usize, &&Part)| {
        let gpus = part.demand().gpus;
        let most = usize::from(part.rails).div_ceil(gpus.len().max(1));
        let gpus: Vec<Option<usize>> = match gpus.is_empty() {
            true => vec![None],
            false => gpus.into_iter().map(Some).collect(),
        };
        gpus.into_iter().map(move |gpu| Taker {
            part: place,
            gpu,
            most,
            named: vec![],
            more: 0,
        })
    };
    parts.iter().enumerate().flat_map(of_part).collect()
}

/// Nearest pairs first; equal ones in the order of parts, GPUs and rails.
fn deal(node: &Node<'_>, parts: &[&Part], takers: &mut [Taker], named: &BTreeSet<RailIndex>) {
    let rails = named.iter().filter_map(|rail| node.topology.rail(*rail));
    let mut pairs: Vec<(Option<Distance>, usize, RailIndex)> = rails
        .flat_map(|rail| {
            let takers = takers.iter().enumerate();
            takers.map(|(place, taker)| (distance(node, taker, rail), place, rail.index))
        })
        .collect();
    // Takers without GPUs, who have no distance, come last.
    pairs.sort_by_key(|(distance, place, rail)| (distance.is_none(), *distance, *place, *rail));
    let mut left: Vec<usize> = parts.iter().map(|part| usize::from(part.rails)).collect();
    let mut dealt = BTreeSet::new();
    for (_, place, rail) in pairs {
        let Some(taker) = takers.get_mut(place) else {
            continue;
        };
        let Some(left) = left.get_mut(taker.part) else {
            continue;
        };
        if *left > 0 && taker.named.len() < taker.most && dealt.insert(rail) {
            *left -= 1;
            taker.named.push(rail);
        }
    }
}

fn distance(node: &Node<'_>, taker: &Taker, rail: &Rail) -> Option<Distance> {
    let gpu = node.topology.gpus.get(taker.gpu?)?;
    let found = node.topology.distance(&gpu.path, &rail.path);
    let mut overrides = node.overrides.iter();
    let known = overrides.find(|known| known.gpu == gpu.path.function && known.nic == rail.nic);
    Some(Distance {
        level: known.map_or(found.level, |known| known.level),
        ..found
    })
}

/// What a part still lacks goes, one by one, to whoever of it has the fewest.
fn fill_up(parts: &[&Part], takers: &mut [Taker]) {
    for (place, part) in parts.iter().enumerate() {
        let mut own: Vec<&mut Taker> = takers.iter_mut().filter(|t| t.part == place).collect();
        let dealt: usize = own.iter().map(|taker| taker.named.len()).sum();
        for _ in dealt..usize::from(part.rails) {
            let has = |taker: &&mut Taker| taker.named.len() + usize::from(taker.more);
            if let Some(poorest) = own.iter_mut().min_by_key(|taker| has(taker)) {
                poorest.more = poorest.more.saturating_add(1);
            }
        }
    }
}
