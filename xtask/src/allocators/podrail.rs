//! Podrail's choice: the rails are chosen at CNI ADD, when the GPUs of the pod, and of those that
//! still wait for their own ADD, are known.

use super::{Grant, Machine, Rejection, Request};
use podrail_core::binding::{Bound, Demand, Node, bind, unusable};
use podrail_core::ids::SandboxId;

/// The pod's own GPUs, and what [`bind`] gives it.
pub(super) fn place(
    machine: &Machine<'_>,
    own: &Request,
    waiting: &[Request],
) -> Result<Grant, Rejection> {
    let node = Node {
        topology: machine.topology,
        overrides: &[],
        shares_per_rail: 1,
        unusable: unusable(machine.topology, None),
        bound: bound(machine),
    };
    let others: Vec<Demand> = waiting.iter().map(demand).collect();
    let plan = bind(&node, &demand(own), &others).map_err(Rejection::Bind)?;
    Ok(Grant::new(own.gpus.clone(), plan.own.indexes().collect()))
}

fn demand(request: &Request) -> Demand {
    Demand {
        gpus: request.gpus.clone(),
        rails: request.rails,
    }
}

fn bound(machine: &Machine<'_>) -> Vec<Bound> {
    let pods = machine.running().filter_map(|(pod, grant)| {
        let sandbox = SandboxId::parse(&format!("pod-{pod}")).ok()?;
        Some(Bound {
            sandbox,
            gpus: grant.gpus.clone(),
            rails: grant.rails.clone(),
        })
    });
    pods.collect()
}
