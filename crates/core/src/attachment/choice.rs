//! Rails for all parts of a pod, within what its annotation says.

use super::parts::{Part, PodWish};
use crate::binding::{BindError, Bound, Chosen, Demand, Node, Unusable, bind};
use crate::ids::{RailIndex, SandboxId, SlotId};
use std::collections::BTreeSet;

mod named;

const NOT_NAMED: &str = "not named by the pod's annotation";

/// Whether a rail cannot be handed out only because the annotation names others.
pub(super) fn is_unnamed(reason: &Unusable) -> bool {
    matches!(reason, Unusable::Other(text) if text == NOT_NAMED)
}

/// The choice for a pod.
#[derive(Debug)]
pub(super) struct Picked<'a> {
    /// Each rail once, in rail order.
    pub(super) rails: Vec<Given<'a>>,
    /// Whether nothing better exists.
    pub(super) exact: bool,
}

/// A chosen rail and who gets it.
#[derive(Debug)]
pub(super) struct Given<'a> {
    pub(super) chosen: Chosen,
    pub(super) part: &'a Part,
    pub(super) slot: Option<SlotId>,
}

/// Chooses part by part, each with the rest of the pod and the others in mind.
///
/// What would be chosen freely is taken if it is as the annotation says: it is the best then. If it
/// is not, the others stay out of the plan where the annotation leaves no more than a choice among
/// its rails: they would be taken for others who could not have different ones.
pub(super) fn choose<'a>(
    node: &Node<'_>,
    wish: &'a PodWish,
    others: &[Demand],
) -> Result<Picked<'a>, BindError> {
    let (total, named) = (wish.rails(), wish.networks.named());
    if wish.parts.len() > 1 {
        check_supply(node, total)?;
    }
    let free = in_turn(node, wish, others)?;
    if free.agrees_with(&named) {
        return Ok(free);
    }
    let among_named = only(node, &named, NOT_NAMED);
    let count = u16::try_from(named.len()).unwrap_or(u16::MAX);
    check_supply(&among_named, total.min(count))?;
    if count >= total {
        in_turn(&among_named, wish, &[])
    } else {
        named::all_and_more(node, wish, &named, others)
    }
}

/// The rails of a part, lowest first, each with a slot of it, lowest first.
fn given<'a>(part: &'a Part, chosen: Vec<Chosen>) -> impl Iterator<Item = Given<'a>> {
    let mut slots = part.sorted_slots().into_iter();
    chosen.into_iter().map(move |chosen| Given {
        chosen,
        part,
        slot: slots.next(),
    })
}

impl<'a> Picked<'a> {
    fn new(mut rails: Vec<Given<'a>>, exact: bool) -> Self {
        rails.sort_by_key(|given| given.chosen.rail);
        Self { rails, exact }
    }

    /// All named rails, or only named ones.
    fn agrees_with(&self, named: &BTreeSet<RailIndex>) -> bool {
        let chosen = self.rails.iter().map(|given| given.chosen.rail);
        let among = chosen.filter(|rail| named.contains(rail)).count();
        among == named.len().min(self.rails.len())
    }
}

/// The error of the whole pod, before its parts are served one by one.
fn check_supply(node: &Node<'_>, rails: u16) -> Result<(), BindError> {
    let gpus = vec![];
    bind(node, &Demand { gpus, rails }, &[]).map(drop)
}

/// The node as if it had no other rails. Reasons that stand are kept.
fn only<'a>(node: &Node<'a>, rails: &BTreeSet<RailIndex>, reason: &str) -> Node<'a> {
    let mut node = node.clone();
    let all = node.topology.rails.iter().map(|rail| rail.index);
    for rail in all.filter(|rail| !rails.contains(rail)) {
        let reason = || Unusable::Other(reason.to_owned());
        node.unusable.entry(rail).or_insert_with(reason);
    }
    node
}

fn in_turn<'a>(
    node: &Node<'_>,
    wish: &'a PodWish,
    others: &[Demand],
) -> Result<Picked<'a>, BindError> {
    let parts = wish.in_order();
    let demands: Vec<Demand> = parts.iter().map(|part| part.demand()).collect();
    let mut served = Served::new(node, &wish.sandbox);
    let mut rails = vec![];
    for ((own, later), part) in each_with_later(&demands).zip(parts) {
        rails.extend(given(part, served.serve(own, later, others)?));
    }
    Ok(Picked::new(rails, served.exact))
}

/// Each demand with those after it.
fn each_with_later(demands: &[Demand]) -> impl Iterator<Item = (&Demand, &[Demand])> {
    (0..demands.len()).filter_map(|place| demands.get(place..)?.split_first())
}

/// A node on which a pod's demands are served one after the other.
struct Served<'n, 's> {
    node: Node<'n>,
    sandbox: &'s SandboxId,
    exact: bool,
}

impl<'n, 's> Served<'n, 's> {
    fn new(node: &Node<'n>, sandbox: &'s SandboxId) -> Self {
        Self {
            node: node.clone(),
            sandbox,
            exact: true,
        }
    }

    /// Rails for a demand, with the pod's later ones and the others in mind.
    fn serve(
        &mut self,
        own: &Demand,
        later: &[Demand],
        others: &[Demand],
    ) -> Result<Vec<Chosen>, BindError> {
        let plan = bind(&self.node, own, &[later, others].concat())?;
        self.exact &= plan.exact;
        self.give(&own.gpus, plan.own.indexes().collect());
        Ok(plan.own.rails)
    }

    /// A pod never has a rail twice, also where pods may share it.
    fn give(&mut self, gpus: &[usize], rails: Vec<RailIndex>) {
        if self.node.shares_per_rail > 1 {
            let reason = || Unusable::Other("the pod has it already".into());
            let taken = rails.iter().map(|rail| (*rail, reason()));
            self.node.unusable.extend(taken);
        }
        self.node.bound.push(Bound {
            sandbox: self.sandbox.clone(),
            gpus: gpus.to_vec(),
            rails,
        });
    }
}
