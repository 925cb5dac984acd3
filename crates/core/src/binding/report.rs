//! From counts back to rails: which rail is for which GPU.

use super::problem::{Class, Need, Problem, signed};
use super::search::Solution;
use super::shares::{Flow, flows};
use super::{Choice, Chosen, Plan, Served};
use crate::topology::Topology;
use std::cmp::Reverse;

/// The plan in words of the topology, for others that asked for so many rails.
pub(super) fn plan(
    topology: &Topology,
    problem: &Problem,
    solution: &Solution,
    asked: impl Iterator<Item = u16>,
) -> Plan {
    let needs = problem.needs.iter().zip(solution.rails(problem));
    let served: Vec<Vec<Chosen>> = needs
        .map(|(need, rails)| served(topology, problem, need, &rails))
        .collect();
    let choice = |place: Option<usize>, asked: u16| {
        let rails = place.and_then(|place| served.get(place).cloned());
        let rails = rails.unwrap_or_default();
        let found = u16::try_from(rails.len()).unwrap_or(u16::MAX);
        let missing = asked.saturating_sub(found);
        Choice { rails, missing }
    };
    let others = problem.places.iter().zip(asked);
    Plan {
        own: choice(Some(0), 0),
        others: others.map(|(place, asked)| choice(*place, asked)).collect(),
        exact: solution.exact,
        effort: solution.effort,
    }
}

/// Rails of a need, ascending, with their GPUs.
fn served(topology: &Topology, problem: &Problem, need: &Need, rails: &[usize]) -> Vec<Chosen> {
    let of_class = |class: &Class| -> Vec<usize> {
        let has = |rail: &&usize| class.ports().any(|port| port.rail == **rail);
        rails.iter().filter(has).copied().collect()
    };
    let members: Vec<Vec<usize>> = problem.classes.iter().map(of_class).collect();
    let counts: Vec<usize> = members.iter().map(Vec::len).collect();
    let flows = flows(&problem.classes, &need.gpus, &counts);
    let mut chosen: Vec<Chosen> = vec![];
    for (place, (class, members)) in problem.classes.iter().zip(&members).enumerate() {
        let mine = flows.iter().filter(|flow| flow.class == place).copied();
        let served = share_out(class, mine.collect(), members.len(), need.parts());
        let rails = members.iter().filter_map(|rail| topology.rails.get(*rail));
        chosen.extend(rails.zip(served).map(|(rail, serves)| Chosen {
            rail: rail.index,
            serves,
        }));
    }
    chosen.sort_by_key(|chosen| chosen.rail);
    chosen
}

/// The main GPU of each of a class's rails: the flows are poured into the rails one after another.
fn share_out(
    class: &Class,
    mut flows: Vec<Flow>,
    rails: usize,
    parts: usize,
) -> Vec<Option<Served>> {
    flows.sort_by_key(|flow| flow.gpu);
    let mut flows = flows.into_iter();
    let mut open = flows.next();
    let mut served = vec![];
    for _ in 0..rails {
        let mut room = signed(parts);
        let mut main: Option<Flow> = None;
        while let Some(flow) = open.as_mut().filter(|_| room > 0) {
            let poured = flow.amount.min(room);
            let part = Flow {
                amount: poured,
                ..*flow
            };
            main = main.into_iter().chain([part]).max_by_key(|flow| {
                let distance = class.distance(Some(flow.gpu));
                (flow.amount, Reverse(distance), Reverse(flow.gpu))
            });
            room -= poured;
            flow.amount -= poured;
            if flow.amount == 0 {
                open = flows.next();
            }
        }
        served.push(main.map(|flow| Served {
            gpu: flow.gpu,
            distance: class.distance(Some(flow.gpu)),
        }));
    }
    served
}
