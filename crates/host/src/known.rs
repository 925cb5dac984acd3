//! Rails of an earlier look in the same boot that are none now: they keep their place, with a fault.
//!
//! Pods hold rails by index, and interfaces and environment follow it: a driver that resets a port
//! (mlx5 takes its RDMA device away for seconds) must not move the rails behind it.

use crate::netdev;
use crate::rails::Judge;
use crate::rdma::{self, Port};
use crate::select::Candidate;
use podrail_core::ids::{IfName, RdmaName};
use podrail_core::topology::{Excluded, LinkState, Rail, RailFault};

/// A rail with a fault, and the device of the port that would have been excluded.
type Missing = (Rail, Option<RdmaName>);

/// Adds the rails of `before` that are not there and still wanted; they are not excluded as well.
pub(crate) fn add(
    judge: &Judge<'_>,
    before: &[Rail],
    ports: &[Port],
    rails: &mut Vec<Rail>,
    excluded: &mut Vec<Excluded>,
) {
    let is_there = |was: &Rail| rails.iter().any(|rail| is_same(rail, was));
    let gone = before
        .iter()
        .filter(|was| !is_there(was) && wanted(judge, was));
    let missing: Vec<Missing> = gone.filter_map(|was| missing(judge, was, ports)).collect();
    for (rail, device) in missing {
        excluded.retain(|port| {
            port.path.function != rail.path.function || device.is_none() || port.rdma != device
        });
        rails.push(rail);
    }
}

fn is_same(a: &Rail, b: &Rail) -> bool {
    (a.path.function, a.port) == (b.path.function, b.port)
}

/// The configuration may have changed since, and so may the way to the world.
fn wanted(judge: &Judge<'_>, was: &Rail) -> bool {
    let is_front_end = |name: &IfName| judge.front_ends.contains_key(name);
    let candidate = Candidate {
        pci: was.path.function,
        pci_id: was.pci_id,
        driver: None,
        netdev: was.netdev.as_ref(),
        rdma: was.rdma.as_ref(),
        unknown_fits: true,
    };
    let is_virtual = judge
        .functions
        .get(was.path.function)
        .is_some_and(|function| function.physical.is_some());
    judge.select.refuses(&candidate).is_none()
        && (judge.select.virtual_functions || !is_virtual)
        && (judge.select.front_ends || !was.netdev.as_ref().is_some_and(is_front_end))
}

/// None if its port is there and was refused for another reason, which stands.
fn missing(judge: &Judge<'_>, was: &Rail, ports: &[Port]) -> Option<Missing> {
    let at = was.path.function;
    let port = ports
        .iter()
        .find(|port| port.function == Some(at) && port.port == was.port);
    let Some(port) = port else {
        return Some((without_port(judge, was), None));
    };
    let fault = match (port.link_layer.as_deref(), &port.netdev) {
        (Some("Ethernet"), Some(_)) => return None,
        (Some("Ethernet"), None) => RailFault::NoInterface,
        _ => RailFault::NotEthernet,
    };
    Some((faulty(was, fault), Some(port.device.clone())))
}

/// Its interface alone is there, or nothing at all.
fn without_port(judge: &Judge<'_>, was: &Rail) -> Rail {
    let function = judge.functions.get(was.path.function);
    let mut names = netdev::all(judge.tree).into_iter().filter(|name| {
        rdma::function_of(judge.tree, name) == Some(was.path.function)
            && netdev::dev_port(judge.tree, name)
                .unwrap_or(0)
                .saturating_add(1)
                == was.port
    });
    match (function, names.next()) {
        (Some(function), Some(name)) => {
            let mut rail = judge.bare_rail(function, Some(&name));
            rail.faults.push(RailFault::NoRdmaDevice);
            rail.port = was.port;
            rail
        }
        _ => faulty(was, RailFault::Gone),
    }
}

/// What does not change while it is away, so that a pod that holds it can still be told of it.
fn faulty(was: &Rail, fault: RailFault) -> Rail {
    Rail {
        netdev: None,
        ifindex: None,
        rdma: None,
        uverbs: None,
        umad: None,
        issm: None,
        link: LinkState::Down,
        faults: vec![fault],
        ..was.clone()
    }
}
